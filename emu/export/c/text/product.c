static bool is_zero_number(const struct number *x)
{
@if wide_products
    return x->kind == FINITE && x->significand == 0 && x->high == 0;
@else
    return x->kind == FINITE && x->significand == 0;
@end
}

/* a * b, exactly; the sign of a zero product, too, is the exclusive or of the signs. */
static struct number product_of(const struct number *a, const struct number *b)
{
    struct number p = {FINITE, a->negative != b->negative, a->exponent + b->exponent, 0$high};
@if float_factors
    if (a->kind != FINITE || b->kind != FINITE) {
        if (a->kind == NOT_A_NUMBER || b->kind == NOT_A_NUMBER)
            p.kind = NOT_A_NUMBER;
        else
            p.kind = is_zero_number(a) || is_zero_number(b) ? MADE_NAN : INFINITE;
        return p;
    }
@end
@if wide_products
    {   /* in halves of 32 bits */
        const uint64_t a1 = a->significand >> 32, a0 = low_bits(a->significand, 32);
        const uint64_t b1 = b->significand >> 32, b0 = low_bits(b->significand, 32);
        const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + low_bits(middle, 32);
        p.significand = a->significand * b->significand; /* modulo 2**64 */
        p.high = a1 * b1 + (middle >> 32) + (other >> 32);
    }
@else
    p.significand = a->significand * b->significand;
@end
    return p;
}
