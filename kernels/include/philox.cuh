// Philox4x32-10 by element index.
// Source: docs/concepts/random-bits.md; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include "bits.cuh"

struct Random {
    u32 key_low, key_high, stream, step;
};

// Results that share a block of 128 bits.
EMU_FN i32 fields_per_block(i32 n_rbits) { return n_rbits > 16 ? 4 : n_rbits > 8 ? 8 : 16; }

struct RandomBlock {
    u32 word[4];
};

EMU_FN RandomBlock philox_block(const Random& random, u64 block, u32 draw) {
    u32 c0 = static_cast<u32>(block), c1 = draw, c2 = random.stream, c3 = random.step;
    u32 k0 = random.key_low, k1 = random.key_high;
    // multipliers of Philox4x32; the keys grow by the fractions of the golden ratio and of sqrt(3), times 2**32
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
    RandomBlock b;
    b.word[0] = c0;
    b.word[1] = c1;
    b.word[2] = c2;
    b.word[3] = c3;
    return b;
}

// The random integer below 2**n_rbits of a block's result `place`.
EMU_FN u32 random_field(const RandomBlock& block, i32 place, i32 n_rbits) {
    i32 field_bits = 128 / fields_per_block(n_rbits), at = place * field_bits, word = at >> 5;
    u32 chosen = word == 0 ? block.word[0] : word == 1 ? block.word[1] : word == 2 ? block.word[2] : block.word[3];
    return static_cast<u32>(low_bits(static_cast<u64>(chosen) >> (at & 31), field_bits) >> (field_bits - n_rbits));
}

// The random integer below 2**n_rbits of element `index`, for draw `draw`.
EMU_FN u32 philox(const Random& random, u64 index, u32 draw, i32 n_rbits) {
    u64 per_block = static_cast<u64>(fields_per_block(n_rbits));
    return random_field(philox_block(random, index / per_block, draw), static_cast<i32>(index % per_block), n_rbits);
}
