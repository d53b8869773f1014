"""A unit against the definition, for all inputs.

Up to 2**20 inputs, the unit's gates are evaluated for each of them and compared with the definition itself. Beyond,
unit and reference (`reference/`) become one circuit with the output `bad`, and `search.py` looks for the smallest input
for which it is 1. Before that, the reference is compared with the definition on golden vectors; after it, the
definition has the last word on the input that was found.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.formats import Float
from emu.prove.circuit import ALL_ONES, Builder, Circuit, Words, codes_of, words_of
from emu.prove.elaborate import Netlist, Sources, netlist_of
from emu.prove.exhaust import Deadline, OutOfTime
from emu.prove.free import without_needless
from emu.prove.outcome import Answer, Outcome, inputs_in_words
from emu.prove.reference import MODULE, OFFERED, Judging, judge_of
from emu.prove.search import Search
from emu.prove.unit import RANDOM, Unit, Unrolled, other_inputs, right_latency, unrolled_of
from emu.prove.wrong import Given, Others, Wrong, differing, explained
from emu.testing.vectors import Description, Vectors, make_vectors
from emu.testing.vectors.conventions import with_canonical_nans
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import NAMES, Codes

#: Bits of inputs up to which each is compared with the definition itself.
MOST_DEFINED = 20
#: Golden vectors that are tried before, and seconds that a proof may take unless it is told.
TRIED, LIMIT_S = 1000, 300.0
#: Eleven days: the solver is waited for in milliseconds of 31 bits.
LONGEST_S = 1_000_000
#: The part of that time in which it must be decided whether outputs depend on more than the operands.
FREE_SHARE = 4
#: Operations whose operands are not one code each.
_NOT_OFFERED = ("matmul",)


@dataclass(frozen=True)
class Proof:
    """A unit, what it should compute, and how it is compared.

    Attributes:
        description: the operation; `count` and `seed` are of the vectors that are tried first.
        unit: the unit.
        any_nan: whether one NaN is as good as another.
        limit_s: seconds after which it ends as not proved.
    """

    description: Description
    unit: Unit
    any_nan: bool = False
    limit_s: float = LIMIT_S


def prove(proof: Proof) -> Outcome:
    """Return whether a unit gives the definition's result and flags for every input.

    Raises:
        ConfigError: sources that Yosys does not read, ports or widths that do not fit, no latency of a clocked unit, an
            operation without reference whose inputs are too many, or no time.
        BackendUnavailable: there is no Yosys.
    """
    began = time.monotonic()
    d = proof.description
    d.require_single_results(
        "a proof", "check the quantiser with emu vectors, and prove the conversion of its elements"
    )
    if d.operation in _NOT_OFFERED:
        raise ConfigError(
            f"`operation` must have one code per operand, got {d.operation}; prove its multiply and its add, or check "
            "it with emu vectors"
        )
    if d.requantise is not None:
        raise ConfigError(
            f"`requantise` must be left out of proofs, got {d.requantise.kind}; check the requantiser with emu vectors"
        )
    # NaN fails the comparison, too
    if not 0 < proof.limit_s <= LONGEST_S:
        raise ConfigError(
            f"`limit` must be a positive number of seconds, at most {LONGEST_S:,}, got {proof.limit_s:g}; give "
            f"{'less' if proof.limit_s > LONGEST_S else 'more'}"
        )
    netlist = netlist_of(proof.unit.sources)
    # the time in which the sources are read does not count
    deadline = Deadline.after(proof.limit_s)
    unrolled = without_needless(unrolled_of(proof.unit, netlist, d), proof.limit_s / FREE_SHARE)
    outcome = _Prover(proof, netlist, unrolled, deadline).run()
    return replace(outcome, seconds=time.monotonic() - began)


class _Prover:
    """The steps of one proof."""

    def __init__(self, proof: Proof, netlist: Netlist, unrolled: Unrolled, deadline: Deadline) -> None:
        self._proof, self._netlist, self._unrolled, self._deadline = proof, netlist, unrolled, deadline
        self._description = proof.description.model_copy(update={"count": TRIED})
        self._all = inputs_in_words(unrolled.n_bits)

    def run(self) -> Outcome:
        d, unrolled = self._description, self._unrolled
        # the definition takes operands alone; values of free inputs need the miter
        by_definition = unrolled.n_bits <= MOST_DEFINED and not unrolled.free
        if not by_definition and d.operation not in OFFERED:
            raise ConfigError(
                f"`operation` must be one of {', '.join(OFFERED)} for {unrolled.n_bits} bits of operands, got "
                f"{d.operation}: others are compared input by input, up to {MOST_DEFINED} bits"
                f"{' and without inputs of other cycles' if unrolled.free else ''}; choose narrower formats"
            )
        vectors = make_vectors(d)
        if by_definition:
            return self._of_each(vectors)
        miter = self._miter(vectors)
        tried = np.flatnonzero(self._differing(vectors, self._given(vectors)))
        # a golden vector that is wrong bounds the search from above
        known = min((self._number_of(vectors, int(index)) for index in tried), default=None)
        search = Search(self._deadline, self._leading(), known)
        try:
            wrong = search.first(miter)
        except OutOfTime as end:
            return self._undecided(search, end, vectors)
        if wrong is None:
            return self._proved(search.how())
        return self._differs(wrong, vectors, search.how(), is_smallest=True)

    def _of_each(self, vectors: Vectors) -> Outcome:
        """Compare every input with the definition."""
        whole = self._all_vectors()
        wrong = self._differing(whole, self._given(whole))
        if not wrong.any():
            return self._proved("each compared with the definition")
        return self._differs(
            int(np.flatnonzero(wrong)[0]), vectors, "each compared with the definition", is_smallest=True,
            count=int(wrong.sum()),
        )  # fmt: skip

    def _vectors_at(self, number: int) -> Vectors:
        """Return an input by its number, with the definition's result."""
        columns = dict[str, Codes]()
        # the last operand has the lowest bits of the number
        for name, width in reversed([*self._unrolled.bits.items()]):
            columns = {name: np.array([number & ((1 << width) - 1)], np.uint64)} | columns
            number >>= width
        return self._answered(columns)

    def _all_vectors(self) -> Vectors:
        """Return all inputs, up to 2**20, with the definition's results."""
        numbers, columns = np.arange(1 << self._unrolled.n_bits, dtype=np.uint64), dict[str, Codes]()
        shift = self._unrolled.n_bits
        for name, width in self._unrolled.bits.items():
            shift -= width
            columns[name] = (numbers >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        return self._answered(columns)

    def _answered(self, columns: dict[str, Codes]) -> Vectors:
        rbits = columns.pop(RANDOM, None)
        operands = tuple(columns.values())
        d = self._description.model_copy(update={"count": int(operands[0].size)})
        return answered(d, operands, rbits)

    def _columns(self, vectors: Vectors) -> dict[str, Codes]:
        columns: dict[str, Codes] = dict(zip(NAMES, vectors.operands, strict=False))
        return columns if vectors.rbits is None else columns | {RANDOM: vectors.rbits}

    def _number_of(self, vectors: Vectors, index: int) -> int:
        """Return the number of a vector among all inputs of the miter, its free bits 0."""
        number = 0
        for name, codes in self._columns(vectors).items():
            number = number << self._unrolled.bits[name] | int(codes[index])
        # free inputs are the lowest bits, so all their values come one after the other for each input
        return number << len(self._unrolled.free)

    def _given(self, vectors: Vectors, free: int = 0) -> Given:
        """Return what the unit gives; `free` are the inputs that are no operand, bit by bit."""
        words = self._words(vectors)
        for bit in range(len(self._unrolled.free)):
            words[bit] = ALL_ONES if free >> bit & 1 else 0
        out, count = self._unrolled.circuit.evaluated(words), vectors.results.size
        return Given(codes_of(out["given"], count), codes_of(out["given_flags"], count))

    def _words(self, vectors: Vectors) -> Words:
        columns = self._columns(vectors)
        # inputs of the circuit: free ones, then the last operand's bits, the first operand's last
        rows = [words_of(columns[name], width) for name, width in reversed([*self._unrolled.bits.items()])]
        free = np.zeros((len(self._unrolled.free), rows[0].shape[1]), np.uint64)
        return np.concatenate([free, *rows])

    def _differing(self, vectors: Vectors, given: Given) -> NDArray[np.bool_]:
        return differing(*self._comparable(vectors, given), self._unrolled.flags)

    def _comparable(self, vectors: Vectors, given: Given) -> tuple[Vectors, Given]:
        """Return what is wanted and what is given, each NaN of both the canonical one if any NaN will do."""
        if not self._proof.any_nan:
            return vectors, given
        fmt = vectors.description.stage.format
        wanted = replace(vectors, results=with_canonical_nans(fmt, vectors.results))
        return wanted, replace(given, codes=with_canonical_nans(fmt, given.codes))

    def _miter(self, vectors: Vectors) -> Circuit:
        """Return the circuit whose output `bad` is 1 where the unit is wrong."""
        judge = self._judge(vectors)
        unrolled = self._unrolled
        builder = Builder(unrolled.circuit.n_inputs)
        inputs = [2 * (1 + i) for i in range(unrolled.circuit.n_inputs)]
        given = builder.copied(unrolled.circuit, inputs)
        at, named = unrolled.circuit.n_inputs, {"given": given["given"], "given_flags": given["given_flags"]}
        for name, width in unrolled.bits.items():
            at -= width
            named[name] = tuple(inputs[at : at + width])
        # inputs that the judge does not read stay constant 0
        literals = [0] * judge.circuit.n_inputs
        for (name, bit), number in judge.inputs.items():
            literals[number] = named[name][bit]
        bad = Circuit(judge.circuit.n_inputs, judge.circuit.gates, {"bad": (judge.outputs["bad", 0],)})
        return builder.built(builder.copied(bad, literals))

    def _judge(self, vectors: Vectors) -> Netlist:
        """Return the reference with its comparison, after golden vectors have shown that it is the definition."""
        judging = Judging(self._proof.any_nan, self._unrolled.flags)
        with tempfile.TemporaryDirectory(prefix="emu-prove-") as name:
            path = Path(name) / "judge.sv"
            path.write_text(judge_of(self._description, judging), encoding="utf-8")
            judge = netlist_of(Sources((path,), MODULE))
        words = np.zeros((judge.circuit.n_inputs, -(-vectors.results.size // 64)), np.uint64)
        for name, codes in self._columns(vectors).items():
            for bit, row in enumerate(words_of(codes, judge.ports[name].width)):
                words[judge.inputs[name, bit]] = row
        out = _outputs_of(judge, ("result", "flags")).evaluated(words)
        results, flags = (codes_of(out[name], vectors.results.size) for name in ("result", "flags"))
        # an error of emu's own, not of the unit: the proof would be one of something else
        assert np.array_equal(results, vectors.results), "the reference is not the definition"
        assert np.array_equal(flags, vectors.flags), "the reference's flags are not the definition's"
        return judge

    def _proved(self, how: str) -> Outcome:
        lines = [f"proved for all {self._all} inputs: {how}"]
        return Outcome(Answer.PROVED, self._unrolled.n_bits, tuple(lines), how=how)

    def _differs(
        self, number: int, vectors: Vectors, how: str, *, is_smallest: bool, count: int | None = None
    ) -> Outcome:
        """Explain a wrong input with the definition's answer, beside those golden vectors that are wrong, too."""
        free = number & ((1 << len(self._unrolled.free)) - 1)
        at = self._vectors_at(number >> len(self._unrolled.free))
        wanted, given = self._comparable(at, self._given(at, free))
        # the definition has the last word: a wrong input of the miter must be wrong by it, too
        assert differing(wanted, given, self._unrolled.flags).all(), "the input is right"
        wrong = Wrong(wanted, given, self._unrolled.flags, is_smallest, count)
        cause = self._depends()
        others = None if cause else Others(*self._comparable(vectors, self._given(vectors)))
        finding = explained(wrong, others, self._all, cause)
        operands = tuple(int(codes[0]) for codes in self._columns(at).values())
        return Outcome(
            Answer.DIFFERS, self._unrolled.n_bits, finding.lines, operands, is_smallest, finding.causes, how
        )  # fmt: skip

    def _depends(self) -> str | None:
        """Return what else the outputs depend on than the operands of one cycle and free ports; None for nothing."""
        # undefined bits, registers and operands of other cycles are causes
        names = other_inputs(self._proof.unit, self._unrolled)
        if not names:
            return None
        cause = f"outputs that depend on {' and '.join(names)}"
        right = right_latency(self._proof.unit, self._netlist, self._description)
        if not self._netlist.registers or right == self._proof.unit.latency:
            return cause
        return cause + (f"; with --latency {right} they do not" if right is not None else ", with any latency")

    def _leading(self) -> list[int]:
        """Return the inputs that are signs and exponents of floats."""
        at, leading = self._unrolled.circuit.n_inputs, list[int]()
        for fmt in self._description.operand_formats:
            at -= fmt.width_bits
            if isinstance(fmt, Float):
                leading += range(at + fmt.fraction_bits, at + fmt.width_bits)
        return leading

    def _undecided(self, search: Search, end: OutOfTime, vectors: Vectors) -> Outcome:
        """Say how far a search came; a wrong input that is known is shown, though it may not be the smallest."""
        how = search.how()
        if search.wrong is not None:
            return self._differs(search.wrong, vectors, how, is_smallest=False)
        # in inputs of operands: only whole ones, with all values of the free inputs, count
        below, free = end.start >> len(self._unrolled.free), len(self._unrolled.free)
        done = below + (end.right >> free)
        lines = [f"not proved within {self._proof.limit_s:g} s: {how}"]
        lines.append(f"proved for {done:,} of {self._all} inputs" if done else f"of {self._all} inputs none is proved")
        if below:
            at = self._vectors_at(below)
            codes = ", ".join(f"{name} 0x{int(codes[0]):x}" for name, codes in self._columns(at).items())
            lines[-1] += f", all below {codes}"
        lines.append(
            f"{vectors.results.size:,} golden vectors are right; give more time with --limit, or narrower formats"
        )
        return Outcome(Answer.NOT_PROVED, self._unrolled.n_bits, tuple(lines), how=how)


def _outputs_of(netlist: Netlist, names: tuple[str, ...]) -> Circuit:
    outputs: Mapping[str, tuple[int, ...]] = {
        name: tuple(netlist.outputs[name, bit] for bit in range(netlist.ports[name].width)) for name in names
    }
    return Circuit(netlist.circuit.n_inputs, netlist.circuit.gates, outputs)
