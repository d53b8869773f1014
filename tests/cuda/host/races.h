// A race detector with CUDA's rules, for kernels compiled with -fsanitize=thread -DEMU_RACES and linked without it: the
// compiler calls a hook at every access, and the hooks are these.
//
//     two threads of a block      conflict between two barriers
//     two blocks                  conflict always
//     both accesses atomic        never
//
// A conflict is one address accessed by both, written by at least one. A block's shared memory begins anew with it.
#pragma once

#include <unordered_map>

#define EMU_HOST_HOOK __attribute__((no_sanitize("thread"), noinline))

// Ends of this library's variables: shared memory of kernels lies between.
extern "C" __attribute__((visibility("hidden"))) char __bss_start, _end;

namespace emu_host {

struct Access {
    long block = -1;
    int thread = -1;
    unsigned long epoch = 0;
    bool atomic = false;
    bool several = false;  // other threads of the same epoch before it
};

struct Cell {
    Access write, read;
};

static std::unordered_map<uintptr_t, Cell>* cells = nullptr;
static unsigned long races = 0;
static char first_race[256];
static bool next_is_atomic = false;

EMU_HOST_HOOK static bool lies_in(uintptr_t address, const void* begin, size_t size) {
    uintptr_t first = reinterpret_cast<uintptr_t>(begin);
    return address >= first && address < first + size;
}

EMU_HOST_HOOK static bool is_shared(uintptr_t address) {
    return address >= reinterpret_cast<uintptr_t>(&__bss_start) && address < reinterpret_cast<uintptr_t>(&_end);
}

EMU_HOST_HOOK static bool is_the_runners(uintptr_t address) {
    return lies_in(address, fibers[threads[current].fiber].stack, STACK_BYTES) ||
           lies_in(address, &threadIdx, sizeof threadIdx) || lies_in(address, &blockIdx, sizeof blockIdx) ||
           lies_in(address, &blockDim, sizeof blockDim) || lies_in(address, &gridDim, sizeof gridDim) ||
           lies_in(address, &in_kernel, sizeof in_kernel) || lies_in(address, &next_is_atomic, sizeof next_is_atomic) ||
           lies_in(address, &current, sizeof current) || lies_in(address, &threads, sizeof threads);
}

EMU_HOST_HOOK static bool conflicts(const Access& before, const Access& now) {
    if (before.block < 0 || (before.atomic && now.atomic)) return false;
    if (before.block != now.block) return true;
    return before.epoch == now.epoch && (before.thread != now.thread || before.several);
}

EMU_HOST_HOOK static void remember(Access& place, const Access& now) {
    bool beside = place.block == now.block && place.epoch == now.epoch && place.thread != now.thread;
    place = now;
    place.several = beside;
}

EMU_HOST_HOOK static void note_bytes(uintptr_t address, size_t bytes, bool writes, bool atomic) {
    long block = static_cast<long>(blockIdx.x + gridDim.x * (blockIdx.y + static_cast<unsigned long>(gridDim.y) * blockIdx.z));
    Access now;
    now.block = block;
    now.thread = current;
    now.epoch = epoch;
    now.atomic = atomic;
    for (size_t i = 0; i < bytes; i++) {
        Cell& cell = (*cells)[address + i];
        if (is_shared(address) && cell.write.block != block && cell.read.block != block) cell = Cell();
        bool found = conflicts(cell.write, now) || (writes && conflicts(cell.read, now));
        if (found && races++ == 0)
            std::snprintf(first_race, sizeof first_race, "a %s races with another access: block %ld, thread %d",
                          writes ? "write" : "read", block, current);
        remember(writes ? cell.write : cell.read, now);
    }
}

EMU_HOST_HOOK static void note(void* pointer, size_t bytes, bool writes, bool atomic) {
    if (!in_kernel || current < 0 || cells == nullptr) return;
    in_kernel = false;  // what runs from here on is watched itself
    uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    if (!is_the_runners(address)) note_bytes(address, bytes, writes, atomic);
    in_kernel = true;
}

EMU_HOST_HOOK static void note_atomic(void* pointer, size_t bytes) { note(pointer, bytes, true, true); }

}  // namespace emu_host

#define EMU_HOST_ACCESS(N)                                                                                       \
    extern "C" EMU_HOST_HOOK void __tsan_read##N(void* p) { emu_host::note(p, N, false, false); }                \
    extern "C" EMU_HOST_HOOK void __tsan_write##N(void* p) { emu_host::note(p, N, true, false); }                \
    extern "C" EMU_HOST_HOOK void __tsan_unaligned_read##N(void* p) { emu_host::note(p, N, false, false); }      \
    extern "C" EMU_HOST_HOOK void __tsan_unaligned_write##N(void* p) { emu_host::note(p, N, true, false); }      \
    extern "C" EMU_HOST_HOOK void __tsan_volatile_read##N(void* p) { emu_host::note(p, N, false, false); }       \
    extern "C" EMU_HOST_HOOK void __tsan_volatile_write##N(void* p) { emu_host::note(p, N, true, false); }
EMU_HOST_ACCESS(1)
EMU_HOST_ACCESS(2)
EMU_HOST_ACCESS(4)
EMU_HOST_ACCESS(8)
EMU_HOST_ACCESS(16)
#undef EMU_HOST_ACCESS

extern "C" {
EMU_HOST_HOOK void __tsan_init() {}
EMU_HOST_HOOK void __tsan_func_entry(void*) {}
EMU_HOST_HOOK void __tsan_func_exit() {}
EMU_HOST_HOOK void __tsan_vptr_update(void**, void*) {}
EMU_HOST_HOOK void __tsan_vptr_read(void**) {}
EMU_HOST_HOOK void __tsan_read_range(void* p, unsigned long n) { emu_host::note(p, n, false, false); }
EMU_HOST_HOOK void __tsan_write_range(void* p, unsigned long n) { emu_host::note(p, n, true, false); }
}

// Begins to watch, or begins anew.
EMU_HOST_VISIBLE EMU_HOST_HOOK void emu_host_watch() {
    if (emu_host::cells == nullptr) emu_host::cells = new std::unordered_map<uintptr_t, emu_host::Cell>();
    emu_host::cells->clear();
    emu_host::races = 0;
    emu_host::first_race[0] = 0;
}

// Returns how many races were seen since; writes the first one.
EMU_HOST_VISIBLE EMU_HOST_HOOK unsigned long emu_host_races(char* text, int size) {
    std::snprintf(text, static_cast<size_t>(size), "%s", emu_host::first_race);
    return emu_host::races;
}
