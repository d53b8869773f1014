// y = c + a * b, saturated: a and b are fix8f4, c and y fix16f8. `start` takes the operands, `done` is 1 for one cycle.
//
// The product is added bit by bit, so that a result takes nine cycles. FAULT 1: saturates at the top only, 2: never
// done if b = 0x80, 3: reads b until it is done instead of keeping it, 4: done one cycle early.
module mac8_start #(parameter FAULT = 0) (
  input  wire               clk,
  input  wire               rst_n,
  input  wire               start,
  input  wire signed [7:0]  a,
  input  wire signed [7:0]  b,
  input  wire signed [15:0] c,
  output reg                done,
  output reg  signed [15:0] y
);
  reg busy;
  reg [3:0] step;
  reg signed [7:0] a_in, b_in;
  reg signed [17:0] sum;
  wire signed [7:0] multiplier = FAULT == 3 ? b : b_in;
  wire signed [17:0] part = multiplier[step[2:0]] ? a_in <<< step : 18'sd0;
  wire signed [17:0] next = step == 4'd7 ? sum - part : sum + part;

  always @(posedge clk) begin
    done <= 1'b0;
    if (start) begin
      busy <= 1'b1;
      step <= 4'd0;
      a_in <= a;
      b_in <= b;
      sum <= c;
    end else if (busy) begin
      if (step == 4'd8) begin
        busy <= 1'b0;
        done <= FAULT != 4 && !(FAULT == 2 && b_in == 8'sh80);
        if (sum > 18'sd32767) y <= 16'sh7fff;
        else if (sum < -18'sd32768 && FAULT != 1) y <= 16'sh8000;
        else y <= sum[15:0];
      end else begin
        sum <= next;
        step <= step + 4'd1;
        if (FAULT == 4 && step == 4'd7) done <= 1'b1;
      end
    end
    if (!rst_n) begin
      busy <= 1'b0;
      done <= 1'b0;
    end
  end
endmodule
