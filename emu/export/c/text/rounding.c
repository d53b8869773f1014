/* ---- Rounding --------------------------------------------------------------------------------------------------- */

/* What was cut off, in last places: the order is that of two bits, a guard bit and a sticky one. */
enum place { EXACT, BELOW_HALF, HALF, ABOVE_HALF };

/* A rounding mode: the step that a magnitude takes away from zero once it is cut. */
struct rounding {
    int8_t steps[2][2][4]; /* by sign, by the last bit that was kept, and by place */
@if random
    int32_t random_bits; /* r, if random bits decide; else 0 */
@end
};

static enum place place_below(const struct exact *x, int32_t n)
{
    const bool guard = (bits_from(x, n - 1) & 1) != 0, sticky = any_below(x, n - 1);
    return n <= 0 ? EXACT : (enum place)(2 * guard + sticky);
}

/* The step of a magnitude that is cut below its bit n, by the mode's table. */
static int32_t step_by_table(const struct rounding *rounding, const struct exact *x, int32_t n, bool odd)
{
    return rounding->steps[x->negative][odd][place_below(x, n)];
}
@if random

/* The same by r random bits u. The table rounds the first r bits that are cut off, f. Then a magnitude takes a step if
 * f and u carry, f + u >= 2**r; in two's complement, where the bits of a negative number are 2**r - f, if u < f. */
static int32_t step_of(const struct rounding *rounding, const struct exact *x, int32_t n, bool odd, bool complement,
                       uint32_t u)
{
    const int32_t r = rounding->random_bits;
    uint64_t f, random;
    if (r == 0)
        return step_by_table(rounding, x, n, odd);
    random = low_bits(u, r);
    f = low_bits(bits_from(x, n - r), r);
    f += (uint64_t)(int64_t)step_by_table(rounding, x, n - r, (f & 1) != 0);
    return complement && x->negative ? random < f : random + f >= (uint64_t)1 << r;
}
@end
