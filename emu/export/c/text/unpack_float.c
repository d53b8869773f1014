static struct number unpack_float(const struct float_format *format, uint64_t code)
{
    const uint64_t sign = sign_bit(format), word = low_bits(code, format->width), magnitude = word & ~sign;
    const uint64_t steps = magnitude + format->origin, binade = steps >> format->fraction;
    struct number x = {FINITE, (word & sign) != 0, format->last, steps$high};
    if (steps > format->largest || word == format->nan) {
        x.kind = magnitude == format->infinity ? INFINITE : NOT_A_NUMBER;
        x.significand = 0;
@if hidden_one
    } else if (format->is_hidden_one && magnitude == 0) {
        x.significand = 0;
@end
    } else if (binade > 0) { /* a normal number has a leading 1 that its code leaves out */
        x.significand = low_bits(steps, format->fraction) | ((uint64_t)1 << format->fraction);
        x.exponent += (int32_t)binade - 1;
    }
@if flushes_operands
    else if (format->flushes_operands) {
        x.significand = 0;
        x.negative = x.negative && format->nan != sign; /* there may be no -0 */
    }
@end
    return x;
}
