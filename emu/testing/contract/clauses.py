"""The clauses of the contract, and the cases that test each.

A clause is a sentence of docs/concepts/ with data of one kind: a wrong tie fails the clause of ties of its mode, and
no other clause of `quantize`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Mac, OutputStage, Overflow, Rounding
from emu.datapath.flags import FLAG_NAMES
from emu.datapath.order import Blocks, Order
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES, default_rule
from emu.formats import Fixed, Float, Format
from emu.testing.contract import data
from emu.testing.contract.case import ELEMENTWISE, Case

Array = NDArray[Any]
#: Lowest exponent and number of positions of the registers: some results lie below them and some above.
POSITIONS = (-12, 20)
#: Random bits of a stochastic rounding.
RANDOM_WIDTHS = (24, 3)
#: Rows, columns and terms of the products whose accumulator rounds.
ROWS, COLUMNS, DEPTHS = 3, 4, (1, 2, 7, 13)
#: Accumulator of units of blocks.
WIDE = Float(8, 23)


@dataclass(frozen=True)
class Scope:
    """Operations, formats and modes that clauses are about.

    Attributes:
        operations: operations of the contract.
        formats: formats written and read.
        roundings: modes.
        orders: orders of the adds of `matmul`.
        elements: elements of a case.
        seed: of the data.
    """

    operations: tuple[str, ...]
    formats: tuple[Format, ...]
    roundings: tuple[Rounding, ...]
    orders: tuple[Order, ...]
    elements: int
    seed: int

    @property
    def deterministic(self) -> tuple[Rounding, ...]:
        """Modes without random bits."""
        return tuple(mode for mode in self.roundings if not mode.draws)


@dataclass(frozen=True)
class Clause:
    """A sentence and its cases.

    Attributes:
        name: operation and sentence.
        cases: the calls.
        observed: "values", "register", or the name of a flag.
    """

    name: str
    cases: Callable[[], Iterator[Case]]
    observed: str = "values"


def clauses_of(scope: Scope) -> list[Clause]:
    """Return every clause of the operations in scope."""
    clauses: list[Clause] = []
    if "quantize" in scope.operations:
        clauses += [*_rounding(scope), *_ends(scope), *_flags(scope), *_registers(scope)]
    for operation, count in ELEMENTWISE.items():
        if operation in scope.operations:
            clauses += _elementwise(scope, operation, count)
    if "matmul" in scope.operations:
        clauses += _products(scope)
    return clauses


def rules_of(fmt: Format) -> tuple[Overflow, ...]:
    """Return the overflow rules of a format's family."""
    return FIXED_RULES if isinstance(fmt, Fixed) else FLOAT_RULES


def _quantize(x: Array, fmt: Format, mode: Rounding, rule: Overflow, **more: Any) -> Case:
    return Case("quantize", (x,), (None,), OutputStage(fmt, mode, rule), **more)


def _written(
    scope: Scope, modes: tuple[Rounding, ...], x: Callable[[Format], Array], formats: tuple[Format, ...] | None = None
) -> Callable[[], Iterator[Case]]:
    """Return the cases that write what `x` gives into every format, under the default rule."""

    def cases() -> Iterator[Case]:
        for fmt in scope.formats if formats is None else formats:
            # data of a kind that the format lacks are empty: there is no case then
            if len(reals := x(fmt)):
                yield from (_quantize(reals, fmt, mode, default_rule(fmt)) for mode in modes)

    return cases


def _rounding(scope: Scope) -> Iterator[Clause]:
    n, seed, modes = scope.elements, scope.seed, scope.deterministic
    # only jamming and magnitude truncation move values of a format; they have clauses of their own
    keeping = tuple(mode for mode in modes if not mode.moves_exact)
    yield Clause("quantize: values stay", _written(scope, keeping, lambda f: data.normal_values(f, n, seed)))
    for mode in modes:
        name = f"quantize: {mode.value}"
        yield Clause(f"{name}, ties", _written(scope, (mode,), lambda f: data.ties(f, n, seed)))
        yield Clause(f"{name}, between", _written(scope, (mode,), lambda f: data.between(f, n, seed)))
        if mode.moves_exact:
            exact = _written(scope, (mode,), lambda f: data.normal_values(f, n, seed))
            yield Clause(f"{name}, values", exact)
    for mode in scope.roundings:
        if mode.draws:
            yield Clause(f"quantize: {mode.value}, recorded bits", lambda mode=mode: _stochastic(scope, mode))


def _stochastic(scope: Scope, mode: Rounding) -> Iterator[Case]:
    for fmt in scope.formats:
        x = np.concatenate([data.between(fmt, scope.elements, scope.seed), data.normal_values(fmt, 16, scope.seed)])
        for n_rbits in RANDOM_WIDTHS:
            bits = data.random_bits(len(x), n_rbits, scope.seed)
            stage = OutputStage(fmt, mode, default_rule(fmt), n_rbits)
            yield Case("quantize", (x,), (None,), stage, rbits=bits)


def _ends(scope: Scope) -> Iterator[Clause]:
    """Zero, subnormals, overflow, infinities, NaN."""
    modes = scope.deterministic
    yield Clause("quantize: sign of zero", _written(scope, modes, lambda f: np.array([0.0, -0.0])))
    nearest = tuple(mode for mode in modes if mode.value.startswith(("nearest", "toward")))
    yield Clause("quantize: sign of what rounds to zero", _written(scope, nearest, _rounds_to_zero))
    yield Clause("quantize: around zero", _written(scope, modes, data.around_zero))
    floats = tuple(fmt for fmt in scope.formats if isinstance(fmt, Float))
    small = _written(scope, modes, lambda f: data.subnormals(f, scope.elements, scope.seed), floats)
    yield Clause("quantize: subnormals", small)
    for rule in Overflow:
        if any(rule in rules_of(fmt) for fmt in scope.formats):
            yield Clause(f"quantize: overflow, {rule.value}", _overflowing(scope, rule, data.beyond))
            yield Clause(f"quantize: infinities, {rule.value}", _overflowing(scope, rule, _infinities))
    yield Clause("quantize: NaN", _written(scope, modes[:1], lambda f: data.specials(f, nan=True)))


def _rounds_to_zero(fmt: Format) -> Array:
    around = data.around_zero(fmt)
    # The largest of `data.around_zero` is 3/4 quantum. Below 3/8 lie the zeros, 1/4 and 2**-40 quantum, which all modes
    # to nearest round to zero.
    return around[np.abs(around) < np.abs(around[around != 0]).max() / 2]


def _infinities(fmt: Format) -> Array:
    return data.specials(fmt, nan=False)


def _overflowing(scope: Scope, rule: Overflow, x: Callable[[Format], Array]) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for fmt in scope.formats:
            if rule in rules_of(fmt):
                yield from (_quantize(x(fmt), fmt, mode, rule) for mode in scope.deterministic)

    return cases


def _flags(scope: Scope) -> Iterator[Clause]:
    modes = scope.deterministic[:3]
    cases = _written(scope, modes, lambda f: data.mixture(f, scope.elements, scope.seed))
    # those before it can be raised by `quantize`; the two others belong to `matmul` and `divide`
    for flag in FLAG_NAMES[: FLAG_NAMES.index("accumulator_overflow")]:
        yield Clause(f"quantize: flag {flag}", cases, flag)


def _registers(scope: Scope) -> Iterator[Clause]:
    mode = scope.deterministic[:1] or scope.roundings[:1]
    # the leading bit of -2**m is counted at m - 1, that of 2**m at m
    powers = -(2.0 ** np.arange(-16, 12))

    def observed(x: Callable[[Format], Array]) -> Callable[[], Iterator[Case]]:
        written = _written(scope, mode, x, scope.formats[:2])
        return lambda: (Case(c.operation, c.operands, c.formats, c.stage, positions=POSITIONS) for c in written())

    def leading(fmt: Format) -> Array:
        x = data.mixture(fmt, scope.elements, scope.seed)
        x = x[np.isfinite(x) & (x != 0)]
        return x[(x > 0) | (np.frexp(x)[0] != -0.5)]  # negative powers of two have a clause of their own

    yield Clause("register: leading bits", observed(leading), "register")
    yield Clause("register: negative powers of two", observed(lambda f: powers), "register")
    rest = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0])
    yield Clause("register: zeros, infinities, NaN", observed(lambda f: rest), "register")
    raws = np.array([0, -1, 1, -2, 2, -3, 127, -128, 128, -129])

    def fixed() -> Iterator[Case]:
        source = Fixed(24, 8)
        for fmt in scope.formats[:2]:
            stage = OutputStage(fmt, mode[0], default_rule(fmt))
            yield Case("quantize", (source.from_raw(raws),), (source,), stage, positions=(-8, 23))

    yield Clause("register: raws of a fixed accumulator", fixed, "register")


def _elementwise(scope: Scope, operation: str, count: int) -> Iterator[Clause]:
    def cases(operands: Callable[[Format], tuple[Array, ...]], modes: tuple[Rounding, ...], formats: Any) -> Any:
        return lambda: (
            Case(operation, operands(fmt), (fmt,) * count, OutputStage(fmt, mode, default_rule(fmt)))
            for fmt in formats
            for mode in modes
        )

    modes, n = scope.deterministic, scope.elements
    for mode in modes:
        finite = cases(lambda f: data.finite_operands(f, count, n, scope.seed), (mode,), scope.formats)
        yield Clause(f"{operation}: {mode.value}", finite)
    zeros = [0.0, -0.0, 1.0, -1.0]
    yield Clause(f"{operation}: zeros", cases(lambda f: data.every_combination(f, count, zeros), modes, scope.formats))
    floats = tuple(fmt for fmt in scope.formats if isinstance(fmt, Float) and (fmt.infinities or fmt.nans != "none"))
    special = [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
    rest = cases(lambda f: data.every_combination(f, count, special), modes[:1], floats)
    yield Clause(f"{operation}: infinities and NaN", rest)
    if operation == "divide":
        yield Clause("divide: flag division_by_zero", rest, "division_by_zero")


def _products(scope: Scope) -> Iterator[Clause]:
    mode = (scope.deterministic or (Rounding.NEAREST_EVEN,))[0]
    # no accumulator starts without a zero
    floats = tuple(fmt for fmt in scope.formats if isinstance(fmt, Float) and fmt.zero)
    fixed = tuple(fmt for fmt in scope.formats if isinstance(fmt, Fixed) and not fmt.carries_raws)

    def exact() -> Iterator[Case]:
        for fmt in scope.formats:
            # with k = 0 the sum of no terms is written
            for m, k, n in ((1, 1, 1), (2, 0, 3), (ROWS, 17, COLUMNS), (5, 64, 7)):
                yield _product(scope, fmt, (m, k, n), Mac(), mode)

    def in_order(order: Order) -> Iterator[Case]:
        for fmt in floats:
            accumulator = WIDE if isinstance(order, Blocks) else fmt  # a narrow one would round the blocks' cuts away
            for k in DEPTHS:
                mac = Mac("exact", accumulator, order, mode)
                yield _product(scope, fmt, (ROWS, k, COLUMNS), mac, mode, written=accumulator)

    def with_addend() -> Iterator[Case]:
        for fmt in scope.formats:
            for mac in (Mac(), *(Mac("exact", fmt, order, mode) for order in scope.orders[:1] if fmt in floats)):
                if not isinstance(mac.order, Blocks):
                    yield _product(scope, fmt, (ROWS, 5, COLUMNS), mac, mode, addend=True)

    def rounded() -> Iterator[Case]:
        for fmt in floats:
            yield _product(scope, fmt, (ROWS, 7, COLUMNS), Mac(fmt, fmt, "sequential", mode), mode)

    def adds(rounding: Rounding) -> Iterator[Case]:
        for fmt in floats:
            yield _product(scope, fmt, (ROWS, 7, COLUMNS), Mac("exact", fmt, "sequential", rounding), mode)

    yield Clause("matmul: exact unit", exact)
    for order in scope.orders:
        yield Clause(f"matmul: order {order}", lambda order=order: in_order(order))
    yield Clause("matmul: addend", with_addend)
    yield Clause("matmul: rounded products", rounded)
    for rounding in scope.deterministic:
        yield Clause(f"matmul: adds, {rounding.value}", lambda rounding=rounding: adds(rounding))
    for rule in FIXED_RULES if fixed else ():
        yield Clause(f"matmul: accumulator, {rule.value}", lambda rule=rule: _saturating(scope, fixed, rule, mode))
    if fixed:
        cases = list(_saturating(scope, fixed, Overflow.SATURATE, mode))
        yield Clause("matmul: flag accumulator_overflow", lambda: iter(cases), "accumulator_overflow")


def _saturating(scope: Scope, fixed: tuple[Fixed, ...], rule: Overflow, mode: Rounding) -> Iterator[Case]:
    """Yield products with accumulators as fine as the products, a bit wider: some sums leave their range and return."""
    for fmt in fixed:
        # The accumulator then has at most 2 * 24 + 1 = 49 bits, so float64 still holds its values.
        if fmt.width_bits <= 24:
            accumulator = Fixed(2 * fmt.width_bits + 1, 2 * fmt.frac_bits, fmt.signed)
            yield _product(scope, fmt, (ROWS, 13, COLUMNS), Mac("exact", accumulator, "sequential", mode, rule), mode)


def _product(
    scope: Scope,
    fmt: Format,
    sizes: tuple[int, int, int],
    mac: Mac,
    mode: Rounding,
    *,
    addend: bool = False,
    written: Format | None = None,
) -> Case:
    m, k, n = sizes
    operands = [data.summands(fmt, (m, k), scope.seed), data.summands(fmt, (k, n), scope.seed + 1)]
    if addend:
        operands.append(data.summands(fmt, (m, n), scope.seed + 2))
    stage = OutputStage(written or fmt, mode, default_rule(fmt))
    return Case("matmul", tuple(operands), (fmt,) * len(operands), stage, mac)
