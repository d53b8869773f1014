// Calls an exported unit by DPI-C with operands of a counter, and writes the time and the results' exclusive or.
module bench;
    import "DPI-C" function longint unsigned fma_fp16(
        input longint unsigned a,
        input longint unsigned b,
        input longint unsigned c,
        output int unsigned flags
    );

    int unsigned calls, flags, i;
    logic [15:0] a, b, c;
    logic [63:0] seen;

    initial begin
        if (!$value$plusargs("calls=%d", calls)) calls = 1;
        seen = 0;
        for (i = 0; i < calls; i++) begin
            a = 16'(i * 40503);
            b = 16'(i * 60493 + 7);
            c = 16'(i * 24571 + 3);
            seen = {seen[62:0], seen[63]} ^ fma_fp16(64'(a), 64'(b), 64'(c), flags) ^ {32'd0, flags};
        end
        $display("seen %h", seen);
        $finish;
    end
endmodule
