// multiply16 with registers behind it: no handshake, a result STAGES cycles after its operands, one in every cycle.
//
// FAULT as in multiply16; 4: the operands' registers are loaded in every other cycle only.
module multiply16_pipe #(parameter STAGES = 3, parameter FAULT = 0) (
  input  wire        clk,
  input  wire        rst_n,
  input  wire [15:0] a,
  input  wire [15:0] b,
  input  wire [2:0]  mode,
  output wire [15:0] y,
  output wire [4:0]  flags
);
  wire [15:0] product;
  wire [4:0] raised;
  reg [15:0] a_in, b_in;
  reg [20:0] stages [0:STAGES - 1];
  reg turn;
  integer i;

  multiply16 #(.FAULT(FAULT)) unit (.a(a_in), .b(b_in), .mode(mode), .y(product), .flags(raised));
  assign {flags, y} = stages[STAGES - 2];

  always @(posedge clk) begin
    turn <= rst_n && !turn;
    if (FAULT != 4 || !rst_n || turn) begin
      a_in <= a;
      b_in <= b;
    end
    stages[0] <= {raised, product};
    for (i = 1; i < STAGES; i = i + 1) stages[i] <= stages[i - 1];
  end
endmodule
