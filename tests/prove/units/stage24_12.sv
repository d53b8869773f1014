// fix24f12 to fix12f6: one adder that rounds, then a clamp. MODE: 0 nearest_even, 1 floor, 2 toward_zero, ...
module stage24_12 #(parameter MODE = 0, parameter FAULT = 0) (input signed [23:0] x, output reg signed [11:0] z);
  // the part that is kept, and the six bits that go
  wire signed [17:0] kept = x >>> 6;
  wire [5:0] gone = x[5:0];
  wire tie = gone == 6'd32;
  wire more = gone > 6'd32;
  wire any = gone != 0;
  wire low = x[23];
  reg up;
  always @* begin
    case (MODE)
      0: up = more | (tie & (FAULT == 1 ? 1'b1 : kept[0]));  // nearest_even
      1: up = more | (tie & ~low);                           // nearest_away
      2: up = more | tie;                                    // nearest_up
      3: up = more;                                          // nearest_down
      4: up = more | (tie & low);                            // nearest_zero
      5: up = 1'b0;                                          // floor
      6: up = any;                                           // ceil
      7: up = any & low;                                     // toward_zero
      8: up = any & ~kept[0];                                // to_odd
      9: up = more | (tie & ~kept[0]);                       // nearest_odd
      10: up = any & ~low;                                   // away_from_zero
      11: up = ~kept[0];                                     // jamming
      12: up = low;                                          // magnitude_truncation
      default: up = 1'b0;
    endcase
  end
  wire signed [18:0] sum = $signed({kept[17], kept}) + $signed({18'd0, up});
  always @* begin
    if (sum > 19'sd2047) z = 12'sd2047;
    else if (sum < -19'sd2048) z = -12'sd2048;
    else z = sum[11:0];
  end
endmodule
