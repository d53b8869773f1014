// fix24f12 to fix12f6 with four random bits. MODE: 0 stochastic, 1 to 3: the first bits that go are rounded to nearest
// even, odd, up before.
module drawn24_12 #(parameter MODE = 0) (input signed [23:0] x, input [3:0] u, output reg signed [11:0] z);
  // a number of 1/16 steps of the last place, in two's complement, and two bits behind it
  wire signed [21:0] sixteenths = x >>> 2;
  wire [1:0] behind = x[1:0];
  // Rounded as a magnitude would be: ties of negative numbers by their distance from zero.
  reg signed [22:0] near;
  always @* begin
    near = sixteenths;
    if (MODE == 1 && (behind == 3 || (behind == 2 && sixteenths[0]))) near = sixteenths + 1;
    if (MODE == 2 && (behind == 3 || (behind == 2 && !sixteenths[0]))) near = sixteenths + 1;
    if (MODE == 3 && behind >= 2) near = sixteenths + 1;
  end
  wire signed [22:0] moved = near + $signed({19'd0, u});
  wire signed [18:0] sum = moved >>> 4;
  always @* begin
    if (sum > 19'sd2047) z = 12'sd2047;
    else if (sum < -19'sd2048) z = -12'sd2048;
    else z = sum[11:0];
  end
endmodule
