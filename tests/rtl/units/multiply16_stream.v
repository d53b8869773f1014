// multiply16 between two streams with valid and ready: one register, a result in every cycle.
//
// FAULT as in multiply16; 5: a result that waits is overwritten by the next one, 6: operand b = 0x5140 is never taken,
// 7: a result that waits is given twice.
module multiply16_stream #(parameter FAULT = 0) (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        in_valid,
  output wire        in_ready,
  input  wire [15:0] a,
  input  wire [15:0] b,
  input  wire [2:0]  mode,
  output reg         out_valid,
  input  wire        out_ready,
  output reg  [15:0] y,
  output reg  [4:0]  flags
);
  wire [15:0] product;
  wire [4:0] raised;
  reg waited;

  multiply16 #(.FAULT(FAULT)) unit (.a(a), .b(b), .mode(mode), .y(product), .flags(raised));
  assign in_ready = FAULT == 6 && b == 16'h5140 ? 1'b0 : FAULT == 5 ? 1'b1 : !out_valid || out_ready && !(FAULT == 7 && waited);

  always @(posedge clk) begin
    waited <= out_valid && !out_ready;
    if (!rst_n) begin
      out_valid <= 1'b0;
    end else if (in_ready) begin
      out_valid <= in_valid;
      y <= product;
      flags <= raised;
    end else if (out_ready && !(FAULT == 7 && waited)) begin
      out_valid <= 1'b0;
    end
  end
endmodule
