// The output stage: round once, apply the overflow rule, tell what happened.
// Source: docs/concepts/flags.md, "The output stage and its flags"; docs/concepts/rounding.md; docs/concepts/overflow.md.
#pragma once
#include "number.cuh"
#include "philox.cuh"

// The modes with code of their own; all others are masks of steps (emu/backends/modes.py). From STOCHASTIC to
// LAST_STOCHASTIC they draw random bits.
enum Rounding {
    NEAREST_EVEN = 0, NEAREST_AWAY = 1, NEAREST_UP = 2, NEAREST_DOWN = 3, NEAREST_ZERO = 4,
    FLOOR = 5, CEIL = 6, TOWARD_ZERO = 7, TO_ODD = 8, STOCHASTIC = 9, LAST_STOCHASTIC = 12
};
#define HAND_WRITTEN 10
// Bits of the mask that say whether an overflow is the largest value: of positive results, of negative ones.
#define STAYS_ABOVE 32
#define STAYS_BELOW 33
enum Overflow {
    SATURATE = 0, SATURATE_SYMMETRIC = 1, SATURATE_ZERO = 2, WRAP = 3, IEEE = 4, SATFINITE = 5, SATPROPAGATE = 6
};
enum Tininess { BECAME_ZERO = 0, BEFORE_ROUNDING = 1, AFTER_ROUNDING = 2 };
enum Flag { OVERFLOWED = 1, UNDERFLOWED = 2, INEXACT = 4, INVALID = 8, SUBNORMAL = 16, ACCUMULATOR = 32, DIVIDED_BY_ZERO = 64 };
#define N_FLAGS 7

// The fields of `FormatCode` in emu/backends/interface.py, in their order.
struct Format {
    i32 is_float, width, is_signed, quantum, precision, emin;
    u64 max_significand;
    i32 max_exponent, has_infinity, has_nan, has_negative_zero, ftz, daz, carries_raws, has_zero;
};
#define FORMAT_FIELDS 15

struct Stage {
    Format format;
    i32 rounding, overflow, n_rbits;
    i32 storage;  // of what is written
    i32 tininess;  // which underflow is counted
    u64 steps;     // of a magnitude, by place + 4 * odd + 8 * negative: 16 bits of +1, 16 of -1; whether an overflow stays
};
#define STAGE_FIELDS (FORMAT_FIELDS + 6)

struct Written {
    u64 bits;  // as `storage` lies in memory
    u32 flags;
};

EMU_FN Format read_format(const i64* p) {
    Format f;
    f.is_float = static_cast<i32>(p[0]);
    f.width = static_cast<i32>(p[1]);
    f.is_signed = static_cast<i32>(p[2]);
    f.quantum = static_cast<i32>(p[3]);
    f.precision = static_cast<i32>(p[4]);
    f.emin = static_cast<i32>(p[5]);
    f.max_significand = static_cast<u64>(p[6]);
    f.max_exponent = static_cast<i32>(p[7]);
    f.has_infinity = static_cast<i32>(p[8]);
    f.has_nan = static_cast<i32>(p[9]);
    f.has_negative_zero = static_cast<i32>(p[10]);
    f.ftz = static_cast<i32>(p[11]);
    f.daz = static_cast<i32>(p[12]);
    f.carries_raws = static_cast<i32>(p[13]);
    f.has_zero = static_cast<i32>(p[14]);
    return f;
}

EMU_FN Stage read_stage(const i64* p) {
    Stage s;
    s.format = read_format(p);
    s.rounding = static_cast<i32>(p[FORMAT_FIELDS]);
    s.overflow = static_cast<i32>(p[FORMAT_FIELDS + 1]);
    s.n_rbits = static_cast<i32>(p[FORMAT_FIELDS + 2]);
    s.storage = static_cast<i32>(p[FORMAT_FIELDS + 3]);
    s.tininess = static_cast<i32>(p[FORMAT_FIELDS + 4]);
    s.steps = static_cast<u64>(p[FORMAT_FIELDS + 5]);
    return s;
}

// A magnitude rounded to a multiple of 2**exponent: quotient, modulo 2**64, and whether there was more.
struct Rounded {
    u64 quotient;
    u32 beyond;   // 2**64 and more was left out
    u32 inexact;
    i32 exponent;
};

EMU_FN bool draws(i32 mode) { return mode >= STOCHASTIC && mode <= LAST_STOCHASTIC; }

// The step of a magnitude by the mask: `half` is the first bit after the last one kept, `rest` whether any further bit is 1.
EMU_FN i32 masked_step(const Stage& stage, u32 half, u32 rest, u32 odd, u32 negative) {
    u32 which = 2 * half + rest + 4 * odd + 8 * (negative != 0);  // place: 0, below half, half, above half
    return static_cast<i32>(stage.steps >> which & 1u) - static_cast<i32>(stage.steps >> (16 + which) & 1u);
}

EMU_FN u32 stochastic_step(const Number& x, i32 drop, const Stage& stage, u32 u) {
    i32 r = stage.n_rbits;
    u64 first = low_bits(shifted_right(x.significand, smaller(larger(drop - r, 0), WIDE_BITS)).word[0], smaller(r, drop));
    first = drop < r ? first << (r - drop) : first;
    bool complement = !stage.format.is_float && x.negative;
    if (stage.rounding != STOCHASTIC) {
        u32 half = bit_at(x.significand, drop - r - 1), rest = any_below(x.significand, drop - r - 1) || x.sticky;
        first += static_cast<u64>(static_cast<i64>(masked_step(stage, half, rest, static_cast<u32>(first) & 1u, x.negative)));
        return complement ? u < first : u + first >= 1ull << r;
    }
    u32 more = (drop > r && any_below(x.significand, drop - r)) || x.sticky;
    if (complement) return u < first + more;
    return u + first >= 1ull << r;
}

EMU_FN u32 steps_up(const Number& x, i32 drop, u32 odd, const Stage& stage, u32 u) {
    u32 half = bit_at(x.significand, drop - 1);
    u32 rest = any_below(x.significand, drop - 1) || x.sticky;
    u32 tie = half && !rest;
    switch (stage.rounding) {
        case NEAREST_EVEN: return half && (rest || odd);
        case NEAREST_AWAY: return half;
        case NEAREST_UP: return half && !(tie && x.negative);
        case NEAREST_DOWN: return half && !(tie && !x.negative);
        case NEAREST_ZERO: return half && rest;
        case FLOOR: return x.negative;
        case CEIL: return !x.negative;
        case TO_ODD: return !odd;
        case TOWARD_ZERO: return 0;
        default: return stochastic_step(x, drop, stage, u);
    }
}

EMU_FN bool moves_zero(const Stage& stage) { return stage.rounding >= HAND_WRITTEN && !stage.format.is_float && (stage.steps & 1u); }

// `u` is the random integer of stochastic rounding.
EMU_FN Rounded round_to(const Number& x, i32 exponent, const Stage& stage, u32 u) {
    Rounded r;
    i32 drop = exponent - x.exponent;
    r.exponent = exponent;
    Wide quotient = drop <= 0 ? shifted_left(x.significand, smaller(-drop, WIDE_BITS))
                              : shifted_right(x.significand, smaller(drop, WIDE_BITS));
    r.quotient = quotient.word[0];
    i32 length = bit_length(x.significand);
    r.beyond = drop <= 0 ? length != 0 && length - drop > 64 : bit_length(quotient) > 64;
    r.inexact = x.sticky || (drop > 0 && any_below(x.significand, drop));
    // with one significant bit, ties look at the exponent's last bit; code 0 is 0, or the smallest value
    i32 parity = stage.format.precision == 1 ? exponent - stage.format.quantum + (stage.format.has_zero ? 0 : 1) : 0;
    u32 odd = (static_cast<u32>(r.quotient) ^ static_cast<u32>(parity)) & 1u;
    if (stage.rounding >= HAND_WRITTEN && !draws(stage.rounding)) {
        u32 half = bit_at(x.significand, drop - 1), rest = any_below(x.significand, drop - 1) || x.sticky;
        i32 step = masked_step(stage, half, rest, odd, x.negative && !is_zero(x));  // zeros of fixed point have no sign
        r.quotient += static_cast<u64>(static_cast<i64>(step));
        r.beyond |= step > 0 && r.quotient == 0;
        r.inexact |= step != 0;
    } else if (r.inexact && steps_up(x, drop, odd, stage, u)) {
        r.quotient += 1;
        r.beyond |= r.quotient == 0;
    }
    return r;
}

// +-quotient * 2**exponent, which the floating-point type holds exactly.
EMU_FN u64 encode_float(u32 negative, u64 quotient, i32 exponent, i32 fraction_bits, i32 field_bits, i32 bias) {
    u64 sign = static_cast<u64>(negative) << (fraction_bits + field_bits);
    if (quotient == 0) return sign;
    i32 length = bit_length(quotient), place = length - 1 + exponent;
    // subnormal: the last place is 2**(1 - bias - fraction_bits)
    if (place < 1 - bias) return sign | shift_left(quotient, exponent + bias - 1 + fraction_bits);
    u64 aligned = length > fraction_bits + 1 ? quotient >> (length - fraction_bits - 1) : quotient << (fraction_bits + 1 - length);
    return sign | (static_cast<u64>(place + bias) << fraction_bits) | low_bits(aligned, fraction_bits);
}

EMU_FN u64 encode(u32 negative, u64 quotient, i32 exponent, i32 storage) {
    if (storage == STORED_F32) return encode_float(negative, quotient, exponent, 23, 8, 127);
    return encode_float(negative, quotient, exponent, 52, 11, 1023);
}

EMU_FN u64 encode_special(u32 is_nan, u32 negative, i32 storage) {
    if (storage == STORED_F32) return is_nan ? 0x7FC00000ull : 0x7F800000ull | static_cast<u64>(negative) << 31;
    return is_nan ? 0x7FF8000000000000ull : 0x7FF0000000000000ull | static_cast<u64>(negative) << 63;
}

// What a stage makes of a number, before it is encoded.
struct Result {
    u32 kind;  // FINITE, INFINITE or NOT_A_NUMBER
    u32 negative;
    u64 magnitude;
    i32 exponent;
    u32 flags;
};

EMU_FN Result apply_fixed(const Number& x, const Rounded& r, const Stage& stage) {
    const Format& f = stage.format;
    u64 high = f.max_significand;
    u64 low = !f.is_signed ? 0ull : stage.overflow == SATURATE_SYMMETRIC ? high : high + 1ull;  // magnitude of the lowest
    u32 negative = x.negative && !is_zero(x);
    u64 limit = negative ? low : high;
    Result w;
    w.kind = FINITE;
    w.negative = negative;
    w.magnitude = r.quotient;
    w.exponent = f.quantum;
    w.flags = 0;
    if (x.kind >= NOT_A_NUMBER) {
        w.magnitude = 0;
        w.flags = INVALID;
    } else if (x.kind == INFINITE || r.beyond || r.quotient > limit) {
        w.flags = OVERFLOWED | INEXACT;
        w.magnitude = stage.overflow == SATURATE_ZERO ? 0ull : limit;
        if (stage.overflow == WRAP && x.kind == FINITE) {
            u64 raw = low_bits(negative ? 0ull - r.quotient : r.quotient, f.width);
            w.negative = f.is_signed && raw > high;
            w.magnitude = w.negative ? low_bits(0ull - raw, f.width) : raw;
        }
    } else {
        w.flags = (r.inexact ? INEXACT : 0u) | (r.quotient == 0 && !is_zero(x) ? UNDERFLOWED : 0u);
    }
    w.negative = w.negative && w.magnitude != 0;
    return w;
}

// Whether a magnitude is above the format's largest.
EMU_FN u32 is_above(u64 quotient, i32 exponent, const Format& f) {
    if (quotient == 0) return 0;
    i32 place = bit_length(quotient) + exponent, top = bit_length(f.max_significand) + f.max_exponent;
    if (place != top) return place > top;
    i32 shift = exponent - f.max_exponent;
    return shift_left(quotient, larger(shift, 0)) > shift_left(f.max_significand, larger(-shift, 0));
}

// Whether what overflows stays at the largest finite value. `has_infinity`: of that sign.
EMU_FN u32 stays_finite(u32 negative, u32 is_infinite, u32 has_infinity, const Stage& stage) {
    if (stage.overflow == SATFINITE) return 1;
    if (stage.overflow == SATPROPAGATE) return !(is_infinite && has_infinity);
    if (is_infinite) return 0;
    if (stage.rounding >= HAND_WRITTEN) return static_cast<u32>(stage.steps >> (negative ? STAYS_BELOW : STAYS_ABOVE)) & 1u;
    i32 mode = stage.rounding;
    return mode == TOWARD_ZERO || mode == TO_ODD || (mode == FLOOR && !negative) || (mode == CEIL && negative);
}

// Whether IEEE 754 calls a finite number other than 0 tiny; after rounding, as if exponents had no end.
EMU_FN u32 is_tiny(const Number& x, const Stage& stage, u32 u) {
    const Format& f = stage.format;
    i32 place = leading(x);
    if (place >= f.emin) return 0;
    if (stage.tininess == BEFORE_ROUNDING || place < f.emin - 1) return 1;
    return bit_length(round_to(x, place - (f.precision - 1), stage, u).quotient) <= f.precision;
}

EMU_FN Result apply_float(const Number& x, const Rounded& r, const Stage& stage, u32 u) {
    const Format& f = stage.format;
    Result w;
    w.kind = x.kind == FINITE || x.kind == INFINITE ? FINITE : NOT_A_NUMBER;
    w.negative = x.negative;
    w.magnitude = r.quotient;
    w.exponent = r.exponent;
    w.flags = r.inexact ? INEXACT : 0u;
    u32 is_new = x.kind == NEW_NAN;
    if (f.ftz && w.magnitude != 0 && bit_length(w.magnitude) - 1 + w.exponent < f.emin) {
        w.magnitude = 0;
        w.flags |= INEXACT;
    }
    u64 least = f.has_zero ? 0ull : 1ull;  // what stands for 0, times 2**emin
    bool lifted = !f.has_zero && x.kind == FINITE && (is_zero(x) || leading(x) < f.emin);
    if (lifted) {
        w.magnitude = least;
        w.exponent = f.emin;
        w.flags |= INEXACT;
    }
    bool below = !f.is_signed && x.negative && !lifted && (w.magnitude != 0 || x.kind == INFINITE);
    bool outside = x.kind == FINITE && (below || is_above(w.magnitude, w.exponent, f));
    if (x.kind == FINITE && !is_zero(x) && !outside) {
        bool became_zero = w.magnitude == 0 || lifted;
        bool underflows = stage.tininess == BECAME_ZERO ? became_zero : (w.flags & INEXACT) && is_tiny(x, stage, u);
        w.flags |= underflows ? UNDERFLOWED : 0u;
    }
    if (outside || x.kind == INFINITE) {
        bool has_infinity = f.has_infinity && !below, finite = stays_finite(x.negative, x.kind == INFINITE, has_infinity, stage);
        if (outside || finite || !has_infinity) w.flags |= OVERFLOWED | INEXACT;
        w.magnitude = below ? least : f.max_significand;
        w.exponent = below ? f.emin : f.max_exponent;
        if (!finite) w.kind = has_infinity ? INFINITE : NOT_A_NUMBER;
        is_new = is_new || (!finite && !has_infinity);
    }
    if (w.kind == NOT_A_NUMBER) {
        if (is_new || !f.has_nan) w.flags |= INVALID;
        w.kind = f.has_nan ? NOT_A_NUMBER : FINITE;
        w.negative = 0;
        w.magnitude = least;
        w.exponent = f.emin;
        return w;
    }
    if (w.kind == FINITE && w.magnitude != 0 && bit_length(w.magnitude) - 1 + w.exponent < f.emin) w.flags |= SUBNORMAL;
    w.negative = w.negative && f.is_signed && (w.kind == INFINITE || w.magnitude != 0 || f.has_negative_zero);
    return w;
}

EMU_FN Written write(const Number& x, const Stage& stage, u32 u) {
    const Format& f = stage.format;
    Rounded r;
    r.quotient = 0;
    r.beyond = r.inexact = 0;
    r.exponent = f.quantum;
    if (x.kind == FINITE && (!is_zero(x) || moves_zero(stage))) {
        i32 place = f.is_float ? larger(leading(x) - (f.precision - 1), f.quantum) : f.quantum;
        r = round_to(x, place, stage, u);
    }
#if WIDE_WORDS >= 4
    if (x.has_low && !f.is_float) {
        r = round_to(number_of(x.negative, x.low, x.low_exponent, x.low_sticky), f.quantum, stage, u);
        r.beyond = 1;
    }
#endif
    Result w = f.is_float ? apply_float(x, r, stage, u) : apply_fixed(x, r, stage);
    Written written;
    written.flags = w.flags;
    if (w.kind != FINITE) written.bits = encode_special(w.kind == NOT_A_NUMBER, w.negative, stage.storage);
    else if (stage.storage >= STORED_I64) written.bits = w.negative ? 0ull - w.magnitude : w.magnitude;
    else written.bits = encode(w.negative, w.magnitude, w.exponent, stage.storage);
    return written;
}

EMU_FN void store(void* array, i64 index, u64 bits, i32 storage) {
    if (storage == STORED_F32) static_cast<u32*>(array)[index] = static_cast<u32>(bits);
    else static_cast<u64*>(array)[index] = bits;
}
