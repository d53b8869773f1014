// What comes before and after sums that other code computes (a vendor's library, tiles of integers, tiles in order): operands are
// packed for it, and the output stage writes the sums.
#include "product.cuh"

// How packed elements lie in memory.
enum Packing { PACKED_F32 = 0, PACKED_F64 = 1, PACKED_I8 = 2, PACKED_I32 = 3, PACKED_I64 = 4 };

// Numbers from 0 up; `is_small`: both fit 32 bits, whose divisions take a quarter of the instructions.
EMU_FN i64 quotient_of(i64 a, i64 b, bool is_small) { return is_small ? static_cast<u32>(a) / static_cast<u32>(b) : a / b; }

EMU_FN i64 remainder_of(i64 a, i64 b, bool is_small) { return is_small ? static_cast<u32>(a) % static_cast<u32>(b) : a % b; }

// Copies the fixed-point elements of one operand, gathered by offsets, into `height` x `width` matrices, with zeros beyond its own
// rows and columns: as values in float32 or float64, or as raw integers in 8, 32 or 64 bits.
extern "C" __global__ void pack(EMU_GIVEN Task given, i32 operand, const void* data, const i64* rows, i64 n_rows,
                                const i64* columns, i64 n_columns, i64 batch_step, i32 packing, i64 height, i64 width,
                                void* out, i64 n) {
    const i64* task = given.number;
    Operand element = read_operand(task, operand);
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    bool is_small = n <= 0x7FFFFFFF;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i64 column = remainder_of(i, width, is_small), line = quotient_of(i, width, is_small);
        i64 row = remainder_of(line, height, is_small), batch = quotient_of(line, height, is_small);
        Number x = number_of(0, wide_of(0), 0, 0);
        if (row < n_rows && column < n_columns) x = fetch(data, batch_step * batch + rows[row] + columns[column], element);
        if (packing == PACKED_I8) static_cast<u8*>(out)[i] = static_cast<u8>(raw_of(x, element.quantum));
        else if (packing == PACKED_I32) static_cast<u32*>(out)[i] = static_cast<u32>(raw_of(x, element.quantum));
        else if (packing == PACKED_I64) static_cast<u64*>(out)[i] = raw_of(x, element.quantum);
        else store(out, i, encode(x.negative, x.significand.word[0], x.exponent, packing), packing);
    }
}
EMU_KERNEL(pack)

// Sums in several words have the lowest word first, and are signed.
enum Sums { SUMS_IN_2_WORDS = 5, SUMS_IN_3_WORDS = 6 };

EMU_FN Number sum_at(const void* sums, i64 index, i32 storage, i32 quantum) {
    if (storage < SUMS_IN_2_WORDS) return load(sums, index, storage, quantum);
    i32 words = storage - SUMS_IN_2_WORDS + 2;
    const u64* word = static_cast<const u64*>(sums) + index * words;
    u32 negative = static_cast<u32>(word[words - 1] >> 63);
    Wide magnitude = wide_of(0);  // a launch has as many words as the sums need; further words repeat the sign
    u64 carry = negative;
    for (i32 i = 0; i < WIDE_WORDS && i < words; i++) {
        magnitude.word[i] = (negative ? ~word[i] : word[i]) + carry;
        carry = carry && magnitude.word[i] == 0;
    }
    return number_of(negative, magnitude, quantum, 0);
}

// Sums on the device: exact ones, to which the addend is added here, or the contents of accumulators, which have added it.
//
// `sums` are matrices of `height` rows of `width` sums; integers are multiples of 2**quantum. `marks`: 1 for results whose
// accumulator overflowed, or null.
struct Settling {
    const void* sums;
    i32 storage, quantum, exact;
    i64 height, width;
    const u8* marks;
    Matrix left, right;
    const void* addend;
    Shape shape;
    EMU_MEMBER void operator()(i64 i, const Writing& w) {
        Place p = place_of(i, shape);
        Number content = sum_at(sums, (p.batch * height + p.row) * width + p.column, storage, quantum);
        if (exact) {
            if (addend != nullptr) content = add(content, addend_of(addend, w.task, p), NEAREST_EVEN, wrapping_quantum(w.stage));
            if (is_zero(content)) content.negative = 0;
        } else if (content.kind >= NOT_A_NUMBER) {
            bool inherited = has_nan(left, right, p, shape.depth);
            if (addend != nullptr) inherited = inherited || addend_of(addend, w.task, p).kind >= NOT_A_NUMBER;
            content = marked(content, inherited);
        }
        finish(content, marks != nullptr && marks[i] != 0, i, w);
    }
};

extern "C" __global__ void settle(EMU_GIVEN Task given, const void* sums, i32 storage, i32 quantum, i64 height, i64 width,
                                  i32 exact, const u8* marks, const void* a, const i64* a_rows, const i64* a_columns, const void* b,
                                  const i64* b_rows, const i64* b_columns, const void* addend, const u32* recorded, void* out,
                                  u64* totals) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Settling body;
    body.sums = sums;
    body.storage = storage;
    body.quantum = quantum;
    body.exact = exact;
    body.height = height;
    body.width = width;
    body.marks = marks;
    body.left = matrix_of(a, a_rows, a_columns, task[STEPS_AT], read_operand(task, 0));
    body.right = matrix_of(b, b_rows, b_columns, task[STEPS_AT + 1], read_operand(task, 1));
    body.addend = addend;
    body.shape = read_shape(task);
    for_each_result(task, room, body.shape.batches * body.shape.rows * body.shape.columns, recorded, out, totals, body);
}
EMU_KERNEL(settle)
