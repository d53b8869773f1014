// fix20f0 times fix20f0 to fix40f0. FAULT 1: wrong where both operands end in 0x5a5a5.
module product20 #(parameter FAULT = 0) (input signed [19:0] a, input signed [19:0] b, output signed [39:0] z);
  wire signed [1:0] more = {1'b0, FAULT && a == 20'h5a5a5 && b == 20'h5a5a5};
  assign z = a * b + more;
endmodule
