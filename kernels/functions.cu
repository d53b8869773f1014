// Elementary functions in float64: the lines of emu/backends/functions/double.py for one number.
//
// One of the files whose floating-point instructions are listed: additions, subtractions, multiplications, divisions and
// square roots, each rounded to nearest, none contracted. Source: docs/concepts/functions.md.
#include "task.cuh"

#define MAGIC 6755399441055744.0  // 1.5 * 2**52: added, it rounds to an integer
#define MAGIC_BITS 0x4338000000000000ll
#define SQRT_HALF_BITS 0x3FE6A09E667F3BCDll
#define SMALLEST_NORMAL 2.2250738585072014e-308
#define SPLITTER 134217729.0  // 2**27 + 1
#define INFINITY_BITS 0x7FF0000000000000ll
#define NAN_BITS 0x7FF8000000000000ll

// Constants of emu/backends/functions/coefficients.py.
#define LARGEST_EXP 800.0
#define LARGEST_TANH 22.0
#define LARGEST_ERF 6.0
#define LARGEST_GELU 40.0
#define TANH_IS_X 0x1p-28
#define GELU_IS_HALF 0x1p-60
#define LOWEST_POWER (-200)
#define SUBNORMAL_SHIFT 54
#define INTO_NORMAL static_cast<double>(1ll << SUBNORMAL_SHIFT)
#define INVERSE_LN2 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fefa3800p-1
#define LN2_LOW 0x1.ef35793c76730p-45
#define TAIL_SLOPE 0x1.4000000000000p+0
#define ERFC_CENTRE 0x1.c000000000000p+0
#define PHI_CENTRE 0x1.0000000000000p+1
#define EXP_POWERS 12
__constant__ const double EXP[EXP_POWERS] = {
    0x1.0000000000000p-1, 0x1.5555555555555p-3, 0x1.5555555555557p-5, 0x1.1111111111111p-7,
    0x1.6c16c16c15a6cp-10, 0x1.a01a01a0196aep-13, 0x1.a01a01a9e80fep-16, 0x1.71de3a5aa6edbp-19,
    0x1.27e4d41d6f553p-22, 0x1.ae642c8730352p-26, 0x1.1f7f2000f4cf3p-29, 0x1.61bfa22dd3437p-33,
};
#define LOG_POWERS 8
__constant__ const double LOG[LOG_POWERS] = {
    0x1.5555555555555p-1, 0x1.9999999999a38p-2, 0x1.2492492476cccp-2, 0x1.c71c720159177p-3,
    0x1.745cf9048dd95p-3, 0x1.3b1c355a8f7a2p-3, 0x1.0fbe95d716020p-3, 0x1.0c039c49989c6p-3,
};
#define ERF_POWERS 9
__constant__ const double ERF[ERF_POWERS] = {
    0x1.06eba8214db68p-3, -0x1.812746b0379b5p-2, 0x1.ce2f21a03d814p-4, -0x1.b82ce30f2b28fp-6,
    0x1.565bcbf8e0365p-8, -0x1.c02d4f6e4921ap-11, 0x1.f98db34e8872ep-14, -0x1.f224dfc5409afp-17,
    0x1.8b4b60851826bp-20,
};
#define ERFC_POWERS 21
__constant__ const double ERFC[ERFC_POWERS] = {
    -0x1.89bc0fb7ad160p-3, -0x1.1ea4ab35c9226p-2, 0x1.0ae6329a54436p-3, 0x1.591fa1bd81cdap-8,
    -0x1.11262d2b524a6p-7, -0x1.040a92032a160p-7, 0x1.0105564926ec2p-9, 0x1.0fcc168eb7fe4p-9,
    0x1.3f40c5e8b16cbp-12, -0x1.31558c8276a5ep-11, -0x1.2b41a04655924p-12, 0x1.e872ab4910a85p-15,
    0x1.ebc6b02edfe3cp-14, 0x1.0f1c4d39e4a33p-15, -0x1.6e9212a9aaf12p-16, -0x1.5ddc22cca9f26p-16,
    -0x1.b826702eab626p-19, 0x1.594c61c333457p-18, 0x1.c9d9a07fe350cp-19, -0x1.37a535c9ef080p-22,
    -0x1.a6a14c9899944p-21,
};
#define PHI_POWERS 29
__constant__ const double PHI[PHI_POWERS] = {
    0x1.4d433139f2070p-2, -0x1.d0ee0946e5b22p-2, 0x1.cf42e69360478p-4, 0x1.68337dcf9406dp-7,
    0x1.cc0c22347e3f1p-7, -0x1.50e27cdd97e24p-7, -0x1.aa193433cfd26p-9, -0x1.30b49ea268a51p-11,
    0x1.90786feba3023p-10, 0x1.820b4db3c3defp-11, 0x1.789094b0be72dp-15, -0x1.2809918a22337p-12,
    -0x1.758d50eefb998p-13, -0x1.a112f2ac3d96fp-16, 0x1.b18b097e125f7p-15, 0x1.72ea3a494da5ap-15,
    0x1.b7e2010b9748bp-17, -0x1.cff00d1f23238p-18, -0x1.4066eccc0ca00p-17, -0x1.47a86e23e1500p-18,
    -0x1.dfe1898dec309p-21, 0x1.48cbdbba15658p-20, 0x1.10e0ffe2b41aep-19, 0x1.2029ddd40f189p-20,
    -0x1.c483e0327fe49p-22, -0x1.5fe8c7e7a88c2p-21, -0x1.b96446f28a3e8p-24, 0x1.e826cdd05ca19p-24,
    0x1.52e8f796cd6d9p-25,
};

EMU_FN i64 bits_of(double x) { return __double_as_longlong(x); }

EMU_FN double float_of(i64 bits) { return __longlong_as_double(bits); }

EMU_FN double infinity() { return float_of(INFINITY_BITS); }

EMU_FN double nan() { return float_of(NAN_BITS); }

EMU_FN double magnitude_of(double x) { return float_of(bits_of(x) & 0x7FFFFFFFFFFFFFFFll); }

EMU_FN double with_sign_of(double magnitude, double x) {
    return float_of((bits_of(magnitude) & 0x7FFFFFFFFFFFFFFFll) | (bits_of(x) & static_cast<i64>(0x8000000000000000ull)));
}

// ---- pairs of doubles: emu/backends/functions/pairs.py --------------------------------------------------------------

struct Pair {
    double high, low;
};

EMU_FN Pair pair_of(double high, double low) {
    Pair p;
    p.high = high;
    p.low = low;
    return p;
}

// a + b exactly; |a| >= |b| or a = 0.
EMU_FN Pair sum_of_ordered(double a, double b) {
    double high = a + b;
    return pair_of(high, b - (high - a));
}

EMU_FN Pair sum_of(double a, double b) {
    double high = a + b, other = high - a;
    return pair_of(high, (a - (high - other)) + (b - other));
}

EMU_FN Pair halves_of(double a) {
    double scaled = SPLITTER * a, high = scaled - (scaled - a);
    return pair_of(high, a - high);
}

EMU_FN Pair product_of(double a, double b) {
    double high = a * b;
    Pair x = halves_of(a), y = halves_of(b);
    return pair_of(high, ((x.high * y.high - high) + x.high * y.low + x.low * y.high) + x.low * y.low);
}

EMU_FN Pair quotient_of(Pair a, Pair b) {
    double high = a.high / b.high;
    Pair product = product_of(high, b.high);
    double rest = ((a.high - product.high) - product.low) + (a.low - high * b.low);
    return pair_of(high, rest / b.high);
}

// ---- parts of the functions -----------------------------------------------------------------------------------------

// powers[0] + powers[1] * x + ..., by Horner's rule.
EMU_FN double polynomial(double x, const double* powers, i32 count) {
    double value = x * powers[count - 1];
    for (i32 i = count - 2; i > 0; i--) value = (value + powers[i]) * x;
    return value + powers[0];
}

EMU_FN double at_most(double x, double limit) { return x > limit ? limit : x; }

EMU_FN double power_of_two(i64 k) { return float_of(static_cast<i64>(static_cast<u64>(k + 1023) << 52)); }

EMU_FN double scale(double x, i64 k) {
    i64 half = k >> 1;
    return x * power_of_two(half) * power_of_two(k - half);
}

struct Exponential {
    Pair value;
    i64 k;
};

// e**(high + low) = 2**k * (1 + r + t).
EMU_FN Exponential exp_parts(double high, double low) {
    double shifted = high * INVERSE_LN2 + MAGIC, k_real = shifted - MAGIC;
    Exponential e;
    e.k = static_cast<i64>(static_cast<u64>(bits_of(shifted)) - static_cast<u64>(MAGIC_BITS));
    Pair r = sum_of(high - k_real * LN2_HIGH, low - k_real * LN2_LOW);
    e.value = pair_of(r.high, r.low + r.high * (r.low + r.high * polynomial(r.high, EXP, EXP_POWERS)));
    return e;
}

// e**(high + low) = 2**k * value.
EMU_FN Exponential exp_pair(double high, double low) {
    Exponential e = exp_parts(high, low);
    Pair one = sum_of_ordered(1.0, e.value.high);
    e.value = sum_of_ordered(one.high, one.low + e.value.low);
    return e;
}

struct Tail {
    Exponential numerator;
    Pair denominator;
};

EMU_FN Tail upper_tail(double x, double factor, double correction) {
    Pair square = product_of(x, x), power = sum_of(-factor * square.high, correction);
    Tail t;
    t.numerator = exp_pair(power.high, power.low - factor * square.low);
    Pair slope = sum_of_ordered(x, (TAIL_SLOPE - 1.0) * x), one = sum_of(1.0, slope.high);
    t.denominator = pair_of(one.high, one.low + slope.low);
    return t;
}

// ---- the functions --------------------------------------------------------------------------------------------------

EMU_FN double exponential(double x) {
    Exponential e = exp_parts(at_most(x < -LARGEST_EXP ? -LARGEST_EXP : x, LARGEST_EXP), 0.0);
    Pair one = sum_of_ordered(1.0, e.value.high);
    return scale(one.high + (one.low + e.value.low), e.k);
}

EMU_FN double logarithm(double x) {
    bool tiny = x < SMALLEST_NORMAL;
    i64 bits = bits_of(tiny ? x * INTO_NORMAL : x), k = (bits - SQRT_HALF_BITS) >> 52;
    double f = float_of(bits - static_cast<i64>(static_cast<u64>(k) << 52)) - 1.0;
    double k_real = float_of(k - (tiny ? SUBNORMAL_SHIFT : 0) + MAGIC_BITS) - MAGIC;
    Pair s = quotient_of(pair_of(f, 0.0), sum_of_ordered(2.0, f));
    double z = s.high * s.high;
    double rest = s.high * (z * polynomial(z, LOG, LOG_POWERS)) + k_real * LN2_LOW;
    Pair sum = sum_of_ordered(k_real * LN2_HIGH, 2.0 * s.high);
    double result = sum.high + (sum.low + (2.0 * s.low + rest));
    if (!(x > 0.0)) result = x == 0.0 ? -infinity() : nan();
    return x == infinity() ? infinity() : result;
}

EMU_FN double hyperbolic_tangent(double x) {
    double magnitude = magnitude_of(x);
    Exponential e = exp_parts(2.0 * at_most(magnitude, LARGEST_TANH), 0.0);
    double power = power_of_two(e.k);
    Pair sum = sum_of_ordered(power - 1.0, power * e.value.high);
    Pair less_one = sum_of_ordered(sum.high, sum.low + power * e.value.low), more = sum_of(2.0, less_one.high);
    Pair quotient = quotient_of(less_one, pair_of(more.high, more.low + less_one.low));
    return magnitude < TANH_IS_X ? x : with_sign_of(quotient.high + quotient.low, x);
}

EMU_FN double logistic(double x) {
    Exponential e = exp_pair(-at_most(magnitude_of(x), LARGEST_EXP), 0.0);
    double power = power_of_two(e.k < LOWEST_POWER ? LOWEST_POWER : e.k);
    Pair one = sum_of_ordered(1.0, power * e.value.high);
    bool lower = x < 0.0;
    Pair quotient = quotient_of(lower ? e.value : pair_of(1.0, 0.0), pair_of(one.high, one.low + power * e.value.low));
    return scale(quotient.high + quotient.low, lower ? e.k : 0);
}

EMU_FN double error_function(double x) {
    double magnitude = magnitude_of(x), inner = at_most(magnitude, 0.5);
    double near = inner + inner * polynomial(inner * inner, ERF, ERF_POWERS);
    double outer = at_most(magnitude < 0.5 ? 0.5 : magnitude, LARGEST_ERF), v = outer / (outer + ERFC_CENTRE);
    Tail tail = upper_tail(outer, 1.0, v * polynomial(2.0 * v - 1.0, ERFC, ERFC_POWERS));
    double power = power_of_two(tail.numerator.k);
    Pair quotient = quotient_of(tail.numerator.value, tail.denominator);
    Pair one = sum_of_ordered(1.0, -power * quotient.high);
    return with_sign_of(magnitude < 0.5 ? near : one.high + (one.low - power * quotient.low), x);
}

EMU_FN double gaussian_unit(double x) {
    double magnitude = magnitude_of(x), inner = at_most(magnitude, LARGEST_GELU), v = inner / (inner + PHI_CENTRE);
    Tail tail = upper_tail(inner, 0.5, v * polynomial(2.0 * v - 1.0, PHI, PHI_POWERS));
    i64 k = tail.numerator.k;
    Pair product = product_of(inner, tail.numerator.value.high);
    Pair quotient =
        quotient_of(pair_of(product.high, product.low + inner * tail.numerator.value.low), tail.denominator);
    double half_power = power_of_two((k < LOWEST_POWER ? LOWEST_POWER : k) - 1);
    Pair difference = sum_of(inner, -half_power * quotient.high);
    double above = magnitude > LARGEST_GELU ? x : difference.high + (difference.low - half_power * quotient.low);
    double result = x > 0.0 ? above : -scale(quotient.high + quotient.low, k - 1);
    return magnitude < GELU_IS_HALF ? 0.5 * x : result;
}

EMU_FN double reciprocal_root(double x) {
    bool tiny = x < SMALLEST_NORMAL;
    i64 bits = bits_of(tiny ? x * INTO_NORMAL : x), j = ((bits >> 52) - 1023) >> 1;
    double m = float_of(bits - static_cast<i64>(static_cast<u64>(j) << 53)), y = 1.0 / __dsqrt_rn(m);
    Pair square = product_of(y, y), product = product_of(m, square.high);
    y = y + 0.5 * y * (((1.0 - product.high) - product.low) - m * square.low);
    y = y * power_of_two((tiny ? SUBNORMAL_SHIFT / 2 : 0) - j);
    if (!(x > 0.0)) y = nan();
    else if (x == infinity()) y = 0.0;
    return x == 0.0 ? with_sign_of(infinity(), x) : y;
}

// Whether a double cannot say what a function's result is: finite but too large, not 0 but too small, a new NaN, a pole.
EMU_FN bool is_beyond(i32 function, double x, double y) {
    if (x != x) return false;
    if (y != y) return true;
    double size = magnitude_of(y);
    if (x == 0.0) return size == infinity();
    if (magnitude_of(x) == infinity()) return false;
    return size == infinity() || (size == 0.0 && !(function == 1 && x == 1.0));
}

// A number of an array of floats.
EMU_FN double value_of(const Number& x) {
    u64 bits = x.kind == FINITE ? encode(x.negative, x.significand.word[0], x.exponent, STORED_F64)
                                : encode_special(x.kind >= NOT_A_NUMBER, x.negative, STORED_F64);
    return float_of(static_cast<i64>(bits));
}

// Function number `function`, as emu/backends/functions/double.py orders them, of n numbers; every NaN is the plain one.
// x: floats of any kind, of a format that may flush subnormals. `beyond`, which holds 0, becomes 1 where any result is one that a double cannot say.
extern "C" __global__ void float64_function(i32 function, const void* x, i32 storage, i32 flush_below, i32 has_negative_zero,
                                            double* y, u32* beyond, i64 n) {
    Operand element = {storage, 0, flush_below, has_negative_zero, 1, 0};
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        double v = value_of(fetch(x, i, element)), result;
        switch (function) {
            case 0: result = exponential(v); break;
            case 1: result = logarithm(v); break;
            case 2: result = hyperbolic_tangent(v); break;
            case 3: result = logistic(v); break;
            case 4: result = error_function(v); break;
            case 5: result = gaussian_unit(v); break;
            default: result = reciprocal_root(v); break;
        }
        y[i] = result == result ? result : nan();
        if (is_beyond(function, v, result)) atomicOr(beyond, 1u);
    }
}
EMU_KERNEL(float64_function)
