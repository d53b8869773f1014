// Signed division with quotient toward zero and remainder of the quotient to nearest, for b != 0; FAULT 1: remainder of
// the other quotient.
module divide8 #(parameter FAULT = 0) (input signed [7:0] a, b, output signed [7:0] q, r);
  wire signed [15:0] whole = b == 0 ? 0 : a / b, rest = a - whole * b;
  wire signed [15:0] twice = rest < 0 ? -2 * rest : 2 * rest, size = b < 0 ? -b : b;
  wire up = b != 0 && (twice > size || (twice == size && whole[0]));
  wire signed [15:0] nearer = up ? ((rest < 0) == (b < 0) ? rest - b : rest + b) : rest;
  assign q = b == 0 ? (a < 0 ? -8'sd128 : a == 0 ? 8'sd0 : 8'sd127) : whole > 127 ? 8'sd127 : whole;
  assign r = b == 0 ? 0 : FAULT ? rest : nearer;
endmodule
