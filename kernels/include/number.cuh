// Exact results: sign, significand, exponent, and what follows below the last bit.
//
//     value = +-(significand + sticky) * 2**exponent        0 <= sticky < 1, not 0 where `sticky` says so
#pragma once
#include "wide.cuh"

// A new NaN came from operands that were none.
enum Kind { FINITE = 0, INFINITE = 1, NOT_A_NUMBER = 2, NEW_NAN = 3 };

struct Number {
    u32 kind;
    u32 negative;
    u32 sticky;
    i32 exponent;
    Wide significand;
#if WIDE_WORDS >= 4
    // Where low bits were cut that a format which wraps writes: the magnitude again, modulo 2**(low_exponent + 256).
    u32 has_low, low_sticky;
    i32 low_exponent;
    Wide low;
#endif
};
// A stage that does not wrap looks at no low bits of large numbers.
#define NO_LOW_BITS (1 << 30)
// Low bits are kept from so many places below the last one written.
#define LOW_BITS_BELOW 128
static_assert(LOW_BITS_BELOW >= 64 && LOW_BITS_BELOW + 64 <= 256, "random bits below a word of 64, in 256 bits");
static_assert(NO_LOW_BITS > (1 << 20), "above every last place");

EMU_FN Number number_of(u32 negative, const Wide& significand, i32 exponent, u32 sticky) {
    Number x;
    x.kind = FINITE;
    x.negative = negative;
    x.sticky = sticky;
    x.exponent = exponent;
    x.significand = significand;
#if WIDE_WORDS >= 4
    x.has_low = 0;
#endif
    return x;
}

// Whether a number whose bits below 2**exponent were cut lacks some that are written: `quantum` of a format that wraps.
EMU_FN bool lacks_low_bits(i32 exponent, i32 quantum) { return quantum != NO_LOW_BITS && exponent > quantum - LOW_BITS_BELOW / 2; }

EMU_FN Number special(u32 kind, u32 negative) {
    Number x = number_of(negative, wide_of(0), 0, 0);
    x.kind = kind;
    return x;
}

EMU_FN bool is_zero(const Number& x) { return x.kind == FINITE && is_zero(x.significand) && x.sticky == 0; }

// floor(log2 |x|) of a finite number other than 0.
EMU_FN i32 leading(const Number& x) { return bit_length(x.significand) - 1 + x.exponent; }

// A number as it lies in memory.
enum Storage { STORED_F32 = 0, STORED_F64 = 1, STORED_I64 = 2, STORED_U64 = 3, STORED_I32 = 4 };

EMU_FN Number decode_float(u64 bits, i32 fraction_bits, i32 field_bits, i32 bias) {
    u64 fraction = low_bits(bits, fraction_bits);
    u32 field = static_cast<u32>(low_bits(bits >> fraction_bits, field_bits));
    u32 negative = static_cast<u32>(bits >> (fraction_bits + field_bits)) & 1u;
    if (field == (1u << field_bits) - 1u) return special(fraction != 0 ? NOT_A_NUMBER : INFINITE, fraction != 0 ? 0u : negative);
    u64 significand = field != 0 ? fraction | (1ull << fraction_bits) : fraction;
    i32 exponent = static_cast<i32>(field != 0 ? field : 1u) - bias - fraction_bits;
    return number_of(negative, wide_of(significand), exponent, 0);
}

// A number by its bits in memory, those of integers extended to 64; integers are multiples of 2**quantum.
EMU_FN Number decoded(u64 bits, i32 storage, i32 quantum) {
    if (storage == STORED_F32) return decode_float(bits, 23, 8, 127);
    if (storage == STORED_F64) return decode_float(bits, 52, 11, 1023);
    u32 negative = storage != STORED_U64 ? static_cast<u32>(bits >> 63) : 0u;
    return number_of(negative, wide_of(negative ? 0ull - bits : bits), quantum, 0);
}

// Element `index` of an array; integers are multiples of 2**quantum.
EMU_FN Number load(const void* array, i64 index, i32 storage, i32 quantum) {
    u64 bits = storage == STORED_F32   ? static_cast<const u32*>(array)[index]
               : storage == STORED_I32 ? static_cast<u64>(static_cast<i64>(static_cast<const i32*>(array)[index]))
                                       : static_cast<const u64*>(array)[index];
    return decoded(bits, storage, quantum);
}

// The raw integer of a multiple of 2**quantum, modulo 2**64.
EMU_FN u64 raw_of(const Number& x, i32 quantum) {
    i32 up = x.exponent - quantum;
    u64 magnitude = up >= 0 ? shift_left(x.significand.word[0], up) : shift_right(x.significand.word[0], -up);
    return x.negative ? 0ull - magnitude : magnitude;
}

// Subnormal operands of a format with `emin` count as 0 of their sign.
EMU_FN Number flushed(const Number& x, i32 emin) {
    if (x.kind != FINITE || is_zero(x) || leading(x) >= emin) return x;
    return number_of(x.negative, wide_of(0), 0, 0);
}

EMU_FN Number negated(const Number& x) {
    Number y = x;
    y.negative = x.kind >= NOT_A_NUMBER ? 0u : x.negative ^ 1u;
    return y;
}
