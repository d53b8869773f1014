// The GPU's own matrix instructions, one product of 16 x K by K x 8 plus 16 x 8 for each case: what presets are compared with.
//
// A warp holds the operands in registers of 32 bits, e = 4 / bytes elements each, as the PTX manual lays them out
// (mma.sync.m16n8kK): with group = lane / 4 and turn = lane % 4, element i of register r is
//
//     a   row group + 8 * (r % 2), k = turn * e + i + 4 * e * (r / 2)        b   k = turn * e + i + 4 * e * r, column group
//     c   32 bits: row group + 8 * (r / 2), column 2 * turn + r % 2          16 bits: row group + 8 * r, columns 2 * turn + i
//
// Not arithmetic of emu's: no host runs it, and nothing but the probe launches it.
#include "port.cuh"

struct Fragments {
    u32 a[4], b[2], c[4], d[4];
};

// One register of `bytes`-wide codes, the lowest first, `stride` codes apart.
EMU_FN u32 packed(const u8* codes, i32 first, i32 stride, i32 bytes) {
    u32 word = 0;
    for (i32 i = 0; i < 4 / bytes; ++i)
        for (i32 byte = 0; byte < bytes; ++byte)
            word |= static_cast<u32>(codes[(first + i * stride) * bytes + byte]) << (8 * (i * bytes + byte));
    return word;
}

EMU_FN Fragments gathered(const u8* a, const u8* b, const u32* c, i32 depth, i32 bytes, bool narrow) {
    i32 group = threadIdx.x / 4, turn = threadIdx.x % 4, e = 4 / bytes;
    Fragments f;
    for (i32 r = 0; r < 4; ++r)
        f.a[r] = 8 * e * (r / 2) < 2 * depth
                     ? packed(a, (group + 8 * (r % 2)) * depth + turn * e + 4 * e * (r / 2), 1, bytes)
                     : 0;
    for (i32 r = 0; r < 2; ++r)
        f.b[r] = 8 * e * r < 2 * depth ? packed(b, (turn * e + 4 * e * r) * 8 + group, 8, bytes) : 0;
    for (i32 r = 0; r < 4; ++r) {
        if (!narrow) {
            f.c[r] = c[(group + 8 * (r / 2)) * 8 + 2 * turn + r % 2];
        } else if (r < 2) {
            const u32* pair = c + (group + 8 * r) * 8 + 2 * turn;
            f.c[r] = pair[0] | pair[1] << 16;
        }
    }
    return f;
}

EMU_FN void scattered(const Fragments& f, u32* d, bool narrow) {
    i32 group = threadIdx.x / 4, turn = threadIdx.x % 4;
    for (i32 r = 0; r < 4; ++r) {
        if (!narrow) {
            d[(group + 8 * (r / 2)) * 8 + 2 * turn + r % 2] = f.d[r];
        } else if (r < 2) {
            u32* pair = d + (group + 8 * r) * 8 + 2 * turn;
            pair[0] = f.d[r] & 0xFFFFu;
            pair[1] = f.d[r] >> 16;
        }
    }
}

#define WIDE_RESULT(instruction)                                                                              \
    asm volatile(instruction " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                     \
                 : "=r"(f.d[0]), "=r"(f.d[1]), "=r"(f.d[2]), "=r"(f.d[3])                                     \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]), "r"(f.c[0]), \
                   "r"(f.c[1]), "r"(f.c[2]), "r"(f.c[3]))
#define NARROW_RESULT(instruction)                                                                            \
    asm volatile(instruction " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"                                     \
                 : "=r"(f.d[0]), "=r"(f.d[1])                                                                 \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]), "r"(f.c[0]), \
                   "r"(f.c[1]))
#define SHALLOW_WIDE_RESULT(instruction)                                                                      \
    asm volatile(instruction " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"                                 \
                 : "=r"(f.d[0]), "=r"(f.d[1]), "=r"(f.d[2]), "=r"(f.d[3])                                     \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.b[0]), "r"(f.c[0]), "r"(f.c[1]), "r"(f.c[2]), "r"(f.c[3]))
#define SHALLOW_NARROW_RESULT(instruction)                                                                    \
    asm volatile(instruction " {%0,%1}, {%2,%3}, {%4}, {%5,%6};"                                              \
                 : "=r"(f.d[0]), "=r"(f.d[1])                                                                 \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.b[0]), "r"(f.c[0]), "r"(f.c[1]))

// A kernel of one instruction: blocks of one warp, a case each. Codes of a and b little-endian, `bytes` wide; c and d u32.
#define PROBE(name, depth, bytes, narrow, instruct, instruction)                                        \
    extern "C" __global__ void name(const u8* a, const u8* b, const u32* c, u32* d) {                   \
        i64 at = blockIdx.x;                                                                            \
        Fragments f = gathered(a + at * 16 * (depth) * (bytes), b + at * 8 * (depth) * (bytes),         \
                               c + at * 128, depth, bytes, narrow);                                     \
        instruct(instruction);                                                                          \
        scattered(f, d + at * 128, narrow);                                                             \
    }

#if __CUDA_ARCH__ < 800
PROBE(fp16_fp32, 8, 2, false, SHALLOW_WIDE_RESULT, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
PROBE(fp16_fp16, 8, 2, true, SHALLOW_NARROW_RESULT, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16")
#else
PROBE(fp16_fp32, 16, 2, false, WIDE_RESULT, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
PROBE(fp16_fp16, 16, 2, true, NARROW_RESULT, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
PROBE(bf16_fp32, 16, 2, false, WIDE_RESULT, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
PROBE(tf32_fp32, 8, 4, false, WIDE_RESULT, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
PROBE(int8_int32, 32, 1, false, WIDE_RESULT, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
PROBE(int8_int32_satfinite, 32, 1, false, WIDE_RESULT, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32")
#endif
#if __CUDA_ARCH__ >= 890
PROBE(fp8_e4m3_fp32, 32, 1, false, WIDE_RESULT, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
PROBE(fp8_e5m2_fp32, 32, 1, false, WIDE_RESULT, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
PROBE(fp8_e4m3_fp16, 32, 1, true, NARROW_RESULT, "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16")
PROBE(fp8_e5m2_fp16, 32, 1, true, NARROW_RESULT, "mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16")
#endif
