// Elementwise arithmetic, exact before the one rounding of the output stage.
//
// Sums keep what any stage can tell apart, the rest as a sticky bit; quotients and roots have 128 bits and one.
// Source: docs/concepts/elementwise.md; IEEE 754-2019 sections 5.4.1, 6 and 7.
#pragma once
#include "stage.cuh"

enum Operation {
    QUANTIZE = 0, ADD = 1, SUBTRACT = 2, MULTIPLY = 3, FMA = 4, DIVIDE = 5, SQRT = 6, REMAINDER = 7, ROUND_TO_INTEGRAL = 8
};

// Length of an aligned sum's larger term: a carry fits above it.
#define SUM_TOP (WIDE_BITS - 2)

// A NaN: new, unless one of the operands came in as one.
EMU_FN Number any_nan(const Number& a, const Number& b) {
    return special(a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER ? NOT_A_NUMBER : NEW_NAN, 0);
}

EMU_FN Number multiply(const Number& a, const Number& b) {
    u32 negative = a.negative ^ b.negative;
    if (a.kind >= NOT_A_NUMBER || b.kind >= NOT_A_NUMBER) return special(NOT_A_NUMBER, 0);
    if (a.kind == INFINITE || b.kind == INFINITE)
        return is_zero(a) || is_zero(b) ? special(NEW_NAN, 0) : special(INFINITE, negative);
    return number_of(negative, product_of(a.significand.word[0], b.significand.word[0]), a.exponent + b.exponent, 0);
}

#if WIDE_WORDS >= 4
// Low bits of a sum, |large| far above |small|, from 2**exponent on.
EMU_FN void keep_low_bits(Number& sum, const Number& large, const Number& small, i32 exponent) {
    i32 right = exponent - small.exponent;
    Wide x = shifted_left(large.significand, smaller(large.exponent - exponent, WIDE_BITS));
    Wide y = right >= 0 ? shifted_right(small.significand, smaller(right, WIDE_BITS))
                        : shifted_left(small.significand, smaller(-right, WIDE_BITS));
    sum.has_low = 1;
    sum.low_exponent = exponent;
    sum.low_sticky = right > 0 && any_below(small.significand, right);
    sum.low = large.negative == small.negative ? sum_of(x, y) : difference_of(x, y);
    if (large.negative != small.negative && sum.low_sticky) sum.low = difference_of(sum.low, wide_of(1));
}
#endif

// The terms have no sticky bit. Under floor an exact zero of terms of both signs is -0. `quantum`: of a stage that wraps.
EMU_FN Number add(const Number& a, const Number& b, i32 rounding, i32 quantum) {
    if (a.kind != FINITE || b.kind != FINITE) {
        u32 clash = a.kind == INFINITE && b.kind == INFINITE && a.negative != b.negative;
        if (a.kind >= NOT_A_NUMBER || b.kind >= NOT_A_NUMBER || clash) return any_nan(a, b);
        return a.kind == INFINITE ? a : b;
    }
    u32 zero_sign = rounding == FLOOR ? a.negative | b.negative : a.negative & b.negative;
    if (is_zero(a) || is_zero(b)) {
        Number x = is_zero(a) ? b : a;
        if (is_zero(x)) x.negative = zero_sign;
        return x;
    }
    bool first = leading(a) >= leading(b);
    const Number& large = first ? a : b;
    const Number& small = first ? b : a;
    i32 up = smaller(SUM_TOP - bit_length(large.significand), large.exponent - small.exponent);
    up = larger(up, 0);
    i32 exponent = large.exponent - up, right = exponent - small.exponent;  // right < 0: the small one moves up as well
    Wide x = shifted_left(large.significand, up);
    Wide y = right >= 0 ? shifted_right(small.significand, smaller(right, WIDE_BITS))
                        : shifted_left(small.significand, -right);
    u32 sticky = right > 0 && any_below(small.significand, right);
    Number sum;
    if (a.negative == b.negative) {
        sum = number_of(a.negative, sum_of(x, y), exponent, sticky);
    } else {
        bool swapped = is_less(x, y);
        Wide rest = swapped ? difference_of(y, x) : difference_of(x, y);
        if (sticky) rest = difference_of(rest, wide_of(1));  // the small one was cut: x - (y + s) = (x - y - 1) + (1 - s)
        u32 negative = swapped ? small.negative : large.negative;
        sum = number_of(is_zero(rest) && !sticky ? zero_sign : negative, rest, exponent, sticky);
    }
#if WIDE_WORDS >= 4
    if (sticky && lacks_low_bits(exponent, quantum)) keep_low_bits(sum, large, small, quantum - LOW_BITS_BELOW);
#endif
    return sum;
}

#if WIDE_WORDS >= 4
// One bit of a long division: the next of the numerator enters the rest from the right, one of the quotient comes out.
EMU_FN void divide_step(Wide& quotient, u64& rest, u64 divisor, u64 bit) {
    u64 carried = rest >> 63;
    rest = (rest << 1) | bit;
    u64 goes = carried || rest >= divisor;
    rest -= goes ? divisor : 0ull;
    quotient = shifted_left(quotient, 1);
    quotient.word[0] |= goes;
}

// The quotient's bits: 128 after the leading one's place at most, then sticky. `quantum`: of a stage that wraps.
EMU_FN Number divide(const Number& a, const Number& b, i32 quantum) {
    u32 negative = a.negative ^ b.negative;
    if (a.kind >= NOT_A_NUMBER || b.kind >= NOT_A_NUMBER) return special(NOT_A_NUMBER, 0);
    if ((a.kind == INFINITE && b.kind == INFINITE) || (is_zero(a) && is_zero(b))) return special(NEW_NAN, 0);
    if (a.kind == INFINITE || is_zero(b)) return special(INFINITE, negative);
    if (b.kind == INFINITE || is_zero(a)) return number_of(negative, wide_of(0), 0, 0);
    u64 divisor = b.significand.word[0], rest = 0;
    Wide quotient = wide_of(0);
    constexpr i32 digits = 128;
    static_assert(64 + digits <= WIDE_BITS && digits >= 64 + 2 + 32, "a word, a guard bit, random bits; within the integer");
    for (i32 place = 63 + digits; place >= 0; place--)  // bits of the numerator, then zeros
        divide_step(quotient, rest, divisor, place >= digits ? (a.significand.word[0] >> (place - digits)) & 1ull : 0ull);
    Number x = number_of(negative, quotient, a.exponent - b.exponent - digits, rest != 0);
    if (rest != 0 && lacks_low_bits(x.exponent, quantum)) {
        x.has_low = 1;
        x.low_exponent = quantum - LOW_BITS_BELOW;
        for (i32 place = x.exponent; place > x.low_exponent; place--) divide_step(quotient, rest, divisor, 0);
        x.low_sticky = rest != 0;
        x.low = quotient;
    }
    return x;
}

EMU_FN Number square_root(const Number& a) {
    if (a.kind >= NOT_A_NUMBER || is_zero(a)) return a.kind >= NOT_A_NUMBER ? special(NOT_A_NUMBER, 0) : a;
    if (a.negative) return special(NEW_NAN, 0);
    if (a.kind == INFINITE) return a;
    constexpr i32 length = 250, places = 126;
    static_assert(length + 1 <= WIDE_BITS && places >= length / 2 && 2 * places + 1 < WIDE_BITS, "the root's bits, and its square");
    i32 up = length - bit_length(a.significand);
    up -= (a.exponent - up) & 1;
    Wide rest = shifted_left(a.significand, up), root = wide_of(0);
    for (i32 place = places; place >= 0; place--) {  // rest - (root + 2**place)**2 + root**2 = rest - root * 2**(place+1) - 4**place
        Wide step = sum_of(shifted_left(root, place + 1), shifted_left(wide_of(1), 2 * place));
        if (!is_less(rest, step)) {
            rest = difference_of(rest, step);
            root = sum_of(root, shifted_left(wide_of(1), place));
        }
    }
    return number_of(0, root, (a.exponent - up) >> 1, !is_zero(rest));
}

// a - b*n, n the integer nearest to a/b, ties to even: long division, of which the rest and the last bit are kept.
EMU_FN Number remainder(const Number& a, const Number& b) {
    if (a.kind >= NOT_A_NUMBER || b.kind >= NOT_A_NUMBER) return special(NOT_A_NUMBER, 0);
    if (a.kind == INFINITE || is_zero(b)) return special(NEW_NAN, 0);
    if (b.kind == INFINITE || is_zero(a)) return a;
    i32 up = larger(a.exponent - b.exponent, 0), down = larger(b.exponent - a.exponent, 0);
    u64 whole = shift_right(a.significand.word[0], down), divisor = b.significand.word[0], rest = 0, odd = 0;
    for (i32 place = 63 + up; place >= 0; place--) {
        u64 carried = rest >> 63;
        rest = (rest << 1) | (place >= up ? (whole >> (place - up)) & 1ull : 0ull);
        odd = carried || rest >= divisor;
        rest -= odd ? divisor : 0ull;
    }
    // in units of the finer operand; a divisor so far above is more than twice the dividend
    constexpr i32 far = 66;
    static_assert(far >= 64 + 2 && 64 + far + 1 <= WIDE_BITS, "twice a word lies below; a shifted word and its double fit");
    rest = shift_left(rest, down) | low_bits(a.significand.word[0], down);
    Wide left = wide_of(rest), right = shifted_left(wide_of(divisor), smaller(down, far)), twice = shifted_left(left, 1);
    bool beyond = is_less(right, twice) || (odd && !is_less(twice, right));
    u32 negative = a.negative ^ (beyond ? 1u : 0u);
    return number_of(negative, beyond ? difference_of(right, left) : left, smaller(a.exponent, b.exponent), 0);
}
#endif

// A number rounded to an integer in the stage's mode, which moves no integer; `flags` gets INEXACT where it moved.
EMU_FN Number integral(const Number& x, const Stage& stage, u32 u, u32* flags) {
    if (x.kind != FINITE || is_zero(x)) return x;
    Stage whole = stage;
    whole.format.precision = 0;  // an integer's last bit is its own
    Rounded r = round_to(x, larger(x.exponent, 0), whole, u);
    if (r.inexact) *flags = INEXACT;
    return number_of(x.negative, wide_of(r.quotient), r.exponent, 0);
}

// What a stage needs to know of a sum: the last place of a format that wraps.
EMU_FN i32 wrapping_quantum(const Stage& stage) {
    return stage.overflow == WRAP && !stage.format.is_float ? stage.format.quantum : NO_LOW_BITS;
}

EMU_FN Number compute(i32 operation, const Number& a, const Number& b, const Number& c, const Stage& stage) {
    i32 rounding = stage.rounding, quantum = wrapping_quantum(stage);
    switch (operation) {
        case ADD: return add(a, b, rounding, quantum);
        case SUBTRACT: return add(a, negated(b), rounding, quantum);
        case MULTIPLY: return multiply(a, b);
        case FMA: return add(multiply(a, b), c, rounding, quantum);
#if WIDE_WORDS >= 4
        case DIVIDE: return divide(a, b, quantum);
        case SQRT: return square_root(a);
        case REMAINDER: return remainder(a, b);
#endif
        default: return a;
    }
}
