// How a multiply-accumulate unit adds the terms of one result: exact sums, and accumulators that round or saturate at every
// add. `Terms` are the operands of a dot product: `left_of(terms, k)`, `right_of(terms, k)`, k below `terms.depth`.
#pragma once
#include "product.cuh"

// ---- the unit ------------------------------------------------------------------------------------------------------

enum Order { SEQUENTIAL = 0, PAIRWISE = 1, LANES = 2 };
// Of a unit: order, lanes, whether products round, their stage, the accumulator's stage.
#define ORDER_AT MAC_AT
#define LANES_AT (MAC_AT + 1)
#define ROUNDS_PRODUCTS_AT (MAC_AT + 2)
#define PRODUCT_STAGE_AT (MAC_AT + 3)
#define SUM_STAGE_AT (PRODUCT_STAGE_AT + STAGE_FIELDS)
#define BLOCKS_AT (SUM_STAGE_AT + STAGE_FIELDS)

// How it rounds, and what happened in it.
struct Unit {
    Stage product, sum;
    i32 rounds_products;
    bool touched, from_nan;
};

EMU_FN Unit read_unit(const i64* task) {
    Unit u;
    u.product = read_stage(task + PRODUCT_STAGE_AT);
    u.sum = read_stage(task + SUM_STAGE_AT);
    u.rounds_products = static_cast<i32>(task[ROUNDS_PRODUCTS_AT]);
    u.touched = u.from_nan = false;
    return u;
}

EMU_FN u32 draw_inside(const i64* task, const Stage& stage, u64 result, i64 number) {
    return draws(stage.rounding) ? philox(read_random(task), result, static_cast<u32>(number), stage.n_rbits) : 0u;
}

// x, written by a stage and read again.
EMU_FN Number rewritten(const Number& x, const Stage& stage, u32 u, u32* flags) {
    Written written = write(x, stage, u);
    *flags = written.flags;
    u64 bits = written.bits;  // one element of an array
    return load(&bits, 0, stage.storage, stage.format.quantum);
}

// Whether a finite number became infinite, or what stands for infinity where a format has none.
EMU_FN bool became_infinite(const Number& x, const Number& y, const Stage& stage, u32 flags) {
    if (!(flags & OVERFLOWED) || x.kind != FINITE || stage.overflow != IEEE) return false;
    return y.kind != FINITE || (!stage.format.has_nan && !stage.format.has_infinity && is_zero(y.significand));
}

// R(x) in the accumulator.
EMU_FN Number accumulated(Unit& unit, const Number& x, const i64* task, u64 result, i64 number) {
    u32 flags;
    Number y = rewritten(x, unit.sum, draw_inside(task, unit.sum, result, number), &flags);
    bool is_limit = unit.sum.overflow != WRAP && unit.sum.overflow != IEEE && (flags & OVERFLOWED);
    if (is_limit || became_infinite(x, y, unit.sum, flags)) unit.touched = true;
    return y;
}

template <typename Terms>
EMU_FN Number term_at(Unit& unit, const Terms& terms, i64 k, const i64* task, u64 result) {
    Number x = left_of(terms, k), y = right_of(terms, k);
    unit.from_nan = unit.from_nan || x.kind >= NOT_A_NUMBER || y.kind >= NOT_A_NUMBER;
    Number product = multiply(x, y);
    if (!unit.rounds_products) return product;
    u32 flags;
    Number rounded = rewritten(product, unit.product, draw_inside(task, unit.product, result, 1 + 2 * k), &flags);
    if (became_infinite(product, rounded, unit.product, flags)) unit.touched = true;
    return rounded;
}

// ---- exact sums ----------------------------------------------------------------------------------------------------

// Signed sums modulo 2**(64 * words), counted from 2**lowest.
#define MOST_WORDS 72
static_assert(MOST_WORDS >= 67, "exact products of float64 take 67 words");

EMU_FN void add_to(u64* sum, i32 words, const Number& x, i32 lowest) {
    if (is_zero(x.significand)) return;
    i32 up = x.exponent - lowest;
    // below `lowest` a significand has zeros alone
    Wide aligned = up >= 0 ? shifted_left(x.significand, up & 63) : shifted_right(x.significand, smaller(-up, WIDE_BITS));
    up = larger(up, 0);
    u64 carry = 0;
    for (i32 i = up >> 6, j = 0; i < words; i++, j++) {
        u64 word = j < WIDE_WORDS ? word_at(aligned, j) : 0ull;
        if (j >= WIDE_WORDS && carry == 0) break;
        u64 before = sum[i];
        if (x.negative) {
            u64 partial = before - word;
            sum[i] = partial - carry;
            carry = (before < word) | (partial < carry);
        } else {
            u64 partial = before + carry;
            sum[i] = partial + word;
            carry = (partial < carry) | (sum[i] < partial);
        }
    }
}

// The highest words of a sum, the rest sticky. `quantum`: of a stage that wraps.
EMU_FN Number number_from(u64* sum, i32 words, i32 lowest, i32 quantum) {
    u32 negative = static_cast<u32>(sum[words - 1] >> 63);
    u64 carry = negative;
    for (i32 i = 0; negative && i < words; i++) {
        sum[i] = ~sum[i] + carry;
        carry = carry && sum[i] == 0;
    }
    i32 top = words - 1;
    while (top > 0 && sum[top] == 0) top--;
    i32 first = larger(top - (WIDE_WORDS - 1), 0);
    Wide significand;
    for (i32 i = 0; i < WIDE_WORDS; i++) significand.word[i] = first + i < words ? sum[first + i] : 0ull;
    u64 rest = 0;
    for (i32 i = 0; i < first; i++) rest |= sum[i];
    Number x = number_of(negative, significand, lowest + 64 * first, rest != 0);
#if WIDE_WORDS >= 4
    if (rest != 0 && lacks_low_bits(x.exponent, quantum)) {
        i32 from = larger(quantum - LOW_BITS_BELOW - lowest, 0) >> 6;
        x.has_low = 1;
        x.low_exponent = lowest + 64 * from;
        x.low_sticky = 0;
        for (i32 i = 0; i < from; i++) x.low_sticky |= sum[i] != 0;
        for (i32 i = 0; i < WIDE_WORDS; i++) x.low.word[i] = from + i < words ? sum[from + i] : 0ull;
    }
#endif
    return x;
}

// Infinities and NaN among the terms of a sum.
struct Specials {
    u32 infinities;  // 1: positive, 2: negative
    u32 is_nan;
};

EMU_FN void see(Specials& specials, const Number& x) {
    if (x.kind == INFINITE) specials.infinities |= x.negative ? 2u : 1u;
    else if (x.kind != FINITE) specials.is_nan = 1;
}

// A sum, replaced by what an infinity or a NaN among its terms makes of it.
EMU_FN Number total_of(u64* sum, i32 words, i32 lowest, const Specials& specials, i32 quantum) {
    if (specials.is_nan || specials.infinities == 3u) return special(NOT_A_NUMBER, 0);
    if (specials.infinities != 0) return special(INFINITE, specials.infinities == 2u);
    return number_from(sum, words, lowest, quantum);
}

// The sum of products, exact or rounded into a format of their own, and an addend. `lowest`: exponent no term goes below;
// `words` hold every sum.
template <typename Terms>
EMU_FN Number exact_content(Unit& unit, const Terms& terms, const void* addend, const Place& p, const i64* task, u64 result,
                            i32 lowest, i32 words, i32 quantum) {
    u64 sum[MOST_WORDS];
    for (i32 j = 0; j < words; j++) sum[j] = 0;
    Specials specials = {0, 0};
    for (i64 k = 0; k <= terms.depth; k++) {
        if (k == terms.depth && addend == nullptr) break;
        Number term;
        if (k < terms.depth) {
            term = term_at(unit, terms, k, task, result);
        } else {
            term = addend_of(addend, task, p);
            unit.from_nan = unit.from_nan || term.kind >= NOT_A_NUMBER;
        }
        see(specials, term);
        if (term.kind == FINITE) add_to(sum, words, term, lowest);
    }
    return total_of(sum, words, lowest, specials, quantum);
}

// ---- accumulators that round ---------------------------------------------------------------------------------------

#define MOST_LEVELS 40
static_assert(MOST_LEVELS >= 40, "one a level: a tree of as many leaves as memory could hold, or of 2**31 lanes");

// What a unit does next.
enum Action { TAKE_ADDEND, TAKE_TERM, JOIN, ADD_ADDEND, DONE };

// Products added one by one; in lanes, joined as a binary tree; or all as leaves of that tree.
//
// One loop around one addition: whatever comes next is chosen, added, rounded. A lane is joined with its left neighbour as
// soon as both are there; left ones wait, one per level.
template <typename Terms>
EMU_FN Number ordered_content(Unit& unit, const Terms& terms, const void* addend, const Place& p, const i64* task,
                              u64 result) {
    i32 order = static_cast<i32>(task[ORDER_AT]);
    i64 lanes = order == PAIRWISE ? terms.depth : order == LANES ? task[LANES_AT] : 1;
    i64 apart = order == PAIRWISE ? terms.depth : lanes;  // from a term of a lane to the next
    i32 levels = 0;
    while ((1ll << levels) < lanes) levels++;
    // numbers of draws: 0 is the output stage's, 1 + 2k the product's, 2 + 2k its add's, then those of joins and addend
    i64 first_join = 2 * terms.depth + 1;
    Number zero = number_of(0, wide_of(0), 0, 0), start = zero;
    if (addend != nullptr) {
        start = addend_of(addend, task, p);
        unit.from_nan = start.kind >= NOT_A_NUMBER;
    }
    Number state = zero, waiting[MOST_LEVELS];
    i64 lane = 0, k = 0, index = 0, join = 0;
    i32 level = 0;
    Action action = order == SEQUENTIAL && addend != nullptr ? TAKE_ADDEND : TAKE_TERM;
    while (true) {
        if (action == TAKE_TERM && (lane >= lanes || k >= terms.depth)) {
            action = JOIN;
            level = 0;
            if (lane >= terms.depth)  // no more products: the largest tree of zeros that begins here, at once
                while (level < levels && (lane >> level & 1) == 0) level++;
            index = lane >> level;
            join = first_join + (1ll << levels) - (1ll << (levels - level));
            lane += (1ll << level) - 1;
        }
        if (action == JOIN && (index & 1) == 0) {
            if (level < levels) {  // the right neighbour comes later
                waiting[level] = state;
                state = zero;
                k = ++lane;
                action = TAKE_TERM;
                continue;
            }
            action = order != SEQUENTIAL && addend != nullptr ? ADD_ADDEND : DONE;
        }
        if (action == DONE) break;
        Number other = start;
        bool alone = action == TAKE_ADDEND || (action == TAKE_TERM && order == PAIRWISE);
        i64 number = first_join;
        if (action == TAKE_TERM) {
            other = term_at(unit, terms, k, task, result);
            number = 2 + 2 * k;
            k += apart;
        } else if (action == JOIN) {
            other = waiting[level];
            index >>= 1;
            number = join + index;
            join += 1ll << (levels - level - 1);
            level++;
        } else if (action == ADD_ADDEND) {
            number = first_join + (1ll << levels) - 1;
            action = DONE;
        } else {
            action = TAKE_TERM;
        }
        Number sum = alone ? other : add(state, other, unit.sum.rounding, wrapping_quantum(unit.sum));
        state = accumulated(unit, sum, task, result, number);
    }
    return state;
}

// ---- blocks, as matrix units add -----------------------------------------------------------------------------------

// Of blocks: products of one, fraction bits kept, whether the accumulator is added after each period, floor of the
// alignment, smallest exponents of both operands, length of a period.
static_assert(BLOCKS_AT + 7 == TASK_NUMBERS, "the longest task");
#define NOWHERE (-(1 << 29))
static_assert(NOWHERE < -(1 << 20), "below every exponent; two of them add up in 32 bits");
#define BLOCK_WORDS WIDE_WORDS

// The exponent a register shows: subnormals have that of the smallest normal number.
EMU_FN i32 shown_exponent(const Number& x, i32 emin) { return is_zero(x) ? NOWHERE : larger(leading(x), emin); }

// Toward zero, to a multiple of 2**place.
EMU_FN Number cut(const Number& x, i32 place) {
    i32 drop = place - x.exponent;
    if (drop <= 0) return x;
    return number_of(x.negative, shifted_right(x.significand, smaller(drop, WIDE_BITS)), place, 0);
}

// R(x), infinite beyond the largest where the accumulator has infinities.
EMU_FN Number rounded_block(Unit& unit, const Number& x, const Stage& stage, u32 u) {
    u32 flags;
    Number y = rewritten(x, stage, u, &flags);
    if (!(flags & OVERFLOWED)) return y;
    if (stage.overflow != IEEE || x.kind == FINITE) unit.touched = true;
    if (stage.overflow != IEEE) return y;
    if (stage.format.has_infinity) return special(INFINITE, x.negative);
    return stage.format.has_nan ? special(NOT_A_NUMBER, 0) : number_of(0, wide_of(0), 0, 0);
}

// Of operands that share scales, terms say more: the exponents given beside the numbers, and how many products in a row are
// summed exactly and are one term; their numbers are integers times 2**(exponent - point), `points` those of both together.
template <typename Terms>
EMU_FN i32 left_exponent(const Terms& terms, i64 k, const Number& x, i32 emin) { return shown_exponent(x, emin); }
template <typename Terms>
EMU_FN i32 right_exponent(const Terms& terms, i64 k, const Number& x, i32 emin) { return shown_exponent(x, emin); }
template <typename Terms>
EMU_FN i64 group_of(const Terms& terms) { return 1; }
template <typename Terms>
EMU_FN i32 points_of(const Terms& terms) { return 0; }

// The exact sum of products `first` to `first + group`, which are consecutive; zero if any of their operands is not finite.
template <typename Terms>
EMU_FN Number group_sum(const Terms& terms, i64 first, i64 group, i32 emin_a, i32 emin_b) {
    u64 sum[BLOCK_WORDS];
    for (i32 j = 0; j < BLOCK_WORDS; j++) sum[j] = 0;
    i32 lowest = 0;
    for (i64 k = first; k < first + group && k < terms.depth; k++) {
        Number x = left_of(terms, k), y = right_of(terms, k);
        if (x.kind != FINITE || y.kind != FINITE) return number_of(0, wide_of(0), 0, 0);
        if (is_zero(x) || is_zero(y)) continue;
        lowest = left_exponent(terms, k, x, emin_a) + right_exponent(terms, k, y, emin_b) - points_of(terms);
        add_to(sum, BLOCK_WORDS, multiply(x, y), lowest);
    }
    return number_from(sum, BLOCK_WORDS, lowest, NO_LOW_BITS);
}

// `taken`: the k of a period in the order they are added.
template <typename Terms>
EMU_FN Number block_content(Unit& unit, const Terms& terms, const void* addend, const Place& p, const i64* task, u64 result,
                            const i64* taken) {
    const i64* blocks = task + BLOCKS_AT;
    i64 size = blocks[0], period = blocks[6], group = group_of(terms);
    i32 fraction_bits = static_cast<i32>(blocks[1]), emin_a = static_cast<i32>(blocks[4]), emin_b = static_cast<i32>(blocks[5]);
    bool adds_after = blocks[2] != 0;
    i32 lowest_alignment = blocks[3] < NOWHERE ? NOWHERE : static_cast<i32>(blocks[3]);
    Stage adder = unit.sum;
    adder.rounding = NEAREST_EVEN;
    Number zero = number_of(0, wide_of(0), 0, 0), state = zero;
    if (addend != nullptr) {
        Number start = addend_of(addend, task, p);
        unit.from_nan = start.kind >= NOT_A_NUMBER;
        state = rounded_block(unit, start, unit.sum, draw_inside(task, unit.sum, result, 2 * terms.depth + 1));
    }
    for (i64 start = 0; start < terms.depth; start += period) {
        Number total = adds_after ? zero : state;
        for (i64 first = 0; first < period; first += size) {
            i32 emin_sum = unit.sum.format.emin;
            i32 largest = total.kind == FINITE ? shown_exponent(total, emin_sum) : NOWHERE;
            Specials specials = {0, 0};
            see(specials, total);
            for (i64 j = first; j < first + size; j++) {
                i64 k = start + taken[j];
                if (k >= terms.depth) continue;
                Number x = left_of(terms, k), y = right_of(terms, k);
                unit.from_nan = unit.from_nan || x.kind >= NOT_A_NUMBER || y.kind >= NOT_A_NUMBER;
                see(specials, multiply(x, y));
                if (x.kind != FINITE || y.kind != FINITE || is_zero(x) || is_zero(y)) continue;
                largest = larger(largest, left_exponent(terms, k, x, emin_a) + right_exponent(terms, k, y, emin_b));
            }
            largest = largest == NOWHERE ? 0 : larger(largest, lowest_alignment);
            i32 place = largest - fraction_bits;
            u64 sum[BLOCK_WORDS];
            for (i32 j = 0; j < BLOCK_WORDS; j++) sum[j] = 0;
            if (total.kind == FINITE) add_to(sum, BLOCK_WORDS, cut(total, place), place);
            for (i64 j = first; j < first + size; j += group) {
                i64 k = start + taken[j];
                if (k >= terms.depth) continue;
                if (group > 1) {
                    add_to(sum, BLOCK_WORDS, cut(group_sum(terms, k, group, emin_a, emin_b), place), place);
                    continue;
                }
                Number x = left_of(terms, k), y = right_of(terms, k);
                if (x.kind == FINITE && y.kind == FINITE) add_to(sum, BLOCK_WORDS, cut(multiply(x, y), place), place);
            }
            Number exact = total_of(sum, BLOCK_WORDS, place, specials, NO_LOW_BITS);
            total = rounded_block(unit, exact, unit.sum, draw_inside(task, unit.sum, result, 2 + 2 * (start + first)));
            if (is_zero(total)) total.negative = 0;
        }
        state = adds_after ? rounded_block(unit, add(state, total, NEAREST_EVEN, NO_LOW_BITS), adder, 0) : total;
    }
    return state;
}
