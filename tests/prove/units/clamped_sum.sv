// fix4f1 + fix4f1 to fix4f1, saturating: {NV, DZ, OF, UF, NX}. FAULT 1: wraps.
module clamped_sum #(parameter FAULT = 0) (input signed [3:0] a, input signed [3:0] b, output signed [3:0] z, output [4:0] f);
  wire signed [4:0] s = a + b;
  wire over = s > 5'sd7 || s < -5'sd8;
  assign z = !over || FAULT ? s[3:0] : s[4] ? 4'b1000 : 4'b0111;
  assign f = over ? 5'b00101 : 5'b00000;
endmodule
