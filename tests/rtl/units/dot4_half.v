// Sums of four products of binary16, rounded to binary16 at every step, ties to even: a and b hold four numbers each,
// the first one lowest. No registers, no clock. PAIRWISE 1 adds (p0 + p1) + (p2 + p3) instead of one after the other.
module dot4_half #(parameter PAIRWISE = 0) (
  input  wire [63:0] a,
  input  wire [63:0] b,
  output wire [15:0] y
);
  wire [15:0] p [0:3];
  wire [4:0] unused [0:3];
  genvar k;

  generate
    for (k = 0; k < 4; k = k + 1) begin : products
      multiply16 unit (.a(a[16 * k +: 16]), .b(b[16 * k +: 16]), .mode(3'd0), .y(p[k]), .flags(unused[k]));
    end
  endgenerate

  // finite numbers alone, in units of 2**-24
  function signed [43:0] units(input [15:0] x);
    reg signed [43:0] magnitude;
    begin
      magnitude = {33'd0, |x[14:10], x[9:0]};
      magnitude = magnitude <<< (|x[14:10] ? x[14:10] - 1 : 0);
      units = x[15] ? -magnitude : magnitude;
    end
  endfunction

  function [15:0] sum(input [15:0] x, input [15:0] z);
    reg signed [43:0] exact;
    reg [43:0] magnitude, below, half;
    integer i, leading, drop;
    reg [15:0] code;
    begin
      exact = units(x) + units(z);
      magnitude = exact < 0 ? -exact : exact;
      leading = 0;
      for (i = 0; i < 44; i = i + 1) if (magnitude[i]) leading = i;
      drop = leading > 10 ? leading - 10 : 0;
      code = (magnitude >> drop) + (drop << 10);
      below = magnitude & ((44'd1 << drop) - 44'd1);
      half = drop == 0 ? 44'd0 : 44'd1 << (drop - 1);
      if (drop != 0 && (below > half || below == half && code[0])) code = code + 16'd1;
      sum = {exact < 0, code > 16'h7c00 ? 15'h7c00 : code[14:0]};
    end
  endfunction

  assign y = PAIRWISE ? sum(sum(p[0], p[1]), sum(p[2], p[3])) : sum(sum(sum(p[0], p[1]), p[2]), p[3]);
endmodule
