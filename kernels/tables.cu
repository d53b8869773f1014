// Functions of narrow inputs: each value becomes its code, and tables made on the host hold the rest.
#include "results.cuh"

// Of the input format, after the operands: width, precision, emin, quantum, is float, has -0, codes of infinity and NaN.
#define SOURCE_AT (OPERANDS_AT + OPERAND_FIELDS)

EMU_FN u64 code_of(const Number& x, const i64* source) {
    i32 width = static_cast<i32>(source[0]), precision = static_cast<i32>(source[1]), emin = static_cast<i32>(source[2]);
    i32 quantum = static_cast<i32>(source[3]);
    if (source[4] == 0) {
        i32 up = x.exponent - quantum;
        u64 raw = up >= 0 ? shift_left(x.significand.word[0], up) : shift_right(x.significand.word[0], -up);
        return low_bits(x.negative ? 0ull - raw : raw, width);
    }
    if (x.kind >= NOT_A_NUMBER) return low_bits(static_cast<u64>(source[7]), width);
    u64 code = 0;
    if (x.kind == INFINITE) {
        code = static_cast<u64>(source[6]);
    } else if (!is_zero(x)) {
        i32 exponent = larger(leading(x), emin), up = x.exponent - (exponent - (precision - 1));
        u64 significand = up >= 0 ? shift_left(x.significand.word[0], up) : shift_right(x.significand.word[0], -up);
        code = (static_cast<u64>(exponent - emin) << (precision - 1)) + significand;
    }
    if (x.negative && (code != 0 || source[5] != 0)) code |= 1ull << (width - 1);
    return low_bits(code, width);
}

// What the table holds for x. `seen`: the register's count that goes up, per code; `next_*` and `dropped`: of stochastic
// rounding. Table values lie in memory as results do.
struct Gathering {
    const void* x;
    const void* table;
    const u8* raised;
    const i64* seen;
    const i32* leading_bits;
    const void* next_table;
    const u8* next_raised;
    const u32* dropped;
    Operand source;
    EMU_MEMBER void operator()(i64 i, const Writing& w) {
        i64 code = static_cast<i64>(code_of(fetch(x, i, source), w.task + SOURCE_AT));
        u64 u = draw(w, i);
        bool moves = draws(w.stage.rounding) && u + dropped[code] >= 1ull << w.stage.n_rbits;
        const void* values = moves ? next_table : table;
        if (w.stage.storage == STORED_F32) static_cast<u32*>(w.out)[i] = static_cast<const u32*>(values)[code];
        else static_cast<u64*>(w.out)[i] = static_cast<const u64*>(values)[code];
        count_flags(w.tally, moves ? next_raised[code] : raised[code]);
        if (w.positions.bins == 0) return;
        atomicAdd(&w.tally.counts[N_FLAGS + seen[code]], 1u);
        atomicAdd(&w.tally.counts[N_FLAGS + 2 * w.positions.bins + TOTAL], 1u);
        if (leading_bits[code] > NO_TOP) atomicMax(w.tally.top, leading_bits[code]);
    }
};

extern "C" __global__ void gather(EMU_GIVEN Task given, const void* x, const void* table, const u8* raised, const i64* seen,
                                  const i32* leading_bits, const void* next_table, const u8* next_raised,
                                  const u32* dropped, const u32* recorded, void* out, u64* totals, i64 n) {
    EMU_DYNAMIC_SHARED(u32, room);
    Gathering body;
    body.x = x;
    body.table = table;
    body.raised = raised;
    body.seen = seen;
    body.leading_bits = leading_bits;
    body.next_table = next_table;
    body.next_raised = next_raised;
    body.dropped = dropped;
    body.source = read_operand(given.number, 0);
    for_each_result(given.number, room, n, recorded, out, totals, body);
}
EMU_KERNEL(gather)
