// The output stage over an array, and the elementwise operation that feeds it.
#include "results.cuh"

struct Elementwise {
    i32 operation;
    const void* a;
    const void* b;
    const void* c;
    Operand left, right, third;
    EMU_MEMBER void operator()(i64 i, const Writing& w) {
        Number x = fetch(a, i, left), y = x, z = x;
        if (operation >= ADD && operation != SQRT && operation != ROUND_TO_INTEGRAL) y = fetch(b, i, right);
        if (operation == FMA) z = fetch(c, i, third);
        u32 random = draw(w, i), flags = 0;
        Number result = operation == ROUND_TO_INTEGRAL ? integral(x, w.stage, random, &flags) : compute(operation, x, y, z, w.stage);
        observe(w.tally, w.positions, result);
        Written written = write(result, w.stage, random);
        bool by_zero = operation == DIVIDE && x.kind == FINITE && !is_zero(x) && is_zero(y);
        count_flags(w.tally, written.flags | flags | (by_zero ? DIVIDED_BY_ZERO : 0u));
        store(w.out, i, written.bits, w.stage.storage);
    }
};

// Writes `n` results of `operation` into `out`; adds to `totals` what they counted.
extern "C" __global__ void elementwise(EMU_GIVEN Task given, i32 operation, const void* a, const void* b, const void* c,
                                       const u32* recorded, void* out, u64* totals, i64 n) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Elementwise body;
    body.operation = operation;
    body.a = a;
    body.b = b;
    body.c = c;
    body.left = read_operand(task, 0);
    body.right = read_operand(task, 1);
    body.third = read_operand(task, 2);
    for_each_result(task, room, n, recorded, out, totals, body);
}
EMU_KERNEL(elementwise)
