// What every kernel does that writes results: each thread takes results a grid apart, and a block counts them.
#pragma once
#include "task.cuh"

// What a thread needs to write a result.
struct Writing {
    const i64* task;
    Stage stage;
    Register positions;
    Tally tally;
    const u32* recorded;
    void* out;
};

// The random integer of result `i`.
EMU_FN u32 draw(const Writing& w, i64 i) { return draw(w.task, w.stage, w.recorded, static_cast<u64>(i)); }

// Calls `body(i, writing)` for each of `n` results, then adds to `totals` what the block counted.
//
// `room`: dynamic shared memory, one u32 and one per count. A body is a structure with a member function, so that every
// compiler can put it in place of the call.
template <class Body>
EMU_FN void for_each_result(const i64* task, u32* room, i64 n, const u32* recorded, void* out, u64* totals, Body& body) {
    Writing w;
    w.task = task;
    w.stage = read_stage(task);
    w.positions = read_register(task + REGISTER_AT);
    w.tally = open_tally(room, w.positions);
    w.recorded = recorded;
    w.out = out;
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) body(i, w);
    close_tally(w.tally, w.positions, totals);
}
