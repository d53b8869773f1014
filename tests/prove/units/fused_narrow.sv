// e5m2 times e3m2 plus e3m2 to e3m2, toward zero: all terms as integers of 2**-20, whose magnitude is cut.
// FAULT 1: the product is cut to e3m2's last place before it is added.
module fused_narrow #(parameter FAULT = 0) (input [7:0] a, input [5:0] b, input [5:0] c, output reg [5:0] z);
  // a: (field or 1) - 15 - 2, b and c: (field or 1) - 3 - 2; so a product is in units of 2**-20 shifted left.
  wire [4:0] ea = a[6:2] == 0 ? 5'd1 : a[6:2];
  wire [2:0] eb = b[4:2] == 0 ? 3'd1 : b[4:2];
  wire [2:0] ec = c[4:2] == 0 ? 3'd1 : c[4:2];
  wire [2:0] ma = {a[6:2] != 0, a[1:0]};
  wire [2:0] mb = {b[4:2] != 0, b[1:0]};
  wire [2:0] mc = {c[4:2] != 0, c[1:0]};
  wire [5:0] mp = ma * mb;
  wire [63:0] p_full = {58'd0, mp} << (ea + eb - 6'd2);  // units of 2**-20
  wire [63:0] p = FAULT ? {p_full[63:16], 16'd0} : p_full;
  wire [63:0] q = {61'd0, mc} << (ec + 6'd15);           // 2**-5 * 2**15 = 2**-20 times 2**15
  wire sp = a[7] ^ b[5];
  wire signed [65:0] t = (sp ? -$signed({2'b0, p}) : $signed({2'b0, p})) + (c[5] ? -$signed({2'b0, q}) : $signed({2'b0, q}));
  wire neg = t[65];
  wire [64:0] m = neg ? -t : t;
  // special operands
  wire na = &a[6:2] & |a[1:0], nb = &b[4:2] & |b[1:0], nc = &c[4:2] & |c[1:0];
  wire ia = &a[6:2] & ~|a[1:0], ib = &b[4:2] & ~|b[1:0], ic = &c[4:2] & ~|c[1:0];
  wire za = a[6:0] == 0, zb = b[4:0] == 0;
  wire ip = ia | ib;
  wire bad = na | nb | nc | (ia & zb) | (ib & za) | (ip & ic & (sp ^ c[5]));
  // the last place of the result: 2**-4 below 2**-1, that is bit 16; larger ones from their leading bit
  integer e;
  reg [2:0] field;
  reg [1:0] fraction;
  always @* begin
    field = 3'd0;
    fraction = m[17:16];
    for (e = 1; e < 8; e = e + 1)
      if (m >> (17 + e) != 0) begin
        field = e[2:0];
        fraction = m >> (15 + e);
      end
    if (bad) z = 6'h1e;
    else if (ip) z = {sp, 5'h1c};
    else if (ic) z = {c[5], 5'h1c};
    else if (m >> 25 != 0) z = {neg, 5'h1b};
    else if (t == 0) z = {sp & c[5], 5'd0};
    else if (field == 3'd7) z = {neg, 5'h1b};
    else z = {neg, field, fraction};
  end
endmodule
