/* Add a term to a sum of infinities and NaNs, where finite terms change nothing; the sum begins as a finite number. */
static void add_special(struct number *sum, const struct number *term)
{
    if (term->kind == FINITE || sum->kind == NOT_A_NUMBER)
        return;
    if (sum->kind == FINITE || term->kind == NOT_A_NUMBER) {
        sum->kind = term->kind;
        sum->negative = term->negative;
    } else if (term->kind == MADE_NAN || sum->negative != term->negative) {
        sum->kind = MADE_NAN; /* infinity minus infinity, or a NaN as it was */
    }
}
