/* ---- Rounding to an integer ------------------------------------------------------------------------------------- */

/* The integer to which x is rounded, with the sign of x; *moved says whether it differs from x. */
static struct exact integral_of(const struct number *x$rbits_parameter, bool *moved)
{
    struct exact value = exact_of(x);
    const int32_t n = -x->exponent; /* bits of the significand behind the binary point */
    const bool odd = (bits_from(&value, n) & 1) != 0;
    int32_t step;
    *moved = false;
@if specials
    if (x->kind != FINITE)
        return value;
@end
@if fixed_result
    value.negative = value.negative && x->significand != 0; /* no -0 is written */
@end
@if moves_exact and not fixed_result or moves_exact and sign_magnitude_result
    if (x->significand == 0)
        return value;
@end
@if not moves_exact
    if (n <= 0)
        return value;
@end
    step = $integral_step;
    *moved = place_below(&value, n) != EXACT || step != 0;
    value.exponent = 0;
@if moves_exact
    {   /* the mode moves exact results, too, however large they are */
        const struct number one = {FINITE, step < 0, 0, step != 0$high};
        struct number magnitude = *x;
        magnitude.negative = false;
        if (n > 0)
            magnitude.significand = bits_from(&value, n);
        value.word[0] = 0;
        add_shifted(value.word, &magnitude, n > 0 ? 0 : -n);
        add_shifted(value.word, &one, 0);
    }
@else
    value.word[0] = bits_from(&value, n) + (uint64_t)(int64_t)step;
@end
    return value;
}
