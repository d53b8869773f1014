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

// The same, of operands that share scales: with exponents (B or 1, rows, depth) and (B or 1, depth, columns).
struct AlignedPair : Pair {
    const i32 *left_tops, *right_tops;
    i64 left_step, right_step, columns, group;
    i32 points;
};

EMU_FN i32 left_exponent(const AlignedPair& x, i64 k, const Number& number, i32 emin) {
    return x.left_tops[x.left_step * x.place.batch + x.place.row * x.depth + k];
}
EMU_FN i32 right_exponent(const AlignedPair& x, i64 k, const Number& number, i32 emin) {
    return x.right_tops[x.right_step * x.place.batch + k * x.columns + x.place.column];
}
EMU_FN i64 group_of(const AlignedPair& x) { return x.group; }
EMU_FN i32 points_of(const AlignedPair& x) { return x.points; }

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

extern "C" __global__ void aligned_block_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                                 const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                                 const u32* recorded, void* out, u64* totals, const i64* taken, const i32* a_tops,
                                                 const i32* b_tops, i64 a_step, i64 b_step, i64 group, i32 points) {
    EMU_DYNAMIC_SHARED(u32, room);
    BlockSum sum;
    sum.taken = taken;
    AlignedPair terms;
    static_cast<Pair&>(terms) = pair_of(given.number, a, a_rows, a_columns, b, b_rows, b_columns);
    terms.left_tops = a_tops;
    terms.right_tops = b_tops;
    terms.left_step = a_step;
    terms.right_step = b_step;
    terms.columns = read_shape(given.number).columns;
    terms.group = group;
    terms.points = points;
    write_product(given.number, room, terms, sum, addend, recorded, out, totals);
}
EMU_KERNEL(aligned_block_product)
