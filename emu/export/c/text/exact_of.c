static struct exact exact_of(const struct number *x)
{
    struct exact result = {x->kind, x->negative, x->exponent, {0}};
    result.word[0] = x->significand;
@if wide_products
    result.word[1] = x->high;
@end
    return result;
}
