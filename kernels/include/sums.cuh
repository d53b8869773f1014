// The three ways of a unit to add up the terms of a result, and a product's loop over its results.
//
// Terms are what a result adds: a structure with `left_of`, `right_of`, `depth`, and `go_to(place)`.
#pragma once
#include "results.cuh"
#include "unit.cuh"

// Sums of products, exact or rounded into a format of their own, and an addend, rounded once.
struct ExactSum {
    i32 lowest, words;
    template <class Terms>
    EMU_MEMBER Number operator()(Unit& unit, const Terms& terms, const void* addend, const Place& place, i64 i, const Writing& w) const {
        return exact_content(unit, terms, addend, place, w.task, static_cast<u64>(i), lowest, words, wrapping_quantum(w.stage));
    }
};

// Accumulators that round: in order, in lanes, as a tree.
struct OrderedSum {
    template <class Terms>
    EMU_MEMBER Number operator()(Unit& unit, const Terms& terms, const void* addend, const Place& place, i64 i, const Writing& w) const {
        return ordered_content(unit, terms, addend, place, w.task, static_cast<u64>(i));
    }
};

// Blocks, as matrix units add. `taken`: the k of a period in the order they are added.
struct BlockSum {
    const i64* taken;
    template <class Terms>
    EMU_MEMBER Number operator()(Unit& unit, const Terms& terms, const void* addend, const Place& place, i64 i, const Writing& w) const {
        return block_content(unit, terms, addend, place, w.task, static_cast<u64>(i), taken);
    }
};

// A product: the body of `for_each_result`.
template <class Terms, class Sum>
struct ProductBody {
    Terms terms;
    Sum sum;
    Shape shape;
    const void* addend;
    EMU_MEMBER void operator()(i64 i, const Writing& w) {
        Place place = place_of(i, shape);
        terms.go_to(place);
        Unit unit = read_unit(w.task);
        Number content = sum(unit, terms, addend, place, i, w);
        finish(marked(content, unit.from_nan), unit.touched, i, w);
    }
};

template <class Terms, class Sum>
EMU_FN void write_product(const i64* task, u32* room, const Terms& terms, const Sum& sum, const void* addend, const u32* recorded, void* out,
                          u64* totals) {
    ProductBody<Terms, Sum> body;
    body.terms = terms;
    body.sum = sum;
    body.shape = read_shape(task);
    body.addend = addend;
    for_each_result(task, room, body.shape.batches * body.shape.rows * body.shape.columns, recorded, out, totals, body);
}
