// Sums of four products, a term in each cycle: fix8f4 times fix8f4, added in fix16f8 that saturates at every add.
//
// `first` comes with the first term and `last` with the last; the result is there when `out_valid` is 1.
// FAULT 1: the accumulator wraps.
module dot4 #(parameter FAULT = 0) (
  input  wire               clk,
  input  wire               rst_n,
  input  wire               in_valid,
  input  wire               first,
  input  wire               last,
  input  wire signed [7:0]  a,
  input  wire signed [7:0]  b,
  output reg                out_valid,
  output reg  signed [15:0] y
);
  wire signed [17:0] sum = (first ? 18'sd0 : y) + a * b;

  always @(posedge clk) begin
    out_valid <= rst_n && in_valid && last;
    if (!rst_n) begin
      y <= 16'sd0;
    end else if (in_valid) begin
      if (FAULT == 1) y <= sum[15:0];
      else y <= sum > 18'sd32767 ? 16'sh7fff : sum < -18'sd32768 ? 16'sh8000 : sum[15:0];
    end
  end
endmodule
