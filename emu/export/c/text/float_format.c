/* Floating point: a code is a sign, if there is one, and a magnitude. The finite magnitudes are numbered by steps from
 * zero, which double in size from binade to binade: code 0 has the number `origin`. NaN and infinity come last. */
struct float_format {
    int32_t width; /* bits of a code */
    bool is_signed;
    int32_t fraction;  /* bits of the fraction */
    int32_t last;      /* exponent of the smallest step, 2**last */
    int32_t top;       /* exponent of the largest finite value */
@if hidden_one
    uint64_t origin;   /* 0, or 2**fraction if zero has no code, or the hidden bit is always one */
@else
    uint64_t origin;   /* 0, or 2**fraction if zero has no code */
@end
    uint64_t largest;  /* number of the largest finite value */
    uint64_t infinity; /* code of +infinity, or NONE */
    uint64_t nan;      /* code of the NaN that is written, or NONE; it may be that of -0 */
@if flushes_operands
    bool flushes_operands; /* subnormal operands are 0 */
@end
@if flushes_results
    bool flushes_results; /* subnormal results are written as 0 */
@end
@if hidden_one
    bool is_hidden_one; /* code 0 is zero, although the number of code 1 is `origin` + 1 */
@end
};

/* A code that no format has. */
#define NONE UINT64_MAX

static uint64_t sign_bit(const struct float_format *format)
{
    return format->is_signed ? (uint64_t)1 << (format->width - 1) : 0;
}
