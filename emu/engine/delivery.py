"""The end of every operation: counts go to register and flags, values to the caller or into `out`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import INVALID_FLAG, Outcome, RegisterCode, Write, encode_register
from emu.datapath.pending import Lowered, lowered_exponent
from emu.engine.description import UnitDescription
from emu.engine.lost_nan import warn_of_lost_nan
from emu.errors import ShapeError
from emu.formats import Fixed, Format

Array = NDArray[Any]


def encode_write(
    unit: UnitDescription,
    shape: tuple[int, ...],
    exact: Fixed | None,
    lowered: int = 0,
    numbered: tuple[int, ...] | None = None,
) -> Write:
    """Return how a kernel writes a unit's exact results; positions of the register that are open are fixed now.

    Args:
        unit: whose stage, random bits and register.
        shape: of the results.
        exact: the fixed-point register that holds every exact result; None if results are floats.
        lowered: bits by which results lie below the sums that the kernel observes: floor(log2 divisor).
        numbered: shape by which random bits are numbered; None is `shape`.
    """
    return Write(unit.code, unit.drawn(shape, numbered), place_register(unit, exact, lowered))


def place_register(unit: UnitDescription, exact: Fixed | None, lowered: int = 0) -> RegisterCode | None:
    """Fix the open positions of a unit's register, and return its positions for a kernel; None without a register.

    Args:
        unit: whose register.
        exact: the fixed-point register that holds every exact result; None if results are floats.
        lowered: bits by which results lie below the sums that the kernel observes: floor(log2 divisor).
    """
    register = unit.register
    if register is None:
        return None
    if register.lowest is None or register.bins is None:
        # a register of its own choice begins at the last place of the quotients: the point of the sums, moved by
        # `lowered`
        results = exact and Fixed(exact.width_bits, exact.frac_bits + lowered, signed=exact.signed)
        register.place(results, None if results is None else results.width_bits, unit.stage.format)
    # the kernel observes sums before their division: positions move up by `lowered`, counts are those of the quotients
    code = encode_register(register, None if exact is None else -exact.frac_bits)
    return code._replace(lowest=code.lowest + lowered) if lowered else code


def deliver(unit: UnitDescription, outcome: Outcome, lowered: int = 0) -> Array:
    """Add a kernel's counts to the unit's register and flags, now or when they are read; return what it wrote.

    Warns if NaN became 0 and no flags count it; not if the counts are still on a device.

    Args:
        unit: whose register and flags.
        outcome: the kernel's.
        lowered: as in `place_register`: the register is given exponents that much lower than those observed.
    """
    register, flags = unit.register, unit.flags
    if outcome.pending is not None:  # to read counts now would wait for the device
        if register is not None:
            register.add_pending(Lowered(outcome.pending, lowered) if lowered else outcome.pending)
        if flags is not None:
            flags.add_pending(outcome.pending)
        return outcome.values
    if register is not None:
        # positions were moved for the kernel, so only the largest exponent is still to be lowered
        register.add_counts(outcome.register, lowered_exponent(outcome.max_exponent, lowered))
    if flags is not None:
        flags.add_counts(outcome.flags)
    # a format without NaN writes 0 in its place, and counts `invalid`: without flags nobody would learn of it
    elif not unit.code.format.has_nan and outcome.flags[INVALID_FLAG]:
        warn_of_lost_nan(unit.stage.format)
    return outcome.values


def written_to(out: Array | None, values: Array) -> Array:
    """Return `values`, or `out` after they were written to it.

    Raises:
        ShapeError: another shape or dtype.
    """
    if out is None:
        return values
    require_receiver(out, values.shape, values.dtype)
    # a kernel that was given `out` has written into it already
    if out is not values:
        out[...] = values
    return out


def require_out(out: Array | None, shape: tuple[int, ...], fmt: Format) -> Array | None:
    """Return `out` if it can receive the result.

    Raises:
        ShapeError: another shape or dtype than the result's.
    """
    if out is None:
        return None
    require_receiver(out, shape, fmt.carrier)
    return out


def require_receiver(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ShapeError unless `out` is an array of a shape and dtype that may be written to."""
    require_array(out)
    if out.shape != shape or out.dtype != dtype:
        raise ShapeError(
            f"`out` must be a {dtype} array of shape {shape}, got {out.dtype} of shape {out.shape}; make it with "
            f"np.empty({shape}, {dtype.name!r})"
        )
    require_writable(out)


def require_array(out: object, name: str = "out") -> None:
    """Raise ShapeError unless `out` is None or an array, all of whose elements are there to be written.

    Args:
        out: what is written to.
        name: what the caller calls it.
    """
    if out is None:
        return
    # a list has no memory of its own that a kernel could write to
    if not hasattr(out, "dtype"):
        raise ShapeError(f"`{name}` must be an array, got {type(out).__name__}; results are written to its memory")
    # a kernel would write past the mask, and masked elements would change
    if isinstance(out, np.ma.MaskedArray):
        raise ShapeError(f"`{name}` must be an array without a mask, got a masked array; give its `data`")


def require_writable(out: Array, name: str = "out") -> None:
    """Raise ShapeError unless compiled code may write to `out`, which the caller calls `name`."""
    # CuPy's arrays have no such flag: a GPU's memory is always writable.
    if not getattr(out.flags, "writeable", True) or not out.dtype.isnative:
        flaw = "is read-only" if out.dtype.isnative else f"holds {out.dtype.str} in foreign byte order"
        raise ShapeError(
            f"`{name}` must be writable in this machine's byte order, got an array that {flaw}; copy it first"
        )
