// Drives @TOP@ with the operands of @FILES@ and writes @DUMP@: @COLUMNS@ of each vector, a line each.
// Handshake: @HANDSHAKE@.
//
// Arguments of the simulation, +NAME=VALUE:
//   count    vectors (@COUNT@)
//   manner   0 back to back; 1 held: one at a time, operands stay; 2 with random stalls; 3 watched: outputs in each
//            of `window` cycles after the operands (0)
//   latency  cycles from operands to result where no signal says that it is there (@LATENCY@)
//   steps    transfers of a sum (@STEPS@)
//   bound    cycles without a transfer after which the unit is stuck (@BOUND@)
//   seed     of the stalls (1)
//   trace    file of the waveform; cycles=1 writes cycles.txt: from each vector's operands to its result
`timescale 1ns / 1ps
module emu_testbench;
  localparam CHANNELS = @CHANNELS@;
  localparam HAS_OFFER = @HAS_OFFER@, HAS_RESULT = @HAS_RESULT@, OVERLAPS = @OVERLAPS@, AT_ONCE = @AT_ONCE@;
  localparam HAS_TAKE = @HAS_TAKE@, MAY_STAY = @MAY_STAY@, FIRST_ALONE = @FIRST_ALONE@, HOLDS = @HOLDS@;
  localparam BACK_TO_BACK = 0, HELD = 1, STALLS = 2, WATCHED = 3;
  localparam RESET_CYCLES = @RESET_CYCLES@, DRAINED_CYCLES = @DRAINED_CYCLES@, QUEUE = @QUEUE@;

  reg clock = 0, reset = 1, take = 0, first = 0, last = 0;
  reg [CHANNELS-1:0] pending = 0, offers = 0, earlier = 0;
  integer count, manner, latency, steps, bound, window, seed, wants_cycles;
  integer sent = 0, received = 0, step = 0, gap = 0, idle = 0, cycle = 0, extra = 0, extra_after = 0;
  integer dump, times, ok, i;
  integer sent_at [0:QUEUE-1];
  reg loaded = 0, moved = 0, stuck = 0;
  reg [63:0] word;
  reg [8*1024-1:0] trace;
@DECLARATIONS@
  wire [CHANNELS-1:0] accepts = @ACCEPTS@;
  wire result = @RESULT@;
  wire [7:0] flags = @FLAGS@;

  @TOP@ @PARAMETERS@unit (
@CONNECTIONS@
  );

  task load;  // the next operands; a sum's addend comes with its first term
    begin
@LOADS@
      pending = {CHANNELS{1'b1}};
      first = step == 0;
      last = step == steps - 1;
      loaded = 1;
    end
  endtask

  task scramble;  // what is not offered may be anything
    begin
@SCRAMBLES@
    end
  endtask

  task write;
    begin
      $fwrite(dump, "@FORMAT@\n"@VALUES@);
      if (wants_cycles) $fwrite(times, "%0d\n", cycle - sent_at[received % QUEUE]);
    end
  endtask

  task sample;
    begin
      if (manner == WATCHED) begin
        if (received < sent) begin
          write;
          moved = 1;
          if (cycle - sent_at[received % QUEUE] == window) received = received + 1;
        end
      end else if (HAS_RESULT ? result === 1'b1 && take : received < sent && cycle == sent_at[received % QUEUE] + latency) begin
        if (received < sent) begin
          write;
          received = received + 1;
          moved = 1;
        end else if (!MAY_STAY) begin
          if (extra == 0) extra_after = received - 1;
          extra = extra + 1;
        end
      end
    end
  endtask

  task transfer;
    begin
      earlier = pending;
      for (i = 0; i < CHANNELS; i = i + 1) if (accepts[i] === 1'b1) pending[i] = 0;
      if (pending != earlier) moved = 1;
      if (pending == 0) begin
        loaded = 0;
        step = step + 1;
        if (step == steps) begin
          step = 0;
          sent_at[sent % QUEUE] = cycle;
          sent = sent + 1;
        end
        if (manner == STALLS && (step == 0 || HAS_OFFER && !FIRST_ALONE)) gap = $random(seed) & 3;
      end
    end
  endtask

  task tick;
    begin
      #1 clock = 1;
      #5 clock = 0;
      cycle = cycle + 1;
    end
  endtask

  initial begin
    if (!$value$plusargs("count=%d", count)) count = @COUNT@;
    if (!$value$plusargs("manner=%d", manner)) manner = BACK_TO_BACK;
    if (!$value$plusargs("latency=%d", latency)) latency = @LATENCY@;
    if (!$value$plusargs("steps=%d", steps)) steps = @STEPS@;
    if (!$value$plusargs("bound=%d", bound)) bound = @BOUND@;
    if (!$value$plusargs("window=%d", window)) window = 64;
    if (!$value$plusargs("seed=%d", seed)) seed = 1;
    if (!$value$plusargs("cycles=%d", wants_cycles)) wants_cycles = 0;
@MODES@
    if ($value$plusargs("trace=%s", trace)) begin
      $dumpfile(trace);
      $dumpvars(0, emu_testbench);
    end
@OPENS@
    dump = $fopen("@DUMP@", "w");
    if (wants_cycles) times = $fopen("cycles.txt", "w");
@ZEROS@
    repeat (RESET_CYCLES) begin
      #4 tick;
    end
    reset = 0;

    while (received < count && !stuck) begin
      moved = 0;
      if (!loaded && gap > 0) begin
        gap = gap - 1;
        moved = 1;
      end else if (!loaded && sent < count && sent - received < QUEUE
                   && (received == sent || OVERLAPS && manner != HELD && manner != WATCHED)) load;
      if (!loaded) begin
        first = 0;
        last = 0;
      end
      if (manner == STALLS && !(HOLDS && sent != received)) scramble;
      offers = FIRST_ALONE && step != 0 ? 0 : pending;  // until the edge, whatever happens before
      take = HAS_TAKE && manner == STALLS ? $random(seed) : 1;
      #4;
      if (!AT_ONCE) sample;
      if (loaded) transfer;
      if (AT_ONCE) sample;
      idle = moved ? 0 : idle + 1;
      if (idle > bound) stuck = 1;
      tick;
    end

    if (stuck)
      $display("emu: stuck at vector %0d for %0d cycles, waiting for %0s (@STATE_FORMAT@)", loaded ? sent : received, bound,
               loaded ? "its operands to be taken" : "its result"@STATE_VALUES@);
    offers = 0;
    first = 0;
    last = 0;
    take = 1;
    if (HAS_RESULT && !stuck) repeat (DRAINED_CYCLES) begin
      #4 sample;
      tick;
    end
    $display("emu: %0d of %0d results, %0d too many after vector %0d", received, count, extra, extra_after);
    $fclose(dump);
    if (wants_cycles) $fclose(times);
    $finish;
  end
endmodule
