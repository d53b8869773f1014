// Unsigned integers of WIDE_WORDS words of 64 bits, the lowest first.
//
// Four hold any exact product or sum of three float64 significands that lie near each other; what lies farther apart is
// shifted out into a sticky bit. Where operands and results are narrow, one or two do the same, and kernels are compiled for
// them: `emu/backends/cuda/layout.py` knows how many are enough.
#pragma once
#include "bits.cuh"

#if !defined(WIDE_WORDS)
#define WIDE_WORDS 4
#endif
#define WIDE_BITS (64 * WIDE_WORDS)

struct Wide {
    u64 word[WIDE_WORDS];
};

EMU_FN Wide wide_of(u64 v) {
    Wide w;
    w.word[0] = v;
    for (i32 i = 1; i < WIDE_WORDS; i++) w.word[i] = 0;
    return w;
}

EMU_FN bool is_zero(const Wide& a) {
    u64 any = 0;
    for (i32 i = 0; i < WIDE_WORDS; i++) any |= a.word[i];
    return any == 0;
}

EMU_FN i32 bit_length(const Wide& a) {
    i32 length = 0;
    for (i32 i = 0; i < WIDE_WORDS; i++)
        if (a.word[i] != 0) length = 64 * i + bit_length(a.word[i]);
    return length;
}

EMU_FN u64 word_at(const Wide& a, i32 index) {
    u64 word = 0;  // chosen, not indexed: the words stay in registers
    for (i32 i = 0; i < WIDE_WORDS; i++)
        if (i == index) word = a.word[i];
    return word;
}

// a * 2**count; bits beyond the top are lost.
EMU_FN Wide shifted_left(const Wide& a, i32 count) {
    Wide w;
    i32 words = count >> 6, bits = count & 63;
    for (i32 i = 0; i < WIDE_WORDS; i++) {
        u64 high = word_at(a, i - words), low = word_at(a, i - words - 1);
        w.word[i] = bits == 0 ? high : (high << bits) | (low >> (64 - bits));
    }
    return w;
}

// floor(a / 2**count).
EMU_FN Wide shifted_right(const Wide& a, i32 count) {
    Wide w;
    i32 words = count >> 6, bits = count & 63;
    for (i32 i = 0; i < WIDE_WORDS; i++) {
        u64 low = word_at(a, i + words), high = word_at(a, i + words + 1);
        w.word[i] = bits == 0 ? low : (low >> bits) | (high << (64 - bits));
    }
    return w;
}

// Whether any of the lowest `count` bits is set.
EMU_FN bool any_below(const Wide& a, i32 count) {
    u64 any = 0;
    for (i32 i = 0; i < WIDE_WORDS; i++) any |= low_bits(a.word[i], larger(count - 64 * i, 0));
    return any != 0;
}

// The bit of weight 2**place; 0 outside.
EMU_FN u32 bit_at(const Wide& a, i32 place) {
    return place < 0 || place >= WIDE_BITS ? 0u : static_cast<u32>(word_at(a, place >> 6) >> (place & 63)) & 1u;
}

EMU_FN Wide sum_of(const Wide& a, const Wide& b) {
    Wide w;
    u64 carry = 0;
    for (i32 i = 0; i < WIDE_WORDS; i++) {
        u64 partial = a.word[i] + carry;
        carry = partial < carry;
        w.word[i] = partial + b.word[i];
        carry += w.word[i] < partial;
    }
    return w;
}

// a - b for a >= b.
EMU_FN Wide difference_of(const Wide& a, const Wide& b) {
    Wide w;
    u64 borrow = 0;
    for (i32 i = 0; i < WIDE_WORDS; i++) {
        u64 partial = a.word[i] - b.word[i];
        u64 below = a.word[i] < b.word[i];
        w.word[i] = partial - borrow;
        borrow = below | (partial < borrow);
    }
    return w;
}

EMU_FN bool is_less(const Wide& a, const Wide& b) {
    bool less = false;
    for (i32 i = 0; i < WIDE_WORDS; i++)
        if (a.word[i] != b.word[i]) less = a.word[i] < b.word[i];
    return less;
}

EMU_FN Wide product_of(u64 a, u64 b) {
    Wide w = wide_of(a * b);
#if WIDE_WORDS > 1
    w.word[1] = __umul64hi(a, b);
#endif
    return w;
}
