// Elements that share scales: the largest magnitude of each block, the rule's steps, elements through the output stage.
//
//     x ──► largest_of_blocks ──► scales_of_blocks: a program, a thread a block ──► scales, factors
//       └──────────────────────────────────────────────► elements_of_blocks ◄──────────────┘
//
// Programs are in emu/backends/cuda/scaled.py. Each of their operations is one of float32, rounded to nearest; what
// rounds to a format is the output stage.
#include "results.cuh"

// Where an array's blocks lie; one block for all if `axis` is 0. The array is seen as (outer, axis, inner): a block
// takes `along` elements of the axis, and `across` of the `lines` beside each other.
struct Blocks {
    i64 axis, inner, along, count, lines, across, line_blocks;
};
#define BLOCKS_FIELDS 7
#define BLOCKS_AT (OPERANDS_AT + OPERAND_FIELDS)

EMU_FN Blocks read_blocks(const i64* p) {
    Blocks b;
    b.axis = p[0];
    b.inner = p[1];
    b.along = p[2];
    b.count = p[3];
    b.lines = p[4];
    b.across = p[5];
    b.line_blocks = p[6];
    return b;
}

EMU_FN i64 block_of(i64 i, const Blocks& b) {
    if (b.axis == 0) return 0;
    i64 before = i / b.inner, line = before / b.axis * b.inner + i % b.inner, place = before % b.axis;
    i64 row = line / b.lines * b.line_blocks + line % b.lines / b.across;
    return row * b.count + place / b.along;
}

#define MAGNITUDE 0x7FFFFFFFu
#define INFINITE_BITS 0x7F800000u
// Elements beside each other that a thread looks at before it tells the block.
#define RUN 8

// Adds to `largest`, one for each block, which begins as 0, the largest bits of magnitudes and 1; NaN is above all
// numbers, or left out. 0 stays where no number is.
extern "C" __global__ void largest_of_blocks(EMU_GIVEN Task given, const u32* x, i32 leaves_nan_out, u32* largest, i64 n) {
    Blocks blocks = read_blocks(given.number + BLOCKS_AT);
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x * RUN;
    for (i64 start = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) * RUN; start < n; start += stride) {
        i64 mine = -1;
        u32 seen = 0;
        for (i64 i = start; i < start + RUN && i < n; ++i) {
            i64 block = block_of(i, blocks);
            if (block != mine) {
                if (seen != 0) atomicMax(&largest[mine], seen);
                mine = block;
                seen = 0;
            }
            u32 bits = x[i] & MAGNITUDE;
            if (bits > INFINITE_BITS && leaves_nan_out) continue;
            if (bits + 1 > seen) seen = bits + 1;
        }
        if (seen != 0) atomicMax(&largest[mine], seen);
    }
}
EMU_KERNEL(largest_of_blocks)

// ---- programs -------------------------------------------------------------------------------------------------------

enum Step { MULTIPLY_ = 0, DIVIDE_, ADD_, SUBTRACT_, LEAST, MOST, IS_EQUAL, IS_OTHER, IS_LESS, CHOOSE, UP, DOWN, TO_SCALE, TO_DIGITS };
#define REGISTERS 32
#define STEP_FIELDS 5
// The head of a program: registers set before, steps, registers of s and of the factor, exponents of scales, whether NaN
// is left out, whether a block of NaN alone has no scale, whether no block has one.
#define HEAD_FIELDS 9

EMU_FN float number_at(u32 bits) { return __uint_as_float(bits); }

EMU_FN bool is_nan(float x) { return (__float_as_uint(x) & MAGNITUDE) > INFINITE_BITS; }

// The power of two of the scale format beside a number that is not negative.
EMU_FN float power_beside(float x, bool up, i32 lowest, i32 highest, bool leaves_nan_out) {
    u32 bits = __float_as_uint(x);
    if (is_nan(x)) return x;
    if (bits == INFINITE_BITS && !leaves_nan_out) return number_at(INFINITE_BITS + 1);
    i32 exponent = lowest;
    if (bits == INFINITE_BITS) {
        exponent = highest;
    } else if ((bits & MAGNITUDE) != 0) {
        Number exact = decoded(bits, STORED_F32, 0);
        u64 digits = exact.significand.word[0];
        bool is_power = (digits & (digits - 1)) == 0;
        exponent = leading(exact) + (up && !is_power ? 1 : 0);
        exponent = exponent < lowest ? lowest : exponent > highest ? highest : exponent;
    }
    return exponent >= -126 ? number_at(static_cast<u32>(exponent + 127) << 23) : number_at(1u << (exponent + 149));
}

// Scale and factor of each of `n` blocks, by the program; the scale of a block without one is NaN.
extern "C" __global__ void scales_of_blocks(const i64* program, const i64* to_scale, const i64* to_digits, const u32* largest,
                                            float* scales, float* factors, i64 n) {
    i64 set = program[0], steps = program[1];
    i32 lowest = static_cast<i32>(program[4]), highest = static_cast<i32>(program[5]);
    bool leaves_nan_out = program[6] != 0;
    Stage scale_stage = read_stage(to_scale), digits_stage = read_stage(to_digits);
    const i64* constants = program + HEAD_FIELDS;
    const i64* step = constants + set;
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 block = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; block < n; block += stride) {
        float r[REGISTERS];
        for (i64 k = 0; k < set; ++k) r[k] = number_at(static_cast<u32>(constants[k]));
        u32 seen = largest[block], bits = seen == 0 ? 0 : seen - 1;
        r[0] = number_at(bits > INFINITE_BITS ? INFINITE_BITS + 1 : bits);
        for (i64 k = 0; k < steps; ++k) {
            const i64* p = step + k * STEP_FIELDS;
            float a = r[p[2]], b = r[p[3]], c = r[p[4]], result = 0;
            switch (p[0]) {
                case MULTIPLY_: result = __fmul_rn(a, b); break;
                case DIVIDE_: result = __fdiv_rn(a, b); break;
                case ADD_: result = __fadd_rn(a, b); break;
                case SUBTRACT_: result = __fsub_rn(a, b); break;
                case LEAST: result = is_nan(a) || b < a ? b : a; break;
                case MOST: result = is_nan(a) || b > a ? b : a; break;
                case IS_EQUAL: result = a == b ? 1.0f : 0.0f; break;
                case IS_OTHER: result = a != b ? 1.0f : 0.0f; break;
                case IS_LESS: result = a < b ? 1.0f : 0.0f; break;
                case CHOOSE: result = __float_as_uint(a) != 0 ? b : c; break;
                case UP: result = power_beside(a, true, lowest, highest, leaves_nan_out); break;
                case DOWN: result = power_beside(a, false, lowest, highest, leaves_nan_out); break;
                default: {
                    const Stage& stage = p[0] == TO_SCALE ? scale_stage : digits_stage;
                    Number exact = decoded(__float_as_uint(a), STORED_F32, 0);
                    result = number_at(static_cast<u32>(write(exact, stage, 0).bits));
                }
            }
            r[p[1]] = result;
        }
        bool is_lost = !leaves_nan_out && bits >= INFINITE_BITS, is_empty = program[7] != 0 && seen == 0;
        float scale = r[program[2]];
        bool has_none = is_lost || is_empty || is_nan(scale) || program[8] != 0;
        scales[block] = has_none ? number_at(INFINITE_BITS + 1) : scale;
        factors[block] = has_none ? number_at(INFINITE_BITS + 1) : r[program[3]];
    }
}
EMU_KERNEL(scales_of_blocks)

// ---- elements -------------------------------------------------------------------------------------------------------

enum Way { BY_POWER = 0, BY_PRODUCT = 1, BY_QUOTIENT = 2 };

// A number by its block's factor, through the output stage; 0 in a block without a scale.
struct Scaling {
    const u32* x;
    const float* scales;
    const float* factors;
    Blocks blocks;
    i32 way;
    EMU_MEMBER void operator()(i64 i, const Writing& w) {
        i64 block = block_of(i, blocks);
        float factor = factors[block];
        Number y;
        if (is_nan(scales[block])) {
            y = number_of(0, wide_of(0), 0, 0);
        } else if (way == BY_POWER) {
            y = decoded(x[i], STORED_F32, 0);
            if (y.kind == FINITE) y.exponent -= leading(decoded(__float_as_uint(factor), STORED_F32, 0));
        } else {
            float number = number_at(x[i]);
            float scaled = way == BY_PRODUCT ? __fmul_rn(number, factor) : __fdiv_rn(number, factor);
            y = decoded(__float_as_uint(scaled), STORED_F32, 0);
        }
        Written written = write(y, w.stage, draw(w, i));
        count_flags(w.tally, written.flags);
        store(w.out, i, written.bits, w.stage.storage);
    }
};

extern "C" __global__ void elements_of_blocks(EMU_GIVEN Task given, const u32* x, const float* scales, const float* factors,
                                              i32 way, const u32* recorded, void* out, u64* totals, i64 n) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Scaling body;
    body.x = x;
    body.scales = scales;
    body.factors = factors;
    body.blocks = read_blocks(task + BLOCKS_AT);
    body.way = way;
    for_each_result(task, room, n, recorded, out, totals, body);
}
EMU_KERNEL(elements_of_blocks)
