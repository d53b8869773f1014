// binary16 addition with three bits behind the last place: {NV, DZ, OF, UF, NX}, NV if infinities cancel.
// RM: 0 nearest even, 1 toward zero, 2 down, 3 up.
// FAULT 1: the sticky bit forgets what was shifted out. 2: x - x is -0. 3: no carry into infinity. 4: no OF.
module half_adder #(parameter RM = 0, parameter FAULT = 0)
    (input [15:0] a, input [15:0] b, output [15:0] z, output [4:0] f);
  // the operand of the larger magnitude first
  wire turn = b[14:0] > a[14:0];
  wire [15:0] p = turn ? b : a;
  wire [15:0] q = turn ? a : b;
  wire sub = p[15] ^ q[15];
  wire [4:0] ep = p[14:10] == 0 ? 5'd1 : p[14:10];
  wire [4:0] eq = q[14:10] == 0 ? 5'd1 : q[14:10];
  wire [10:0] mp = {p[14:10] != 0, p[9:0]};
  wire [10:0] mq = {q[14:10] != 0, q[9:0]};
  wire [4:0] d = ep - eq;
  // align: guard, round, sticky
  reg [13:0] al;
  reg lost;
  integer i;
  always @* begin
    al = {mq, 3'b000};
    lost = 1'b0;
    for (i = 0; i < 31; i = i + 1)
      if (i < d) begin
        lost = lost | al[0];
        al = al >> 1;
      end
    if (FAULT != 1) al[0] = al[0] | lost;
  end
  wire [14:0] sum = sub ? {1'b0, mp, 3'b000} - {1'b0, al} : {1'b0, mp, 3'b000} + {1'b0, al};
  // normalise: one to the right, or left until the leading bit or the least exponent is reached
  reg [14:0] n;
  reg [5:0] e;
  always @* begin
    n = sum;
    e = {1'b0, ep};
    if (n[14]) begin
      n = {1'b0, n[14:2], n[1] | n[0]};
      e = e + 6'd1;
    end else
      for (i = 0; i < 13; i = i + 1)
        if (!n[13] && e > 6'd1) begin
          n = n << 1;
          e = e - 6'd1;
        end
  end
  wire zero = sum == 0;
  wire sz = (p[15] == q[15]) ? p[15] : (FAULT == 2 || RM == 2);
  wire s = zero ? sz : p[15];
  wire inexact = |n[2:0];
  wire up = RM == 0 ? n[2] & (n[1] | n[0] | n[3])
          : RM == 1 ? 1'b0
          : RM == 2 ? s & inexact
          : ~s & inexact;
  wire [11:0] r = {1'b0, n[13:3]} + {11'd0, up};
  wire carry = r[11];
  wire [5:0] er = carry ? e + 6'd1 : (r[10] ? e : 6'd0);
  wire [9:0] fr = carry ? r[10:1] : r[9:0];
  wire over = FAULT == 3 ? e >= 6'd31 : er >= 6'd31;
  wire stays = RM == 1 | (RM == 2 & ~s) | (RM == 3 & s);
  wire nan_in = (&a[14:10] & |a[9:0]) | (&b[14:10] & |b[9:0]);
  wire inf_in = (&a[14:10]) | (&b[14:10]);
  wire clash = (&a[14:10]) & (&b[14:10]) & (a[15] ^ b[15]);
  assign z = nan_in | clash ? 16'h7e00
           : inf_in ? {p[15], 15'h7c00}
           : over ? {s, stays ? 15'h7bff : 15'h7c00}
           : {s, er[4:0], fr};
  assign f[4] = ~nan_in & clash;
  assign f[3] = 1'b0;
  assign f[2] = ~nan_in & ~inf_in & over & (FAULT != 4);
  assign f[1] = 1'b0;
  assign f[0] = ~nan_in & ~inf_in & (over | inexact);
endmodule
