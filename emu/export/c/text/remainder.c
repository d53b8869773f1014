/* a - b * n, n the integer nearest to a / b, of two the even one: exact. A zero has the sign of a. */
static struct number remainder_of(const struct number *a, const struct number *b)
{
    struct number r = *a;
    const int32_t up = a->exponent > b->exponent ? a->exponent - b->exponent : 0;
    const int32_t down = a->exponent < b->exponent ? b->exponent - a->exponent : 0;
    uint64_t rest, other, other_high;
    bool odd;
    int32_t i;
@if float_factors
    if (a->kind == NOT_A_NUMBER || b->kind == NOT_A_NUMBER) {
        r.kind = NOT_A_NUMBER;
        return r;
    }
    if (a->kind == INFINITE || (b->kind == FINITE && b->significand == 0)) {
        r.kind = MADE_NAN;
        return r;
    }
    if (b->kind == INFINITE)
        return r;
@else
    if (b->significand == 0) {
        r.kind = MADE_NAN;
        return r;
    }
@end
    if (down > 64)
        return r; /* |a| < |b| / 2 */
    /* a = whole * 2**down + low bits; whole * 2**up modulo b, and the last bit of that quotient */
    rest = down < 64 ? a->significand >> down : 0;
    odd = (rest / b->significand & 1) != 0;
    rest %= b->significand;
    for (i = 0; i < up; i++) {
        const bool carry = rest >> 63 != 0;
        rest <<= 1;
        odd = carry || rest >= b->significand;
        if (odd)
            rest -= b->significand;
    }
    if (down > 0)
        rest = (down < 64 ? rest << down : 0) | low_bits(a->significand, down);
    /* the other remainder is b * 2**down - rest */
    other = down < 64 ? b->significand << down : 0;
    other_high = down > 0 ? b->significand >> (64 - down) : 0;
    other_high -= other < rest;
    other -= rest;
    if (other_high == 0 && (other < rest || (other == rest && odd))) {
        rest = other;
        r.negative = !r.negative;
    }
    r.significand = rest;
    r.exponent -= up;
    return r;
}
