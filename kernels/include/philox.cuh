// Philox4x32-10 by element index. Source: NUMERICS 8; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include "bits.cuh"

struct Random {
    u32 key_low, key_high, stream, step;
};

// The random integer below 2**n_rbits of element `index`, for draw `draw`.
EMU_FN u32 philox(const Random& random, u64 index, u32 draw, i32 n_rbits) {
    i32 per_block = n_rbits > 16 ? 4 : n_rbits > 8 ? 8 : 16;
    i32 field_bits = 128 / per_block;
    u32 c0 = static_cast<u32>(index / static_cast<u64>(per_block)), c1 = draw, c2 = random.stream, c3 = random.step;
    u32 k0 = random.key_low, k1 = random.key_high;
    for (i32 round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    i32 place = static_cast<i32>(index % static_cast<u64>(per_block)) * field_bits;
    i32 word = place >> 5;
    u32 chosen = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
    u64 field = low_bits(static_cast<u64>(chosen) >> (place & 31), field_bits);
    return static_cast<u32>(field >> (field_bits - n_rbits));
}
