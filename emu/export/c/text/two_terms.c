/* x + y, exactly. A zero is -0 if both terms are -0; toward minus infinity, if one of them is negative. */
static struct exact sum_of(const struct number *x, const struct number *y, bool toward_minus)
{
    uint64_t sum[WORDS] = {0};
    struct exact result;
@if specials
    if (x->kind != FINITE || y->kind != FINITE) {
        struct number special = {FINITE, false, 0, 0$high};
        add_special(&special, x);
        add_special(&special, y);
        return exact_of(&special);
    }
@end
    add_shifted(sum, x, x->exponent - LOWEST);
    add_shifted(sum, y, y->exponent - LOWEST);
    result = magnitude_of(sum, LOWEST);
    if (bit_length(&result) == 0)
        result.negative = toward_minus ? x->negative || y->negative : x->negative && y->negative;
    return result;
}
