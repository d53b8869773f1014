@if exact_sum
    /* The sum is an integer: nothing rounds before the output stage, and the order of the terms is irrelevant. */
    uint64_t sum[WORDS] = {0};
    struct exact x;
    size_t i;
@if specials
    struct number special = {FINITE, false, 0, 0$high};
@end
@if signed_zeros
    bool all_zero = true, all_minus = k > 0, any_minus = false;
@end
    for (i = 0; i < k; i++) {
        const struct number left = $unpack_a_i, right = $unpack_b_i;
        const struct number term = $term;
@if signed_zeros
        all_zero = all_zero && is_zero_number(&term);
        all_minus = all_minus && term.negative;
        any_minus = any_minus || term.negative;
@end
@if specials
        add_special(&special, &term);
        if (term.kind == FINITE)
            add_shifted(sum, &term, term.exponent - LOWEST);
@else
        add_shifted(sum, &term, term.exponent - LOWEST);
@end
    }
@if addend
    {
        const struct number term = $unpack_addend;
@if signed_zeros
        all_zero = all_zero && is_zero_number(&term);
        all_minus = all_minus && term.negative;
        any_minus = any_minus || term.negative;
@end
@if specials
        add_special(&special, &term);
        if (term.kind == FINITE)
            add_shifted(sum, &term, term.exponent - LOWEST);
@else
        add_shifted(sum, &term, term.exponent - LOWEST);
@end
    }
@end
    x = magnitude_of(sum, LOWEST);
@if signed_zeros
    if (bit_length(&x) == 0)
        x.negative = all_zero ? all_minus || (any_minus && $toward_minus) : $toward_minus;
@end
@if specials
    if (special.kind != FINITE)
        x = exact_of(&special);
@end
@end
@if blocks
    struct block block = {a, b, k, 0, 0};
    struct number content;
    struct exact x;
@if addend
    const struct number start = $unpack_addend;
    const struct exact first = exact_of(&start);
    uint64_t state = block_rounded(&ACCUMULATOR, &first, &raised);
@else
    uint64_t state = 0;
@end
    for (; block.start < k; block.start += PERIOD) {
@if adds_after
        uint64_t total = 0; /* what the blocks of a period add up to; then an adder of its own adds it */
        struct number right;
        struct exact both;
@end
@if alternating
        for (block.offset = 0; block.offset <= 2; block.offset += 2)
            $total = block_added($total, &block, &raised);
@else
        $total = block_added($total, &block, &raised);
@end
@if adds_after
        content = $unpack_state;
        right = $unpack_total;
        both = sum_of(&content, &right, false);
        state = block_rounded(&ADDER, &both, &raised);
@end
    }
    content = $unpack_state;
    x = exact_of(&content);
@end
@if sequential or lanes or pairwise
    struct number content;
    struct exact x;
@if sequential
@if addend
    const struct number start = $unpack_addend;
    const struct exact first = exact_of(&start);
    uint64_t state = accumulated(&first, &raised);
@else
    uint64_t state = 0;
@end
    size_t i;
    for (i = 0; i < k; i++) {
        const struct number left = $unpack_a_i, right = $unpack_b_i;
        const struct number term = $term;
        state = added(state, &term, &raised);
    }
@end
@if pairwise
    struct tree tree = {0, {0}};
    uint64_t state;
    int32_t levels = 0;
    size_t i;
    for (i = 0; i < k; i++) {
        const struct number left = $unpack_a_i, right = $unpack_b_i;
        const struct number term = $term;
        const struct exact leaf = exact_of(&term);
        add_leaf(&tree, accumulated(&leaf, &raised), &raised);
    }
    while (k > 1 && (k - 1) >> levels != 0) /* 2**levels leaves, at least k */
        levels++;
    state = root_of_tree(&tree, levels, &raised);
@end
@if lanes
    struct tree tree = {0, {0}};
    uint64_t state;
    size_t lane, i;
    for (lane = 0; lane < LANES && lane < k; lane++) {
        uint64_t sum = 0;
        for (i = lane; i < k; i += LANES) {
            const struct number left = $unpack_a_i, right = $unpack_b_i;
            const struct number term = $term;
            sum = added(sum, &term, &raised);
        }
        add_leaf(&tree, sum, &raised);
    }
    state = root_of_tree(&tree, $levels, &raised);
@end
@if addend and not sequential
    {
        const struct number term = $unpack_addend;
        state = added(state, &term, &raised);
    }
@end
    content = $unpack_state;
    x = exact_of(&content);
@end
@if searches_nan
    if (x.kind == NOT_A_NUMBER || x.kind == MADE_NAN) /* invalid unless an operand is NaN */
        x.kind = $any_nan ? NOT_A_NUMBER : MADE_NAN;
@end
