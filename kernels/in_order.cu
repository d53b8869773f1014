// Accumulators of float32 that take one product after the other and round each sum to nearest even.
//
// One fused multiply-add is one such step: the product of two float32 is exact in it, the sum rounded once. What a tile of
// results needs of the operands lies in shared memory; k runs upwards in every thread, so that sums are those of one adder.
#include "product.cuh"

#define SIDE 16    // threads of a block, along each side of a tile
#define GROUP 4    // neighbouring results of a thread
#define STEPS 8    // k taken into shared memory at once
#define THREADS (SIDE * SIDE)
static_assert(THREADS % STEPS == 0 && THREADS % (SIDE * GROUP) == 0 && THREADS % (2 * SIDE * GROUP) == 0,
              "a thread fetches the same k of every row, and every k of the same column");
// Where a line begins that lies outside of an operand: no offset of an element.
#define NOWHERE_INSIDE (-1 - 0x7FFFFFFFFFFFFFFFll)

struct __align__(16) Terms {
    float term[GROUP];
};

// Operands of a tile for some k, one line per k; lines are apart such that threads which write meet different banks.
template <i32 GROUPS>
struct Tiles {
    static constexpr i32 size = SIDE * GROUP * GROUPS, apart = size + GROUP;
};

EMU_FN float flushed_float(u32 bits, u32 smallest) {
    return __uint_as_float((bits & 0x7FFFFFFFu) < smallest ? bits & 0x80000000u : bits);
}

// float32 below which subnormals count as 0, as bits.
EMU_FN u32 flush_limit(const Operand& o) {
    return o.flush_below == NO_FLUSH ? 0u : static_cast<u32>(encode_float(0, 1, o.flush_below, 23, 8, 127));
}

EMU_FN bool is_finite_float(float x) { return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u; }

// Whether a float32 accumulator, which takes one product after the other, becomes infinite before it meets an operand that
// is not finite. Once infinite or NaN, it stays so: asked only of those that end so.
EMU_FN bool overflowed(const u32* a, const i64* a_rows, const i64* a_columns, const u32* b, const i64* b_rows,
                       const i64* b_columns, const u32* addend, const i64* task, const Place& p, i64 depth) {
    const i64* step = task + STEPS_AT + 2;
    float sum = 0.0f;
    if (addend != nullptr) sum = flushed_float(addend[step[0] * p.batch + step[1] * p.row + step[2] * p.column], flush_limit(read_operand(task, 2)));
    if (!is_finite_float(sum)) return false;
    for (i64 k = 0; k < depth; k++) {
        float x = flushed_float(a[task[STEPS_AT] * p.batch + a_rows[p.row] + a_columns[k]], flush_limit(read_operand(task, 0)));
        float y = flushed_float(b[task[STEPS_AT + 1] * p.batch + b_rows[k] + b_columns[p.column]], flush_limit(read_operand(task, 1)));
        if (!is_finite_float(x) || !is_finite_float(y)) return false;
        sum = __fmaf_rn(x, y, sum);
        if (!is_finite_float(sum)) return true;
    }
    return false;
}

// The line of a tile that a thread's i-th results lie on: neighbours in groups, first the first group of every thread, then the second.
EMU_FN i32 line_of(i32 i, i32 thread) { return (i / GROUP * SIDE + thread) * GROUP + i % GROUP; }

template <i32 GROUPS>
EMU_FN void take_step(float (&sum)[GROUP * GROUPS][GROUP * GROUPS], const float* left, const float* right, i32 down, i32 across) {
    Terms x[GROUPS], y[GROUPS];
    for (i32 g = 0; g < GROUPS; g++) {
        x[g] = *reinterpret_cast<const Terms*>(left + (g * SIDE + down) * GROUP);
        y[g] = *reinterpret_cast<const Terms*>(right + (g * SIDE + across) * GROUP);
    }
#pragma unroll
    for (i32 i = 0; i < GROUP * GROUPS; i++)
#pragma unroll
        for (i32 j = 0; j < GROUP * GROUPS; j++)
            sum[i][j] = __fmaf_rn(x[i / GROUP].term[i % GROUP], y[j / GROUP].term[j % GROUP], sum[i][j]);
}

template <i32 GROUPS>
EMU_FN void sum_tiles(const i64* task, const u32* a, const i64* a_rows, const i64* a_columns, const u32* b, const i64* b_rows,
                      const i64* b_columns, const u32* addend, float* sums, u8* marks, float* left, float* right) {
    constexpr i32 size = Tiles<GROUPS>::size, apart = Tiles<GROUPS>::apart, each = GROUP * GROUPS;
    constexpr i32 loads = size * STEPS / THREADS;
    Shape shape = read_shape(task);
    u32 flush_a = flush_limit(read_operand(task, 0)), flush_b = flush_limit(read_operand(task, 1));
    u32 flush_addend = flush_limit(read_operand(task, 2));
    const i64* step = task + STEPS_AT + 2;
    i32 thread = static_cast<i32>(threadIdx.x), down = thread / SIDE, across = thread % SIDE;
    i64 tiles_down = (shape.rows + size - 1) / size, tiles_across = (shape.columns + size - 1) / size;
    for (i64 t = blockIdx.x; t < shape.batches * tiles_down * tiles_across; t += gridDim.x) {
        i64 batch = t / (tiles_down * tiles_across), top = t / tiles_across % tiles_down * size, start = t % tiles_across * size;
        const u32* a_here = a + task[STEPS_AT] * batch;
        const u32* b_here = b + task[STEPS_AT + 1] * batch;
        float sum[each][each];
#pragma unroll
        for (i32 i = 0; i < each; i++)
#pragma unroll
            for (i32 j = 0; j < each; j++) {
                i64 row = top + line_of(i, down), column = start + line_of(j, across);
                sum[i][j] = 0.0f;
                if (addend != nullptr && row < shape.rows && column < shape.columns)
                    sum[i][j] = flushed_float(addend[step[0] * batch + step[1] * row + step[2] * column], flush_addend);
            }
        // What a thread fetches: of `a` one k of some rows, of `b` some k of one column.
        i64 row_starts[loads], column_start = NOWHERE_INSIDE, left_step = 0, right_steps[loads] = {};
#pragma unroll
        for (i32 n = 0; n < loads; n++) {
            i64 row = top + (n * THREADS + thread) / STEPS;
            row_starts[n] = row < shape.rows ? a_rows[row] : NOWHERE_INSIDE;
        }
        if (start + thread % size < shape.columns) column_start = b_columns[start + thread % size];
        u32 next_left[loads], next_right[loads];  // not flushed before they are needed: that would wait for them
        for (i64 first = -2 * STEPS; first < shape.depth; first += STEPS) {  // meanwhile, numbers and offsets of what follows are fetched
            i64 ahead = first + STEPS;
#pragma unroll
            for (i32 n = 0; n < loads; n++) {
                bool inside = ahead >= 0 && ahead + thread % STEPS < shape.depth && row_starts[n] != NOWHERE_INSIDE;
                next_left[n] = inside ? a_here[row_starts[n] + left_step] : 0u;
                inside = ahead >= 0 && ahead + (n * THREADS + thread) / size < shape.depth && column_start != NOWHERE_INSIDE;
                next_right[n] = inside ? b_here[right_steps[n] + column_start] : 0u;
            }
            i64 after = ahead + STEPS;  // offsets for the next turn: nothing here waits for them
            if (after + thread % STEPS < shape.depth) left_step = a_columns[after + thread % STEPS];
#pragma unroll
            for (i32 n = 0; n < loads; n++) {
                i64 k = after + (n * THREADS + thread) / size;
                if (k < shape.depth) right_steps[n] = b_rows[k];
            }
            if (first >= 0) {
                i64 count = shape.depth - first;
                if (count >= STEPS) {
#pragma unroll
                    for (i32 k = 0; k < STEPS; k++) take_step<GROUPS>(sum, left + k * apart, right + k * apart, down, across);
                } else {
#pragma unroll 1
                    for (i32 k = 0; k < count; k++) take_step<GROUPS>(sum, left + k * apart, right + k * apart, down, across);
                }
            }
            __syncthreads();
#pragma unroll
            for (i32 n = 0; n < loads; n++) {
                i32 place = n * THREADS + thread;
                left[place % STEPS * apart + place / STEPS] = flushed_float(next_left[n], flush_a);
                right[place / size * apart + place % size] = flushed_float(next_right[n], flush_b);
            }
            __syncthreads();
        }
#pragma unroll
        for (i32 i = 0; i < each; i++)
#pragma unroll
            for (i32 j = 0; j < each; j++) {
                i64 row = top + line_of(i, down), column = start + line_of(j, across);
                if (row >= shape.rows || column >= shape.columns) continue;
                i64 result = (batch * shape.rows + row) * shape.columns + column;
                sums[result] = sum[i][j];
                marks[result] = !is_finite_float(sum[i][j]);
            }
#pragma unroll 1
        for (i32 n = 0; n < each * each; n++) {  // what this thread has marked, asked once more: seldom any
            Place p = {batch, top + line_of(n / each, down), start + line_of(n % each, across)};
            if (p.row >= shape.rows || p.column >= shape.columns) continue;
            u8* mark = marks + (batch * shape.rows + p.row) * shape.columns + p.column;
            if (*mark) *mark = overflowed(a, a_rows, a_columns, b, b_rows, b_columns, addend, task, p, shape.depth);
        }
    }
}

// The accumulators' contents, and whether they overflowed, one per result; operands and addend are float32. Blocks have 256 threads.
#define IN_ORDER(name, GROUPS)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                      \
        name(EMU_GIVEN Task given, const u32* a, const i64* a_rows, const i64* a_columns, const u32* b, const i64* b_rows,     \
             const i64* b_columns, const u32* addend, float* sums, u8* marks) {                                                \
        __shared__ __align__(16) float left[STEPS * Tiles<GROUPS>::apart];                                                     \
        __shared__ __align__(16) float right[STEPS * Tiles<GROUPS>::apart];                                                    \
        sum_tiles<GROUPS>(given.number, a, a_rows, a_columns, b, b_rows, b_columns, addend, sums, marks, left, right);         \
    }
IN_ORDER(in_order_64, 1)
EMU_KERNEL(in_order_64)
IN_ORDER(in_order_128, 2)
EMU_KERNEL(in_order_128)
