/* The bit of x that weighs 2**exponent. */
static uint64_t bit_at(const struct number *x, int32_t exponent)
{
    const int32_t i = exponent - x->exponent;
    return i >= 0 && i < 64 ? (x->significand >> i) & 1 : 0;
}

/* x = 4 * x + low, low < 4. */
static void shift_in(uint64_t *x, uint64_t low)
{
    int32_t i;
    for (i = WORDS - 1; i > 0; i--)
        x[i] = x[i] << 2 | x[i - 1] >> 62;
    x[0] = x[0] << 2 | low;
}

/* If x >= 4 * y + 1, x -= 4 * y + 1; whether it is. */
static bool subtract_trial(uint64_t *x, const uint64_t *y)
{
    uint64_t trial[WORDS];
    bool borrow = false;
    int32_t i;
    for (i = 0; i < WORDS; i++)
        trial[i] = y[i];
    shift_in(trial, 1);
    for (i = WORDS - 1; i > 0 && x[i] == trial[i]; i--)
        ;
    if (x[i] < trial[i])
        return false;
    for (i = 0; i < WORDS; i++) {
        const uint64_t before = x[i];
        x[i] = before - trial[i] - borrow;
        borrow = before < trial[i] || (borrow && before == trial[i]);
    }
    return true;
}

/* The square root of a, digit by digit, down to a bit far below the last place that is written. The last bit stands for
 * all that follow: it is 1 if any of them is. */
static struct exact root_of(const struct number *a)
{
    struct exact root = {a->kind, a->negative, 0, {0}};
    uint64_t rest[WORDS] = {0};
    const int32_t top = a->exponent + length_of(a->significand) - 1;
    const int32_t leading = (top - (top & 1)) / 2; /* half of it, rounded down */
    int32_t e, i;
    bool sticky = false;
    if (a->kind == FINITE && a->significand == 0)
        return root; /* the root of -0 is -0 */
    if (a->negative && a->kind != NOT_A_NUMBER)
        root.kind = MADE_NAN;
    if (root.kind != FINITE)
        return root;
@if float_result
    root.exponent = leading - $fraction;
    if (root.exponent < $last)
        root.exponent = $last;
    root.exponent -= $below;
@else
    root.exponent = $last - $below;
@end
    for (e = leading; e >= root.exponent; e--) {
        bool digit;
        shift_in(rest, 2 * bit_at(a, 2 * e + 1) + bit_at(a, 2 * e));
        digit = subtract_trial(rest, root.word);
        for (i = WORDS - 1; i > 0; i--)
            root.word[i] = root.word[i] << 1 | root.word[i - 1] >> 63;
        root.word[0] = root.word[0] << 1 | digit;
    }
    for (i = 0; i < WORDS; i++)
        sticky = sticky || rest[i] != 0;
    for (e = a->exponent; e < 2 * root.exponent && e < a->exponent + 64; e++)
        sticky = sticky || bit_at(a, e) != 0;
    root.word[0] |= sticky;
    return root;
}
