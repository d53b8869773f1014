/* $title.
 *
 * Exported by emu $version; $name.h says what this unit writes, and shows an example.
 *
 * In short: codes are unpacked into sign, significand and exponent; the exact result is an integer of WORDS words of
 * 64 bits, or ends in a bit that stands for all that follow; the output stage cuts it at the last place, asks the
 * table of the rounding mode for a step, applies the overflow rule, and packs a code.
 *
 * C99 without floating point, without a library and without memory but the stack; it compiles as C++, too.
 */

#include "$name.h"

#include <stdbool.h>

/* Words of 64 bits that an exact result has. */
enum { WORDS = $words };

/* What the last bit of exact sums weighs: 2**LOWEST. */
enum { LOWEST = $lowest };

enum flag {
    INEXACT = 1,
    UNDERFLOW = 2,
    OVERFLOW = 4,
    DIVIDED_BY_ZERO = 8,
    INVALID = 16,
    ACCUMULATOR_OVERFLOW = 32
};
