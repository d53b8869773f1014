/* ---- Minimum and maximum ---------------------------------------------------------------------------------------- */

/* Whether a < b; -0 is below +0. */
static bool is_less(const struct number *a, const struct number *b)
{
    struct number minus_b = *b;
    struct exact difference;
    if (a->kind == INFINITE)
        return a->negative && !(b->kind == INFINITE && b->negative);
    if (b->kind == INFINITE)
        return !b->negative;
    minus_b.negative = !b->negative;
    difference = sum_of(a, &minus_b, false);
    return bit_length(&difference) == 0 ? a->negative && !b->negative : difference.negative;
}

/* NaN if an operand is one; if `numbers`, the other operand. */
static struct number chosen_of(const struct number *a, const struct number *b, bool numbers, bool first)
{
    if (a->kind == NOT_A_NUMBER)
        return numbers ? *b : *a;
    if (b->kind == NOT_A_NUMBER)
        return numbers ? *a : *b;
    return first ? *a : *b;
}

static struct number lesser_of(const struct number *a, const struct number *b, bool numbers)
{
    return chosen_of(a, b, numbers, is_less(a, b));
}

static struct number greater_of(const struct number *a, const struct number *b, bool numbers)
{
    return chosen_of(a, b, numbers, is_less(b, a));
}
