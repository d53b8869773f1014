"""One question to a unit: an operation with its operands, and everything that decides the answer's bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import FLAG_NAMES, Flags, Mac, OutputStage, StatisticsRegister
from emu.formats import Fixed, Format

Array = NDArray[Any]
#: Operations on one element each, with the number of operands.
ELEMENTWISE = {
    "add": 2,
    "subtract": 2,
    "multiply": 2,
    "divide": 2,
    "fma": 3,
    "sqrt": 1,
    "remainder": 2,
    "round_to_integral": 1,
}
OPERATIONS = ("quantize", *ELEMENTWISE, "matmul")


class NotOffered(Exception):  # noqa: N818 - says what is the case
    """The unit does not claim to do this."""


@dataclass(frozen=True, eq=False)
class Case:
    """One call of a unit.

    Attributes:
        operation: one of `OPERATIONS`.
        operands: float64 reals of `quantize`, carriers of one dimension of the elementwise operations, (M, K) and
            (K, N) of `matmul`, with an addend (M, N) if there are three.
        formats: of each operand; None: reals.
        stage: how the result is written.
        mac: the unit of `matmul`.
        rbits: recorded random bits, the shape of the result.
        positions: lowest exponent and number of positions of the register, if it is asked for.
    """

    operation: str
    operands: tuple[Array, ...]
    formats: tuple[Format | None, ...]
    stage: OutputStage
    mac: Mac | None = None
    rbits: Array | None = None
    positions: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        if self.operation != "matmul":
            return self.operands[0].shape
        return self.operands[0].shape[0], self.operands[1].shape[1]

    def __str__(self) -> str:
        inputs = " x ".join("reals" if f is None else str(f) for f in self.formats)
        unit = "" if self.mac is None else f", {self.mac}"
        return f"{inputs} to {self.stage.format}, {self.stage.rounding.value}, {self.stage.overflow.value}{unit}"

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes that may shrink: elements, or rows, columns and terms of a product."""
        return self.shape if self.operation != "matmul" else (*self.shape, self.operands[0].shape[1])

    def taking(self, axis: int, keep: list[int]) -> Case:
        """Return the case of some elements along one of `axes`."""
        rbits = self.rbits
        if self.operation != "matmul":
            operands = tuple(x[keep] for x in self.operands)
        else:
            a, b, *addend = self.operands
            # axes of a product: 0 rows (M), 1 columns (N), 2 terms (K); only a and b have terms
            a = a[keep] if axis == 0 else a[:, keep] if axis == 2 else a
            b = b[:, keep] if axis == 1 else b[keep] if axis == 2 else b
            operands = (a, b, *(np.take(c, keep, axis) if axis < 2 else c for c in addend))
        # random bits belong to results, of which fewer terms change none
        if rbits is not None and axis < 2:
            rbits = np.take(rbits, keep, axis)
        return replace(self, operands=operands, rbits=rbits)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of emu's own function for this call, without those that are None."""
        written = "fmt" if self.operation == "quantize" else "out_format"
        names = ("x_format",) if self.operation == "quantize" else ("a_format", "b_format", "c_format")
        if self.operation == "matmul":
            names = ("a_format", "b_format", "addend_format")
        # operations have fewer operands than there are names
        known: dict[str, Any] = dict(zip(names, self.formats, strict=False))
        if self.operation == "matmul" and len(self.operands) == 3:
            # a copy, as in `arguments`: a unit that writes into its operands must not change the case, which is asked
            # again
            known["addend"] = self.operands[2].copy()
        options: dict[str, Any] = {
            written: self.stage.format,
            "rounding": self.stage.rounding,
            "overflow": self.stage.overflow,
            **{name: value for name, value in known.items() if value is not None},
        }
        if self.mac is not None:
            options["mac"] = self.mac
        if self.rbits is not None:
            options |= {"rbits": self.rbits.copy(), "n_rbits": self.stage.n_rbits}
        return options

    def arguments(self) -> list[Array]:
        """Return copies of the operands that are passed by position."""
        return [x.copy() for x in self.operands[: 2 if self.operation == "matmul" else None]]

    def register(self) -> StatisticsRegister | None:
        """Return the empty register the case asks for."""
        return None if self.positions is None else StatisticsRegister(*self.positions)

    @property
    def accumulator(self) -> Fixed | None:
        """The fixed-point accumulator that `quantize` observes."""
        return self.formats[0] if self.operation == "quantize" and isinstance(self.formats[0], Fixed) else None


@dataclass
class Answer:
    """What a unit returned.

    Attributes:
        values: carrier values, or codes if unsigned.
        flags: flag -> count, of the flags that the unit counts.
        register: the register it filled, or None.
    """

    values: Array
    flags: dict[str, int]
    register: StatisticsRegister | None


def flags_of(flags: Flags) -> dict[str, int]:
    """Return the counts a unit gave; those it set to None are not offered."""
    counts = {name: getattr(flags, name) for name in FLAG_NAMES}
    return {name: int(count) for name, count in counts.items() if count is not None}
