/* ---- Exact sums ------------------------------------------------------------------------------------------------- */

/* sum += (-1)**negative * significand * 2**shift; the sum is an integer of WORDS words in two's complement. */
static void add_shifted(uint64_t *sum, const struct number *x, int32_t shift)
{
    const int32_t bits = shift % 64;
    const uint64_t part[$parts] = {
        x->significand << bits,
@if wide_products
        (bits > 0 ? x->significand >> (64 - bits) : 0) | x->high << bits,
        bits > 0 ? x->high >> (64 - bits) : 0
@else
        bits > 0 ? x->significand >> (64 - bits) : 0
@end
    };
    int32_t i = shift / 64, j;
    bool carry = false;
    for (j = 0; i < WORDS && (j < $parts || carry); i++, j++) {
        const uint64_t before = sum[i], term = j < $parts ? part[j] : 0;
        if (x->negative) {
            sum[i] = before - term - carry;
            carry = before < term || (carry && before == term);
        } else {
            sum[i] = before + term + carry;
            carry = sum[i] < term || (carry && sum[i] == term);
        }
    }
}

/* sum * 2**exponent as sign and magnitude; a zero is positive. */
static struct exact magnitude_of(const uint64_t *sum, int32_t exponent)
{
    struct exact x = {FINITE, (sum[WORDS - 1] >> 63) != 0, exponent, {0}};
    bool carry = x.negative;
    int32_t i;
    for (i = 0; i < WORDS; i++) {
        x.word[i] = x.negative ? ~sum[i] + carry : sum[i];
        carry = carry && x.word[i] == 0;
    }
    return x;
}
