// What PTX instructions do, for code that tests.cuda.ptx_on_host translates. Source: NVIDIA, "PTX ISA", version 9.
#pragma once

#include <limits>

#include "cuda_on_host.h"

namespace ptx {

// Shared memory is addressed from 0 by 32-bit registers; every other address is the host's.
alignas(64) [[maybe_unused]] static unsigned char shared[emu_host::SHARED_BYTES];

// A parameter that is a structure, by value.
template <size_t Alignment, size_t Bytes>
struct Structure {
    alignas(Alignment) unsigned char bytes[Bytes];
};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 1, uint8_t,
             std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

// The same bits in another type of the same size.
template <class T, class S>
static inline T same_bits(S from) {
    static_assert(sizeof(T) == sizeof(S), "a move keeps the size");
    T to;
    std::memcpy(&to, &from, sizeof(T));
    return to;
}

template <class T>
static inline T read(const void* address) {
    T value;
    std::memcpy(&value, address, sizeof(T));
    return value;
}
template <class T>
static inline void put(void* address, T value) {
    std::memcpy(address, &value, sizeof(T));
}

// A float without its fraction as an integer: of NaN 0, the nearest one of what no integer holds.
template <class T, class F>
static inline T toward_zero(F x) {
    constexpr F beyond = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * 2, least = static_cast<F>(std::numeric_limits<T>::min());
    if (x != x) return 0;
    if (x >= beyond) return std::numeric_limits<T>::max();
    return x <= least ? std::numeric_limits<T>::min() : static_cast<T>(x);
}

// Integers wrap; floats round to nearest.
template <class T>
static inline T add(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a + b;
    else return static_cast<T>(static_cast<Bits<T>>(a) + static_cast<Bits<T>>(b));
}
template <class T>
static inline T sub(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a - b;
    else return static_cast<T>(static_cast<Bits<T>>(a) - static_cast<Bits<T>>(b));
}
template <class T>
static inline T mul(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a * b;
    else return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
static inline T mul_hi(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}
template <class T>
static inline T div(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a / b;
    else return b == 0 ? static_cast<T>(-1) : static_cast<T>(a / b);
}
template <class T>
static inline T rem(T a, T b) {
    return b == 0 ? a : static_cast<T>(a % b);
}
template <class T>
static inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
static inline T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
static inline T neg(T a) {
    if constexpr (std::is_floating_point_v<T>) return -a;
    else return static_cast<T>(0 - static_cast<Bits<T>>(a));
}
template <class T>
static inline T abs(T a) {
    if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
    else return a < 0 ? neg(a) : a;
}
// Counts beyond the width clamp.
template <class T>
static inline T shl(T a, uint32_t count) {
    return count >= 8 * sizeof(T) ? T(0) : static_cast<T>(static_cast<Bits<T>>(a) << count);
}
template <class T>
static inline T shr(T a, uint32_t count) {
    if (count >= 8 * sizeof(T)) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T(0);
    return static_cast<T>(a >> count);
}
template <class T>
static inline uint32_t clz(T a) {
    return a == 0 ? 8 * sizeof(T) : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - 8 * sizeof(T));
}
template <class T>
static inline uint32_t popc(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
}
// The lowest `length` bits of `field`, put into `base` from `place` on.
template <class T>
static inline T bfi(T field, T base, uint32_t place, uint32_t length) {
    T mask = length >= 8 * sizeof(T) ? static_cast<T>(-1) : static_cast<T>(shl(T(1), length) - 1);
    T there = shl(mask, place & 255u);
    return static_cast<T>((base & ~there) | (shl(field, place & 255u) & there));
}
template <class T>
static inline T bfe(T a, uint32_t place, uint32_t length) {
    static_assert(std::is_unsigned_v<T>, "only unsigned fields are cut out here");
    T mask = length >= 8 * sizeof(T) ? static_cast<T>(-1) : static_cast<T>(shl(T(1), length) - 1);
    return shr(a, place & 255u) & mask;
}
// The upper word of (high, low) << count, or the lower one of >> count; counts wrap at 32.
static inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t count) {
    return static_cast<uint32_t>((((static_cast<uint64_t>(high) << 32) | low) << (count & 31u)) >> 32);
}
static inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t count) {
    return static_cast<uint32_t>(((static_cast<uint64_t>(high) << 32) | low) >> (count & 31u));
}
// One nibble of `selector` per byte chosen from (high, low); its top bit spreads the sign.
static inline uint32_t prmt(uint32_t low, uint32_t high, uint32_t selector) {
    uint64_t both = (static_cast<uint64_t>(high) << 32) | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = selector >> 4 * i & 15u, byte = both >> 8 * (nibble & 7u) & 255u;
        if (nibble & 8u) byte = byte & 128u ? 255u : 0u;
        result |= byte << 8 * i;
    }
    return result;
}

enum class Atomic { ADD, MAX, MIN, OR, AND, EXCHANGE };
template <class T>
static EMU_HOST_ATOMIC T atomic(Atomic operation, void* address, T value) {
    T old = read<T>(address), now = value;
    if (operation == Atomic::ADD) now = add(old, value);
    if (operation == Atomic::MAX) now = max(old, value);
    if (operation == Atomic::MIN) now = min(old, value);
    if (operation == Atomic::OR) now = static_cast<T>(static_cast<Bits<T>>(old) | static_cast<Bits<T>>(value));
    if (operation == Atomic::AND) now = static_cast<T>(static_cast<Bits<T>>(old) & static_cast<Bits<T>>(value));
    put(address, now);
    return old;
}

}  // namespace ptx
