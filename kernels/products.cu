// Matrix products: exact sums, and accumulators that round or saturate at every add. One thread per result.
#include "unit.cuh"

// The operands of a result: a row of one matrix, a column of the other.
struct Pair {
    Matrix left, right;
    Place place;
    i64 depth;
};

EMU_FN Number left_of(const Pair& x, i64 k) { return element_of(x.left, x.place.batch, x.place.row, k); }
EMU_FN Number right_of(const Pair& x, i64 k) { return element_of(x.right, x.place.batch, k, x.place.column); }

// Sums of products, exact or rounded into a format of their own, and an addend, rounded once.
extern "C" __global__ void exact_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                         const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                         const u32* recorded, void* out, u64* totals, i32 lowest, i32 words) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Stage stage = read_stage(task);
    Register positions = read_register(task + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    Shape shape = read_shape(task);
    Pair terms;
    terms.left = matrix_of(a, a_rows, a_columns, task[STEPS_AT], read_operand(task, 0));
    terms.right = matrix_of(b, b_rows, b_columns, task[STEPS_AT + 1], read_operand(task, 1));
    terms.depth = shape.depth;
    i64 n = shape.batches * shape.rows * shape.columns, stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        terms.place = place_of(i, shape);
        Unit unit = read_unit(task);
        Number content = exact_content(unit, terms, addend, terms.place, task, static_cast<u64>(i), lowest, words, wrapping_quantum(stage));
        finish(marked(content, unit.from_nan), unit.touched, i, task, stage, recorded, out, tally, positions);
    }
    close_tally(tally, positions, totals);
}
EMU_KERNEL(exact_product)

// Accumulators that round: in order, in lanes, as a tree.
extern "C" __global__ void ordered_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                           const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                           const u32* recorded, void* out, u64* totals) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Stage stage = read_stage(task);
    Register positions = read_register(task + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    Shape shape = read_shape(task);
    Pair terms;
    terms.left = matrix_of(a, a_rows, a_columns, task[STEPS_AT], read_operand(task, 0));
    terms.right = matrix_of(b, b_rows, b_columns, task[STEPS_AT + 1], read_operand(task, 1));
    terms.depth = shape.depth;
    i64 n = shape.batches * shape.rows * shape.columns, stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        terms.place = place_of(i, shape);
        Unit unit = read_unit(task);
        Number content = ordered_content(unit, terms, addend, terms.place, task, static_cast<u64>(i));
        finish(marked(content, unit.from_nan), unit.touched, i, task, stage, recorded, out, tally, positions);
    }
    close_tally(tally, positions, totals);
}
EMU_KERNEL(ordered_product)

// Blocks, as matrix units add. `taken`: the k of a period in the order they are added.
extern "C" __global__ void block_product(EMU_GIVEN Task given, const void* a, const i64* a_rows, const i64* a_columns,
                                         const void* b, const i64* b_rows, const i64* b_columns, const void* addend,
                                         const u32* recorded, void* out, u64* totals, const i64* taken) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Stage stage = read_stage(task);
    Register positions = read_register(task + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    Shape shape = read_shape(task);
    Pair terms;
    terms.left = matrix_of(a, a_rows, a_columns, task[STEPS_AT], read_operand(task, 0));
    terms.right = matrix_of(b, b_rows, b_columns, task[STEPS_AT + 1], read_operand(task, 1));
    terms.depth = shape.depth;
    i64 n = shape.batches * shape.rows * shape.columns, stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        terms.place = place_of(i, shape);
        Unit unit = read_unit(task);
        Number content = block_content(unit, terms, addend, terms.place, task, static_cast<u64>(i), taken);
        finish(marked(content, unit.from_nan), unit.touched, i, task, stage, recorded, out, tally, positions);
    }
    close_tally(tally, positions, totals);
}
EMU_KERNEL(block_product)
