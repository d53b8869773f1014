"""Small arrays: an operation that asks nothing gives the bits and counts of one that asks everything."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values, reals
from variants import answers_of, needs_vectors

import emu
from emu.backends.interface import Outcome
from emu.backends.modes import HAND_WRITTEN
from emu.backends.numba.vector.arithmetic import ARITY
from emu.datapath import Rounding
from emu.engine import small
from emu.engine.elementwise import OPERANDS
from emu.errors import ShapeError
from emu.testing import assert_bits_equal

FORMATS = ("fix8f4", "fix16f8", "ufix8f6", "fp16", "fp8_e4m3", "fix24f30", "fix40f10", "bf16")


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome | None]:
    """What each operation was answered: None if it needed all questions."""
    # modules, of which `emu.engine` has functions of the same names
    modules = (importlib.import_module(f"emu.engine.{name}") for name in ("quantize", "elementwise"))
    return answers_of(monkeypatch, "small_outcome", *modules)


def compare(operation: str, out: str, *operands: Any, **options: Any) -> None:
    """Compare an operation on values with the reference: result, register and flags."""
    results: list[tuple[Any, ...]] = []
    for backend in ("reference", "numba"):
        register, flags = emu.StatisticsRegister(), emu.Flags()
        unit = emu.Unit(out, register=register, flags=flags, backend=backend, **options)
        for _ in range(2):  # the first fixes the register's positions
            value = getattr(unit, operation)(*operands)
        results.append((value, register, flags))
    (expected, *counts), (actual, *other_counts) = results
    assert_bits_equal(actual.array, expected.array, emu.parse(out))
    assert counts == other_counts
    assert actual.shape == expected.shape


@needs_vectors
@pytest.mark.parametrize("operation", OPERANDS)
def test_every_operation_of_every_format_is_the_same(operation: str, outcomes: list[Outcome | None]):
    for seed, out in enumerate(FORMATS):
        for shift, source in enumerate(FORMATS):
            shape = ((1,), (3, 5), (16,), (255,), (2, 1, 400), (1024,), (5,), (33,))[(seed + shift) % 8]
            given = [emu.value(random_values(source, shape, seed + k), source) for k in range(OPERANDS[operation])]
            compare(operation, out, *given)
    assert any(outcome is not None for outcome in outcomes) == (operation in ARITY)


@pytest.mark.parametrize("positions", [{"lowest": -8}, {"bins": 20}, {}], ids=str)
def test_positions_that_are_open_are_fixed_by_the_first_result(positions: dict[str, int]):
    a, b = (emu.value(random_values("fix8f4", (3, 5), seed), "fix8f4") for seed in (1, 2))
    registers = [emu.StatisticsRegister(**positions) for _ in range(2)]
    for backend, register in zip(("reference", "numba"), registers, strict=True):
        unit = emu.Unit("fix8f4", register=register, backend=backend)
        for _ in range(2):
            unit.multiply(a, b)
    assert registers[0] == registers[1]
    assert registers[1].total == 30


@needs_vectors
@pytest.mark.parametrize("rounding", list(Rounding))
def test_every_mode_is_the_same(rounding: Rounding, outcomes: list[Outcome | None]):
    for out in ("fix8f4", "fp16"):
        x = reals(out, 40, 3, np.float32)
        options = {"random": emu.Philox(5, 6, 7)} if rounding.draws else {}
        for overflow in ("saturate", "wrap") if "fix" in out else ("ieee", "satfinite"):
            compare("quantize", out, x, rounding=rounding, overflow=overflow, **options)
            compare(
                "multiply", out, emu.value(x, "fp32"), emu.value(np.float32(0.75), "fp32"), rounding=rounding, **options
            )
    options = {"random": emu.Philox(5, 6, 7)} if rounding.draws else {}
    compare("quantize", "fix8f4", np.linspace(-3, 3, 40, dtype=np.float32), rounding=rounding, **options)
    assert (outcomes[-1] is not None) == (rounding.number < HAND_WRITTEN)


@needs_vectors
def test_one_number_stands_for_all_of_any_shape(outcomes: list[Outcome | None]):
    x = emu.value(random_values("fix16f8", (7, 9), 1), "fix16f8")
    for shape in ((), (1,), (1, 1)):
        for number in (0.5, -0.0, -3.25):
            other = emu.value(np.full(shape, number, np.float32), "fp32")
            compare("multiply", "fix16f8", x, other)
            compare("fma", "fix16f8", x, other, x)
    assert outcomes[-1] is not None
    before = len(outcomes)
    compare("add", "fix16f8", emu.value(np.float32(1.0), "fp32"), x)  # a number that comes first is broadcast
    compare("add", "fix16f8", x, emu.value(np.ones((1, 1, 1), np.float32), "fp32"))  # and one of more axes
    assert outcomes[before:]
    assert all(outcome is None for outcome in outcomes[before:])


@needs_vectors
def test_columns_and_rows_are_repeated_beside_a_result_of_their_axes(outcomes: list[Outcome | None]):
    x = emu.value(random_values("fix16f8", (3, 7, 9), 1), "fix16f8")
    for shape in ((9,), (1, 9), (7, 1), (3, 1, 1), (3, 1, 9), (1, 7, 9)):
        other = emu.value(random_values("fix8f4", shape, 2), "fix8f4")
        for operation, operands in (("subtract", (x, other)), ("fma", (x, x, other)), ("fma", (x, other, x))):
            outcomes.clear()
            compare(operation, "fix16f8", *operands)
            assert [outcome for outcome in outcomes if outcome is not None]
    outcomes.clear()
    compare("subtract", "fix16f8", emu.value(random_values("fix8f4", (7, 9), 2), "fix8f4"), x)  # the first is broadcast
    assert set(outcomes) == {None}


def test_shapes_that_do_not_fit_are_refused_by_the_operation():
    x = emu.value(random_values("fix16f8", (7, 9), 1), "fix16f8")
    for shape in ((7,), (9, 7), (2, 9), (7, 9, 2)):
        with pytest.raises(ShapeError, match="add"):
            emu.Unit("fix16f8").add(x, emu.value(np.ones(shape, np.float32), "fp32"))


@needs_vectors
def test_what_writes_is_chosen_again_for_another_stage_register_or_operand(outcomes: list[Outcome | None]):
    """Choices are kept by the identities of what decides them: none may serve another's call, or be asked for again."""
    small._WRITES.clear()
    x = emu.value(random_values("fix16f8", (7, 9), 1), "fix16f8")
    y = emu.value(np.asarray(x.array, np.float64), "fp64")
    for out in ("fix8f4", "fix12f4"):
        for bins in (8, 20):
            for other in (x, y):
                for _ in range(2):
                    register = emu.StatisticsRegister(-8, bins)
                    written = emu.Unit(out, register=register).add(x, other)
                    expected = emu.StatisticsRegister(-8, bins)
                    unit = emu.Unit(out, register=expected, backend="reference")
                    assert_bits_equal(written.array, unit.add(x, other).array, emu.parse(out))
                    assert register == expected
    assert len(small._WRITES) == 2 * 8  # both backends


@needs_vectors
def test_more_choices_than_are_kept_are_made_anew(outcomes: list[Outcome | None], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(small, "MOST_WRITES", 2)
    small._WRITES.clear()
    for frac_bits in range(5):
        compare("add", f"fix16f{frac_bits}", *[emu.value(random_values("fix16f8", (5,), 1), "fix16f8")] * 2)
        assert len(small._WRITES) <= 2


@needs_vectors
def test_special_numbers_take_the_usual_way_and_are_counted_once(outcomes: list[Outcome | None]):
    x = np.ones(600, np.float32)
    x[[5, 300, 599]] = np.inf, np.nan, -np.inf
    for out in ("fp16", "fix8f4"):
        compare("quantize", out, x)
        is_left = outcomes[-1] is None
        compare("add", out, emu.value(x, "fp32"), emu.value(x, "fp32"))
        assert is_left
        assert outcomes[-1] is None


@needs_vectors
def test_what_depends_on_the_numbers_is_asked_each_time(outcomes: list[Outcome | None]):
    """Sums that wrap, float64 without a format, operands whose subnormals are read as zeros, words of 64 bits."""
    x = random_values("fix16f8", (50,), 1)
    wide = emu.Unit("fix8f4", overflow="wrap")
    wide.add(emu.value(x, "fix16f8"), emu.value(x, "fix16f8"))
    emu.Unit("fix8f4").add(x.astype(np.float64) * 2.0**900, 1.0)
    small_floats = emu.value(random_values("bf16 daz", (50,), 1), "bf16 daz")
    emu.Unit("fp16").add(small_floats, small_floats)
    emu.Unit("fix8f4").add(emu.value(x, "fix60f8"), emu.value(x, "fix60f8"))
    assert outcomes == [None] * 4
    compare("add", "fix8f4", emu.value(x, "fix16f8"), emu.value(x, "fix16f8"), overflow="wrap")
    compare("add", "fp16", small_floats, small_floats)


@needs_vectors
def test_arrays_that_are_large_empty_apart_or_of_other_kinds_take_the_usual_way(outcomes: list[Outcome | None]):
    unit = emu.Unit("fix16f8")
    for size in (small.MOST_ELEMENTS - 1, small.MOST_ELEMENTS):
        unit.quantize(np.zeros(size, np.float32))
    assert [outcome is None for outcome in outcomes] == [False, True]
    outcomes.clear()
    unit.quantize(np.zeros(0, np.float32))
    unit.quantize(np.zeros((8, 8), np.float32).T[1:])
    unit.quantize(np.arange(5))
    assert outcomes == [None] * 3


def test_each_step_and_stream_has_random_bits_of_its_own():
    x = np.full(100, 0.03, np.float32)
    written = [
        emu.Unit("fix8f4", rounding="stochastic", random=emu.Philox(1, stream, step), backend="numba").quantize(x)
        for stream, step in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    texts = [value.array.tobytes() for value in written]
    assert len(set(texts)) == 3
    assert texts[0] == texts[3]
    recorded = emu.RecordedBits(np.arange(100) * 167_000)
    values = [
        emu.Unit("fix8f4", rounding="stochastic", random=recorded, backend=name).quantize(x)
        for name in ("reference", "numba")
    ]
    assert_bits_equal(values[0].array, values[1].array, emu.parse("fix8f4"))


def test_a_register_is_placed_by_the_first_operation_and_may_be_exchanged():
    unit = emu.Unit("fix8f4", register=emu.StatisticsRegister(), backend="numba")
    x = emu.value(np.float32([0.5, 1.0, 3.0]), "fix8f4")
    unit.add(x, x)
    unit.add(x, x)
    assert unit.register is not None
    assert unit.register.histogram() == {0: 2, 1: 2, 2: 2}
    moved = emu.StatisticsRegister(lowest=-2, bins=4)
    other = unit.replace(register=moved)
    other.add(x, x)
    assert moved.histogram() == {0: 1, 1: 1}
    assert moved.above == 1


@needs_vectors
def test_a_choice_serves_all_calls_with_flags_of_one_kind():
    small._WRITES.clear()
    x = emu.value(random_values("fp16", (7,), 1), "fp16")
    for _ in range(5):
        emu.add(x, x, out_format="fp16", flags=emu.Flags(tininess="before_rounding"), backend="numba")
    assert len(small._WRITES) == 1
