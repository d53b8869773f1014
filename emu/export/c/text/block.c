/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* The numbers of a block: products of a[i] and b[i], and what the accumulator holds. */
struct block {
    const uint64_t *a, *b;
    size_t depth;   /* how many products there are in all */
    size_t start;   /* of the period of blocks */
    int32_t offset; /* of this block within it */
};

enum {
    PRODUCTS = $block_n, /* of a block */
    PERIOD = $block_period, /* products of a period, whose blocks share them */
    KEPT = $block_kept, /* bits kept below the largest exponent */
    PRODUCT_POINT = $product_point, /* places behind the binary point of a product's significand ... */
    SUM_POINT = $sum_point /* ... and of the accumulator's */
};

/* R: as elsewhere, but every overflow is infinite, in every mode. */
static uint64_t block_rounded(const struct float_stage *stage, const struct exact *x, uint32_t *flags)
{
    uint32_t raised = 0;
    const uint64_t code = write_float(stage, x$no_rbits, &raised);
    if ((raised & OVERFLOW) == 0)
        return code;
@if sum_becomes_infinite
    if (x->kind == FINITE)
        *flags |= ACCUMULATOR_OVERFLOW;
@if sum_has_infinity
    return signed_code(stage->format, x->negative, stage->format->infinity);
@else
    return stage->format->nan == NONE ? 0 : stage->format->nan;
@end
@else
    *flags |= ACCUMULATOR_OVERFLOW;
    return code;
@end
}

/* Term i of a block, 0 <= i < PRODUCTS: a product, or 0 past the last one. */
static struct number block_term(const struct block *block, int32_t i)
{
@if alternating
    const size_t k = block->start + (size_t)(4 * (i / 2) + i % 2 + block->offset); /* k mod 4 is 0, 1, or 2, 3 */
@else
    const size_t k = block->start + (size_t)(i + block->offset);
@end
    struct number x = {FINITE, false, 0, 0$high}, y;
    if (k >= block->depth)
        return x;
    x = $unpack_a_k;
    y = $unpack_b_k;
    return product_of(&x, &y);
}

/* sum += x, cut toward zero to a multiple of 2**last: no guard bit, no sticky bit. */
static void add_cut(uint64_t *sum, const struct number *x, int32_t last)
{
    struct number cut = *x;
    const int32_t down = last - x->exponent;
    if (down <= 0) {
        add_shifted(sum, x, -down);
        return;
    }
@if wide_products
    cut.significand = down < 64 ? x->significand >> down | x->high << 1 << (63 - down)
                    : down < 128 ? x->high >> (down - 64)
                                 : 0;
    cut.high = down < 64 ? x->high >> down : 0;
@else
    cut.significand = down < 64 ? x->significand >> down : 0;
@end
    add_shifted(sum, &cut, 0);
}

/* R(state + the products of a block), all aligned to the largest exponent among them. */
static uint64_t block_added(uint64_t state, const struct block *block, uint32_t *flags)
{
    const struct number content = $unpack_state;
    struct number special = {FINITE, false, 0, 0$high};
    uint64_t sum[WORDS] = {0};
    struct exact x;
@if sum_has_negative_zero
    uint64_t code;
@end
    int32_t largest = 0, i;
    bool is_zero = true;
    for (i = -1; i < PRODUCTS; i++) { /* -1 stands for the accumulator */
        const struct number term = i < 0 ? content : block_term(block, i);
        const int32_t exponent = term.exponent + (i < 0 ? SUM_POINT : PRODUCT_POINT);
        add_special(&special, &term);
        if (term.kind != FINITE || is_zero_number(&term))
            continue;
        if (is_zero || exponent > largest)
            largest = exponent;
        is_zero = false;
    }
    if (special.kind != FINITE) {
        x = exact_of(&special);
        return block_rounded(&ACCUMULATOR, &x, flags);
    }
    if (is_zero)
        return 0;
@if min_exponent
    if (largest < $min_exponent)
        largest = $min_exponent;
@end
    for (i = -1; i < PRODUCTS; i++) {
        const struct number term = i < 0 ? content : block_term(block, i);
        add_cut(sum, &term, largest - KEPT);
    }
    x = magnitude_of(sum, largest - KEPT);
@if sum_has_negative_zero
    code = block_rounded(&ACCUMULATOR, &x, flags);
    return code == sign_bit(ACCUMULATOR.format) ? 0 : code; /* a block never gives -0 */
@else
    return block_rounded(&ACCUMULATOR, &x, flags);
@end
}
