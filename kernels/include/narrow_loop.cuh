// Results of the output stage that are float32, four at a time in every thread, with registers of 32 bits.
#pragma once
#include "narrow.cuh"

struct __align__(16) Four {
    u32 word[4];
};

// Counts of a block: a column per lane of a warp, so that lanes which count at the same position do not wait for each other.
#define LANES 32
#define COUNTED_SCALARS 4  // NONE, BELOW, ABOVE, NONFINITE, after the positions of both signs
// Threads of a block, and blocks that a multiprocessor has room for: while some wait for memory, others compute. Measured on H100
// from 2 to 6: more of the first leaves too few registers, and sums wait for more memory.
#define NARROW_THREADS 256
#define BLOCKS_OF_FLOATS 3
#define BLOCKS_OF_SUMS 5

EMU_FN i32 counted_places(const Register& r) { return r.bins > 0 ? 2 * r.bins + COUNTED_SCALARS : 0; }

// What a thread has counted.
struct Seen {
    u32 flags[N_FLAGS];
    u32 events, pending;  // results whose events are not yet among the flags
    u32 results, largest;  // largest magnitude among finite numbers, as bits
};
#define MOST_PENDING 252
static_assert(MOST_PENDING % 4 == 0 && MOST_PENDING <= 255, "four results at a time, each one event of a kind, counted in a byte");

EMU_FN void count_events(Seen& seen) {
    seen.flags[0] += seen.events & 255u;
    seen.flags[1] += seen.events >> 8 & 255u;
    seen.flags[2] += seen.events >> 16 & 255u;
    seen.flags[4] += seen.events >> 24;
    seen.events = seen.pending = 0;
}

// `place_of` of a number that was cut.
EMU_FN i32 cut_place(const Cut& x, const Register& r) {
    u32 magnitude = x.bits & ~SIGN;
    i32 scalars = 2 * r.bins, exponent = field_of(magnitude) - 127;
    bool one_lower = (x.bits & (SIGN | FRACTION)) == SIGN && x.beyond == 0;
    i32 position = exponent - static_cast<i32>(one_lower) - r.lowest;
    i32 place = x.bits & SIGN ? position + r.bins : position;
    if (position >= r.bins) place = scalars + ABOVE;
    if (position < 0) place = scalars + BELOW;
    if (magnitude == 0 || (one_lower && exponent == r.fixed_quantum)) place = scalars + NONE;
    return place;
}

// What stays the same for all results of a launch.
struct NarrowTask {
    Narrow narrow;
    Random random;
    u32 draw_number;
    i32 per_block;
    const u32* recorded;
    u32* out;
    i64 n;
    bool aligned;  // `out` begins where four results can be written at once
};

// Writes a result as `stage.cuh` does.
template <class Source>
EMU_FN void write_wide(const Source& source, i64 i, const NarrowTask& task, const Stage& stage, const Register& positions,
                       const Tally& tally, u32* column, Seen& seen, u32 u) {
    Number x = source.number(i);
    if (positions.bins > 0) {
        atomicAdd(&column[place_of(x, positions) * LANES], 1u);
        if (x.kind == FINITE && !is_zero(x)) atomicMax(tally.top, leading(x));
    }
    Written wide = write(x, stage, u);
    for (i32 k = 0; k < N_FLAGS; k++) seen.flags[k] += wide.flags >> k & 1u;
    task.out[i] = static_cast<u32>(wide.bits);
}

// Writes all results of a thread, from a source of numbers whose memory is not written:
//
//     take(first, cuts)   cuts four of them; bit j is set where number j is 0 or normal in float32
//     number(i)           a number for `stage.cuh`
//     touched(first)      how many of four accumulators touched a limit; and touched_one(i)
template <i32 ROUNDING, class Source>
EMU_FN void write_all(const Source& source, const NarrowTask& task, const Stage& stage, const Register& positions,
                      const Tally& tally, u32* column, Seen& seen) {
    bool draws = ROUNDING == STOCHASTIC && task.recorded == nullptr;
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x); first < task.n; first += 4 * stride) {
        i32 count = task.n - first < 4 ? static_cast<i32>(task.n - first) : 4;
        RandomBlock block;
        if (draws) block = philox_block(task.random, static_cast<u64>(first / task.per_block), task.draw_number);
        u32 done = 0;
        if (count == 4) {
            Cut cuts[4];
            Four results;
            u32 cut = source.take(first, cuts);
#pragma unroll
            for (i32 j = 0; j < 4; j++) {
                NarrowWritten result;
                u32 u = 0;
                if (draws) u = random_field(block, static_cast<i32>((first + j) % task.per_block), stage.n_rbits);
                else if (ROUNDING == STOCHASTIC) u = task.recorded[first + j];
                bool is_done = write_narrow<ROUNDING, Source::has_beyond>(cuts[j], task.narrow, u, result) && (cut >> j & 1u);
                done |= static_cast<u32>(is_done) << j;
                seen.events += is_done ? result.events : 0u;
                results.word[j] = result.bits;
            }
            if (positions.bins > 0) {
#pragma unroll
                for (i32 j = 0; j < 4; j++) {
                    bool is_done = done >> j & 1u;
                    u32 magnitude = is_done ? cuts[j].bits & ~SIGN : 0u;
                    seen.largest = magnitude > seen.largest ? magnitude : seen.largest;
                    if (is_done) atomicAdd(&column[cut_place(cuts[j], positions) * LANES], 1u);
                }
            }
            if (task.aligned) *reinterpret_cast<Four*>(task.out + first) = results;
            else {
#pragma unroll
                for (i32 j = 0; j < 4; j++) task.out[first + j] = results.word[j];
            }
            seen.flags[5] += source.touched(first);
        }
        if (done != 15u) {
#pragma unroll 1
            for (i32 j = 0; j < count; j++) {
                if (done >> j & 1u) continue;
                u32 u = 0;
                if (draws) u = random_field(block, static_cast<i32>((first + j) % task.per_block), stage.n_rbits);
                else if (ROUNDING == STOCHASTIC) u = task.recorded[first + j];
                write_wide(source, first + j, task, stage, positions, tally, column, seen, u);
                if (count < 4) seen.flags[5] += source.touched_alone(first + j);
            }
        }
        seen.results += static_cast<u32>(count);
        seen.pending += 4;
        if (seen.pending >= MOST_PENDING) count_events(seen);
    }
}

// The body of a kernel. Dynamic shared memory, `room`: as `elementwise`, then 32 u32 per position and scalar.
template <class Source>
EMU_FN void write_from(const Source& source, const i64* numbers, u32* room, const u32* recorded, u32* out, u64* totals, i64 n) {
    Stage stage = read_stage(numbers);
    Register positions = read_register(numbers + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    u32* columns = room + 1 + tally_size(positions);
    i32 places = counted_places(positions), threads = static_cast<i32>(block_threads()), thread = static_cast<i32>(thread_in_block());
    for (i32 i = thread; i < places * LANES; i += threads) columns[i] = 0;
    __syncthreads();
    u32* column = columns + thread % LANES;
    Seen seen = {{0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0};
    NarrowTask task = {narrow_of(stage), read_random(numbers), static_cast<u32>(numbers[RANDOM_AT + 4]),
                       fields_per_block(stage.n_rbits), recorded, out, n, (reinterpret_cast<u64>(out) & 15u) == 0};
    switch (stage.rounding) {
        case NEAREST_EVEN: write_all<NEAREST_EVEN>(source, task, stage, positions, tally, column, seen); break;
        case NEAREST_AWAY: write_all<NEAREST_AWAY>(source, task, stage, positions, tally, column, seen); break;
        case NEAREST_UP: write_all<NEAREST_UP>(source, task, stage, positions, tally, column, seen); break;
        case NEAREST_DOWN: write_all<NEAREST_DOWN>(source, task, stage, positions, tally, column, seen); break;
        case NEAREST_ZERO: write_all<NEAREST_ZERO>(source, task, stage, positions, tally, column, seen); break;
        case FLOOR: write_all<FLOOR>(source, task, stage, positions, tally, column, seen); break;
        case CEIL: write_all<CEIL>(source, task, stage, positions, tally, column, seen); break;
        case TOWARD_ZERO: write_all<TOWARD_ZERO>(source, task, stage, positions, tally, column, seen); break;
        case TO_ODD: write_all<TO_ODD>(source, task, stage, positions, tally, column, seen); break;
        default: write_all<STOCHASTIC>(source, task, stage, positions, tally, column, seen); break;
    }
    count_events(seen);
    for (i32 i = 0; i < N_FLAGS; i++)
        if (seen.flags[i] != 0) atomicAdd(&tally.counts[i], seen.flags[i]);
    if (positions.bins > 0) {
        u32* scalars = tally.counts + N_FLAGS + 2 * positions.bins;
        if (seen.results != 0) atomicAdd(&scalars[TOTAL], seen.results);
        if (seen.largest != 0) atomicMax(tally.top, field_of(seen.largest) - 127);
        __syncthreads();
        for (i32 place = thread; place < places; place += threads) {
            u32 sum = 0;
            for (i32 lane = 0; lane < LANES; lane++) sum += columns[place * LANES + (lane + thread) % LANES];  // each thread in another bank
            if (sum != 0) atomicAdd(&tally.counts[N_FLAGS + place], sum);
        }
    }
    close_tally(tally, positions, totals);
}
