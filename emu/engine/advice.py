"""What `emu.explain` adds to a plan: about how long the product takes, and what would be faster.

A slow way is taken because of one part of the unit, as a rule. Each part is exchanged for the usual one in turn, and
the product is planned again: where another way computes it, that part is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from emu.backends.interface import encode_stage
from emu.backends.registry import load
from emu.datapath import Mac, OutputStage, Rounding
from emu.datapath.order import Sequential
from emu.engine.description import UnitDescription
from emu.engine.matrices import Matrices
from emu.engine.path import Path, Terms, path_of_terms, terms_of
from emu.engine.planner import Faster, Plan
from emu.errors import BackendUnavailable, FormatError
from emu.formats import Fixed, Float, Format

#: Thousand million multiply-adds a second on one thread below which a way is slow: plain loops reach about 1, vector
#: code 7 or more.
SLOW = 2.0
#: How many times as fast a change must make the product to be reported, and how many changes are reported.
LEAST_GAIN, MOST_SAID = 3.0, 3
#: Seconds of work for which a thread is woken (`emu.backends.numba.compiling`).
LEAST_PART = 150e-6
Described = tuple[UnitDescription, Terms]


def plan_of(unit: UnitDescription, matrices: Matrices) -> Plan:
    """Return the plan of a product of matrices, with advice."""
    by, terms, maxima = terms_of(unit, matrices)
    batches, rows, depth, columns = matrices.sizes
    return advised(by, terms, maxima, batches * rows * depth * columns)


def advised(unit: UnitDescription, terms: Terms, maxima: Callable[[], tuple[float, float]], multiply_adds: int) -> Plan:
    """Return the plan of a product, about how long it takes, and what would be faster if its way is slow.

    Args:
        unit: who computes.
        terms: what is summed up.
        maxima: measures the largest magnitudes of both operands.
        multiply_adds: of the whole product.
    """
    # every change below plans the product again: the operands are read once for all of them
    maxima = cache(maxima)
    path = path_of_terms(unit, terms, maxima)
    # thousand million multiply-adds a second on one thread (`Way.speed`): seconds below are those of one thread
    speed = path.choice.speed
    if speed is None:
        return path.plan
    seconds = multiply_adds / (speed * 1e9)
    faster = _faster(path, unit, terms, maxima) if speed < SLOW and multiply_adds else ()
    return replace(path.plan, seconds=seconds / _threads_of(unit, seconds), faster=faster)


def _threads_of(unit: UnitDescription, seconds: float) -> int:
    """Return how many threads are woken for work of so many seconds on one."""
    if unit.kernels.name != "numba":
        return 1
    # imported here: Numba takes long to load, and a unit of another backend does without it
    from emu.backends.numba.compiling import thread_count

    return max(min(thread_count(), int(seconds / LEAST_PART)), 1)


def _faster(
    path: Path, unit: UnitDescription, terms: Terms, maxima: Callable[[], tuple[float, float]]
) -> tuple[Faster, ...]:
    """Return the changes by which the product is much faster, the fastest first."""
    speed = path.choice.speed
    assert speed is not None
    gains: list[Faster] = []
    for change, make in CHANGES.items():
        try:
            changed = make(unit, terms)
            other = None if changed is None else path_of_terms(*changed, maxima).choice.speed
        except (FormatError, BackendUnavailable):  # no such unit
            continue
        if other is not None and other >= LEAST_GAIN * speed:
            gains.append(Faster(change, other / speed, keeps_bits=make in KEEP_BITS))
    return tuple(sorted(gains, key=lambda gain: -gain.times)[:MOST_SAID])


# ---- changes --------------------------------------------------------------------------------------------------------


def _other_backend(unit: UnitDescription, terms: Terms) -> Described | None:
    kernels = load("auto")
    return None if kernels is unit.kernels else (unit._replace(kernels=kernels, backend="auto"), terms)


def _with_stage(**parts: Any) -> Callable[[UnitDescription, Terms], Described | None]:
    def make(unit: UnitDescription, terms: Terms) -> Described | None:
        stage = replace(unit.stage, **parts)
        # None is no change: nothing needs to be planned again
        return None if stage == unit.stage else (unit._replace(stage=stage, code=encode_stage(stage)), terms)

    return make


def _counting_zeros(unit: UnitDescription, terms: Terms) -> Described | None:
    # flags put their `tininess` into the stage's integers (`description.counting`); encoding the stage anew leaves it
    # out
    code = encode_stage(unit.stage)
    return None if code == unit.code else (unit._replace(code=code), terms)


def _with_mac(**parts: Any) -> Callable[[UnitDescription, Terms], Described | None]:
    def make(unit: UnitDescription, terms: Terms) -> Described | None:
        known = {name: getattr(unit.mac, name) for name in ("product", "accumulator", "order", "rounding", "scales")}
        # rules of overflow differ between families of formats
        if not parts.keys() & {"product", "accumulator", "overflow"}:
            known["overflow"] = unit.mac.overflow
        mac = Mac(**{**known, **parts})
        return None if mac == unit.mac else (unit._replace(mac=mac), terms)

    return make


def _never_full(unit: UnitDescription, terms: Terms) -> Described | None:
    """Widen a fixed accumulator until no sum leaves it, its point where it is."""
    accumulator = unit.mac.accumulator
    if not isinstance(accumulator, Fixed):
        return None
    # the same unit in the last place, so that no sum rounds: only its range grows
    wider = Fixed(max(accumulator.width_bits, WIDE_BITS), accumulator.frac_bits, accumulator.signed)
    return _with_mac(accumulator=wider)(unit, terms)


def _with_operands(change: Callable[[Format], Format]) -> Callable[[UnitDescription, Terms], Described | None]:
    def make(unit: UnitDescription, terms: Terms) -> Described | None:
        # only formats change, not the numbers: what the product would cost if the operand were quantized into the
        # narrower one
        left, right, addend = terms.formats
        formats = change(left), change(right), addend
        return None if formats == terms.formats else (unit, terms._replace(formats=formats))

    return make


def _narrow(fmt: Format) -> Format:
    if not isinstance(fmt, Fixed) or fmt.width_bits <= NARROW_BITS:
        return fmt
    # dropped from below: the narrower format keeps the range and loses the last places
    return Fixed(NARROW_BITS, fmt.frac_bits - (fmt.width_bits - NARROW_BITS), fmt.signed)


def _keeping_subnormals(fmt: Format) -> Format:
    return replace(fmt, daz=False) if isinstance(fmt, Float) and fmt.daz else fmt


#: Bits of operands for which there are integer instructions, and of an accumulator that sums of their products fit.
NARROW_BITS, WIDE_BITS = 16, 48
#: What may be exchanged, in words that a user can type, and how.
CHANGES: dict[str, Callable[[UnitDescription, Terms], Described | None]] = {
    "backend='auto'": _other_backend,
    "rounding='nearest_even' of the result": _with_stage(rounding=Rounding.NEAREST_EVEN),
    "overflow by the default rule of the result's format": lambda unit, terms: _with_stage(
        overflow=OutputStage.of(unit.stage.format).overflow
    )(unit, terms),
    "flags that count no IEEE 754 underflow (no `tininess`)": _counting_zeros,
    "rounding='nearest_even' in the Mac": _with_mac(rounding=Rounding.NEAREST_EVEN),
    "overflow by the default rules in the Mac": _with_mac(overflow=None),
    "order='sequential' in the Mac": _with_mac(order=Sequential()),
    "accumulator='exact' in the Mac": _with_mac(accumulator="exact"),
    "accumulator='fp32' in the Mac": _with_mac(accumulator="fp32"),
    "product='exact' in the Mac": _with_mac(product="exact"),
    f"a Mac whose accumulator has {WIDE_BITS} bits": _never_full,
    f"operands of at most {NARROW_BITS} bits": _with_operands(_narrow),
    "operands that keep their subnormals (no daz)": _with_operands(_keeping_subnormals),
}
#: Changes that keep every bit, compared by identity: what `_with_stage` or `_with_mac` returns is never among them.
KEEP_BITS = (_other_backend, _counting_zeros)
