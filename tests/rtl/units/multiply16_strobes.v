// multiply16 with a strobe and an acknowledge for each operand, taken one after the other, and for the result.
//
// FAULT as in multiply16; 8: no acknowledge for a if it is 0x8001.
module multiply16_strobes #(parameter FAULT = 0) (
  input  wire        clk,
  input  wire        rst,
  input  wire [15:0] a,
  input  wire        a_stb,
  output reg         a_ack,
  input  wire [15:0] b,
  input  wire        b_stb,
  output reg         b_ack,
  output reg  [15:0] y,
  output reg         y_stb,
  input  wire        y_ack
);
  reg [15:0] a_in, b_in;
  reg [1:0] state;
  wire [15:0] product;
  wire [4:0] raised;

  multiply16 #(.FAULT(FAULT)) unit (.a(a_in), .b(b_in), .mode(3'd0), .y(product), .flags(raised));

  always @(posedge clk) begin
    case (state)
      2'd0: begin
        a_ack <= !(FAULT == 8 && a == 16'h8001);
        if (a_ack && a_stb) begin
          a_in <= a;
          a_ack <= 1'b0;
          state <= 2'd1;
        end
      end
      2'd1: begin
        b_ack <= 1'b1;
        if (b_ack && b_stb) begin
          b_in <= b;
          b_ack <= 1'b0;
          state <= 2'd2;
        end
      end
      2'd2: begin
        y <= product;
        state <= 2'd3;
      end
      default: begin
        y_stb <= 1'b1;
        if (y_stb && y_ack) begin
          y_stb <= 1'b0;
          state <= 2'd0;
        end
      end
    endcase
    if (rst) begin
      state <= 2'd0;
      a_ack <= 1'b0;
      b_ack <= 1'b0;
      y_stb <= 1'b0;
    end
  end
endmodule
