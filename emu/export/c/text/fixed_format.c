@if sign_magnitude
/* Fixed point: a code is an integer in units of 2**last, with a sign in two's complement or beside a magnitude. */
@else
/* Fixed point: a code is an integer, in two's complement if it is signed, in units of 2**last. */
@end
struct fixed_format {
    int32_t width; /* bits of a code */
    bool is_signed;
    int32_t last;
@if sign_magnitude
    bool is_sign_magnitude; /* the highest bit is the sign, the others are the magnitude */
@end
};
