// The output stage on the bits of float32, for results that are float32 themselves: what `stage.cuh` does, without wide
// integers. Subnormal, infinite and NaN operands, and overflows that do not saturate, are left to it.
//
// A number's bits, cut at a place and stepped up there, are those of the rounded number: a carry runs into the exponent.
// Source: docs/concepts/rounding.md and docs/concepts/overflow.md.
#pragma once
#include "task.cuh"

// A stage, as float32 fields and bits.
struct Narrow {
    i32 least_drop;     // bits that a significand of 24 loses wherever it lies
    i32 quantum_field;  // exponent field whose last place is the format's quantum
    u32 quantum;        // 2**quantum; the smallest normal number, 0 of fixed point; the largest magnitudes of either sign
    u32 smallest_normal, largest_positive, largest_negative;
    u32 sign_of_zero;  // where the format has -0
    i32 n_rbits;
    u32 is_float, flushes, saturates;
};

// What happened, a byte each: many results are counted by one addition.
enum Event { OVERFLOW_EVENT = 1, UNDERFLOW_EVENT = 1 << 8, INEXACT_EVENT = 1 << 16, SUBNORMAL_EVENT = 1 << 24 };

struct NarrowWritten {
    u32 bits, events;
};

EMU_FN u32 bits_of(u64 significand, i32 exponent) {
    return static_cast<u32>(encode_float(0, significand, exponent, 23, 8, 127));
}

EMU_FN Narrow narrow_of(const Stage& stage) {
    const Format& f = stage.format;
    Narrow s;
    s.least_drop = f.is_float ? 24 - f.precision : 0;
    s.quantum_field = f.quantum + 150;  // last place of exponent field e: e - 127 - 23
    s.quantum = bits_of(1, f.quantum);
    s.smallest_normal = f.is_float ? bits_of(1, f.emin) : 0u;
    s.largest_positive = bits_of(f.max_significand, f.max_exponent);
    u64 lowest = f.is_float || stage.overflow == SATURATE_SYMMETRIC ? f.max_significand : f.max_significand + 1ull;
    s.largest_negative = f.is_signed ? bits_of(lowest, f.max_exponent) : 0u;
    s.sign_of_zero = f.has_negative_zero ? 0x80000000u : 0u;
    s.n_rbits = stage.n_rbits;
    s.is_float = static_cast<u32>(f.is_float);
    s.flushes = static_cast<u32>(f.ftz);
    s.saturates = stage.overflow == SATURATE || stage.overflow == SATURATE_SYMMETRIC || stage.overflow == SATFINITE ||
                  stage.overflow == SATPROPAGATE;
    return s;
}

#define SIGN 0x80000000u
#define FLOAT_INFINITY 0x7F800000u
#define FRACTION 0x007FFFFFu

EMU_FN i32 field_of(u32 magnitude) { return static_cast<i32>(magnitude >> 23); }

// Whether a magnitude is 0 or a normal number of float32.
EMU_FN bool is_simple(u32 magnitude) { return magnitude == 0 || magnitude - (FRACTION + 1u) < FLOAT_INFINITY - (FRACTION + 1u); }

// Whether what was cut goes up: `rest` are its first 32 bits, `more` whether bits follow them.
template <i32 ROUNDING>
EMU_FN bool goes_up(u32 rest, bool more, u32 odd, u32 negative, const Narrow& s, u32 u) {
    bool inexact = rest != 0 || more;
    switch (ROUNDING) {  // 32 bits behind the point hold every half: nothing follows one
        case NEAREST_EVEN: return rest + odd > SIGN;
        case NEAREST_AWAY: return rest >= SIGN;
        case NEAREST_UP: return rest + (negative == 0) > SIGN;
        case NEAREST_DOWN: return rest + (negative != 0) > SIGN;
        case NEAREST_ZERO: return rest > SIGN;
        case FLOOR: return inexact && negative != 0;
        case CEIL: return inexact && negative == 0;
        case TO_ODD: return inexact && odd == 0;
        case STOCHASTIC: {
            u64 first = rest >> (32 - s.n_rbits);
            if (s.is_float || negative == 0) return first + u >= 1ull << s.n_rbits;
            return u < first + (low_bits(rest, 32 - s.n_rbits) != 0 || more);
        }
        default: return false;
    }
}

// Writes a number whose magnitude is simple; false where `stage.cuh` has to.
template <i32 ROUNDING>
EMU_FN bool write_narrow(u32 bits, const Narrow& s, u32 u, NarrowWritten& written) {
    u32 magnitude = bits & ~SIGN, negative = bits & SIGN;
    i32 drop = smaller(larger(s.least_drop, s.quantum_field - field_of(magnitude)), 63);
    u64 significand = magnitude == 0 ? 0ull : static_cast<u64>((magnitude & FRACTION) | (FRACTION + 1u)) << 32;
    u64 cut = significand >> drop;  // whole steps above the first 32 bits behind the point
    u32 rest = static_cast<u32>(cut), odd = static_cast<u32>(cut >> 32) & 1u;
    bool more = drop > 32 && low_bits(significand, drop) != 0;
    u32 events = rest != 0 || more ? INEXACT_EVENT : 0u;
    bool up = goes_up<ROUNDING>(rest, more, odd, negative, s, u);
    u32 result = up ? s.quantum : 0u;
    if (drop < 24) result = ((magnitude >> drop) + static_cast<u32>(up)) << drop;
    if (s.flushes && result < s.smallest_normal && result != 0) {
        result = 0;
        events |= INEXACT_EVENT;
    }
    u32 limit = negative != 0 ? s.largest_negative : s.largest_positive;
    if (result > limit) {
        if (!s.saturates) return false;
        result = limit;
        events |= OVERFLOW_EVENT | INEXACT_EVENT;
    } else if (result < s.smallest_normal || result == 0) {
        events |= result != 0 ? SUBNORMAL_EVENT : magnitude != 0 ? UNDERFLOW_EVENT : 0;
    }
    written.bits = result != 0 ? result | negative : negative & s.sign_of_zero;
    written.events = events;
    return true;
}
