/* What emu.testing.check_backend calls in a shared library.

   Numbers travel as codes, one to a uint64_t: the bits of a float, the word of a fixed-point number without sign
   extension. Both functions are optional. Each returns EMU_DONE after writing `codes`, or EMU_NOT_OFFERED.

   Random bits of stochastic rounding are given, one uint32_t below 2**n_rbits per result; NULL without.
   `flags` holds seven counters, -1 when the call begins; those left at -1 are not offered.
   `statistics` is NULL, or a register of which all counts are 0 but the last, -1; left at -1 it is not offered. */

#ifndef EMU_BACKEND_H
#define EMU_BACKEND_H

#include <stdint.h>

enum { EMU_DONE = 0, EMU_NOT_OFFERED = 1 };
enum {
    EMU_QUANTIZE, EMU_ADD, EMU_SUBTRACT, EMU_MULTIPLY, EMU_DIVIDE, EMU_FMA, EMU_SQRT, EMU_REMAINDER,
    EMU_ROUND_TO_INTEGRAL
};
enum {
    EMU_NEAREST_EVEN, EMU_NEAREST_AWAY, EMU_NEAREST_UP, EMU_NEAREST_DOWN, EMU_NEAREST_ZERO,
    EMU_FLOOR, EMU_CEIL, EMU_TOWARD_ZERO, EMU_TO_ODD, EMU_STOCHASTIC,
    EMU_STOCHASTIC_NEAREST_EVEN, EMU_STOCHASTIC_NEAREST_ODD, EMU_STOCHASTIC_NEAREST_UP,
    EMU_NEAREST_ODD, EMU_AWAY_FROM_ZERO, EMU_JAMMING, EMU_MAGNITUDE_TRUNCATION
};
enum { EMU_SATURATE, EMU_SATURATE_SYMMETRIC, EMU_SATURATE_ZERO, EMU_WRAP, EMU_IEEE, EMU_SATFINITE, EMU_SATPROPAGATE };
enum {
    EMU_OVERFLOW, EMU_UNDERFLOW, EMU_INEXACT, EMU_INVALID, EMU_SUBNORMAL, EMU_ACCUMULATOR_OVERFLOW,
    EMU_DIVISION_BY_ZERO
};
enum { EMU_NANS_IEEE, EMU_NANS_TOP, EMU_NANS_NEGATIVE_ZERO, EMU_NANS_NONE };
enum { EMU_SEQUENTIAL, EMU_PAIRWISE, EMU_LANES, EMU_BLOCKS };

typedef struct {
    int64_t is_float, width_bits, is_signed;
    int64_t frac_bits;                                  /* fixed point: value = raw * 2**-frac_bits */
    int64_t exponent_bits, fraction_bits, bias;         /* float */
    int64_t infinities, nans, nan_code, ftz, daz;       /* nan_code: the canonical one, -1 without */
} emu_format;

typedef struct {
    emu_format format;
    int64_t rounding, overflow, n_rbits;
} emu_stage;

typedef struct {
    int64_t exact_product, exact_accumulator;           /* 1: the stage is unused */
    emu_stage product, accumulator;
    int64_t order, n;                                   /* n: lanes, or products of a block */
    int64_t fraction_bits, alternating_pairs, addend_after, has_min_exponent, min_exponent; /* blocks */
} emu_mac;

typedef struct {
    int64_t lowest, bins;
    int64_t *counts;        /* 2 * bins + 5: positive, negative, then none, below, above, nonfinite, total */
    int64_t max_exponent;   /* largest floor(log2|x|); leave it alone where every result is 0 */
    int64_t raws;           /* 1: results are raws of a fixed accumulator of format formats[0], whose -1 is `none` */
} emu_statistics;

/* n results; quantize, sqrt and round_to_integral have one operand, fma has three. quantize reads reals as binary64 codes. */
int64_t emu_elementwise(int64_t operation, int64_t n, const uint64_t *const operands[3], const emu_format formats[3],
                        const emu_stage *stage, const uint32_t *rbits, uint64_t *codes, int64_t flags[7],
                        emu_statistics *statistics);

/* C order: a is m by k, b is k by n, addend (NULL without) and codes are m by n. */
int64_t emu_matmul(int64_t m, int64_t k, int64_t n, const uint64_t *a, const uint64_t *b, const uint64_t *addend,
                   const emu_format formats[3], const emu_mac *mac, const emu_stage *stage, const uint32_t *rbits,
                   uint64_t *codes, int64_t flags[7], emu_statistics *statistics);

#endif
