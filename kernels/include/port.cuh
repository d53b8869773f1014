// What both compilers understand: NVRTC for a GPU, a host compiler for tests without one.
//
// Kernels use the names defined here and in the standard device library, integers of stated widths, and no floating-point
// arithmetic outside the kernels that README.md lists.
#pragma once

#if defined(EMU_ON_HOST)
#include "cuda_on_host.h"
#else
// Room of a block whose size the launch names.
#define EMU_DYNAMIC_SHARED(T, name)                                       \
    extern __shared__ __align__(16) unsigned char name##_bytes[];         \
    T* name = reinterpret_cast<T*>(name##_bytes)
// Makes a kernel known to the host runner.
#define EMU_KERNEL(name)
// A parameter that lies where the launch put it: no thread copies it.
#define EMU_GIVEN const __grid_constant__
#endif

// NVRTC has no <cstdint>.
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "widths of integers");

#define EMU_FN static __device__ __forceinline__
#define EMU_MEMBER __device__ __forceinline__
