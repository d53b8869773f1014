// The arguments of a launch: int64 numbers among the kernel's own parameters, the same for every thread.
//
//     stage | random | register | operands: storage, quantum, emin of flushed subnormals, has -0, step,
//     bits of the number that stands for all elements, if there is no array
#pragma once
#include "arithmetic.cuh"
#include "register.cuh"

#define RANDOM_FIELDS 5
#define RANDOM_AT STAGE_FIELDS
#define REGISTER_AT (RANDOM_AT + RANDOM_FIELDS)
#define OPERANDS_AT (REGISTER_AT + REGISTER_FIELDS)
#define OPERAND_FIELDS 6
// Of the kernel that has most: a product in blocks (unit.cuh).
#define TASK_NUMBERS 109

struct Task {
    i64 number[TASK_NUMBERS];
};

struct Operand {
    i32 storage, quantum;
    i32 flush_below;  // subnormals of a DAZ format count as 0; NO_FLUSH for others
    i32 has_negative_zero;
    i64 step;  // 0: one number stands for all
    u64 given;  // that number, if there is no array
};
#define NO_FLUSH (-(1 << 30))
static_assert(NO_FLUSH < -(1 << 20), "below every exponent");

EMU_FN Operand read_operand(const i64* task, i32 which) {
    const i64* p = task + OPERANDS_AT + which * OPERAND_FIELDS;
    Operand o;
    o.storage = static_cast<i32>(p[0]);
    o.quantum = static_cast<i32>(p[1]);
    o.flush_below = static_cast<i32>(p[2]);
    o.has_negative_zero = static_cast<i32>(p[3]);
    o.step = p[4];
    o.given = static_cast<u64>(p[5]);
    return o;
}

EMU_FN Number fetch(const void* array, i64 index, const Operand& o) {
    Number x = array == nullptr ? decoded(o.given, o.storage, o.quantum) : load(array, index * o.step, o.storage, o.quantum);
    if (o.flush_below == NO_FLUSH) return x;
    x = flushed(x, o.flush_below);
    if (!o.has_negative_zero && is_zero(x)) x.negative = 0;
    return x;
}

EMU_FN Random read_random(const i64* task) {
    const i64* p = task + RANDOM_AT;
    Random r;
    r.key_low = static_cast<u32>(p[0]);
    r.key_high = static_cast<u32>(p[1]);
    r.stream = static_cast<u32>(p[2]);
    r.step = static_cast<u32>(p[3]);
    return r;
}

// The random integer of result `index`: recorded, or of the draw the task names.
EMU_FN u32 draw(const i64* task, const Stage& stage, const u32* recorded, u64 index) {
    if (!draws(stage.rounding)) return 0;
    if (recorded != nullptr) return recorded[index];
    return philox(read_random(task), index, static_cast<u32>(task[RANDOM_AT + 4]), stage.n_rbits);
}
