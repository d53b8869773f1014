/* $title.
 *
$words
 */

#ifndef ${guard}_H
#define ${guard}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags: bits of *flags. */
enum {
    ${guard}_INEXACT = 1,
    ${guard}_UNDERFLOW = 2,
    ${guard}_OVERFLOW = 4,
    ${guard}_DIVIDED_BY_ZERO = 8,
    ${guard}_INVALID = 16,
    ${guard}_ACCUMULATOR_OVERFLOW = 32
};

/* In SystemVerilog (DPI-C):
 *
$import
 */
uint64_t $name($parameters);

#ifdef __cplusplus
}
#endif

#endif
