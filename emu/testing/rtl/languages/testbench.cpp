// Drives @TOP@ with the operands of @FILES@ and writes @DUMP@: @COLUMNS@ of each vector, a line each.
// Handshake: @HANDSHAKE@.
//
// Arguments, NAME=VALUE:
//   count    vectors (@COUNT@)
//   manner   0 back to back; 1 held: one at a time, operands stay; 2 with random stalls; 3 watched: outputs in each
//            of `window` cycles after the operands (0)
//   latency  cycles from operands to result where no signal says that it is there (@LATENCY@)
//   steps    transfers of a sum (@STEPS@)
//   bound    cycles without a transfer after which the unit is stuck (@BOUND@)
//   seed     of the stalls (1)
//   trace    file of the waveform, if built with --trace; cycles=1 writes cycles.txt: from operands to each result
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vemu_unit.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

namespace {
constexpr int channels = @CHANNELS@;
constexpr bool has_offer = @HAS_OFFER@, has_result = @HAS_RESULT@, overlaps = @OVERLAPS@, at_once = @AT_ONCE@;
constexpr bool has_take = @HAS_TAKE@, may_stay = @MAY_STAY@, first_alone = @FIRST_ALONE@, holds = @HOLDS@;
constexpr int held_manner = 1, stalls = 2, watched = 3;
constexpr int reset_cycles = @RESET_CYCLES@, drained_cycles = @DRAINED_CYCLES@, queue = @QUEUE@;
constexpr uint64_t all = (uint64_t{1} << channels) - 1;

const char* text_of(int argc, char** argv, const char* name) {
    const size_t length = std::strlen(name);
    for (int i = 1; i < argc; ++i)
        if (!std::strncmp(argv[i], name, length) && argv[i][length] == '=') return argv[i] + length + 1;
    return nullptr;
}

long number_of(int argc, char** argv, const char* name, long otherwise) {
    const char* text = text_of(argc, argv, name);
    return text ? std::strtol(text, nullptr, 10) : otherwise;
}

uint64_t random_bits(uint64_t& state) {  // xorshift64*, Vigna 2016
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DULL;
}

// Ports of up to 64 bits are integers, wider ones arrays of words.
template <class T>
void set_bits(T& port, int low, int width, uint64_t value) {
    const uint64_t mask = (width < 64 ? (uint64_t{1} << width) : 0) - 1;
    port = static_cast<T>((port & ~(mask << low)) | ((value & mask) << low));
}
template <std::size_t N>
void set_bits(VlWide<N>& port, int low, int width, uint64_t value) {
    for (int i = 0; i < width; ++i) {
        const uint32_t bit = uint32_t{1} << ((low + i) % 32);
        if (value >> i & 1) port[(low + i) / 32] |= bit;
        else port[(low + i) / 32] &= ~bit;
    }
}

FILE* opened(const char* name, const char* mode) {
    FILE* const file = std::fopen(name, mode);
    if (!file) {
        std::fprintf(stderr, "emu: %s cannot be opened\n", name);
        std::exit(1);
    }
    return file;
}

uint64_t next_code(FILE* file) {
    uint64_t code = 0;
    if (std::fscanf(file, "%" SCNx64, &code) != 1) code = 0;
    return code;
}
}  // namespace

int main(int argc, char** argv) {
    const auto context = std::make_unique<VerilatedContext>();
    context->commandArgs(argc, argv);
    const long count = number_of(argc, argv, "count", @COUNT@), manner = number_of(argc, argv, "manner", 0);
    const long latency = number_of(argc, argv, "latency", @LATENCY@), steps = number_of(argc, argv, "steps", @STEPS@);
    const long bound = number_of(argc, argv, "bound", @BOUND@), window = number_of(argc, argv, "window", 64);
    uint64_t seed = 0x9E3779B97F4A7C15ULL * (2 * number_of(argc, argv, "seed", 1) + 1);
    context->randReset(2);  // registers without a reset begin with random bits, the same ones in every run
    context->randSeed(static_cast<int>(number_of(argc, argv, "seed", 1)));
    const auto unit = std::make_unique<Vemu_unit>(context.get());
#if VM_TRACE
    std::unique_ptr<Trace> trace;
    if (const char* name = text_of(argc, argv, "trace")) {
        context->traceEverOn(true);
        trace = std::make_unique<Trace>();
        unit->trace(trace.get(), 99);
        trace->open(name);
    }
#endif
@OPENS@
    FILE* const dump = opened("@DUMP@", "w");
    FILE* const times = number_of(argc, argv, "cycles", 0) ? opened("cycles.txt", "w") : nullptr;

    uint64_t pending = 0, offers = 0;
    long sent = 0, received = 0, step = 0, gap = 0, idle = 0, cycle = 0, extra = 0, extra_after = 0;
    std::vector<long> sent_at(queue);
    bool loaded = false, moved = false, stuck = false, take = false, reset = true, first = false, last = false;

    const auto drive = [&] {
@DRIVES@
        unit->eval();
#if VM_TRACE
        if (trace) trace->dump(context->time());
#endif
        context->timeInc(4);
    };
    const auto tick = [&] {
        context->timeInc(1);
@RISES@
        unit->eval();
#if VM_TRACE
        if (trace) trace->dump(context->time());
#endif
        context->timeInc(5);
@FALLS@
        unit->eval();
        ++cycle;
    };
    const auto load = [&] {  // the next operands; a sum's addend comes with its first term
@LOADS@
        pending = all;
        first = step == 0;
        last = step == steps - 1;
        loaded = true;
    };
    const auto scramble = [&] {  // what is not offered may be anything
@SCRAMBLES@
    };
    const auto write = [&] {
@WRITES@
        if (times) std::fprintf(times, "%ld\n", cycle - sent_at[received % queue]);
    };
    const auto sample = [&] {
        if (manner == watched) {
            if (received < sent) {
                write();
                moved = true;
                if (cycle - sent_at[received % queue] == window) ++received;
            }
            return;
        }
        const bool is_there = has_result ? (@RESULT@) && take
                                         : received < sent && cycle == sent_at[received % queue] + latency;
        if (is_there && received < sent) {
            write();
            ++received;
            moved = true;
        } else if (is_there && !may_stay) {
            if (!extra++) extra_after = received - 1;
        }
    };
    const auto transfer = [&] {
        const uint64_t taken = pending & (@ACCEPTS@);
        pending &= ~taken;
        moved |= taken != 0;
        if (pending) return;
        loaded = false;
        if (++step == steps) {
            step = 0;
            sent_at[sent++ % queue] = cycle;
        }
        if (manner == stalls && (step == 0 || (has_offer && !first_alone))) gap = random_bits(seed) >> 62;
    };

@ZEROS@
    for (int i = 0; i < reset_cycles; ++i) {
        drive();
        tick();
    }
    reset = false;
    while (received < count && !stuck) {
        moved = false;
        if (!loaded && gap > 0) {
            --gap;
            moved = true;
        } else if (!loaded && sent < count && sent - received < queue
                   && (received == sent || (overlaps && manner != held_manner && manner != watched))) {
            load();
        }
        if (!loaded) first = last = false;
        if (manner == stalls && !(holds && sent != received)) scramble();
        offers = first_alone && step != 0 ? 0 : pending;
        take = has_take && manner == stalls ? random_bits(seed) >> 63 : 1;
        drive();
        if (!at_once) sample();
        if (loaded) transfer();
        if (at_once) sample();
        idle = moved ? 0 : idle + 1;
        stuck = idle > bound;
        tick();
    }
    if (stuck)
        std::printf("emu: stuck at vector %ld for %ld cycles, waiting for %s (@STATE_FORMAT@)\n", loaded ? sent : received,
                    bound, loaded ? "its operands to be taken" : "its result"@STATE_VALUES@);
    offers = 0;
    first = last = false;
    take = true;
    for (int i = 0; has_result && !stuck && i < drained_cycles; ++i) {
        drive();
        sample();
        tick();
    }
    std::printf("emu: %ld of %ld results, %ld too many after vector %ld\n", received, count, extra, extra_after);
    std::fclose(dump);
    if (times) std::fclose(times);
#if VM_TRACE
    if (trace) trace->close();
#endif
    unit->final();
    return 0;
}
