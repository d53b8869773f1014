// Products of binary16, rounded in the five modes of RISC-V, with its flags; tininess is detected before rounding.
//
//   mode    0 nearest_even, 1 toward_zero, 2 floor, 3 ceil, 4 nearest_away
//   flags   bit 0 inexact, 1 underflow, 2 overflow, 3 infinite (never), 4 invalid
//
// FAULT seeds one fault: 1 the carry of the rounding adder stops at the fraction, 2 operand a = 0x3555 leaves bit 3 of
// the result undriven, 3 the sign of a zero is lost.
module multiply16 #(parameter FAULT = 0) (
  input  wire [15:0] a,
  input  wire [15:0] b,
  input  wire [2:0]  mode,
  output reg  [15:0] y,
  output reg  [4:0]  flags
);
  reg sign, a_nan, b_nan, a_inf, b_inf, guard, sticky, up, tiny, to_infinity;
  reg [10:0] a_significand, b_significand, kept;
  reg [5:0] shift;
  reg [79:0] product;  // in units of 2**-48
  reg [79:0] below;
  reg [15:0] code;
  integer i, leading, drop;

  always @* begin
    sign = a[15] ^ b[15];
    a_nan = &a[14:10] && |a[9:0];
    b_nan = &b[14:10] && |b[9:0];
    a_inf = &a[14:10] && !(|a[9:0]);
    b_inf = &b[14:10] && !(|b[9:0]);
    a_significand = {|a[14:10], a[9:0]};
    b_significand = {|b[14:10], b[9:0]};
    shift = (|a[14:10] ? a[14:10] : 5'd1) + (|b[14:10] ? b[14:10] : 5'd1) - 6'd2;
    product = ({69'd0, a_significand} * b_significand) << shift;
    leading = 0;
    for (i = 0; i < 80; i = i + 1) if (product[i]) leading = i;
    drop = leading - 10 > 24 ? leading - 10 : 24;
    kept = product >> drop;
    below = product & ((80'd1 << drop) - 80'd1);
    guard = below[drop - 1];
    sticky = |(below & ((80'd1 << (drop - 1)) - 80'd1));
    case (mode)
      3'd0: up = guard && (sticky || kept[0]);
      3'd1: up = 1'b0;
      3'd2: up = sign && (guard || sticky);
      3'd3: up = !sign && (guard || sticky);
      default: up = guard;
    endcase
    code = kept + ((drop - 24) << 10);  // the hidden bit adds 1 to the exponent
    if (FAULT == 1) code[9:0] = code[9:0] + up;
    else code = code + up;
    tiny = product != 0 && leading < 34;
    flags = 5'd0;
    to_infinity = mode == 3'd0 || mode == 3'd4 || (mode == 3'd2 && sign) || (mode == 3'd3 && !sign);
    if (a_nan || b_nan || (a_inf && b == 16'h0000) || (a_inf && b == 16'h8000) || (b_inf && a == 16'h0000)
        || (b_inf && a == 16'h8000)) begin
      y = 16'h7e00;
      flags[4] = (!a_nan && !b_nan) || (a_nan && !a[9]) || (b_nan && !b[9]);
    end else if (a_inf || b_inf) begin
      y = {sign, 15'h7c00};
    end else if (code >= 16'h7c00) begin
      y = {sign, to_infinity ? 15'h7c00 : 15'h7bff};
      flags[2] = 1'b1;
      flags[0] = 1'b1;
    end else begin
      y = {sign, code[14:0]};
      flags[0] = guard || sticky;
      flags[1] = tiny && (guard || sticky);
      if (FAULT == 3 && product == 0) y[15] = 1'b0;
    end
    if (FAULT == 2 && a == 16'h3555) y[3] = 1'bx;
  end
endmodule
