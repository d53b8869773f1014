/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

enum kind {
    FINITE,
    INFINITE,
    NOT_A_NUMBER, /* an operand is one */
    MADE_NAN      /* no operand is one: the operation is invalid */
};

/* An operand or a product: (-1)**negative * significand * 2**exponent. */
struct number {
    enum kind kind;
    bool negative; /* the sign of zeros and infinities, too */
    int32_t exponent;
    uint64_t significand;
@if wide_products
    uint64_t high; /* bits 64 to 127 of the significand: products have up to 128 */
@end
};

/* A result before it is rounded: the same, but the significand has WORDS words of 64 bits, the lowest first. */
struct exact {
    enum kind kind;
    bool negative;
    int32_t exponent;
    uint64_t word[WORDS];
};

/* The low n bits of x, 0 <= n. */
static uint64_t low_bits(uint64_t x, int32_t n)
{
    return n < 64 ? x & (((uint64_t)1 << n) - 1) : x;
}

static int32_t length_of(uint64_t x)
{
    int32_t length = 0, half;
    for (half = 32; half > 0; half /= 2)
        if (x >> half != 0) {
            x >>= half;
            length += half;
        }
    return length + (x != 0);
}

/* The bit length of the significand; that of 0 is 0. */
static int32_t bit_length(const struct exact *x)
{
    int32_t i = WORDS - 1;
    while (i > 0 && x->word[i] == 0)
        i--;
    return 64 * i + length_of(x->word[i]);
}

/* floor(significand / 2**n), its low 64 bits; n may be negative. */
static uint64_t bits_from(const struct exact *x, int32_t n)
{
    const int32_t i = n / 64, shift = n % 64;
    uint64_t bits;
    if (n < 0)
        return n > -64 ? x->word[0] << -n : 0;
    bits = i < WORDS ? x->word[i] >> shift : 0;
    if (shift > 0 && i + 1 < WORDS)
        bits |= x->word[i + 1] << (64 - shift);
    return bits;
}

/* Whether any of the low n bits of the significand is 1. */
static bool any_below(const struct exact *x, int32_t n)
{
    int32_t i;
    for (i = 0; i < WORDS && 64 * i < n; i++)
        if (low_bits(x->word[i], n - 64 * i) != 0)
            return true;
    return false;
}
