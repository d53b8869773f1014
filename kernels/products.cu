// Matrix products: exact sums, and accumulators that round or saturate at every add. One thread per result.
#include "sums.cuh"

// The operands of a result: a row of one matrix, a column of the other.
struct Pair {
    Matrix left, right;
    Place place;
    i64 depth;
    EMU_MEMBER void go_to(const Place& p) { place = p; }
};

EMU_FN Number left_of(const Pair& x, i64 k) { return element_of(x.left, x.place.batch, x.place.row, k); }
EMU_FN Number right_of(const Pair& x, i64 k) { return element_of(x.right, x.place.batch, k, x.place.column); }

EMU_FN Pair pair_of(const i64* task, const void* a, const i64* a_rows, const i64* a_columns, const void* b, const i64* b_rows,
                    const i64* b_columns) {
    Pair terms;
    terms.left = matrix_of(a, a_rows, a_columns, task[STEPS_AT], read_operand(task, 0));
    terms.right = matrix_of(b, b_rows, b_columns, task[STEPS_AT + 1], read_operand(task, 1));
    terms.depth = read_shape(task).depth;
    return terms;
}

extern "C" __global__ void exact_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                         const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                         const u32* recorded, void* out, u64* totals, i32 lowest, i32 words) {
    EMU_DYNAMIC_SHARED(u32, room);
    ExactSum sum;
    sum.lowest = lowest;
    sum.words = words;
    write_product(given.number, room, pair_of(given.number, a, a_rows, a_columns, b, b_rows, b_columns), sum, addend, recorded, out, totals);
}
EMU_KERNEL(exact_product)

extern "C" __global__ void ordered_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                           const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                           const u32* recorded, void* out, u64* totals) {
    EMU_DYNAMIC_SHARED(u32, room);
    OrderedSum sum;
    write_product(given.number, room, pair_of(given.number, a, a_rows, a_columns, b, b_rows, b_columns), sum, addend, recorded, out, totals);
}
EMU_KERNEL(ordered_product)

extern "C" __global__ void block_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                         const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                         const u32* recorded, void* out, u64* totals, const i64* taken) {
    EMU_DYNAMIC_SHARED(u32, room);
    BlockSum sum;
    sum.taken = taken;
    write_product(given.number, room, pair_of(given.number, a, a_rows, a_columns, b, b_rows, b_columns), sum, addend, recorded, out, totals);
}
EMU_KERNEL(block_product)
