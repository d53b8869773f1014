// Shifts defined for every count, leading bits, sums with carries.
//
// A shift by the width or more is undefined in C++, masked by x86 and clamped by PTX.
#pragma once
#include "port.cuh"

EMU_FN u64 shift_left(u64 v, i32 count) { return count >= 64 ? 0ull : v << count; }

EMU_FN u64 shift_right(u64 v, i32 count) { return count >= 64 ? 0ull : v >> count; }

// The lowest `count` bits, 0 <= count.
EMU_FN u64 low_bits(u64 v, i32 count) { return count >= 64 ? v : v & ((1ull << count) - 1ull); }

// 0 for 0, else 1 + floor(log2 v).
EMU_FN i32 bit_length(u64 v) { return 64 - __clzll(static_cast<i64>(v)); }

EMU_FN i32 smaller(i32 a, i32 b) { return a < b ? a : b; }

EMU_FN i32 larger(i32 a, i32 b) { return a > b ? a : b; }
