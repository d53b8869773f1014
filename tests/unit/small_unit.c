/* An example of a unit in C for emu.testing.check_backend: floats and fixed point of up to 32 bits, every mode and
   overflow rule, flags, the register; multiply of at most 26 significant bits; sums into narrow floats, in order.

   A number on its way is an integer times a power of two, sign * m * 2**e, m < 2**63.
   Compile with -DFAULT=n for one of the faults of hardware that the tests must catch. */

#include "emu_backend.h"
#include <math.h>
#include <string.h>

#ifndef FAULT
#define FAULT 0
#endif
#define WRONG_TIE 1
#define TRUNCATION 2
#define WRAP_FOR_SATURATE 3
#define LOST_SIGN_OF_ZERO 4
#define FLUSHED_SUBNORMALS 5
#define REGISTER_ONE_OFF 6
#define WRONG_ORDER 7

enum { FINITE, INFINITE, NOT_A_NUMBER };
typedef struct { int kind, negative; uint64_t m; int e; } number;

static int top_bit(uint64_t m) { return 63 - __builtin_clzll(m); }

static number of_double(double x) {
    number v = {FINITE, signbit(x) != 0, 0, 0};
    if (isnan(x)) v.kind = NOT_A_NUMBER;
    else if (isinf(x)) v.kind = INFINITE;
    else if (x != 0) { int e; v.m = (uint64_t)ldexp(frexp(fabs(x), &e), 53); v.e = e - 53; }
    return v;
}

static double to_double(number v) {
    double x = v.kind == NOT_A_NUMBER ? NAN : v.kind == INFINITE ? INFINITY : ldexp((double)v.m, v.e);
    return v.negative ? -x : x;
}

static uint64_t first_special(const emu_format *f) {
    int64_t magnitude = f->exponent_bits + f->fraction_bits;
    if (f->nans == EMU_NANS_IEEE) return ((1ull << f->exponent_bits) - 1) << f->fraction_bits;
    return (1ull << magnitude) - (f->nans == EMU_NANS_TOP) - (uint64_t)f->infinities;
}

static number decode(const emu_format *f, uint64_t code) {
    number v = {FINITE, 0, 0, 0};
    if (!f->is_float) {
        int64_t raw = (int64_t)code;
        if (f->is_signed && code >> (f->width_bits - 1)) raw -= (int64_t)1 << f->width_bits;
        v.negative = raw < 0;
        v.m = (uint64_t)(raw < 0 ? -raw : raw);
        v.e = (int)-f->frac_bits;
        return v;
    }
    uint64_t magnitude = code & ((1ull << (f->width_bits - 1)) - 1), sign = code >> (f->width_bits - 1);
    v.negative = (int)sign;
    if (magnitude >= first_special(f) || (f->nans == EMU_NANS_NEGATIVE_ZERO && sign && !magnitude)) {
        v.kind = f->infinities && magnitude == first_special(f) ? INFINITE : NOT_A_NUMBER;
        return v;
    }
    uint64_t field = magnitude >> f->fraction_bits, fraction = magnitude & ((1ull << f->fraction_bits) - 1);
    if (!field && f->daz) fraction = 0;
    if (f->nans == EMU_NANS_NEGATIVE_ZERO && !field && !fraction) v.negative = 0;
    v.m = field ? fraction | 1ull << f->fraction_bits : fraction;
    v.e = (int)((field ? field : 1) - f->bias - f->fraction_bits);
    return v;
}

/* m * 2**-drop to an integer; *inexact tells whether bits were lost. */
static uint64_t rounded(uint64_t m, int drop, int negative, int complement, int64_t mode, int64_t r, uint32_t u,
                        int *inexact) {
    *inexact = 0;
    if (drop <= 0) return m << -drop;
    uint64_t low = drop > 63 ? 0 : m >> drop, rest = drop > 63 ? m : m & ((1ull << drop) - 1);
    if (!rest) return low;
    *inexact = 1;
    int half = drop > 64 ? -1 : rest > 1ull << (drop - 1) ? 1 : rest == 1ull << (drop - 1) ? 0 : -1;
#if FAULT == TRUNCATION
    if (mode == EMU_NEAREST_EVEN) return low;
#endif
#if FAULT == WRONG_TIE
    if (mode == EMU_NEAREST_EVEN) return low + (half >= 0);
#endif
    switch (mode) {
    case EMU_NEAREST_EVEN: return low + (half > 0 || (half == 0 && (low & 1)));
    case EMU_NEAREST_AWAY: return low + (half >= 0);
    case EMU_NEAREST_UP: return low + (half > 0 || (half == 0 && !negative));
    case EMU_NEAREST_DOWN: return low + (half > 0 || (half == 0 && negative));
    case EMU_NEAREST_ZERO: return low + (half > 0);
    case EMU_FLOOR: return low + (uint64_t)negative;
    case EMU_CEIL: return low + (uint64_t)!negative;
    case EMU_TO_ODD: return low | 1;
    case EMU_STOCHASTIC: {
        /* the first r dropped bits, and whether others follow */
        uint64_t bits = drop >= 64 + r ? 0 : drop > r ? rest >> (drop - r) : rest << (r - drop);
        int sticky = drop > r && (drop >= 64 + r || (rest & ((1ull << (drop - r)) - 1)));
        if (complement && negative) bits = (1ull << r) - bits - (uint64_t)sticky;
        int outward = bits + u >= 1ull << r;
        return low + (uint64_t)(complement && negative ? !outward : outward);
    }
    default: return low;
    }
}

static uint64_t nan_of(const emu_format *f) { return f->nan_code < 0 ? 0 : (uint64_t)f->nan_code; }

static uint64_t write_fixed(number v, const emu_stage *s, uint32_t u, int64_t flags[7]) {
    const emu_format *f = &s->format;
    uint64_t mask = (1ull << f->width_bits) - 1;
    if (v.kind == NOT_A_NUMBER) { flags[EMU_INVALID]++; return 0; }
    int64_t high = (1ll << (f->width_bits - f->is_signed)) - 1, low = f->is_signed ? -high - 1 : 0, raw = 0;
    int inexact = 0, over = v.kind == INFINITE, drop = (int)(-f->frac_bits - v.e);
    if (s->overflow == EMU_SATURATE_SYMMETRIC && f->is_signed) low = -high;
    int64_t limit = v.negative ? low : high;
    if (v.kind == FINITE && v.m) {
        if (drop < 0 && top_bit(v.m) - drop > 61) {       /* far beyond: only wrapping looks at the low bits */
            over = 1;
            raw = -drop > 63 ? 0 : (int64_t)((v.m << -drop) & mask);
        } else raw = (int64_t)rounded(v.m, drop, v.negative, 1, s->rounding, s->n_rbits, u, &inexact);
        if (v.negative) raw = -raw;
    }
    over |= raw > high || raw < low;
    if (over) {
        flags[EMU_OVERFLOW]++;
        flags[EMU_INEXACT]++;
        int64_t rule = s->overflow;
#if FAULT == WRAP_FOR_SATURATE
        if (rule == EMU_SATURATE) rule = EMU_WRAP;
#endif
        if (rule == EMU_SATURATE_ZERO) return 0;
        if (rule == EMU_WRAP && v.kind == FINITE) return (uint64_t)raw & mask;
        return (uint64_t)limit & mask;
    }
    flags[EMU_INEXACT] += inexact;
    flags[EMU_UNDERFLOW] += v.m && !raw;
    return (uint64_t)raw & mask;
}

static uint64_t write_float(number v, const emu_stage *s, uint32_t u, int64_t flags[7]) {
    const emu_format *f = &s->format;
    uint64_t sign = (uint64_t)v.negative << (f->width_bits - 1), last = first_special(f) - 1, code = 0;
    if (v.kind == NOT_A_NUMBER) { flags[EMU_INVALID] += f->nan_code < 0; return nan_of(f); }
    int64_t quantum = 1 - f->bias - f->fraction_bits;
    int inexact = 0, over = 0;
    if (v.kind == FINITE && v.m) {
        int64_t e = top_bit(v.m) + v.e - f->fraction_bits;
        if (e < quantum) e = quantum;
        if (e - quantum > 1ll << f->exponent_bits) over = 1;
        else {
            uint64_t m = rounded(v.m, (int)(e - v.e), v.negative, 0, s->rounding, s->n_rbits, u, &inexact);
            code = m + ((uint64_t)(e - quantum) << f->fraction_bits);   /* a carry moves into the exponent by itself */
            over = code > last;
        }
    }
    if (over || v.kind == INFINITE) {
        int64_t mode = s->rounding;
        int inward = mode == EMU_TOWARD_ZERO || mode == EMU_TO_ODD || mode == (v.negative ? EMU_CEIL : EMU_FLOOR);
        int propagates = s->overflow == EMU_SATPROPAGATE && (over || !f->infinities);
        if (s->overflow == EMU_SATFINITE || propagates || (over && inward)) code = last;
        else if (f->infinities) { code = last + 1; if (!over) return sign | code; }
        else { flags[EMU_INVALID]++; flags[EMU_OVERFLOW]++; flags[EMU_INEXACT]++; return nan_of(f); }
        flags[EMU_OVERFLOW]++;
        flags[EMU_INEXACT]++;
        return sign | code;
    }
    int subnormal = code && code < 1ull << f->fraction_bits;
    if (subnormal && (f->ftz || FAULT == FLUSHED_SUBNORMALS)) { code = 0; subnormal = 0; inexact = 1; }
    flags[EMU_INEXACT] += inexact;
    flags[EMU_UNDERFLOW] += v.m && !code;
    flags[EMU_SUBNORMAL] += subnormal;
    if (!code && (f->nans == EMU_NANS_NEGATIVE_ZERO || FAULT == LOST_SIGN_OF_ZERO)) return 0;
    return sign | code;
}

static uint64_t write_number(number v, const emu_stage *s, uint32_t u, int64_t flags[7]) {
    return s->format.is_float ? write_float(v, s, u, flags) : write_fixed(v, s, u, flags);
}

static void observe(number v, emu_statistics *r) {
    int64_t *scalars = r->counts + 2 * r->bins;     /* none, below, above, nonfinite, total */
    if (scalars[4] < 0) scalars[4] = 0;
    scalars[4]++;
    if (v.kind != FINITE) { scalars[3]++; return; }
    if (!v.m) { scalars[0]++; return; }
    int64_t floor_log2 = top_bit(v.m) + v.e, e = floor_log2;
    if (r->max_exponent < floor_log2) r->max_exponent = floor_log2;
    if (v.negative && !(v.m & (v.m - 1)) && FAULT != REGISTER_ONE_OFF) e--;
    if (r->raws && v.negative && v.m == 1) { scalars[0]++; return; }
    if (e < r->lowest) scalars[1]++;
    else if (e >= r->lowest + r->bins) scalars[2]++;
    else r->counts[(v.negative ? r->bins : 0) + e - r->lowest]++;
}

static int significant_bits(const emu_format *f) {
    return (int)(f->is_float ? f->fraction_bits + 1 : f->width_bits);
}

int64_t emu_elementwise(int64_t operation, int64_t n, const uint64_t *const operands[3], const emu_format formats[3],
                        const emu_stage *stage, const uint32_t *rbits, uint64_t *codes, int64_t flags[7],
                        emu_statistics *statistics) {
    if (operation != EMU_QUANTIZE && operation != EMU_MULTIPLY) return EMU_NOT_OFFERED;
    if (stage->rounding > EMU_STOCHASTIC) return EMU_NOT_OFFERED;
    if (operation == EMU_MULTIPLY && significant_bits(&formats[0]) + significant_bits(&formats[1]) > 52)
        return EMU_NOT_OFFERED;
    memset(flags, 0, 5 * sizeof *flags);
    for (int64_t i = 0; i < n; i++) {
        number v = decode(&formats[0], operands[0][i]);
        if (operation == EMU_MULTIPLY) {
            number b = decode(&formats[1], operands[1][i]);
            if ((v.kind == INFINITE && b.kind == FINITE && !b.m) || (b.kind == INFINITE && v.kind == FINITE && !v.m)) {
                flags[EMU_INVALID]++;
                v.kind = NOT_A_NUMBER;
            } else if (v.kind < b.kind) v.kind = b.kind;
            v.negative ^= b.negative;
            v.m *= b.m;
            v.e += b.e;
        }
        if (statistics) observe(v, statistics);
        codes[i] = write_number(v, stage, rbits ? rbits[i] : 0, flags);
    }
    return EMU_DONE;
}

/* Products rounded into a narrow float, added in a double, which holds every sum of two of its numbers. */
static int narrow(const emu_format *f) { return f->is_float && f->exponent_bits <= 5 && f->fraction_bits <= 10; }

static number step(number v, const emu_stage *s) {
    int64_t unused[7];
    return decode(&s->format, write_number(v, s, 0, unused));
}

static number added(number a, number b, const emu_stage *s) {
    double sum = to_double(a) + to_double(b);
    number v = of_double(sum);
    if (sum == 0 && s->rounding == EMU_FLOOR && a.negative != b.negative) v.negative = 1;
    return step(v, s);
}

int64_t emu_matmul(int64_t m, int64_t k, int64_t n, const uint64_t *a, const uint64_t *b, const uint64_t *addend,
                   const emu_format formats[3], const emu_mac *mac, const emu_stage *stage, const uint32_t *rbits,
                   uint64_t *codes, int64_t flags[7], emu_statistics *statistics) {
    if (mac->exact_product || mac->exact_accumulator || mac->order != EMU_SEQUENTIAL || addend || statistics)
        return EMU_NOT_OFFERED;
    if (!narrow(&formats[0]) || !narrow(&formats[1]) || !narrow(&mac->product.format) ||
        !narrow(&mac->accumulator.format))
        return EMU_NOT_OFFERED;
    int64_t written[7] = {0};
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            number sum = {FINITE, 0, 0, 0};
            for (int64_t t = 0; t < k; t++) {
                int64_t l = FAULT == WRONG_ORDER ? k - 1 - t : t;
                double p = to_double(decode(&formats[0], a[i * k + l])) * to_double(decode(&formats[1], b[l * n + j]));
                sum = added(sum, step(of_double(p), &mac->product), &mac->accumulator);
            }
            codes[i * n + j] = write_number(sum, stage, rbits ? rbits[i * n + j] : 0, written);
        }
    (void)flags;
    return EMU_DONE;
}
