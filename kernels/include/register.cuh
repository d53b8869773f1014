// The leading-bit statistics register and the flags, counted by a block.
// Source: docs/concepts/flags.md and docs/concepts/registers.md.
#pragma once
#include "stage.cuh"

struct Register {
    i32 lowest, bins;
    i32 fixed_quantum;  // exponent of a fixed accumulator's last place, or NO_QUANTUM
};
#define REGISTER_FIELDS 3
#define NO_QUANTUM (-(1 << 30))
#define NO_TOP (-(1 << 30))
static_assert(NO_QUANTUM < -(1 << 20) && NO_TOP < -(1 << 20), "below every exponent");
enum Scalar { NONE = 0, BELOW = 1, ABOVE = 2, NONFINITE = 3, TOTAL = 4 };
#define N_SCALARS 5

EMU_FN Register read_register(const i64* p) {
    Register r;
    r.lowest = static_cast<i32>(p[0]);
    r.bins = static_cast<i32>(p[1]);
    r.fixed_quantum = p[2] < NO_QUANTUM ? NO_QUANTUM : static_cast<i32>(p[2]);
    return r;
}

// Counts of a block: flags, then positions of positive and of negative results, then scalars; and the largest exponent.
struct Tally {
    u32* counts;
    i32* top;
};

EMU_FN i32 tally_size(const Register& r) { return N_FLAGS + (r.bins > 0 ? 2 * r.bins + N_SCALARS : 0); }

EMU_FN u32 block_threads() { return blockDim.x * blockDim.y; }

EMU_FN u32 thread_in_block() { return threadIdx.x + blockDim.x * threadIdx.y; }

// Every thread of the block calls it, before anything is counted.
EMU_FN Tally open_tally(u32* room, const Register& r) {
    Tally t;
    t.counts = room + 1;
    t.top = reinterpret_cast<i32*>(room);
    for (i32 i = static_cast<i32>(thread_in_block()); i < tally_size(r); i += static_cast<i32>(block_threads())) t.counts[i] = 0;
    if (thread_in_block() == 0) *t.top = NO_TOP;
    __syncthreads();
    return t;
}

// Every thread of the block calls it, after everything is counted. `totals` has the same order, then the largest exponent.
EMU_FN void close_tally(const Tally& t, const Register& r, u64* totals) {
    __syncthreads();
    i32 size = tally_size(r);
    for (i32 i = static_cast<i32>(thread_in_block()); i < size; i += static_cast<i32>(block_threads()))
        if (t.counts[i] != 0) atomicAdd(&totals[i], static_cast<u64>(t.counts[i]));
    if (thread_in_block() == 0 && *t.top != NO_TOP) atomicMax(reinterpret_cast<i64*>(&totals[size]), static_cast<i64>(*t.top));
}

EMU_FN void count_flags(const Tally& t, u32 flags) {
    for (i32 i = 0; i < N_FLAGS; i++)
        if (flags >> i & 1u) atomicAdd(&t.counts[i], 1u);
}

EMU_FN bool is_power_of_two(const Number& x) {
    i32 length = bit_length(x.significand);
    return x.sticky == 0 && !any_below(x.significand, length - 1);
}

// Where a number is counted: its position (those of negative numbers come after those of positive ones), or a scalar.
EMU_FN i32 place_of(const Number& x, const Register& r) {
    i32 scalars = 2 * r.bins;
    if (x.kind != FINITE) return scalars + NONFINITE;
    if (is_zero(x)) return scalars + NONE;
    i32 exponent = leading(x);
    bool one_lower = x.negative && is_power_of_two(x);
    if (one_lower && exponent == r.fixed_quantum) return scalars + NONE;
    i32 position = exponent - static_cast<i32>(one_lower) - r.lowest;
    if (position < 0) return scalars + BELOW;
    if (position >= r.bins) return scalars + ABOVE;
    return x.negative ? position + r.bins : position;
}

EMU_FN void observe(const Tally& t, const Register& r, const Number& x) {
    if (r.bins == 0) return;
    u32* places = t.counts + N_FLAGS;
    atomicAdd(&places[2 * r.bins + TOTAL], 1u);
    atomicAdd(&places[place_of(x, r)], 1u);
    if (x.kind == FINITE && !is_zero(x)) atomicMax(t.top, leading(x));
}
