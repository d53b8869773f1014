static struct number unpack_fixed(const struct fixed_format *format, uint64_t code)
{
    struct number x = {FINITE, false, format->last, low_bits(code, format->width)$high};
    x.negative = format->is_signed && ((code >> (format->width - 1)) & 1) != 0;
@if sign_magnitude
    if (format->is_sign_magnitude) {
        x.significand = low_bits(code, format->width - 1);
        x.negative = x.negative && x.significand != 0; /* the sign alone is read as 0 */
        return x;
    }
@end
    if (x.negative) /* two's complement: the magnitude is 2**width - code */
        x.significand = low_bits(0 - code, format->width);
    return x;
}
