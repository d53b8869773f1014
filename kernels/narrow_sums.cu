// `settle` of around.cu, fast: sums of float32, float64 or 32-bit integers become float32, in registers of 32 bits.
#include "narrow_loop.cuh"
#include "product.cuh"

// Sums on the device, one for each result, in their order; without an addend, and not divided.
struct Sums {
    static constexpr bool has_beyond = true;
    const void* sums;
    i32 storage, quantum;
    bool exact;  // else the contents of accumulators
    const u8* marks;
    const i64* numbers;
    const void *a, *b, *addend;  // asked only where an accumulator ends in NaN
    const i64 *a_rows, *a_columns, *b_rows, *b_columns;
    EMU_MEMBER u32 take(i64 first, Cut (&cuts)[4]) const {
        u32 cut = 0;
        if (storage == STORED_F64) {
            const u64* word = static_cast<const u64*>(sums) + first;
#pragma unroll
            for (i32 j = 0; j < 4; j++) cut |= static_cast<u32>(cut_double(word[j], cuts[j])) << j;
        } else {
            Four four = *reinterpret_cast<const Four*>(static_cast<const u32*>(sums) + first);  // memory of their own is aligned
#pragma unroll
            for (i32 j = 0; j < 4; j++) {
                bool fits = storage == STORED_I32 ? cut_integer(static_cast<i32>(four.word[j]), quantum, cuts[j]) : cut_float(four.word[j], cuts[j]);
                cut |= static_cast<u32>(fits) << j;
            }
        }
#pragma unroll
        for (i32 j = 0; j < 4; j++)  // an exact sum of 0 is +0
            if (exact && cuts[j].bits == SIGN) cuts[j].bits = 0;
        return cut;
    }
    EMU_MEMBER Number number(i64 i) const {
        Number x = load(sums, i, storage, quantum);
        if (exact && is_zero(x)) x.negative = 0;
        if (exact || x.kind < NOT_A_NUMBER) return x;
        Shape shape = read_shape(numbers);
        Place p = place_of(i, shape);
        Matrix left = matrix_of(a, a_rows, a_columns, numbers[STEPS_AT], read_operand(numbers, 0));
        Matrix right = matrix_of(b, b_rows, b_columns, numbers[STEPS_AT + 1], read_operand(numbers, 1));
        bool inherited = has_nan(left, right, p, shape.depth);
        if (addend != nullptr) inherited = inherited || addend_of(addend, numbers, p).kind >= NOT_A_NUMBER;
        return marked(x, inherited);
    }
    EMU_MEMBER u32 touched(i64 first) const {
        u32 count = 0;
        for (i32 j = 0; marks != nullptr && j < 4; j++) count += marks[first + j];
        return count;
    }
    EMU_MEMBER u32 touched_alone(i64 i) const { return marks == nullptr ? 0u : marks[i]; }
};

// As `settle`, whose height and width are those of the results here. Blocks have 256 threads.
extern "C" __global__ void __launch_bounds__(NARROW_THREADS, BLOCKS_OF_SUMS)
    narrow_sums(EMU_GIVEN Task given, const void* sums, i32 storage, i32 quantum, i32 exact, const u8* marks, const void* a,
                const i64* a_rows, const i64* a_columns, const void* b, const i64* b_rows, const i64* b_columns,
                const void* addend, const u32* recorded, u32* out, u64* totals) {
    const i64* numbers = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Sums source = {sums, storage, quantum, exact != 0, marks, numbers, a, b, addend, a_rows, a_columns, b_rows, b_columns};
    Shape shape = read_shape(numbers);
    write_from(source, numbers, room, recorded, out, totals, shape.batches * shape.rows * shape.columns);
}
EMU_KERNEL(narrow_sums)
