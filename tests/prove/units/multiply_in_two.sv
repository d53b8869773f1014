// fix8f4 times fix8f4 to fix12f6, nearest_up, saturating, in two stages behind each other.
// FAULT 1: the second operand comes a cycle late.
module multiply_in_two #(parameter FAULT = 0)
    (input clk, input rst_n, input signed [7:0] x, input signed [7:0] y, output reg signed [11:0] z);
  reg signed [15:0] product;
  reg signed [7:0] y_before;
  wire signed [15:0] rounded = product + 16'sd2;
  wire signed [13:0] short = rounded[15:2];
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      product <= 0;
      y_before <= 0;
      z <= 0;
    end else begin
      y_before <= y;
      product <= x * (FAULT == 1 ? y_before : y);
      if (product > 16'sd8189) z <= 12'sd2047;
      else if (short > 14'sd2047) z <= 12'sd2047;
      else if (short < -14'sd2048) z <= -12'sd2048;
      else z <= short[11:0];
    end
endmodule
