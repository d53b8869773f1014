// Exact sums of products of integers that no float holds: in tiles, in words of 64 bits.
//
// Operands are packed raws of 32 bits, whose sums take two words, or of 64 bits, whose sums take three. What a tile of
// results needs of the operands lies in shared memory. No sum wraps, so that no order of k matters; it runs upwards.
#include "port.cuh"

#define SIDE 16    // threads of a block, along each side of a tile
#define GROUP 4    // neighbouring results of a thread, along each side
#define STEPS 8    // k taken into shared memory at once
#define THREADS (SIDE * SIDE)
#define TILE (SIDE * GROUP)
#define APART (TILE + GROUP)  // of one k from the next: threads which write meet different banks

template <i32 WORDS>
struct Sum {
    u64 word[WORDS];
};

EMU_FN void add_product(Sum<2>& sum, i32 a, i32 b) {
    i64 product = static_cast<i64>(a) * b;
    u64 low = static_cast<u64>(product);
    sum.word[0] += low;
    sum.word[1] += (product < 0 ? ~0ull : 0ull) + (sum.word[0] < low);
}

EMU_FN void add_product(Sum<3>& sum, i64 a, i64 b) {
    u64 x = static_cast<u64>(a), y = static_cast<u64>(b);
    // as unsigned numbers, a negative a is a + 2**64: the high word of the product has y too much, and likewise for b
    u64 low = x * y, high = __umul64hi(x, y) - (a < 0 ? y : 0ull) - (b < 0 ? x : 0ull);
    sum.word[0] += low;
    u64 carry = sum.word[0] < low, middle = sum.word[1] + high;
    sum.word[1] = middle + carry;
    sum.word[2] += ((high >> 63) != 0 ? ~0ull : 0ull) + (middle < high) + (sum.word[1] < carry);
}

template <typename Raw>
EMU_FN Raw raw_at(const Raw* x, i64 line, i64 lines, i64 k, i64 depth) {
    return line < lines && k < depth ? x[line * depth + k] : static_cast<Raw>(0);
}

template <typename Raw, i32 WORDS>
EMU_FN void sum_tiles(const Raw* a, const Raw* b, i64 batches, i64 rows, i64 depth, i64 columns, i64 a_step, i64 b_step,
                      u64* sums, Raw* left, Raw* right) {
    constexpr i32 loads = TILE * STEPS / THREADS;
    i32 thread = static_cast<i32>(threadIdx.x), down = thread / SIDE, across = thread % SIDE;
    i64 tiles_down = (rows + TILE - 1) / TILE, tiles_across = (columns + TILE - 1) / TILE;
    for (i64 t = blockIdx.x; t < batches * tiles_down * tiles_across; t += gridDim.x) {
        i64 batch = t / (tiles_down * tiles_across), top = t / tiles_across % tiles_down * TILE, start = t % tiles_across * TILE;
        const Raw* a_here = a + a_step * batch;
        const Raw* b_here = b + b_step * batch;
        Sum<WORDS> sum[GROUP][GROUP];
#pragma unroll
        for (i32 i = 0; i < GROUP * GROUP * WORDS; i++) sum[i / WORDS / GROUP][i / WORDS % GROUP].word[i % WORDS] = 0;
        for (i64 first = 0; first < depth; first += STEPS) {
#pragma unroll
            for (i32 n = 0; n < loads; n++) {
                i32 place = n * THREADS + thread, line = place / STEPS, k = place % STEPS;
                left[k * APART + line] = raw_at(a_here, top + line, rows, first + k, depth);
                right[k * APART + line] = raw_at(b_here, start + line, columns, first + k, depth);
            }
            __syncthreads();
#pragma unroll
            for (i32 k = 0; k < STEPS; k++)  // zeros after the last
#pragma unroll
                for (i32 i = 0; i < GROUP; i++)
#pragma unroll
                    for (i32 j = 0; j < GROUP; j++)
                        add_product(sum[i][j], left[k * APART + down * GROUP + i], right[k * APART + across * GROUP + j]);
            __syncthreads();
        }
#pragma unroll
        for (i32 i = 0; i < GROUP; i++)
#pragma unroll
            for (i32 j = 0; j < GROUP; j++) {
                i64 row = top + down * GROUP + i, column = start + across * GROUP + j;
                if (row < rows && column < columns)
                    for (i32 w = 0; w < WORDS; w++) sums[((batch * rows + row) * columns + column) * WORDS + w] = sum[i][j].word[w];
            }
    }
}

// Sums of every row of `a`, (rows, depth), with every row of `b`, (columns, depth); from one matrix to the next a step, or 0.
// Blocks have 256 threads.
#define INTEGER_TILES(name, Raw, WORDS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                      \
        name(const Raw* a, const Raw* b, i64 batches, i64 rows, i64 depth, i64 columns, i64 a_step, i64 b_step, u64* sums) {   \
        __shared__ __align__(16) Raw left[STEPS * APART];                                                                      \
        __shared__ __align__(16) Raw right[STEPS * APART];                                                                     \
        sum_tiles<Raw, WORDS>(a, b, batches, rows, depth, columns, a_step, b_step, sums, left, right);                         \
    }
INTEGER_TILES(sum_products_32, i32, 2)
EMU_KERNEL(sum_products_32)
INTEGER_TILES(sum_products_64, i64, 3)
EMU_KERNEL(sum_products_64)
