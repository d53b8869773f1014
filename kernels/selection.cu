// Selections: relu, maxima of windows, their backward passes, largest magnitudes. They copy values and never round.
#include "number.cuh"

EMU_FN u64 bits_at(const void* array, i64 index, i32 storage) {
    return storage == STORED_F32 ? static_cast<const u32*>(array)[index] : static_cast<const u64*>(array)[index];
}

EMU_FN void put_bits(void* array, i64 index, u64 bits, i32 storage) {
    if (storage == STORED_F32) static_cast<u32*>(array)[index] = static_cast<u32>(bits);
    else static_cast<u64*>(array)[index] = bits;
}

EMU_FN bool holds_nan(u64 bits, i32 storage) {
    if (storage == STORED_F32) return (bits & 0x7FFFFFFFull) > 0x7F800000ull;
    return storage == STORED_F64 && (bits & 0x7FFFFFFFFFFFFFFFull) > 0x7FF0000000000000ull;
}

// An unsigned integer in the order of the values, -0 below +0; of numbers other than NaN.
EMU_FN u64 rank_of(u64 bits, i32 storage) {
    if (storage == STORED_U64) return bits;
    u64 sign = storage == STORED_F32 ? 0x80000000ull : 0x8000000000000000ull;
    if (storage == STORED_I64) return bits ^ sign;
    return bits & sign ? low_bits(~bits, storage == STORED_F32 ? 32 : 64) : bits | sign;
}

// x where x > 0, NaN where NaN, else +0.
extern "C" __global__ void relu(const void* x, void* out, i32 storage, i64 n) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        u64 bits = bits_at(x, i, storage);
        bool stays = holds_nan(bits, storage) || rank_of(bits, storage) > rank_of(0, storage);
        put_bits(out, i, stays ? bits : 0ull, storage);
    }
}
EMU_KERNEL(relu)

// g where x > 0, else +0; x may lie in memory as another kind of number.
extern "C" __global__ void relu_gradient(const void* g, i32 storage, const void* x, i32 x_storage, void* out, i64 n) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        u64 seen = bits_at(x, i, x_storage);
        bool passes = !holds_nan(seen, x_storage) && rank_of(seen, x_storage) > rank_of(0, x_storage);
        put_bits(out, i, passes ? bits_at(g, i, storage) : 0ull, storage);
    }
}
EMU_KERNEL(relu_gradient)

// A number's magnitude as an integer in the order of magnitudes: of a float its bits, NaN above infinity.
EMU_FN u64 magnitude_bits(u64 bits, i32 storage) {
    if (storage == STORED_F32) return bits & 0x7FFFFFFFull;
    if (storage == STORED_F64) return bits & 0x7FFFFFFFFFFFFFFFull;
    return storage == STORED_I64 && bits >> 63 ? 0ull - bits : bits;
}

EMU_FN void take_largest(const void* x, i32 storage, i64 n, u64* largest) {
    u64 seen = 0;
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        u64 magnitude = magnitude_bits(bits_at(x, i, storage), storage);
        if (magnitude > seen) seen = magnitude;
    }
    if (seen != 0) atomicMax(largest, seen);
}

// The largest magnitudes of two arrays, as `magnitude_bits`, into results[0] and results[1], which hold zeros.
extern "C" __global__ void largest_magnitudes(const void* a, i32 a_storage, i64 a_size, const void* b, i32 b_storage,
                                              i64 b_size, u64* results) {
    __shared__ u64 largest[2];
    if (threadIdx.x < 2) largest[threadIdx.x] = 0;
    __syncthreads();
    take_largest(a, a_storage, a_size, &largest[0]);
    take_largest(b, b_storage, b_size, &largest[1]);
    __syncthreads();
    if (threadIdx.x < 2 && largest[threadIdx.x] != 0) atomicMax(&results[threadIdx.x], largest[threadIdx.x]);
}
EMU_KERNEL(largest_magnitudes)

// Fixed-point values as their raw integers: multiples of 2**quantum.
extern "C" __global__ void raws(const void* x, i32 storage, i32 quantum, i64* out, i64 n) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
        out[i] = static_cast<i64>(raw_of(load(x, i, storage, 0), quantum));
}
EMU_KERNEL(raws)

// Maxima of windows and where they lie; NaN wins, the first of equals stays. Window w has its elements at
// data[batch_step * (w / rows) + row_places[w % rows] + column_places[0 .. columns - 1]]. `index_bytes`: 1, 2 or 4.
extern "C" __global__ void max_pool(const void* data, i64 batch_step, const i64* row_places, i64 rows,
                                    const i64* column_places, i64 columns, void* best, void* index, i32 index_bytes,
                                    i32 storage, i64 n) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i64 base = batch_step * (i / rows) + row_places[i % rows], place = 0;
        u64 top = bits_at(data, base + column_places[0], storage);
        for (i64 j = 1; j < columns; j++) {
            u64 rival = bits_at(data, base + column_places[j], storage);
            if (holds_nan(top, storage)) break;
            if (!holds_nan(rival, storage) && rank_of(rival, storage) <= rank_of(top, storage)) continue;
            top = rival;
            place = j;
        }
        put_bits(best, i, top, storage);
        if (index_bytes == 1) static_cast<u8*>(index)[i] = static_cast<u8>(place);
        else if (index_bytes == 2) static_cast<u16*>(index)[i] = static_cast<u16>(place);
        else static_cast<u32*>(index)[i] = static_cast<u32>(place);
    }
}
EMU_KERNEL(max_pool)

// Puts each value at its window's index-th place of `spread`, which holds zeros; windows never overlap. A place outside
// its window is left out.
extern "C" __global__ void unpool(const void* values, const void* index, i32 index_bytes, i64 batch_step,
                                  const i64* row_places, i64 rows, const i64* column_places, i64 columns, void* spread,
                                  i32 storage, i64 n) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i64 place = index_bytes == 1   ? static_cast<i64>(static_cast<const u8*>(index)[i])
                    : index_bytes == 2 ? static_cast<i64>(static_cast<const u16*>(index)[i])
                                       : static_cast<i64>(static_cast<const u32*>(index)[i]);
        if (place >= columns) continue;
        i64 target = batch_step * (i / rows) + row_places[i % rows] + column_places[place];
        put_bits(spread, target, bits_at(values, i, storage), storage);
    }
}
EMU_KERNEL(unpool)
