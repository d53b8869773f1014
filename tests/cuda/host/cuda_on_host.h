// CUDA kernels on a processor: every thread of a block is a fiber, blocks run one after the other.
//
//     launch ──► block by block ──► fibers, each until its next barrier, warp operation or end ──► release, again
//
// Threads and blocks run forward, backward or shuffled (`emu_host_order`): results must not depend on it. A barrier that
// not every thread reaches at the same place, and a block that cannot go on, end the process with a message.
// Compile with -DEMU_ON_HOST -ffp-contract=off, without -ffast-math; -DEMU_RACES adds the race detector of races.h.
//
// Limits: one launch at a time; no inline assembly, textures, cooperative groups or dynamic parallelism; memory is
// sequentially consistent.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <deque>
#include <vector>

#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__
#error "kernels on the host must be compiled without -ffast-math"
#endif

// ---- the language --------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define EMU_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(emu_host::dynamic_shared)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

// ---- fibers --------------------------------------------------------------------------------------------------------

namespace emu_host {

constexpr size_t STACK_BYTES = 64 * 1024, SHARED_BYTES = 232448;
constexpr int WARP = 32, MOST_WARPS = 32;

alignas(64) [[maybe_unused]] static unsigned char dynamic_shared[SHARED_BYTES];

#if defined(__x86_64__)
struct Context {
    void* stack_pointer;
};
extern "C" void emu_host_switch(void** from, void* to);
asm(R"(
.text
.type emu_host_switch,@function
emu_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_host_switch,.-emu_host_switch
)");
static inline void switch_to(Context& from, Context& to) { emu_host_switch(&from.stack_pointer, to.stack_pointer); }
static void begin(Context& context, unsigned char* stack, void (*entry)()) {
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;  // the six registers that a switch restores
    context.stack_pointer = top;
}
#else
struct Context {
    ucontext_t place;
};
static inline void switch_to(Context& from, Context& to) { swapcontext(&from.place, &to.place); }
static void begin(Context& context, unsigned char* stack, void (*entry)()) {
    getcontext(&context.place);
    context.place.uc_stack.ss_sp = stack;
    context.place.uc_stack.ss_size = STACK_BYTES;
    context.place.uc_link = nullptr;
    makecontext(&context.place, entry, 0);
}
#endif

struct Fiber {
    Context context;
    unsigned char* stack;
};

enum class State : unsigned char { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
    uint3 index;
    State state;
    int fiber;          // -1 before it runs
    unsigned mask;      // of the warp operation it waits at
    const char* place;  // of the barrier or warp operation
};

enum class Order : int { FORWARD = 0, BACKWARD = 1, SHUFFLED = 2 };

typedef void (*Body)(void**);

static Context scheduler;
static std::deque<Fiber> fibers;  // contexts stay where they are
static std::vector<int> idle_fibers;
static std::vector<Thread> threads;
static int current = -1;
static bool in_kernel = false;        // a kernel's own code runs, not the runner's
static unsigned long epoch = 0;       // counts barriers: accesses of one epoch are concurrent
static Body body;
static void** body_arguments;
static Order order = Order::FORWARD;
static uint64_t random_state = 1;
static uint64_t exchanged[MOST_WARPS][WARP];

static uint64_t next_random() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

[[noreturn]] static void fail(const char* problem, const char* place) {
    std::fprintf(stderr, "CUDA on the host: %s at %s, block (%u, %u, %u)\n", problem, place ? place : "?", blockIdx.x,
                 blockIdx.y, blockIdx.z);
    std::abort();
}

static void arrange(std::vector<unsigned long>& items) {
    size_t n = items.size();
    for (size_t i = 0; i < n; i++) items[i] = order == Order::BACKWARD ? n - 1 - i : i;
    if (order == Order::SHUFFLED)
        for (size_t i = n; i > 1; i--) std::swap(items[i - 1], items[next_random() % i]);
}

static void fiber_entry() {
    for (;;) {
        in_kernel = true;
        body(body_arguments);
        in_kernel = false;
        threads[current].state = State::DONE;
        switch_to(fibers[threads[current].fiber].context, scheduler);
    }
}

static int idle_fiber() {
    if (idle_fibers.empty()) {
        Fiber fiber;
        fiber.stack = static_cast<unsigned char*>(std::aligned_alloc(64, STACK_BYTES));
        begin(fiber.context, fiber.stack, fiber_entry);
        fibers.push_back(fiber);
        return static_cast<int>(fibers.size()) - 1;
    }
    int found = idle_fibers.back();
    idle_fibers.pop_back();
    return found;
}

static void resume(int index) {
    current = index;
    threadIdx = threads[index].index;
    if (threads[index].fiber < 0) threads[index].fiber = idle_fiber();
    switch_to(scheduler, fibers[threads[index].fiber].context);
    if (threads[index].state != State::DONE) return;
    idle_fibers.push_back(threads[index].fiber);
    threads[index].fiber = -1;
}

static void wait(State state, unsigned mask, const char* place) {
    in_kernel = false;
    Thread& me = threads[current];
    me.state = state;
    me.mask = mask;
    me.place = place;
    switch_to(fibers[me.fiber].context, scheduler);
    in_kernel = true;
}

// Lets warps go on whose waiting lanes have all those they wait for beside them.
static bool release_warps() {
    bool released = false;
    int n = static_cast<int>(threads.size());
    for (int first = 0; first < n; first += WARP) {
        int last = first + WARP < n ? first + WARP : n;
        bool waits = false, complete = true;
        for (int i = first; i < last; i++) {
            if (threads[i].state != State::AT_WARP) continue;
            waits = true;
            for (int j = first; j < last; j++)
                if (threads[i].mask >> (j - first) & 1u)
                    complete = complete && (threads[j].state == State::AT_WARP || threads[j].state == State::DONE);
        }
        if (!waits || !complete) continue;
        for (int i = first; i < last; i++)
            if (threads[i].state == State::AT_WARP) threads[i].state = State::READY;
        released = true;
    }
    return released;
}

// Lets the block go on if every thread that lives waits at the same barrier.
static bool release_barrier() {
    const char* place = nullptr;
    for (const Thread& thread : threads) {
        if (thread.state == State::DONE) continue;
        if (thread.state != State::AT_BARRIER) return false;
        if (place != nullptr && place != thread.place) fail("threads wait at different __syncthreads()", thread.place);
        place = thread.place;
    }
    epoch++;
    for (Thread& thread : threads)
        if (thread.state == State::AT_BARRIER) thread.state = State::READY;
    return place != nullptr;
}

static void run_block() {
    epoch++;
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    threads.resize(n);
    for (unsigned i = 0; i < n; i++) {
        uint3 index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        threads[i] = {index, State::READY, -1, 0u, nullptr};
    }
    std::vector<unsigned long> turns(n);
    for (unsigned living = n; living > 0;) {
        arrange(turns);
        bool progress = false;
        for (unsigned long turn : turns) {
            int i = static_cast<int>(turn);
            if (threads[i].state != State::READY) continue;
            resume(i);
            progress = true;
            living -= threads[i].state == State::DONE;
        }
        if (living > 0 && !release_warps() && !release_barrier() && !progress) fail("a deadlock", threads[0].place);
    }
}

static void launch(const unsigned* grid, const unsigned* block, Body function, void** arguments) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    if (blockDim.x * blockDim.y * blockDim.z > WARP * MOST_WARPS) fail("a block of more than 1024 threads", "launch");
    body = function;
    body_arguments = arguments;
    std::vector<unsigned long> blocks(static_cast<size_t>(grid[0]) * grid[1] * grid[2]);
    arrange(blocks);
    for (unsigned long i : blocks) {
        blockIdx = {static_cast<unsigned>(i % grid[0]), static_cast<unsigned>(i / grid[0] % grid[1]),
                    static_cast<unsigned>(i / (static_cast<unsigned long>(grid[0]) * grid[1]))};
        run_block();
    }
    current = -1;
}

template <class R, class... A, size_t... I>
static inline void apply(R (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}
template <class R, class... A>
static inline void apply(R (*kernel)(A...), void** arguments) {
    apply(kernel, arguments, std::index_sequence_for<A...>{});
}
template <class R, class... A>
static int argument_sizes(R (*)(A...), int* sizes) {
    int found[] = {static_cast<int>(sizeof(A))...};
    for (size_t i = 0; i < sizeof...(A); i++) sizes[i] = found[i];
    return static_cast<int>(sizeof...(A));
}

static inline int thread_number() {
    return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

// Gives every lane of a warp what every other one holds: returns the value of `lane`.
template <class T>
static inline T exchange(unsigned mask, T value, int lane, const char* place) {
    int me = thread_number();
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    in_kernel = false;
    exchanged[me / WARP][me % WARP] = bits;
    wait(State::AT_WARP, mask, place);
    in_kernel = false;
    bits = exchanged[me / WARP][lane];
    wait(State::AT_WARP, mask, place);
    T result;
    std::memcpy(&result, &bits, sizeof(T));
    return result;
}

static inline unsigned ballot(unsigned mask, bool predicate, const char* place) {
    unsigned result = 0;
    int me = thread_number();
    in_kernel = false;
    exchanged[me / WARP][me % WARP] = predicate;
    wait(State::AT_WARP, mask, place);
    in_kernel = false;
    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1u && exchanged[me / WARP][lane]) result |= 1u << lane;
    wait(State::AT_WARP, mask, place);
    return result;
}

}  // namespace emu_host

#define EMU_GIVEN const  // a parameter in the place of the launch

#define EMU_HOST_TEXT(x) #x
#define EMU_HOST_LINE(x) EMU_HOST_TEXT(x)
#define EMU_HOST_PLACE __FILE__ ":" EMU_HOST_LINE(__LINE__)
#define EMU_HOST_VISIBLE extern "C" __attribute__((visibility("default")))

#define EMU_KERNEL(name)                                                                                        \
    EMU_HOST_VISIBLE void emu_host_launch_##name(const unsigned* grid, const unsigned* block, void** arguments) { \
        emu_host::launch(grid, block, [](void** p) { emu_host::apply(name, p); }, arguments);                    \
    }                                                                                                            \
    EMU_HOST_VISIBLE int emu_host_arguments_##name(int* sizes) { return emu_host::argument_sizes(name, sizes); }

EMU_HOST_VISIBLE void emu_host_order(int order, unsigned long seed) {
    emu_host::order = static_cast<emu_host::Order>(order);
    emu_host::random_state = seed * 2654435761ul + 88172645463325252ul;
}

// ---- barriers and warps --------------------------------------------------------------------------------------------

#define __syncthreads() emu_host::wait(emu_host::State::AT_BARRIER, 0u, EMU_HOST_PLACE)
#define __syncwarp(...) emu_host::wait(emu_host::State::AT_WARP, 0xFFFFFFFFu, EMU_HOST_PLACE)
#define EMU_HOST_LANE (emu_host::thread_number() % emu_host::WARP)
#define __shfl_sync(mask, value, lane) emu_host::exchange(mask, value, (lane) & 31, EMU_HOST_PLACE)
#define __shfl_xor_sync(mask, value, lanes) emu_host::exchange(mask, value, EMU_HOST_LANE ^ (lanes), EMU_HOST_PLACE)
#define __shfl_down_sync(mask, value, by) \
    emu_host::exchange(mask, value, EMU_HOST_LANE + (by) < 32 ? EMU_HOST_LANE + (by) : EMU_HOST_LANE, EMU_HOST_PLACE)
#define __shfl_up_sync(mask, value, by) \
    emu_host::exchange(mask, value, EMU_HOST_LANE - (by) >= 0 ? EMU_HOST_LANE - (by) : EMU_HOST_LANE, EMU_HOST_PLACE)
#define __ballot_sync(mask, predicate) emu_host::ballot(mask, predicate, EMU_HOST_PLACE)

// ---- memory and numbers --------------------------------------------------------------------------------------------

#if defined(EMU_RACES)
#include "races.h"
#define EMU_HOST_ATOMIC __attribute__((no_sanitize("thread"), noinline))
#define EMU_HOST_NOTE(p) emu_host::note_atomic(p, sizeof(*p))
#else
#define EMU_HOST_ATOMIC inline
#define EMU_HOST_NOTE(p) ((void)0)
#endif

template <class T>
static EMU_HOST_ATOMIC T atomicAdd(T* p, T v) {
    EMU_HOST_NOTE(p);
    T old = *p;
    *p = static_cast<T>(old + v);
    return old;
}
template <class T>
static EMU_HOST_ATOMIC T atomicMax(T* p, T v) {
    EMU_HOST_NOTE(p);
    T old = *p;
    if (v > old) *p = v;
    return old;
}
template <class T>
static EMU_HOST_ATOMIC T atomicOr(T* p, T v) {
    EMU_HOST_NOTE(p);
    T old = *p;
    *p = old | v;
    return old;
}

static inline int __clz(int v) { return v ? __builtin_clz(static_cast<unsigned>(v)) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c += static_cast<int>(static_cast<signed char>(a >> 8 * i)) * static_cast<signed char>(b >> 8 * i);
    return c;
}
static inline unsigned __float_as_uint(float v) {
    unsigned bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline float __uint_as_float(unsigned bits) {
    float v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}
static inline long long __double_as_longlong(double v) {
    long long bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return std::sqrt(a); }
