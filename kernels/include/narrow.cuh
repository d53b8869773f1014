// The output stage on the bits of float32, for results that are float32 themselves: what `stage.cuh` does, without wide
// integers. Operands are float32, or sums with up to 32 bits more. Operands that are subnormal in float32, infinite or NaN, and
// overflows that do not saturate, are left to `stage.cuh`.
//
// A number's bits, cut at a place and stepped up there, are those of the rounded number: a carry runs into the exponent.
// Source: docs/concepts/rounding.md and docs/concepts/overflow.md.
#pragma once
#include "task.cuh"

// A stage, as float32 fields and bits.
struct Narrow {
    i32 least_drop;     // bits that a significand of 24 loses wherever it lies
    i32 quantum_field;  // exponent field whose last place is the format's quantum
    u32 quantum;        // 2**quantum; the smallest normal number, of fixed point the smallest float32; the largest magnitudes
    u32 smallest, largest_positive, largest_negative;
    u32 flush_below;   // results below it are flushed
    u32 sign_of_zero;  // where the format has -0
    i32 n_rbits;
    u32 is_float, saturates;
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
    s.smallest = f.is_float ? bits_of(1, f.emin) : 1u;
    s.flush_below = f.ftz ? s.smallest : 0u;
    s.largest_positive = bits_of(f.max_significand, f.max_exponent);
    u64 lowest = f.is_float || stage.overflow == SATURATE_SYMMETRIC ? f.max_significand : f.max_significand + 1ull;
    s.largest_negative = f.is_signed ? bits_of(lowest, f.max_exponent) : 0u;
    s.sign_of_zero = f.has_negative_zero ? 0x80000000u : 0u;
    s.n_rbits = stage.n_rbits;
    s.is_float = static_cast<u32>(f.is_float);
    s.saturates = stage.overflow == SATURATE || stage.overflow == SATURATE_SYMMETRIC || stage.overflow == SATFINITE ||
                  stage.overflow == SATPROPAGATE;
    return s;
}

#define SIGN 0x80000000u
#define FLOAT_INFINITY 0x7F800000u
#define FRACTION 0x007FFFFFu

// A number that is 0 or normal in float32: its float32, cut toward zero, and the 32 bits behind.
struct Cut {
    u32 bits, beyond;
};

EMU_FN i32 field_of(u32 magnitude) { return static_cast<i32>(magnitude >> 23); }

// Each `cut_` function is false where the number is neither 0 nor normal in float32.
EMU_FN bool cut_float(u32 bits, Cut& cut) {
    cut.bits = bits;
    cut.beyond = 0;
    u32 magnitude = bits & ~SIGN;
    return magnitude == 0 || magnitude - (FRACTION + 1u) < FLOAT_INFINITY - (FRACTION + 1u);
}

// Of an integer, a multiple of 2**quantum.
EMU_FN bool cut_integer(i32 sum, i32 quantum, Cut& cut) {
    u32 sign = sum < 0 ? SIGN : 0u, magnitude = sum < 0 ? 0u - static_cast<u32>(sum) : static_cast<u32>(sum);
    i32 above = __clz(static_cast<i32>(magnitude)), field = quantum + 158 - above;  // the leading bit weighs 2**(quantum + 31 - above)
    u32 first = magnitude << (above & 31);
    cut.bits = magnitude == 0 ? 0u : sign | static_cast<u32>(field) << 23 | (first >> 8 & FRACTION);
    cut.beyond = first << 24;
    return magnitude == 0 || static_cast<u32>(field - 1) < 254u;
}

EMU_FN bool cut_double(u64 bits, Cut& cut) {
    u32 sign = static_cast<u32>(bits >> 32) & SIGN;
    i32 field = static_cast<i32>(bits >> 52 & 0x7FFu) - (1023 - 127);
    bool zero = bits << 1 == 0;
    cut.bits = zero ? sign : sign | static_cast<u32>(field) << 23 | (static_cast<u32>(bits >> 29) & FRACTION);
    cut.beyond = static_cast<u32>(bits) << 3;
    return zero || static_cast<u32>(field - 1) < 254u;
}

// Whether what was cut goes up: `rest` are its first 32 bits, `more` whether bits follow them.
template <i32 ROUNDING>
EMU_FN bool goes_up(u32 rest, bool more, u32 odd, u32 negative, const Narrow& s, u32 u) {
    u32 tail = rest | static_cast<u32>(more);  // beside a half, any bit that follows decides
    switch (ROUNDING) {
        case NEAREST_EVEN: return tail > SIGN - odd;
        case NEAREST_AWAY: return tail >= SIGN;
        case NEAREST_UP: return tail > SIGN - (negative == 0);
        case NEAREST_DOWN: return tail > SIGN - (negative != 0);
        case NEAREST_ZERO: return tail > SIGN;
        case FLOOR: return tail != 0 && negative != 0;
        case CEIL: return tail != 0 && negative == 0;
        case TO_ODD: return tail != 0 && odd == 0;
        case STOCHASTIC: {
            u64 first = rest >> (32 - s.n_rbits);
            if (s.is_float || negative == 0) return first + u >= 1ull << s.n_rbits;
            return u < first + (low_bits(rest, 32 - s.n_rbits) != 0 || more);
        }
        default: return false;
    }
}

// Places that a deterministic mode has to see behind the point: a number below a quarter of a step rounds as a quarter does.
#define QUARTER_DROP 26

// Writes a number that was cut; false where `stage.cuh` has to. Without HAS_BEYOND, the bits behind the cut are zeros. There is no
// branch: of a warp, some numbers overflow or are subnormal nearly always.
template <i32 ROUNDING, bool HAS_BEYOND>
EMU_FN bool write_narrow(const Cut& x, const Narrow& s, u32 u, NarrowWritten& written) {
    constexpr i32 most = ROUNDING == STOCHASTIC ? 63 : QUARTER_DROP;
    u32 magnitude = x.bits & ~SIGN, negative = x.bits & SIGN;
    i32 drop = smaller(larger(s.least_drop, s.quantum_field - field_of(magnitude)), most);
    u64 significand = magnitude == 0 ? 0ull : static_cast<u64>((magnitude & FRACTION) | (FRACTION + 1u)) << 32;
    if (HAS_BEYOND) significand |= x.beyond;
    u64 cut = significand >> drop;  // whole steps above the first 32 bits behind the point
    u32 rest = static_cast<u32>(cut), odd = static_cast<u32>(cut >> 32) & 1u;
    bool more = (HAS_BEYOND || (ROUNDING == STOCHASTIC && drop > 32)) && low_bits(significand, drop) != 0;
    bool up = goes_up<ROUNDING>(rest, more, odd, negative, s, u), inexact = rest != 0 || more;
    u32 result = ((magnitude >> smaller(drop, 31)) + static_cast<u32>(up)) << smaller(drop, 31);
    if (drop >= 24) result = up ? s.quantum : 0u;
    bool flushed = result < s.flush_below && result != 0;
    result = flushed ? 0u : result;
    u32 limit = negative != 0 ? s.largest_negative : s.largest_positive;
    bool over = result > limit;
    u32 low = result != 0 ? SUBNORMAL_EVENT : magnitude != 0 ? UNDERFLOW_EVENT : 0u;
    u32 events = inexact || flushed || over ? INEXACT_EVENT : 0u;
    events |= over ? OVERFLOW_EVENT : result < s.smallest ? low : 0u;
    result = over ? limit : result;
    written.bits = result != 0 ? result | negative : negative & s.sign_of_zero;
    written.events = events;
    return !over || s.saturates != 0;
}
