"""A circuit as an and-inverter graph: every gate is an AND of two signals, each perhaps inverted.

A signal is a literal: twice the number of a variable, plus 1 if it is inverted. Variable 0 is the constant 0; inputs
follow, then gates, each after the gates that it reads. This is the numbering of AIGER files.

Source: Biere, "The AIGER And-Inverter Graph (AIG) Format", 2007.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
#: Patterns of the six inputs that differ within a word of 64 bits.
PATTERNS = np.array(
    [
        0xAAAAAAAAAAAAAAAA,
        0xCCCCCCCCCCCCCCCC,
        0xF0F0F0F0F0F0F0F0,
        0xFF00FF00FF00FF00,
        0xFFFF0000FFFF0000,
        0xFFFFFFFF00000000,
    ],
    np.uint64,
)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Circuit:
    """Gates without registers.

    Attributes:
        n_inputs: how many inputs; they are the variables 1 to `n_inputs`.
        gates: the two literals that each gate reads, int64, (gates, 2).
        outputs: literals by name, one for each bit, the lowest first.
    """

    n_inputs: int
    gates: NDArray[np.int64]
    outputs: Mapping[str, tuple[int, ...]]

    @property
    def n_gates(self) -> int:
        """How many gates."""
        return len(self.gates)

    def support(self, literals: Iterable[int]) -> set[int]:
        """Return the inputs that signals depend on, numbered from 0."""
        inputs, gates = set[int](), _pairs(self)
        # a stack instead of recursion: gates may lie deeper than Python recurses
        seen, waiting = set[int](), [literal >> 1 for literal in literals]
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable == 0:
                continue
            seen.add(variable)
            if variable <= self.n_inputs:
                inputs.add(variable - 1)
            else:
                waiting += [literal >> 1 for literal in gates[variable - 1 - self.n_inputs]]
        return inputs

    def evaluated(self, inputs: Words) -> dict[str, Words]:
        """Return outputs for inputs of 64 patterns a word.

        Args:
            inputs: (n_inputs, words).

        Returns:
            By name, (bits of the output, words).
        """
        # row k holds variable k for all patterns; row 0 is the constant 0
        values = np.zeros((1 + self.n_inputs + self.n_gates, inputs.shape[1]), np.uint64)
        values[1 : 1 + self.n_inputs] = inputs
        inverted = np.where(self.gates & 1, ALL_ONES, np.uint64(0))
        # gates come after what they read, so one pass in order computes all
        for k, ((left, right), (x, y)) in enumerate(
            zip((self.gates >> 1).tolist(), inverted, strict=True), start=1 + self.n_inputs
        ):
            np.bitwise_and(values[left] ^ x, values[right] ^ y, out=values[k])
        return {
            name: np.array([values[bit >> 1] ^ (ALL_ONES if bit & 1 else np.uint64(0)) for bit in bits])
            for name, bits in self.outputs.items()
        }


@dataclass
class Builder:
    """A circuit that grows: constants are folded, and no gate is there twice."""

    n_inputs: int
    _gates: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _known: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def both(self, x: int, y: int) -> int:
        """Return the AND of two literals."""
        if x > y:
            x, y = y, x
        # 0 is the literal of false, 1 of true; two literals that differ in the last bit are each other's inverse
        if x == 0 or x ^ y == 1:
            return 0
        if x == 1 or x == y:
            return y
        literal = self._known.get((x, y))
        if literal is None:
            literal = self._known[x, y] = 2 * (1 + self.n_inputs + len(self._gates))
            self._gates.append((x, y))
        return literal

    def copied(self, circuit: Circuit, inputs: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Add the gates of a circuit, whose inputs are these literals; return its outputs."""
        # literals[v] is this circuit's literal for variable v of the other; an inverted bit carries over by XOR
        literals = [0, *inputs]
        for left, right in _pairs(circuit):
            literals.append(self.both(literals[left >> 1] ^ (left & 1), literals[right >> 1] ^ (right & 1)))
        return {name: tuple(literals[bit >> 1] ^ (bit & 1) for bit in bits) for name, bits in circuit.outputs.items()}

    def built(self, outputs: Mapping[str, Sequence[int]]) -> Circuit:
        """Return the circuit with these outputs, without gates that none of them needs."""
        whole = Circuit(self.n_inputs, _as_gates(self._gates), {name: tuple(bits) for name, bits in outputs.items()})
        return _pruned(whole)


def with_prefix(circuit: Circuit, prefix: int, bits: int) -> Circuit:
    """Return a circuit whose last `bits` inputs are constants: the bits of `prefix`, the last input its highest."""
    rest = circuit.n_inputs - bits
    builder = Builder(rest)
    # the constants are the literals 0 and 1, which `Builder.both` folds
    inputs = [2 * (1 + i) for i in range(rest)] + [prefix >> i & 1 for i in range(bits)]
    return builder.built(builder.copied(circuit, inputs))


def read_aiger(path: Path) -> tuple[list[int], list[int], Circuit]:
    """Return the file's next values of latches, its outputs, and its gates; its inputs, then latches, are inputs."""
    lines = path.read_text(encoding="utf-8").splitlines()
    # the header "aag M I L O A": the highest variable, then how many inputs, latches, outputs and gates
    _, _, inputs, latches, outputs, gates = (int(word) if word.isdigit() else 0 for word in lines[0].split()[:6])
    at = 1 + inputs
    # a latch's line: its own literal, the literal of its next value
    following = [int(line.split()[1]) for line in lines[at : at + latches]]
    at += latches
    out = [int(line) for line in lines[at : at + outputs]]
    at += outputs
    numbers = [[int(word) for word in line.split()] for line in lines[at : at + gates]]
    return following, out, Circuit(inputs + latches, _as_gates([(row[1], row[2]) for row in numbers]), {})


def aiger_of(circuit: Circuit, output: int) -> str:
    """Return a circuit with one output as the text of an AIGER file."""
    n, gates = circuit.n_inputs, _pairs(circuit)
    lines = [f"aag {n + len(gates)} {n} 0 1 {len(gates)}", *(str(2 * (1 + i)) for i in range(n)), str(output)]
    # the larger operand first, as AIGER's binary form demands it
    lines += [f"{2 * (1 + n + k)} {max(x, y)} {min(x, y)}" for k, (x, y) in enumerate(gates)]
    return "\n".join([*lines, *(f"i{i} x{i}" for i in range(n)), "o0 bad", ""])


def words_of(codes: NDArray[np.uint64], width: int) -> Words:
    """Return codes bit by bit, 64 of them a word: (width, words); the last word is filled up with zeros."""
    bits = (codes[None, :] >> np.arange(width, dtype=np.uint64)[:, None]) & np.uint64(1)
    # to whole words, whose bytes `view` joins with the lowest first (little-endian machines)
    missing = -codes.size % 64
    packed = np.packbits(np.pad(bits.astype(np.uint8), ((0, 0), (0, missing))), axis=1, bitorder="little")
    return packed.view(np.uint64)


def codes_of(words: Words, count: int) -> NDArray[np.uint64]:
    """Return the codes that `words_of` took apart."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[:, :count]
    weights = np.left_shift(np.uint64(1), np.arange(len(words), dtype=np.uint64))
    return (bits.astype(np.uint64) * weights[:, None]).sum(axis=0, dtype=np.uint64)


def _pairs(circuit: Circuit) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = circuit.gates.tolist()
    return pairs


def _as_gates(gates: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(gates, np.int64).reshape(len(gates), 2)


def _pruned(circuit: Circuit) -> Circuit:
    first, gates = 1 + circuit.n_inputs, _pairs(circuit)
    needed = [False] * len(gates)
    for bit in (bit for bits in circuit.outputs.values() for bit in bits):
        if bit >> 1 >= first:
            needed[(bit >> 1) - first] = True
    # backwards, so that all readers of a gate are seen before the gate itself
    for k in range(len(gates) - 1, -1, -1):
        if needed[k]:
            for literal in gates[k]:
                if literal >> 1 >= first:
                    needed[(literal >> 1) - first] = True
    number, kept = list(range(first)), list[tuple[int, int]]()
    for k, (x, y) in enumerate(gates):
        # a gate that is not needed gets the number of the next one kept, but nothing that is kept reads it
        number.append(first + len(kept))
        if needed[k]:
            kept.append((2 * number[x >> 1] | x & 1, 2 * number[y >> 1] | y & 1))
    outputs = {name: tuple(2 * number[bit >> 1] | bit & 1 for bit in bits) for name, bits in circuit.outputs.items()}
    return Circuit(circuit.n_inputs, _as_gates(kept), outputs)
