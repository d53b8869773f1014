/* a / b: long division, a bit at a time, down to a bit far below the last place that is written. The last bit stands for
 * all that follow: it is 1 if any of them is. */
static struct exact quotient_of(const struct number *a, const struct number *b)
{
    struct exact q = {FINITE, a->negative != b->negative, 0, {0}};
    const int32_t a_length = length_of(a->significand), b_length = length_of(b->significand);
    const int32_t leading = a->exponent + a_length - b->exponent - b_length; /* of the quotient, or one more */
    uint64_t rest, divisor;
    int32_t i;
@if float_factors
    if (a->kind == NOT_A_NUMBER || b->kind == NOT_A_NUMBER) {
        q.kind = NOT_A_NUMBER;
        return q;
    }
    if (a->kind == INFINITE) {
        q.kind = b->kind == INFINITE ? MADE_NAN : INFINITE;
        return q;
    }
    if (b->kind == INFINITE)
        return q; /* a zero */
@end
    if (b_length == 0) {
        q.kind = a_length == 0 ? MADE_NAN : INFINITE;
        return q;
    }
    if (a_length == 0)
        return q;
    rest = a->significand << (64 - a_length);
    divisor = b->significand << (64 - b_length);
@if float_result
    q.exponent = leading - 1 - $fraction;
    if (q.exponent < $last)
        q.exponent = $last;
    q.exponent -= $below;
@else
    q.exponent = $last - $below;
@end
    for (i = leading - q.exponent; i >= 0; i--) {
        const bool carry = rest >> 63 != 0;
        if (i < leading - q.exponent) {
            rest <<= 1;
            if (!carry && rest < divisor)
                continue;
        } else if (rest < divisor) {
            continue;
        }
        rest -= divisor;
        q.word[i / 64] |= (uint64_t)1 << i % 64;
    }
    q.word[0] |= rest != 0;
    return q;
}
