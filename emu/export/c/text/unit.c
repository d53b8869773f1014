/* ---- The unit --------------------------------------------------------------------------------------------------- */
@if signalling or passes_nan

/* Whether a code is a NaN that signals: the first bit of its fraction is 0. */
static bool is_signalling(const struct float_format *format, uint64_t code)
{
    return unpack_float(format, code).kind == NOT_A_NUMBER && (code >> (format->fraction - 1) & 1) == 0;
}
@end
@if passes_nan

static bool is_nan(const struct float_format *format, uint64_t code)
{
    return unpack_float(format, code).kind == NOT_A_NUMBER;
}

/* A NaN of an operand as a result: its sign, its payload from the top, and quiet. */
static uint64_t quieted(const struct float_format *format, uint64_t code)
{
    const int32_t more = $result.fraction - format->fraction;
    const uint64_t payload = low_bits(code, format->fraction), sign = low_bits(code, format->width) & sign_bit(format);
    const uint64_t kept = more >= 0 ? payload << more : payload >> -more;
    return (sign != 0 ? sign_bit(&$result) : 0) | kept | $result.infinity | (uint64_t)1 << ($result.fraction - 1);
}

/* What is written for NaN: that of an operand, or the one that operations make. */
static uint64_t passed_nan($passed_operands)
{
$nan_passed
    return $made_nan;
}
@end
@if signalling

/* Whether an operand is one. */
static bool any_signalling($signalling_operands)
{
@if signalling_factors
    size_t i;
    for (i = 0; i < k; i++)
        if ($signalling_in_terms)
            return true;
@end
    return $signalling_alone;
}
@end
@if searches_nan and nan_operands

/* Whether an operand is NaN. */
static bool any_nan($nan_operands)
{
@if nan_factors
    size_t i;
    for (i = 0; i < k; i++)
        if ($nan_in_terms)
            return true;
@end
    return $nan_in_addend;
}
@end

uint64_t $name($parameters)
{
    uint32_t raised = 0;
    uint64_t code;
$body
@if staged
$through
@end
@if writes_invalid
    {
        uint32_t output = 0;
        code = $write_output(&OUTPUT, &$given$rbits, &output);
        if ((output & ($invalid_flags)) != 0) /* there is no such integer */
            code = $invalid_code;
        raised |= output;
    }
@else
    code = $write_output(&OUTPUT, &$given$rbits, &raised);
@end
@if writes_nan
    if (unpack_float(&$result, code).kind == NOT_A_NUMBER)
        code = $passed;
@end
@if to_integer
    raised = (raised & (OVERFLOW | INVALID)) != 0 ? INVALID : raised & INEXACT; /* one flag at a time */
@end
@if infinity_times_zero
    if (product.kind == MADE_NAN) /* infinity times zero, even if a NaN is added */
        raised |= INVALID;
@end
@if signalling
    if (any_signalling($signalling_given))
        raised |= INVALID;
@end
    if (flags != 0)
        *flags = raised;
    return code;
}
