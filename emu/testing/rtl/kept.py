"""What a bench in Python sends and keeps: words of inputs, and results as they are read from handles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from emu.errors import RtlError
from emu.testing.rtl.arrays import Operands
from emu.testing.rtl.bench import Bench, Input
from emu.testing.rtl.simulation import Answers


def code_of(handle: Any, remedy: str) -> int:
    """Return the bits of a handle.

    Args:
        handle: of a port or signal.
        remedy: what the message says to do about undriven bits.

    Raises:
        RtlError: some are x or z.
    """
    # a LogicArray: resolvable if no bit is x or z
    bits = handle.value
    if not bits.is_resolvable:
        raise RtlError(f"bits of {handle._name} must be driven, got {bits}; {remedy}")
    return int(bits)


class Kept:
    """Results as they are read."""

    def __init__(self, plan: Bench) -> None:
        self.plan, self.count = plan, 0
        self.results: list[list[int]] = [[] for _ in plan.outs]
        self.flags: list[int] = []
        self.cycles: list[int] = []
        self.unknown: dict[int, str] = {}

    def add(self, dut: Any, cycles: int) -> None:
        """Read the result."""
        values = {name: getattr(dut, name).value for name in self.plan.read()}
        # as `Answers` has it: 0 where bits are unknown, with the text beside it
        known = {name: int(bits) if bits.is_resolvable else 0 for name, bits in values.items()}
        for codes, name in zip(self.results, self.plan.outs, strict=True):
            codes.append(known[name])
        if self.plan.flags:
            wire_bits = enumerate(self.plan.flag_bits)
            self.flags.append(
                # from the bits of the ports to those of FLAG_BITS
                sum((known[wire_bit[0]] >> wire_bit[1] & 1) << bit for bit, wire_bit in wire_bits if wire_bit)
            )
        if not all(bits.is_resolvable for bits in values.values()):
            words = [f"0b{values[name]}" for name in self.plan.outs]
            flags = ",".join(f"0b{values[name]}" for name in self.plan.flags)
            # one word per result, then one for all flags: `fault_of` splits the line at spaces
            self.unknown[self.count] = " ".join([*words, *([flags] if flags else [])])
        self.cycles.append(cycles)
        self.count += 1

    def answers(self, stuck: tuple[int, int, str] | None, extra: tuple[int, int]) -> Answers:
        """Return what was read."""
        results = tuple(np.array(codes, np.uint64) for codes in self.results)
        flags = np.array(self.flags, np.uint64) if self.plan.flags else None
        return Answers(results, flags, self.unknown, np.array(self.cycles, np.int64), stuck, extra)


def words_of(plan: Bench, operands: Operands) -> list[tuple[str, list[int]]]:
    """Return the words of each input, those of one transfer after the other."""
    given = operands.columns(plan)
    rows: list[tuple[str, list[int]]] = []
    for entry in plan.inputs:
        # (n, depth) becomes one vector after the other, its terms in order
        codes: Iterable[int] = given[entry.file].reshape(-1).tolist()
        if entry.terms > 1:
            listed = list(codes)
            groups = (listed[i : i + entry.terms] for i in range(0, len(listed), entry.terms))
            codes = (
                # a Python integer, because a port of many terms is wider than 64 bits
                sum(code << i * entry.width_bits for i, code in enumerate(group if entry.first_is_low else group[::-1]))
                for group in groups
            )
        rows.append((entry.port, list(codes)))
    return rows


def terms_of(row: Input, word: int) -> list[int]:
    """Return the codes of the terms in the word of a port, the first one first."""
    codes = [word >> i * row.width_bits & ((1 << row.width_bits) - 1) for i in range(row.terms)]
    return codes if row.first_is_low else codes[::-1]
