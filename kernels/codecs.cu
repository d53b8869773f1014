// Gradient codecs: columns become codes, and codes become columns, as in emu/backends/reference/codecs.py; a block for each column.
//
// One of the files whose floating-point instructions are listed: additions, subtractions, multiplications, divisions and
// square roots, each rounded to nearest, none contracted, and conversions. A thread adds one lane of the column's sums, and
// lanes are joined in the stated order; every NaN is written as the positive quiet one.
#include "task.cuh"

#define SUM_LANES 64  // threads of a block
#define WORD_BITS 32

enum { AT_ZERO, AT_MEAN, AT_GIVEN };
enum { MEANS, ENDS, MIDDLES };
enum { TOTAL_OF, LEAST_OF, MOST_OF };

EMU_FN float quiet_nan(float) { return __uint_as_float(0x7FC00000u); }
EMU_FN double quiet_nan(double) { return __longlong_as_double(0x7FF8000000000000ll); }
EMU_FN float infinity_of(float) { return __uint_as_float(0x7F800000u); }
EMU_FN double infinity_of(double) { return __longlong_as_double(0x7FF0000000000000ll); }
EMU_FN float root_of(float x) { return __fsqrt_rn(x); }
EMU_FN double root_of(double x) { return __dsqrt_rn(x); }

template <class F>
EMU_FN F one_nan(F x) { return x == x ? x : quiet_nan(x); }

template <class F>
EMU_FN F magnitude_of(F x) { return x < 0 ? -x : x; }

// The arguments of a launch: int64 numbers, in this order; floats by the bits of float64.
struct Codec {
    i64 columns, rows;
    i32 steps, bits, threshold, kind, fresh, settles;
    double deviations, outliers;
    float low, high;  // the range of steps, if `low` is below `high`
};

EMU_FN Codec read_codec(const i64* task) {
    Codec c;
    c.columns = task[0];
    c.rows = task[1];
    c.steps = static_cast<i32>(task[2]);
    c.bits = static_cast<i32>(task[3]);
    c.threshold = static_cast<i32>(task[4]);
    c.kind = static_cast<i32>(task[5]);
    c.fresh = static_cast<i32>(task[6]);
    c.settles = static_cast<i32>(task[7]);
    c.deviations = __longlong_as_double(task[8]);
    c.outliers = __longlong_as_double(task[9]);
    c.low = static_cast<float>(__longlong_as_double(task[10]));
    c.high = static_cast<float>(__longlong_as_double(task[11]));
    return c;
}

// A column, and room that its block shares.
template <class F>
struct Column {
    const F* gradients;
    F* residual;
    const u8* counted;  // nullptr: all
    i64 rows;
    F* lanes;
    u64* count;
};

template <class F>
EMU_FN F value_at(const Column<F>& column, i64 i) { return column.gradients[i] + column.residual[i]; }

// How values become codes.
template <class F>
struct Coder {
    i32 steps;
    F threshold;          // of two steps
    float low, width;     // of more
};

template <class F>
EMU_FN u32 code_of(F v, const Coder<F>& coder) {
    if (coder.steps == 2) return v >= coder.threshold ? 1u : 0u;
    F divisor = coder.width > 0 ? static_cast<F>(coder.width) : static_cast<F>(1);
    F place = (v - static_cast<F>(coder.low)) / divisor;
    if (!(place >= 1)) return 0;
    u32 last = static_cast<u32>(coder.steps - 1);
    return place >= static_cast<F>(last) ? last : static_cast<u32>(place);
}

template <class F, i32 OPERATION>
EMU_FN F of_two(F a, F b) {
    if (OPERATION == TOTAL_OF) return a + b;
    return OPERATION == LEAST_OF ? (b < a ? b : a) : (b > a ? b : a);
}

// Joins what lanes hold, neighbours first. Every thread; the result in every thread.
template <class F, i32 OPERATION>
EMU_FN F joined(F* lanes, F mine) {
    i32 thread = static_cast<i32>(threadIdx.x);
    lanes[thread] = mine;
    __syncthreads();
    for (i32 width = SUM_LANES / 2; width > 0; width /= 2) {
        F both = mine;
        if (thread < width) both = of_two<F, OPERATION>(lanes[2 * thread], lanes[2 * thread + 1]);
        __syncthreads();
        if (thread < width) lanes[thread] = both;
        __syncthreads();
    }
    F all = lanes[0];
    __syncthreads();
    return all;
}

// Counts of lanes together. Every thread.
EMU_FN u64 counted_by_all(u64* count, u64 mine) {
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    if (mine != 0) atomicAdd(count, mine);
    __syncthreads();
    u64 all = *count;
    __syncthreads();
    return all;
}

template <class F>
EMU_FN F quotient(F sum, u64 count) { return count == 0 ? static_cast<F>(0) : sum / static_cast<F>(static_cast<i64>(count)); }

template <class F>
EMU_FN F mean_of(const Column<F>& column) {
    F sum = 0;
    for (i64 i = threadIdx.x; i < column.rows; i += SUM_LANES) sum = sum + value_at(column, i);
    return quotient(joined<F, TOTAL_OF>(column.lanes, sum), static_cast<u64>(column.rows));
}

template <class F>
EMU_FN F deviation_of(const Column<F>& column, F mean) {
    F sum = 0;
    for (i64 i = threadIdx.x; i < column.rows; i += SUM_LANES) {
        F centred = value_at(column, i) - mean;
        sum = sum + centred * centred;
    }
    return root_of(quotient(joined<F, TOTAL_OF>(column.lanes, sum), static_cast<u64>(column.rows)));
}

// Which values decide levels: those drawn, no farther from the mean than `reach`, if it is not negative.
template <class F>
struct Deciders {
    F mean, reach;
};

template <class F>
EMU_FN bool decides(const Column<F>& column, const Deciders<F>& deciders, i64 i, F v) {
    if (column.counted != nullptr && !column.counted[i]) return false;
    return deciders.reach < 0 || magnitude_of(v - deciders.mean) <= deciders.reach;
}

// The mean of the values that took a code.
template <class F>
EMU_FN float level_of(const Column<F>& column, const Coder<F>& coder, const Deciders<F>& deciders, u32 code) {
    F sum = 0;
    u64 count = 0;
    for (i64 i = threadIdx.x; i < column.rows; i += SUM_LANES) {
        F v = value_at(column, i);
        if (code_of(v, coder) != code || !decides(column, deciders, i, v)) continue;
        sum = sum + v;
        count++;
    }
    F whole = joined<F, TOTAL_OF>(column.lanes, sum);
    return one_nan(static_cast<float>(quotient(whole, counted_by_all(column.count, count))));
}

EMU_FN float finite_end(float end, bool has_nan) { return has_nan || !(end - end == 0) ? 0.0f : end + 0.0f; }

// The least and the largest value; +0 for either zero, and for what is not finite.
template <class F>
EMU_FN void write_ends(const Column<F>& column, const Deciders<F>& deciders, float* levels) {
    F least = infinity_of(static_cast<F>(0)), most = -least;
    u64 nans = 0;
    for (i64 i = threadIdx.x; i < column.rows; i += SUM_LANES) {
        F v = value_at(column, i);
        if (!decides(column, deciders, i, v)) continue;
        if (v != v) nans++;
        least = of_two<F, LEAST_OF>(least, v);
        most = of_two<F, MOST_OF>(most, v);
    }
    least = joined<F, LEAST_OF>(column.lanes, least);
    most = joined<F, MOST_OF>(column.lanes, most);
    bool has_nan = counted_by_all(column.count, nans) != 0;
    if (threadIdx.x != 0) return;
    levels[0] = finite_end(static_cast<float>(least), has_nan);
    levels[1] = finite_end(static_cast<float>(most), has_nan);
}

EMU_FN float middle_of(float low, float width, u32 code) {
    return one_nan(low + (static_cast<float>(code) + 0.5f) * width);
}

// Writes codes of 64 rows at a time, two words for each of their bits, and residuals.
template <class F>
EMU_FN void settle(const Column<F>& column, const Coder<F>& coder, const Codec& codec, const float* levels, u16* codes, u32* words) {
    i32 thread = static_cast<i32>(threadIdx.x), bits = codec.bits, per_round = SUM_LANES / WORD_BITS * bits;
    i64 size = (column.rows * bits + WORD_BITS - 1) / WORD_BITS;
    for (i64 first = 0; first < column.rows; first += SUM_LANES) {
        i64 i = first + thread, place = first / SUM_LANES * per_round + thread;
        u32 code = 0;
        if (i < column.rows) {
            F v = value_at(column, i);
            code = code_of(v, coder);
            float level = codec.kind == MIDDLES ? middle_of(coder.low, coder.width, code) : levels[code];
            if (codec.settles) column.residual[i] = one_nan(v - static_cast<F>(level));
        }
        codes[thread] = static_cast<u16>(code);
        __syncthreads();
        if (thread < per_round && place < size) {
            u32 word = 0;
            i32 begin = thread * WORD_BITS;
            for (i32 j = begin / bits; j < SUM_LANES && j * bits < begin + WORD_BITS; j++) {
                i32 shift = j * bits - begin;
                u32 seen = codes[j];
                word |= shift < 0 ? seen >> -shift : seen << shift;
            }
            words[place] = word;
        }
        __syncthreads();
    }
}

template <class F>
EMU_FN void encode(const Codec& codec, const Column<F>& column, const F* limit, float* levels, F* kept_mean, u16* codes, u32* words) {
    F mean = mean_of(column);
    if (threadIdx.x == 0) *kept_mean = one_nan(mean);
    bool given = codec.low < codec.high, ranges = codec.steps > 2 && (codec.fresh || codec.kind != MIDDLES);
    bool leaves_out = codec.fresh && codec.outliers > 0;
    F deviation = (ranges && !given) || leaves_out ? deviation_of(column, mean) : static_cast<F>(0);
    Coder<F> coder = {codec.steps, 0, 0, 0};
    if (codec.threshold == AT_MEAN) coder.threshold = mean;
    if (codec.threshold == AT_GIVEN) coder.threshold = *limit;
    if (codec.steps > 2) {
        F reach = static_cast<F>(codec.deviations) * deviation;
        float low = !ranges ? levels[0] : given ? codec.low : one_nan(static_cast<float>(mean - reach));
        float high = !ranges ? levels[1] : given ? codec.high : one_nan(static_cast<float>(mean + reach));
        coder.low = low;
        coder.width = (high - low) / static_cast<float>(codec.steps);
        if (codec.kind == MIDDLES && codec.fresh && threadIdx.x == 0) {
            levels[0] = low;
            levels[1] = high;
        }
    }
    if (codec.fresh && codec.kind != MIDDLES) {
        Deciders<F> deciders = {mean, codec.outliers > 0 ? static_cast<F>(codec.outliers) * deviation : static_cast<F>(-1)};
        if (codec.kind == ENDS) write_ends(column, deciders, levels);
        for (i32 code = 0; codec.kind == MEANS && code < codec.steps; code++) {
            float level = level_of(column, coder, deciders, static_cast<u32>(code));
            if (threadIdx.x == 0) levels[code] = level;
        }
    }
    __syncthreads();
    settle(column, coder, codec, levels, codes, words);
}

template <class F>
EMU_FN void encode_all(const i64* task, const F* gradients, F* residual, const F* limits, const u8* counted, float* levels,
                       F* means, u32* words, F* lanes, u64* count, u16* codes) {
    Codec codec = read_codec(task);
    i64 per_column = codec.kind == MIDDLES ? 2 : 1ll << codec.bits;
    i64 size = (codec.rows * codec.bits + WORD_BITS - 1) / WORD_BITS;
    for (i64 c = blockIdx.x; c < codec.columns; c += gridDim.x) {
        Column<F> column = {gradients + c * codec.rows, residual + c * codec.rows,
                            counted == nullptr ? nullptr : counted + c * codec.rows, codec.rows, lanes, count};
        encode(codec, column, limits == nullptr ? nullptr : limits + c, levels + c * per_column, means + c, codes, words + c * size);
    }
}

// Writes codes of columns (`words`), means, levels where they are fresh, and residuals where it settles. 64 threads a block;
// `storage`: of gradients, residual, limits and means.
extern "C" __global__ void encode_columns(EMU_GIVEN Task given, i32 storage, const void* gradients, void* residual,
                                          const void* limits, const u8* counted, float* levels, void* means, u32* words) {
    __shared__ double lanes[SUM_LANES];
    __shared__ u64 count[1];
    __shared__ u16 codes[SUM_LANES];
    if (storage == STORED_F32)
        encode_all(given.number, static_cast<const float*>(gradients), static_cast<float*>(residual),
                   static_cast<const float*>(limits), counted, levels, static_cast<float*>(means), words,
                   reinterpret_cast<float*>(lanes), count, codes);
    else
        encode_all(given.number, static_cast<const double*>(gradients), static_cast<double*>(residual),
                   static_cast<const double*>(limits), counted, levels, static_cast<double*>(means), words, lanes, count, codes);
}
EMU_KERNEL(encode_columns)

// The code of row `i`.
EMU_FN u32 code_at(const u32* words, i32 bits, i64 i) {
    i64 place = i * bits / WORD_BITS;
    i32 shift = static_cast<i32>(i * bits % WORD_BITS);
    u32 code = words[place] >> shift;
    if (shift + bits > WORD_BITS) code |= words[place + 1] << (WORD_BITS - shift);
    return code & ((1u << bits) - 1u);
}

// Writes what codes stand for into `out`, float32; or adds it to `out` of `storage`, if `adds`. `steps` of the range whose
// ends are a column's two levels; 0 if a column has a level for each code.
extern "C" __global__ void decode_columns(const u32* words, const float* levels, i32 steps, i32 bits, i64 rows, void* out,
                                          i32 storage, i32 adds, i64 n) {
    i64 size = (rows * bits + WORD_BITS - 1) / WORD_BITS, stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i64 column = i / rows;
        u32 code = code_at(words + column * size, bits, i % rows);
        const float* ends = levels + 2 * column;
        float level = steps == 0 ? levels[(column << bits) + code]
                                 : middle_of(ends[0], (ends[1] - ends[0]) / static_cast<float>(steps), code);
        float* narrow = static_cast<float*>(out) + i;
        double* wide = static_cast<double*>(out) + i;
        if (!adds) *narrow = level;
        else if (storage == STORED_F32) *narrow = one_nan(*narrow + level);
        else *wide = one_nan(*wide + static_cast<double>(level));
    }
}
EMU_KERNEL(decode_columns)
