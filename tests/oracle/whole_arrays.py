"""The rational model over whole arrays of inputs, each distinct case computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rational_model import (
    FLAGS,
    INFINITE,
    NAN,
    FixedModel,
    Model,
    Place,
    Real,
    floor_log2,
    leading_exponent,
    settle,
    to_bits,
)

import emu

RANDOM_BITS = 6


@dataclass(frozen=True)
class Expected:
    codes: NDArray[np.uint64]
    flags: dict[str, NDArray[np.bool_]]


def emu_format(model: Model) -> emu.Fixed | emu.Float:
    """The format of emu that a model describes."""
    given = {f.name: getattr(model, f.name) for f in fields(model)}
    return emu.Fixed(*given.values()) if isinstance(model, FixedModel) else emu.Float(**given)


@lru_cache(maxsize=4)
def all_inputs(source: str) -> NDArray[np.float64]:
    """The values of all 65536 codes of fp16, bf16 or fix16, read by NumPy alone."""
    codes = np.arange(2**16, dtype=np.uint32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if source == "fp16":
            return codes.astype(np.uint16).view(np.float16).astype(np.float64)
        if source == "bf16":
            return (codes << 16).view(np.float32).astype(np.float64)
    frac_bits = int(source.removeprefix("fix16f"))
    return np.ldexp(codes.astype(np.uint16).view(np.int16).astype(np.float64), -frac_bits)


@lru_cache(maxsize=4)
def reals(source: str) -> list[Real]:
    return [Real.of(value) for value in all_inputs(source).tolist()]


def random_bits(n: int) -> NDArray[np.uint32]:
    """u below 2**RANDOM_BITS, each value equally often, in no order that follows the inputs'."""
    return ((np.arange(n, dtype=np.uint64) * 2654435761 >> 11) % 2**RANDOM_BITS).astype(np.uint32)


@lru_cache(maxsize=2)
def places(source: str, model: Model) -> list[Place | None]:
    """Where every finite input lies on the model's grid."""
    return [None if isinstance(real.magnitude, str) else model.place(real) for real in reals(source)]


@dataclass(frozen=True)
class Cases:
    """The ways in which the inputs lie on a model's grid: one example of each, and which of them every input is."""

    examples: list[tuple[Real, Place | None, int]]
    which: NDArray[np.int64]


@lru_cache(maxsize=4)
def cases(source: str, model: Model) -> Cases:
    """Sort the inputs: what is finite by sign, neighbours and the nearer one."""
    return _sorted(
        source, model, lambda real, place: (*place[:3], place.nearer, real.magnitude != 0) if place else real
    )


@lru_cache(maxsize=2)
def cases_of_neighbours(source: str, model: Model) -> Cases:
    """Sort the inputs: what is finite by sign and neighbours."""
    return _sorted(source, model, lambda real, place: (*place[:3], real.magnitude != 0) if place else real)


@lru_cache(maxsize=2)
def parts(source: str, model: Model) -> Cases:
    """Sort the inputs by the part that is dropped."""
    return _sorted(source, model, lambda real, place: place.part if place else None)


def _sorted(source: str, model: Model, kind_of: Callable[[Real, Place | None], Any]) -> Cases:
    numbers: dict[Any, int] = {}
    examples: list[tuple[Real, Place | None, int]] = []
    which: list[int] = []
    for real, place, u in zip(reals(source), places(source, model), random_bits(2**16).tolist(), strict=True):
        kind = kind_of(real, place)
        if kind not in numbers:
            numbers[kind] = len(examples)
            examples.append((real, place, u))
        which.append(numbers[kind])
    return Cases(examples, np.array(which))


def cases_of_mode(source: str, model: Model, mode: str) -> Cases:
    """Sort the inputs for a mode: by what decides it alone. For a random one, that is whether the random bits carry."""
    if not mode.startswith("stochastic"):
        return cases(source, model)
    dropped, neighbours = parts(source, model), cases_of_neighbours(source, model)
    added = [0 if place is None else to_bits(place.part * 2**RANDOM_BITS, mode) for _, place, _ in dropped.examples]
    drawn = random_bits(2**16)
    carries = np.array(added)[dropped.which] + drawn >= 2**RANDOM_BITS
    _, first, which = np.unique(2 * neighbours.which + carries, return_index=True, return_inverse=True)
    every = [(reals(source)[i], places(source, model)[i], int(drawn[i])) for i in first.tolist()]
    return Cases(every, which)


@lru_cache(maxsize=100)
def expected(source: str, model: Model, mode: str, rule: str) -> Expected:
    """What every input is written as, and the flags it raises."""
    known = cases_of_mode(source, model, mode)
    written = []
    for real, place, u in known.examples:
        number, exact = (None, True) if place is None else settle(model, place, mode, u, RANDOM_BITS)
        written.append(model.finish(real, number, exact, rule, mode))
    codes = np.array([w.code for w in written], dtype=np.uint64)[known.which]
    return Expected(codes, {name: np.array([name in w.flags for w in written])[known.which] for name in FLAGS})


@lru_cache(maxsize=4)
def leading_exponents(source: str) -> list[tuple[int, int] | None]:
    """The leading bit's exponent (docs/concepts/registers.md) and floor(log2|x|) of every nonzero finite input."""
    return [
        None if real.magnitude in (0, INFINITE, NAN) else (leading_exponent(real.signed), floor_log2(abs(real.signed)))
        for real in reals(source)
    ]


def expected_register(source: str, lowest: int, bins: int) -> dict[str, Any]:
    """The counts of docs/concepts/registers.md for results that are no fixed accumulator's."""
    sides = {"positive": Counter[int](), "negative": Counter[int]()}
    others = Counter(none=0, below=0, above=0, nonfinite=0)
    for real, leading in zip(reals(source), leading_exponents(source), strict=True):
        if leading is None:
            others["none" if real.magnitude == 0 else "nonfinite"] += 1
        elif lowest <= leading[0] < lowest + bins:
            sides["negative" if real.negative else "positive"][leading[0]] += 1
        else:
            others["below" if leading[0] < lowest else "above"] += 1
    largest = max(leading[1] for leading in leading_exponents(source) if leading is not None)
    return {**sides, **others, "total": 2**16, "max_exponent": largest}
