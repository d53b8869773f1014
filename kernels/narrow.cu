// The output stage over float32, fast: one pass, four results at a time, registers of 32 bits.
#include "narrow.cuh"

struct __align__(16) Four {
    u32 word[4];
};

// Counts of a block: a column per lane of a warp, so that lanes which count at the same position do not wait for each other.
#define LANES 32
#define COUNTED_SCALARS 4  // NONE, BELOW, ABOVE, NONFINITE, after the positions of both signs

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

// `place_of` of a number whose magnitude is simple.
EMU_FN i32 simple_place(u32 bits, const Register& r) {
    u32 magnitude = bits & ~SIGN;
    i32 scalars = 2 * r.bins, exponent = field_of(magnitude) - 127;
    bool one_lower = (bits & (SIGN | FRACTION)) == SIGN;
    i32 position = exponent - static_cast<i32>(one_lower) - r.lowest;
    i32 place = bits & SIGN ? position + r.bins : position;
    if (position >= r.bins) place = scalars + ABOVE;
    if (position < 0) place = scalars + BELOW;
    if (magnitude == 0 || (one_lower && exponent == r.fixed_quantum)) place = scalars + NONE;
    return place;
}

template <i32 ROUNDING>
EMU_FN u32 written(u32 bits, const Narrow& narrow, const Stage& stage, const Register& positions, u32* column, Seen& seen,
                   u32 u) {
    u32 magnitude = bits & ~SIGN;
    NarrowWritten result;
    bool simple = is_simple(magnitude);
    if (positions.bins > 0) {
        i32 place = simple ? simple_place(bits, positions) : place_of(load(&bits, 0, STORED_F32, 0), positions);
        atomicAdd(&column[place * LANES], 1u);
        if (magnitude > seen.largest && magnitude < FLOAT_INFINITY) seen.largest = magnitude;
    }
    seen.results++;
    if (simple && write_narrow<ROUNDING>(bits, narrow, u, result)) {
        seen.events += result.events;
        return result.bits;
    }
    Written wide = write(load(&bits, 0, STORED_F32, 0), stage, u);
    for (i32 i = 0; i < N_FLAGS; i++) seen.flags[i] += wide.flags >> i & 1u;
    return static_cast<u32>(wide.bits);
}

template <i32 ROUNDING>
EMU_FN void write_all(const i64* task, const u32* x, const u32* recorded, u32* out, i64 n, const Stage& stage,
                      const Register& positions, u32* column, Seen& seen) {
    Narrow narrow = narrow_of(stage);
    Random random = read_random(task);
    u32 draw_number = static_cast<u32>(task[RANDOM_AT + 4]);
    bool aligned = ((reinterpret_cast<u64>(x) | reinterpret_cast<u64>(out)) & 15u) == 0;
    bool draws = ROUNDING == STOCHASTIC && recorded == nullptr;
    i32 per_block = fields_per_block(stage.n_rbits);
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x); first < n; first += 4 * stride) {
        i32 count = n - first < 4 ? static_cast<i32>(n - first) : 4;
        bool whole = aligned && count == 4;
        Four four;
        if (whole) four = *reinterpret_cast<const Four*>(x + first);
        RandomBlock block;
        if (draws) block = philox_block(random, static_cast<u64>(first / per_block), draw_number);
        for (i32 j = 0; j < 4; j++) {
            if (j >= count) break;
            u32 u = 0;
            if (draws) u = random_field(block, static_cast<i32>((first + j) % per_block), stage.n_rbits);
            else if (ROUNDING == STOCHASTIC) u = recorded[first + j];
            u32 bits = whole ? four.word[j] : x[first + j];
            bits = written<ROUNDING>(bits, narrow, stage, positions, column, seen, u);
            if (whole) four.word[j] = bits;
            else out[first + j] = bits;
        }
        if (whole) *reinterpret_cast<Four*>(out + first) = four;
        seen.pending += 4;
        if (seen.pending >= MOST_PENDING) count_events(seen);
    }
}

// Writes `n` float32 into a format whose carrier is float32; what it writes and counts is that of `elementwise`.
//
// Dynamic shared memory: as `elementwise`, then 32 u32 per position and scalar.
extern "C" __global__ void narrow_stage(EMU_GIVEN Task given, const u32* x, const u32* recorded, u32* out, u64* totals, i64 n) {
    const i64* task = given.number;
    EMU_DYNAMIC_SHARED(u32, room);
    Stage stage = read_stage(task);
    Register positions = read_register(task + REGISTER_AT);
    Tally tally = open_tally(room, positions);
    u32* columns = room + 1 + tally_size(positions);
    i32 places = counted_places(positions), threads = static_cast<i32>(block_threads()), thread = static_cast<i32>(thread_in_block());
    for (i32 i = thread; i < places * LANES; i += threads) columns[i] = 0;
    __syncthreads();
    u32* column = columns + thread % LANES;
    Seen seen = {{0, 0, 0, 0, 0, 0}, 0, 0, 0, 0};
    switch (stage.rounding) {
        case NEAREST_EVEN: write_all<NEAREST_EVEN>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case NEAREST_AWAY: write_all<NEAREST_AWAY>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case NEAREST_UP: write_all<NEAREST_UP>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case NEAREST_DOWN: write_all<NEAREST_DOWN>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case NEAREST_ZERO: write_all<NEAREST_ZERO>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case FLOOR: write_all<FLOOR>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case CEIL: write_all<CEIL>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case TOWARD_ZERO: write_all<TOWARD_ZERO>(task, x, recorded, out, n, stage, positions, column, seen); break;
        case TO_ODD: write_all<TO_ODD>(task, x, recorded, out, n, stage, positions, column, seen); break;
        default: write_all<STOCHASTIC>(task, x, recorded, out, n, stage, positions, column, seen); break;
    }
    count_events(seen);
    for (i32 i = 0; i < N_FLAGS; i++)
        if (seen.flags[i] != 0) atomicAdd(&tally.counts[i], seen.flags[i]);
    if (positions.bins > 0) {
        u32* scalars = tally.counts + N_FLAGS + 2 * positions.bins;
        if (seen.results != 0) atomicAdd(&scalars[TOTAL], seen.results);
        if (seen.largest != 0) atomicMax(tally.top, leading(load(&seen.largest, 0, STORED_F32, 0)));
        __syncthreads();
        for (i32 place = thread; place < places; place += threads) {
            u32 sum = 0;
            for (i32 lane = 0; lane < LANES; lane++) sum += columns[place * LANES + lane];
            if (sum != 0) atomicAdd(&tally.counts[N_FLAGS + place], sum);
        }
    }
    close_tally(tally, positions, totals);
}
EMU_KERNEL(narrow_stage)
