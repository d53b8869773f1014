// binary32 to binary16, nearest even, with the flags of IEEE 754: {NV, DZ, OF, UF, NX}; tiny after rounding.
// FAULT 1: the carry out of the fraction is lost. 2: no underflow if rounding reaches the smallest normal number.
module half_of_single #(parameter FAULT = 0) (input [31:0] x, output reg [15:0] z, output reg [4:0] f);
  wire s = x[31];
  wire [7:0] e = x[30:23];
  wire [22:0] t = x[22:0];
  wire is_nan = e == 8'd255 && t != 0;
  wire is_inf = e == 8'd255 && t == 0;
  // Below 2**-14 the significand goes right, at most until nothing but sticky is left.
  wire small = e < 8'd113;
  wire [7:0] far = 8'd113 - e;
  wire [4:0] by = !small ? 5'd0 : far > 8'd26 ? 5'd26 : far[4:0];
  wire [23:0] m = {e != 0, t};
  wire [50:0] moved = {m, 27'd0} >> by;
  wire [10:0] kept = moved[50:40];
  wire half = moved[39];
  wire rest = |moved[38:0];
  wire up = half & (rest | kept[0]);
  wire [4:0] e16 = small ? 5'd0 : e[4:0] - 5'd16;  // e - 112, modulo 32
  wire too_big = e > 8'd142;
  reg [15:0] sum;
  // Would 11 bits from the leading one on round up to 2**-14?
  wire next_below = e == 8'd112;
  wire reaches = next_below & (&m[23:13]) & m[12];
  always @* begin
    if (FAULT == 1) sum = {1'b0, e16, kept[9:0] + {9'd0, up}};
    else sum = {1'b0, e16, kept[9:0]} + {15'd0, up};
    f = 5'd0;
    z = {s, sum[14:0]};
    if (is_nan) begin
      z = 16'h7e00;
      f[4] = ~t[22];
    end else if (is_inf) z = {s, 15'h7c00};
    else if (too_big || sum[14:10] == 5'd31) begin
      z = {s, 15'h7c00};
      f[2] = 1'b1;
      f[0] = 1'b1;
    end else begin
      f[0] = half | rest;
      f[1] = (half | rest) & small & ~reaches;
      if (FAULT == 2) f[1] = f[1] & (sum[14:10] == 5'd0);
    end
  end
endmodule
