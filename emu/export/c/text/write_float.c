/* ---- Output stage, floating point ------------------------------------------------------------------------------- */

enum float_rule {
    IEEE,        /* infinity, or the largest value where the mode rounds toward zero */
    SATFINITE,   /* the largest value */
    SATPROPAGATE /* the largest value, but an infinity stays one */
};

/* What writes floating point: format, rounding mode, and what is written beyond the largest value. */
struct float_stage {
    const struct float_format *format;
    struct rounding rounding;
    enum float_rule rule;
    bool stays[2]; /* rule IEEE: whether positive, negative results beyond the largest value become that value */
@if tininess
    bool is_tiny_before; /* underflow: tiny before it is rounded */
    bool is_tiny_after;  /* tiny if rounded as if exponents had no end */
@end
};

/* The code of a magnitude with a sign. */
static uint64_t signed_code(const struct float_format *format, bool negative, uint64_t magnitude)
{
    const uint64_t sign = sign_bit(format);
    const bool has_it = magnitude != 0 || format->nan != sign; /* -0 may be NaN */
    return negative && has_it ? magnitude | sign : magnitude;
}

/* What is written for NaN: a format without one has 0, or its smallest value, whose code is 0. */
static uint64_t write_nan(const struct float_format *format, bool is_made, uint32_t *flags)
{
    if (is_made || format->nan == NONE)
        *flags |= INVALID;
    return format->nan == NONE ? 0 : format->nan;
}

/* What is written for an infinity, and for results beyond the largest value. */
static uint64_t write_beyond(const struct float_stage *stage, const struct exact *x, uint32_t *flags)
{
    const struct float_format *format = stage->format;
    const bool infinite = x->kind == INFINITE;
    const bool below = x->negative && !format->is_signed; /* below all values of an unsigned format */
    const bool has_infinity = format->infinity != NONE && !below;
    const bool to_limit = stage->rule == IEEE        ? !infinite && stage->stays[x->negative]
                          : stage->rule == SATFINITE ? true
                                                     : !infinite || !has_infinity;
    if (!infinite || to_limit || !has_infinity)
        *flags |= OVERFLOW | INEXACT;
    if (to_limit)
        return signed_code(format, x->negative, below ? 0 : format->largest - format->origin);
    return has_infinity ? signed_code(format, x->negative, format->infinity) : write_nan(format, true, flags);
}

/* The steps from zero of a finite magnitude, rounded to a multiple of 2**last; *inexact says whether it moved. */
static uint64_t rounded_steps(const struct float_stage *stage, const struct exact *x, int32_t last$rbits_parameter,
                              bool *inexact)
{
    const struct float_format *format = stage->format;
    const int32_t n = last - x->exponent; /* bits of the significand below the last place */
    /* each binade above the lowest is 2**fraction steps further */
    const uint64_t steps = bits_from(x, n) + ((uint64_t)(int64_t)(last - format->last) << format->fraction);
    const bool odd = ((steps - format->origin) & 1) != 0; /* the last bit of the code */
    const int32_t step = $float_step;
    *inexact = place_below(x, n) != EXACT || step != 0;
    return steps + (uint64_t)(int64_t)step; /* a carry goes on into the exponent */
}

static uint64_t write_float(const struct float_stage *stage, const struct exact *x$rbits_parameter, uint32_t *flags)
{
    const struct float_format *format = stage->format;
    const int32_t leading = x->exponent + bit_length(x) - 1; /* of a number other than 0 */
@if tininess or zeroless_result
    const int32_t normal = format->last + format->fraction; /* exponent of the smallest normal value */
@end
    const bool nonzero = bit_length(x) > 0;
    bool inexact = false, is_zero, underflow;
    uint64_t steps = 0;
    if (x->kind == NOT_A_NUMBER || x->kind == MADE_NAN)
        return write_nan(format, x->kind == MADE_NAN, flags);
    if (x->kind == INFINITE || (nonzero && leading > format->top))
        return write_beyond(stage, x, flags);
    if (nonzero) {
        const int32_t last = leading - format->fraction;
        steps = rounded_steps(stage, x, last > format->last ? last : format->last$rbits, &inexact);
    }
@if flushes_results
    if (format->flushes_results && steps > 0 && steps >> format->fraction == 0) {
        steps = 0;
        inexact = true;
    }
@end
@if hidden_one
    if (format->is_hidden_one && steps > 0 && steps <= format->origin) { /* below code 1 */
        steps = 0;
        inexact = true;
    }
@end
    is_zero = steps == 0;
@if zeroless_result and hidden_one
    if (!format->is_hidden_one && format->origin > 0 && !(nonzero && leading >= normal)) {
        steps = format->origin; /* the smallest value stands for 0 */
        inexact = true;
        is_zero = true;
    }
@end
@if zeroless_result and not hidden_one
    if (format->origin > 0 && !(nonzero && leading >= normal)) { /* the smallest value stands for 0 */
        steps = format->origin;
        inexact = true;
        is_zero = true;
    }
@end
    if (steps > format->largest || (x->negative && !format->is_signed && !is_zero))
        return write_beyond(stage, x, flags);
    underflow = nonzero && is_zero;
@if tininess
    if (stage->is_tiny_before || stage->is_tiny_after) {
        underflow = nonzero && inexact && leading < normal;
        if (underflow && stage->is_tiny_after && leading == normal - 1) {
            bool moves;
            underflow = rounded_steps(stage, x, leading - format->fraction$rbits, &moves) >> format->fraction == 0;
        }
@if hidden_one
        if (format->is_hidden_one) /* the smallest normal number is a step above 2**normal */
            underflow = nonzero && (is_zero || (stage->is_tiny_before && leading == normal &&
                                                bits_from(x, format->last - x->exponent) == format->origin));
@end
    }
@end
    *flags |= (inexact ? INEXACT : 0) | (underflow ? UNDERFLOW : 0);
@if hidden_one
    if (format->is_hidden_one && is_zero)
        return signed_code(format, x->negative && format->is_signed, 0);
@end
    return signed_code(format, x->negative && format->is_signed, steps - format->origin);
}
