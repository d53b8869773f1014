// Sparse products, one thread per result, and the order in which it takes its entries: no float is added atomically.
//
//     count_index, scan                     how many entries each result has, where they begin
//     scatter_entries, sort_segments        entries, result by result; atomics place them, a sort puts them in order
//     name_rows                             the row of the dense operand beside each
//     sparse_exact, sparse_ordered, ...     the unit over a result's entries, in storage order
//     count_index, scan, place_entries, list_used    which columns have entries
#include "sums.cuh"

// ---- which columns have entries, and in which order they are added -------------------------------------------------

// counts, zeros before: how many entries each index has.
extern "C" __global__ void count_index(const i32* index, i64 n, i32* counts) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&counts[index[i]], 1);
}
EMU_KERNEL(count_index)

// Exclusive prefix sums, by one block: `starts` (n + 1) of counts, `places` (n) of counts above 0. `totals`: how many are
// above 0, and the largest. Shared memory: three i64 a thread.
extern "C" __global__ void scan(const i32* counts, i64 n, i64* starts, i32* places, i64* totals) {
    EMU_DYNAMIC_SHARED(i64, room);
    i64 threads = blockDim.x, me = threadIdx.x, share = (n + threads - 1) / threads;
    i64 first = me * share, last = first + share < n ? first + share : n;
    i64 sum = 0, used = 0, largest = 0;
    for (i64 i = first; i < last; i++) {
        sum += counts[i];
        used += counts[i] > 0;
        if (counts[i] > largest) largest = counts[i];
    }
    room[me] = sum;
    room[threads + me] = used;
    room[2 * threads + me] = largest;
    __syncthreads();
    if (me == 0) {
        i64 sums = 0, all = 0, top = 0;
        for (i64 t = 0; t < threads; t++) {
            i64 here = room[t], used_here = room[threads + t];
            room[t] = sums;
            room[threads + t] = all;
            sums += here;
            all += used_here;
            if (room[2 * threads + t] > top) top = room[2 * threads + t];
        }
        starts[n] = sums;
        totals[0] = all;
        totals[1] = top;
    }
    __syncthreads();
    sum = room[me];
    used = room[threads + me];
    for (i64 i = first; i < last; i++) {
        starts[i] = sum;
        places[i] = static_cast<i32>(used);
        sum += counts[i];
        used += counts[i] > 0;
    }
}
EMU_KERNEL(scan)

// Of each entry, the position of its index among those that have entries.
extern "C" __global__ void place_entries(const i32* index, i64 n, const i32* places, i32* out) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = places[index[i]];
}
EMU_KERNEL(place_entries)

// The indices that have entries, ascending.
extern "C" __global__ void list_used(const i32* counts, i64 n, const i32* places, i32* used) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
        if (counts[i] > 0) used[places[i]] = static_cast<i32>(i);
}
EMU_KERNEL(list_used)

// Entries into their results' segments, in any order. cursors: zeros before.
extern "C" __global__ void scatter_entries(const i32* index, i64 n, const i64* starts, i32* cursors, i32* entries) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
        entries[starts[index[i]] + atomicAdd(&cursors[index[i]], 1)] = static_cast<i32>(i);
}
EMU_KERNEL(scatter_entries)

EMU_FN void sift_down(i32* heap, i64 size, i64 parent) {
    i32 sinking = heap[parent];
    while (2 * parent + 1 < size) {
        i64 child = 2 * parent + 1;
        if (child + 1 < size && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= sinking) break;
        heap[parent] = heap[child];
        parent = child;
    }
    heap[parent] = sinking;
}

// The entries of each segment in ascending order, which is that of storage: no two are equal, so there is one such order.
extern "C" __global__ void sort_segments(const i64* starts, i64 n, i32* entries) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i32* heap = entries + starts[i];
        i64 size = starts[i + 1] - starts[i];
        for (i64 parent = size / 2 - 1; parent >= 0; parent--) sift_down(heap, size, parent);
        for (i64 last = size - 1; last > 0; last--) {
            i32 largest = heap[0];
            heap[0] = heap[last];
            heap[last] = largest;
            sift_down(heap, last, 0);
        }
    }
}
EMU_KERNEL(sort_segments)

// The stored row of each entry: the last one that begins at it or before.
extern "C" __global__ void name_rows(const i32* entries, i64 n, const i64* starts, i64 stored_rows, i32* rows) {
    i64 stride = static_cast<i64>(blockDim.x) * gridDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        i64 low = 0, high = stored_rows;
        while (high - low > 1) {
            i64 middle = (low + high) / 2;
            if (starts[middle] <= entries[i]) low = middle;
            else high = middle;
        }
        rows[i] = static_cast<i32>(low);
    }
}
EMU_KERNEL(name_rows)

// ---- products ------------------------------------------------------------------------------------------------------

// The operands of a result: stored entries, and one column of the rows beside them.
struct Segment {
    const void* data;
    const i32* all_entries;
    const i32* all_rows;
    const i64* starts;
    const void* dense;
    Operand entry, element;
    i64 columns;
    const i32* entries;
    const i32* rows;
    i64 column, depth;
    EMU_MEMBER void go_to(const Place& place) {
        i64 first = starts[place.row];
        entries = all_entries + first;
        rows = all_rows + first;
        depth = starts[place.row + 1] - first;
        column = place.column;
    }
};

EMU_FN Number left_of(const Segment& x, i64 k) { return fetch(x.data, x.entries[k], x.entry); }
EMU_FN Number right_of(const Segment& x, i64 k) { return fetch(x.dense, x.rows[k] * x.columns + x.column, x.element); }

EMU_FN Segment segment_of(const i64* task, const void* data, const i32* entries, const i32* rows, const i64* starts, const void* dense) {
    Segment terms;
    terms.data = data;
    terms.all_entries = entries;
    terms.all_rows = rows;
    terms.starts = starts;
    terms.dense = dense;
    terms.entry = read_operand(task, 0);
    terms.element = read_operand(task, 1);
    terms.columns = read_shape(task).columns;
    return terms;
}

// As `exact_product`.
extern "C" __global__ void sparse_exact(EMU_GIVEN Task given, const void* data, const i32* entries, const i32* rows,
                                        const i64* starts, const void* dense, const void* addend, const u32* recorded,
                                        void* out, u64* totals, i32 lowest, i32 words) {
    EMU_DYNAMIC_SHARED(u32, room);
    ExactSum sum;
    sum.lowest = lowest;
    sum.words = words;
    write_product(given.number, room, segment_of(given.number, data, entries, rows, starts, dense), sum, addend, recorded, out, totals);
}
EMU_KERNEL(sparse_exact)

// As `ordered_product`.
extern "C" __global__ void sparse_ordered(EMU_GIVEN Task given, const void* data, const i32* entries, const i32* rows,
                                          const i64* starts, const void* dense, const void* addend, const u32* recorded,
                                          void* out, u64* totals) {
    EMU_DYNAMIC_SHARED(u32, room);
    OrderedSum sum;
    write_product(given.number, room, segment_of(given.number, data, entries, rows, starts, dense), sum, addend, recorded, out, totals);
}
EMU_KERNEL(sparse_ordered)

// As `block_product`.
extern "C" __global__ void sparse_block(EMU_GIVEN Task given, const void* data, const i32* entries, const i32* rows,
                                        const i64* starts, const void* dense, const void* addend, const u32* recorded,
                                        void* out, u64* totals, const i64* taken) {
    EMU_DYNAMIC_SHARED(u32, room);
    BlockSum sum;
    sum.taken = taken;
    write_product(given.number, room, segment_of(given.number, data, entries, rows, starts, dense), sum, addend, recorded, out, totals);
}
EMU_KERNEL(sparse_block)
