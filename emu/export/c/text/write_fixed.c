/* ---- Output stage, fixed point ---------------------------------------------------------------------------------- */

enum fixed_rule {
    SATURATE, /* the limit */
    ZERO,     /* 0 */
@if sign_magnitude
    WRAP      /* modulo 2**width, a magnitude beside a sign modulo 2**(width - 1), but of an infinity the limit */
@else
    WRAP      /* the result modulo 2**width, but of an infinity the limit */
@end
};

/* What writes fixed point: format, rounding mode, and what is written beyond the limits. */
struct fixed_stage {
    const struct fixed_format *format;
    struct rounding rounding;
    uint64_t limit[2]; /* largest magnitudes, of positive and of negative results */
    enum fixed_rule rule;
};

static uint64_t write_fixed(const struct fixed_stage *stage, const struct exact *x$rbits_parameter, uint32_t *flags)
{
    const struct fixed_format *format = stage->format;
    const int32_t n = format->last - x->exponent; /* bits of the significand below the last place */
    const bool nonzero = bit_length(x) > 0;
    struct exact value = *x;
    bool overflow = x->kind == INFINITE, inexact = false;
    uint64_t magnitude = 0;
@if specials
    if (x->kind == NOT_A_NUMBER || x->kind == MADE_NAN) { /* written as 0 */
        *flags |= INVALID;
        return 0;
    }
@end
    if (x->kind == FINITE) {
        int32_t step;
        value.negative = x->negative && nonzero; /* no -0 is written */
        magnitude = bits_from(x, n);
        step = $fixed_step;
@if sign_magnitude
        if (format->is_sign_magnitude && !nonzero)
            step = 0; /* beside a sign, a zero stays in every mode */
@end
        inexact = place_below(x, n) != EXACT || step != 0;
        overflow = (nonzero && bit_length(x) > n + 64) || (step > 0 && magnitude == UINT64_MAX);
        magnitude += (uint64_t)(int64_t)step;
        overflow = overflow || magnitude > stage->limit[value.negative];
        if (nonzero && !overflow && magnitude == 0)
            *flags |= UNDERFLOW;
    }
    if (inexact || overflow)
        *flags |= INEXACT;
    if (overflow) {
        *flags |= OVERFLOW;
        if (stage->rule == ZERO)
            magnitude = 0;
        else if (stage->rule == SATURATE || x->kind == INFINITE)
            magnitude = stage->limit[value.negative];
    }
@if sign_magnitude
    if (format->is_sign_magnitude) {
        magnitude = low_bits(magnitude, format->width - 1);
        return value.negative && magnitude != 0 ? magnitude | (uint64_t)1 << (format->width - 1) : magnitude;
    }
@end
    return low_bits(value.negative ? 0 - magnitude : magnitude, format->width);
}
