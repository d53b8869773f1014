/* ---- The unit that multiplies and accumulates ------------------------------------------------------------------- */
@if rounds_products

/* A product, rounded into the product's format. */
static struct number term_of(const struct number *a, const struct number *b, uint32_t *flags)
{
    const struct number exact_product = product_of(a, b);
    const struct exact x = exact_of(&exact_product);
    uint32_t raised = 0;
    const uint64_t code = $write_product(&PRODUCT, &x$no_rbits, &raised);
    const struct number term = $unpack_term;
@if product_becomes_infinite
    if ((raised & OVERFLOW) != 0 && x.kind == FINITE && $term_is_infinite)
        *flags |= ACCUMULATOR_OVERFLOW;
@else
    (void)flags; /* a product's overflow raises none */
@end
    return term;
}
@end
@if rounds_sums

/* R: what the accumulator holds of an exact sum. The register holds codes. */
static uint64_t accumulated(const struct exact *x, uint32_t *flags)
{
    uint32_t raised = 0;
    const uint64_t code = $write_accumulator(&ACCUMULATOR, x$no_rbits, &raised);
@if sum_becomes_infinite
    const struct number content = $unpack_code;
    if ((raised & OVERFLOW) != 0 && x->kind == FINITE && $content_is_infinite)
        *flags |= ACCUMULATOR_OVERFLOW;
@end
@if sum_saturates
    if ((raised & OVERFLOW) != 0)
        *flags |= ACCUMULATOR_OVERFLOW;
@end
@if not sum_saturates and not sum_becomes_infinite
    (void)flags; /* an accumulator that wraps raises none */
@end
    return code;
}

/* R(state + term). */
static uint64_t added(uint64_t state, const struct number *term, uint32_t *flags)
{
    const struct number content = $unpack_state;
    const struct exact x = sum_of(&content, term, $mac_toward_minus);
    return accumulated(&x, flags);
}
@end
