"""Golden vectors against a unit in RTL, in every manner, and the waveform around the first wrong vector."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emu._paths import from_here
from emu.errors import ConfigError, RtlError
from emu.testing.rtl.arrays import Operands, n_factors
from emu.testing.rtl.bench import BACK_TO_BACK, HELD, STALLS, Bench
from emu.testing.rtl.manners import between
from emu.testing.rtl.pictures import fault_of
from emu.testing.rtl.ports import FLAG_BITS
from emu.testing.rtl.simulation import Answers, Run
from emu.testing.vectors import Description, Finding, Vectors, read_vectors
from emu.testing.vectors.check import compare
from emu.testing.vectors.conventions import with_canonical_nans
from emu.testing.vectors.definition import further_results
from emu.testing.vectors.description import Codes

if TYPE_CHECKING:
    from emu.testing.rtl.unit import Unit

#: Vectors before and behind the first wrong one that its waveform shows.
BEFORE, BEHIND = 3, 2
#: Kind of the waveforms that are kept.
WAVEFORM = ".vcd"


def check_vectors(unit: Unit, given: Vectors | str | Path, *, any_nan: bool, keep: str | Path | None) -> Finding | None:
    """Return what vectors find; see `Unit.check`."""
    vectors = given if isinstance(given, Vectors) else read_vectors(Path(given))
    folder = Path(keep) if keep is not None else Path() if isinstance(given, Vectors) else Path(given)
    d = vectors.description
    require_fitting(unit.bench, d)
    operands = Operands(vectors.operands, (d.count,), are_codes=True, rbits=vectors.rbits)
    rounding = d.stage.rounding if unit.bench.modes else None
    right: Answers | None = None
    # without a clock nothing can be held or stalled
    for manner in (BACK_TO_BACK, HELD, STALLS) if unit.bench.clock else (BACK_TO_BACK,):
        how = unit.how(operands, manner, rounding)
        answers = unit.run(operands, how)
        # vectors that are right in the first manner show what another one changes
        other = None if right is None else between(unit.bench, operands, (BACK_TO_BACK, right), (manner, answers))
        keep_waveform = partial(_kept_waveform, unit, operands, answers, how, folder)
        # a unit that answers not at all, twice or with x is no finding of numerics: it raises
        if (fault := fault_of(unit.bench, operands, answers, how)) is not None:
            index, text = (other.index, str(other)) if other is not None else fault
            raise RtlError(f"{text}\nwaveform: {keep_waveform(index)}")
        flags = codes_with_flags(unit.bench, answers, vectors)
        if (finding := compared(unit.bench, vectors, answers, any_nan=any_nan)) is not None:
            index = finding.index
            if index is None:  # only flags differ
                index = int(np.flatnonzero(flags != vectors.flags)[0])
            lines = finding.lines if other is None else (*other.lines, "", *finding.lines)
            return replace(finding, lines=(*lines, f"waveform: {keep_waveform(index)}"))
        # only answers without a fault and without a finding come here
        right = answers if right is None else right
    return None


def compared(bench: Bench, vectors: Vectors, answers: Answers, *, any_nan: bool = False) -> Finding | None:
    """Return what differs at the first port that is wrong; flags are compared beside the results of the first port."""
    finding, flags = None, codes_with_flags(bench, answers, vectors)
    for name, each, codes in zip(bench.outs, (vectors, *further_results(vectors)), answers.results, strict=True):
        fmt, ours, given = each.description.stage.format, each, codes
        if any_nan:
            ours, given = replace(each, results=with_canonical_nans(fmt, each.results)), with_canonical_nans(fmt, codes)
        own = compare(ours, given, flags if each is vectors else None)
        if own is not None and each is not vectors:
            own = replace(own, lines=(f"port {name}: {own.lines[0]}", *own.lines[1:]))
        finding = own if finding is None else finding
    return finding


def require_fitting(bench: Bench, d: Description) -> None:
    """Look whether vectors are those of a unit.

    Raises:
        ConfigError: an operand or the result has another format, their number differs, or so does the mode.
    """
    d.require_single_results("vectors of a unit that is called as a function", "dump its codes for emu check instead")
    formats = [str(port.format) for port in bench.ins.values()]
    wanted = [str(fmt) for fmt in d.operand_formats]
    if [port.format for port in bench.ins.values()] != list(d.operand_formats):
        raise ConfigError(
            f"operands of the vectors must be those of {bench.top}, {', '.join(formats)}, got {', '.join(wanted)}; "
            "make others"
        )
    outs = [str(port.format) for port in bench.outs.values()]
    results = [str(each.stage.format) for each in (d, *d.further)]
    if results != outs:
        more = "; describe the other results with `also`, or leave their ports out" if len(outs) > len(results) else ""
        raise ConfigError(
            f"results of the vectors must be those of {bench.top}, {', '.join(outs)}, got {', '.join(results)}"
            f"{more or '; make others'}"
        )
    if d.operation == "matmul" and n_factors(bench) == 0 and d.depth != 1:
        raise ConfigError(
            f"sums of the vectors must have the one term of {bench.top}, got {d.depth}; describe the port with `terms`"
        )
    terms = next(iter(bench.ins.values())).terms
    if d.operation != "matmul" and n_factors(bench):
        raise ConfigError(f"vectors of {bench.top} must be of matmul, got {d.operation}: its ports hold terms of sums")
    if d.depth % terms or (not bench.is_serial and d.depth != terms):
        raise ConfigError(
            f"sums of the vectors must have the {terms} terms of {bench.top}, got {d.depth}; make others with --depth"
        )
    for name, mode in bench.modes.items():
        if d.stage.rounding not in mode.codes:
            known = ", ".join(mode.value for mode in mode.codes)
            raise ConfigError(
                f"`rounding` of the vectors must be a mode of port {name}, {known}, got {d.stage.rounding.value}"
            )
    if d.is_stochastic != any(row.file == "rbits" for row in bench.inputs):
        raise ConfigError(
            "vectors with random bits need a port for them, and such a port such vectors, got "
            f"{d.stage.rounding.value} for {bench.top}; describe the port as RandomBits(width), or leave it out"
        )


def codes_with_flags(bench: Bench, answers: Answers, vectors: Vectors) -> Codes | None:
    """Return the flags as vectors have them; those that the unit lacks are taken for right."""
    if answers.flags is None:
        return None
    # vectors have no `subnormal`, though testbenches write it
    present = sum(
        1 << bit for bit, wire_bit in enumerate(bench.flag_bits) if wire_bit and FLAG_BITS[bit] != "subnormal"
    )
    mask = np.uint64(present)
    return (answers.flags & mask) | (vectors.flags & ~mask)


def _kept_waveform(unit: Unit, operands: Operands, answers: Answers, how: Run, folder: Path, index: int) -> Path:
    """Write the waveform of the vectors around `index`; of all up to it if its answer depends on those before."""
    index = min(index, operands.count - 1)
    path = folder / f"{unit.top}-vector-{index}{WAVEFORM}"
    path.parent.mkdir(parents=True, exist_ok=True)
    # a short run first; if the answer depends on vectors before it, it is another one there, and all are driven again
    for start in (max(index - BEFORE, 0), 0):
        part = operands.taking(slice(start, index + BEHIND + 1))
        traced = unit.run(part, replace(how, trace=path))
        if _repeats(traced, answers, index - start, index):
            break
    return from_here(path.resolve())


def _repeats(traced: Answers, answers: Answers, position: int, index: int) -> bool:
    """Return whether an answer is there again, or none again."""
    # without an answer at `index` the short run must have none either
    if index >= answers.count or position >= traced.count:
        return index >= answers.count and position >= traced.count
    columns = zip([*traced.results, traced.flags], [*answers.results, answers.flags], strict=True)
    same = all(x is None or y is None or x[position] == y[index] for x, y in columns)
    return same and traced.unknown.get(position) == answers.unknown.get(index)
