// The output stage over an array, and the elementwise operation that feeds it.
#include "task.cuh"

// Writes `n` results of `operation` into `out`; adds to `totals` what they counted.
//
// Dynamic shared memory: one u32, and one per count.
extern "C" __global__ void elementwise(EMU_GIVEN Task given, i32 operation, const void* a, const void* b, const void* c,
                                       const u32* recorded, void* out, u64* totals, i64 n) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Stage stage = read_stage(task);
    Register positions = read_register(task + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    Operand left = read_operand(task, 0), right = read_operand(task, 1), third = read_operand(task, 2);
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        Number x = fetch(a, i, left), y = x, z = x;
        if (operation >= ADD && operation != SQRT && operation != ROUND_TO_INTEGRAL) y = fetch(b, i, right);
        if (operation == FMA) z = fetch(c, i, third);
        u32 random = draw(task, stage, recorded, static_cast<u64>(i)), flags = 0;
        Number result = operation == ROUND_TO_INTEGRAL ? integral(x, stage, random, &flags) : compute(operation, x, y, z, stage);
        observe(tally, positions, result);
        Written written = write(result, stage, random);
        bool by_zero = operation == DIVIDE && x.kind == FINITE && !is_zero(x) && is_zero(y);
        count_flags(tally, written.flags | flags | (by_zero ? DIVIDED_BY_ZERO : 0u));
        store(out, i, written.bits, stage.storage);
    }
    close_tally(tally, positions, totals);
}
EMU_KERNEL(elementwise)
