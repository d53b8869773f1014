// Operands of matrix products, gathered by offsets, and the numbers of a task that describe them.
//
// Element (batch, i, j) of an operand is data[batch_step * batch + rows[i] + columns[j]].
#pragma once
#include "results.cuh"

struct Matrix {
    const void* data;
    const i64* rows;
    const i64* columns;
    i64 batch_step;
    Operand element;
};

EMU_FN Matrix matrix_of(const void* data, const i64* rows, const i64* columns, i64 batch_step, const Operand& element) {
    Matrix m;
    m.data = data;
    m.rows = rows;
    m.columns = columns;
    m.batch_step = batch_step;
    m.element = element;
    return m;
}

EMU_FN Number element_of(const Matrix& m, i64 batch, i64 row, i64 column) {
    return fetch(m.data, m.batch_step * batch + m.rows[row] + m.columns[column], m.element);
}

// Sizes of a product, and where a thread's result lies.
struct Shape {
    i64 batches, rows, depth, columns;
};

struct Place {
    i64 batch, row, column;
};

EMU_FN Place place_of(i64 result, const Shape& shape) {
    Place p;
    p.column = result % shape.columns;
    p.row = result / shape.columns % shape.rows;
    p.batch = result / (shape.columns * shape.rows);
    return p;
}

// After the operands: batches, rows, depth, columns; divisor; batch steps of both matrices; steps of the addend.
#define SHAPE_AT (OPERANDS_AT + 3 * OPERAND_FIELDS)
#define DIVISOR_AT (SHAPE_AT + 4)
#define STEPS_AT (DIVISOR_AT + 1)
#define MAC_AT (STEPS_AT + 5)

EMU_FN Shape read_shape(const i64* task) {
    Shape s;
    s.batches = task[SHAPE_AT];
    s.rows = task[SHAPE_AT + 1];
    s.depth = task[SHAPE_AT + 2];
    s.columns = task[SHAPE_AT + 3];
    return s;
}

EMU_FN Number addend_of(const void* data, const i64* task, const Place& p) {
    const i64* step = task + STEPS_AT + 2;
    return fetch(data, step[0] * p.batch + step[1] * p.row + step[2] * p.column, read_operand(task, 2));
}

// A NaN is new unless an operand was one.
EMU_FN Number marked(const Number& x, bool from_nan) {
    Number y = x;
    if (x.kind >= NOT_A_NUMBER) y.kind = from_nan ? NOT_A_NUMBER : NEW_NAN;
    return y;
}

// A sum divided by a positive integer, to be rounded once.
EMU_FN Number divided(const Number& x, u64 divisor) {
    Number y = x;
    if (x.kind != FINITE || divisor == 1) return y;
    i32 power = bit_length(divisor) - 1;
    if ((divisor & (divisor - 1)) == 0) {
        y.exponent -= power;
#if WIDE_WORDS >= 4
        y.low_exponent -= power;
#endif
        return y;
    }
    i32 up = WIDE_BITS - 1 - bit_length(x.significand);  // the quotient has as many bits, less the divisor's
    Wide rest = shifted_left(x.significand, up), quotient = wide_of(0);
    u64 remainder = 0;
    for (i32 place = WIDE_BITS - 1; place >= 0; place--) {
        u64 carried = remainder >> 63;
        remainder = (remainder << 1) | bit_at(rest, place);
        u64 goes = carried || remainder >= divisor;
        remainder -= goes ? divisor : 0ull;
        quotient = shifted_left(quotient, 1);
        quotient.word[0] |= goes;
    }
    return number_of(x.negative, quotient, x.exponent - up, remainder != 0 || x.sticky);
}

// Whether any operand of a result is a NaN: then a NaN result is no new one.
EMU_FN bool has_nan(const Matrix& left, const Matrix& right, const Place& p, i64 depth) {
    for (i64 k = 0; k < depth; k++) {
        if (element_of(left, p.batch, p.row, k).kind >= NOT_A_NUMBER) return true;
        if (element_of(right, p.batch, k, p.column).kind >= NOT_A_NUMBER) return true;
    }
    return false;
}

// Observes the undivided content, writes it divided, counts.
EMU_FN void finish(const Number& content, bool touched, i64 result, const Writing& w) {
    observe(w.tally, w.positions, content);
    Number quotient = divided(content, static_cast<u64>(w.task[DIVISOR_AT]));
    Written written = write(quotient, w.stage, draw(w, result));
    count_flags(w.tally, written.flags | static_cast<u32>(touched) * ACCUMULATOR);
    store(w.out, result, written.bits, w.stage.storage);
}
