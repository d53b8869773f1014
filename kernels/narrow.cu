// The output stage over float32, fast: one pass, four results at a time, registers of 32 bits.
#include "narrow_loop.cuh"

// float32 in memory.
struct Floats {
    static constexpr bool has_beyond = false;
    const u32* x;
    bool aligned;
    EMU_MEMBER u32 take(i64 first, Cut (&cuts)[4]) const {
        Four four;
        if (aligned) four = *reinterpret_cast<const Four*>(x + first);
        else {
#pragma unroll
            for (i32 j = 0; j < 4; j++) four.word[j] = x[first + j];
        }
        u32 cut = 0;
#pragma unroll
        for (i32 j = 0; j < 4; j++) cut |= static_cast<u32>(cut_float(four.word[j], cuts[j])) << j;
        return cut;
    }
    EMU_MEMBER Number number(i64 i) const { return load(x, i, STORED_F32, 0); }
    EMU_MEMBER u32 touched(i64) const { return 0; }
    EMU_MEMBER u32 touched_alone(i64) const { return 0; }
};

// Writes `n` float32 into a format whose carrier is float32; what it writes and counts is that of `elementwise`. Blocks have 256
// threads.
extern "C" __global__ void __launch_bounds__(NARROW_THREADS, BLOCKS_OF_FLOATS)
    narrow_stage(EMU_GIVEN Task given, const u32* x, const u32* recorded, u32* out, u64* totals, i64 n) {
    EMU_DYNAMIC_SHARED(u32, room);
    Floats source = {x, (reinterpret_cast<u64>(x) & 15u) == 0};
    write_from(source, given.number, room, recorded, out, totals, n);
}
EMU_KERNEL(narrow_stage)
