"""Hostile calls of the Python API end in exact results or in sentences; and the fuzz notices where they do not."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import emu
from fuzz.test_fuzz import ENVIRONMENT, ROOT, fuzzed, seed_of_the_sources

from . import model
from .calls import Case
from .draw import Text
from .messages import flaw
from .running import drawn, judged
from .things import ArrayLike, NoNumbers, Real, contents, endless

from rational_model import FloatModel, write  # isort: skip


@pytest.mark.slow
def test_two_thousand_hostile_calls_lose_nothing_and_are_answered_in_sentences():
    done = fuzzed("--cases", "2000", "--seed", seed_of_the_sources(), tool="tests.fuzz.api")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_some_hostile_calls_lose_nothing_and_are_answered_in_sentences():
    done = fuzzed("--cases", "100", "--seed", "hostile", tool="tests.fuzz.api")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_same_seed_draws_the_same_line_and_most_lines_differ():
    lines = [[drawn(f"s.{i}").line for i in range(300)] for _ in range(2)]
    assert lines[0] == lines[1]
    assert len(set(lines[0])) > 280


# ---- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (4, 3), (4, 3, None, False, "top"), (5, 2, 16, True, "negative_zero"), (2, 3, None, False, "none"), (3, 0),
        (0, 4, None, False, "none"), (4, 2, 3, True, "ieee", True, True),
        (8, 0, 127, False, "top", False, False, False, False),
        (4, 3, 20, True, "ieee", False, False, False),
    ],
)  # fmt: skip
def test_the_model_of_wide_floats_is_that_of_listed_ones(parts: tuple[Any, ...]):
    wide, listed = model.WideFloat(*parts), FloatModel(*parts)
    assert (wide.last, wide.infinity_code) == (listed.last, listed.infinity_code)
    draw = random.Random(str(parts))
    for mode in ("nearest_even", "floor", "ceil", "to_odd", "nearest_away", "toward_zero"):
        for _ in range(60):
            x = Fraction(draw.randint(1, 999), draw.randint(1, 64)) * Fraction(2) ** draw.randint(-20, 12)
            for real in (
                Real(False, x),
                Real(True, x),
                Real(draw.random() < 0.5, listed.value_at(draw.randint(0, listed.last))),
            ):
                for rule in ("ieee", "satfinite"):
                    assert write(wide, real, mode, rule) == write(listed, real, mode, rule)


def test_the_models_values_are_those_of_float64():
    double = model.WideFloat(11, 52)
    for x in (0.1, -1e308, 5e-324, 2.0**-1022, float(np.nextafter(1.0, 2.0)), 1.7976931348623157e308):
        right, flags = model.written(double, Real(x < 0, abs(Fraction(x))), "nearest_even", "ieee")
        assert right == Real(x < 0, abs(Fraction(x)))
        assert not flags.flags & {"inexact", "overflow", "underflow"}
    for x, y in ((Fraction(1, 3), 1 / 3), (Fraction(2, 7) * Fraction(2) ** -1060, 2 / 7 * 2.0**-1060)):
        assert model.written(double, Real(False, x), "nearest_even", "ieee")[0].magnitude == Fraction(y)


@pytest.mark.parametrize(
    ("x", "right"),
    [
        (np.longdouble(1) + np.longdouble(2) ** -60, [Fraction(2**60 + 1, 2**60)]),
        ([2**70 + 1, Fraction(1, 3)], [Fraction(2**70 + 1), Fraction(1, 3)]),
        (np.array([0.5, -3], ml_dtypes.bfloat16), [Fraction(1, 2), Fraction(-3)]),
        (np.array([1, -2], ml_dtypes.int4), [Fraction(1), Fraction(-2)]),
        (np.ma.array([1.0, 2.0]), [Fraction(1), Fraction(2)]),
        (ArrayLike([[1], [0]]), [Fraction(1), Fraction(0)]),
        (emu.value([0.5], "fix60f4"), [Fraction(1, 2)]),
        (True, [Fraction(1)]),
        (np.array([-1.5], ">f2"), [Fraction(-3, 2)]),
    ],
)
def test_what_objects_hold_is_read_exactly(x: Any, right: list[Fraction]):
    assert [real.signed for real in contents(x).reals] == right


@pytest.mark.parametrize(
    "x",
    ["1.0", None, [None], 1j, np.array([1j]), [[1], [1, 2]], np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.masked, {},
     np.array(["2020"], "M8[D]"), object(), endless(), (i for i in range(2)), b"1", np.zeros(2, [("a", "f4")])],
)  # fmt: skip
def test_what_holds_no_numbers_is_known(x: Any):
    with pytest.raises((NoNumbers, RecursionError)):
        contents(x)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("`n` must be an integer, got 2.5; write a whole number", ""),
        ("`n` must be an integer, got 2.5", "no remedy"),
        ("`n` must be an integer; write a whole number", "no value"),
        ("got 2.5 instead of something whole; write a whole number", "no thing"),
        ("'float' object is not iterable, and more than that", "raw text 'object is not'"),
        ("ufunc 'add' did not contain a loop", "raw text 'ufunc'"),
        ("bad value", "length below 25..900"),
        (f"`n` must be an integer, got {'x' * 1000}; write a whole number", "length above 25..900"),
    ],
)
def test_a_message_that_lacks_something_is_known(text: str, lacks: str):
    assert flaw(text) == lacks


# ---- what the fuzz finds ---------------------------------------------------------------------------------------------


def case_of(function: str, judge: str = "", bad: str = "", **arguments: str) -> Case:
    return Case(function, {name: Text(text, name == bad) for name, text in arguments.items()}, judge)


def kinds(case: Case) -> list[str]:
    return [fault.kind for fault in judged(case)[1]]


def test_a_sound_call_has_no_fault():
    sum_of = {
        "a": "[0.5]",
        "b": "2",
        "out_format": "'fix8f4'",
        "flags": "emu.Flags()",
        "register": "emu.StatisticsRegister()",
    }
    assert judged(case_of("emu.add", "elementwise", **sum_of)) == ("taken", [])
    assert judged(case_of("emu.add", "elementwise", "a", **{**sum_of, "a": "1j"})) == ("refused", [])


def test_unchecked_calls_may_differ_only_if_an_operand_is_no_value_of_its_format(monkeypatch: pytest.MonkeyPatch):
    add = emu.add
    monkeypatch.setattr(emu, "add", lambda a, b, **more: add(a, b, **more) * (1 + (more["backend"] == "numba")))
    given = {"b": "2", "a_format": "'fix8f4'", "out_format": "'fix16f8'", "check": "False"}
    assert kinds(case_of("emu.add", "elementwise", a="0.01", **given)) == []
    assert kinds(case_of("emu.add", "elementwise", a="0.5", **given)) == ["backends differ: values (emu.add)"]


def test_faults_of_every_kind_are_noticed(monkeypatch: pytest.MonkeyPatch):
    add, given = emu.add, {"a": "np.array([0.5])", "b": "2", "out_format": "'fp16'"}

    def found(faulty: Any, **more: str) -> list[str]:
        monkeypatch.setattr(emu, "add", faulty)
        return kinds(case_of("emu.add", "elementwise", **{**given, **more}))

    assert found(lambda a, b, **more: add(a, b, **more) * 2)[0].startswith("emu.add is wrong")
    assert "backends differ: values (emu.add)" in found(
        lambda a, b, **more: add(a, b, **more) * (1 + (more["backend"] == "numba"))
    )
    assert "emu.add shares memory with its argument" in found(lambda a, b, **more: a)
    assert "emu.add changes its argument `a`" in found(lambda a, b, **more: add(a.__iadd__(1), b, **more))
    assert found(lambda a, b, **more: 1 / 0)[0].startswith("ZeroDivisionError at outside emu")
    assert found(lambda a, b, **more: np.array([1.0]).astype(complex).astype(float) + 1.5, a="[1j]")[0].startswith(
        "emu.add takes what is none: `a` is no array of real numbers"
    )

    def refusing(*_: Any, **__: Any) -> None:
        raise emu.FormatError("`a` must be something else, got this; give another")

    assert found(refusing)[0].startswith("refused though sound")


def test_a_child_that_is_killed_or_endless_is_named_and_the_others_go_on():
    command = [sys.executable, "-c", CHILDREN]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == [
        "1.0 taken ''", "1.1 killed 'killed by SIGSEGV'", "1.2 taken ''", "1.3 killed 'endless: 1 s'",
        "1.4 killed 'exit code 70'", "1.5 taken 'odd'",
    ], done.stderr  # fmt: skip


#: Run by a process of its own: a process that forks should have one thread.
CHILDREN = f"""
import os, time
from tests.fuzz.api.batches import in_children
def judge(seed):
    if seed == "1.1": os.kill(os.getpid(), {int(signal.SIGSEGV)})
    if seed == "1.3": time.sleep(60)
    if seed == "1.4": raise ValueError("x")
    return "taken", [("odd", "")] if seed == "1.5" else []
for report in in_children([f"1.{{i}}" for i in range(6)], judge, 1.0):
    print(report.seed, report.ending, repr(report.faults[0][0].split(" (")[0] if report.faults else ""))
"""
