"""A dump of any format against vectors: lines put in step, what was never driven, then the first difference explained.

A dump is never refused for its length or for an x: both are part of the verdict. It is refused if it belongs to other
operands, or if a word is wider than the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.testing.bits import describe_code
from emu.testing.vectors.alignment import Alignment, alignment
from emu.testing.vectors.blocks.dumped_scales import read_scales, scales_of_lines
from emu.testing.vectors.check import compare
from emu.testing.vectors.columns import Column, assigned, fitting
from emu.testing.vectors.conventions import with_canonical_nans
from emu.testing.vectors.definition import ACCUMULATOR_BIT, further_results, register_of, with_flags_of
from emu.testing.vectors.description import NAMES, Codes, Vectors
from emu.testing.vectors.dumps import Dump, Reading, read_dump
from emu.testing.vectors.dumps.dump import FLAGS, SCALE
from emu.testing.vectors.explanation import Finding
from emu.testing.vectors.files import read_vectors, register_rows

Mask = NDArray[np.bool_]
#: Terms of a product that are shown of what was never driven.
MOST_TERMS = 6


@dataclass(frozen=True)
class DumpFinding(Finding):
    """The differences of a dump, with what its lines lack.

    Attributes:
        lines_given: how many lines the dump has.
        vectors: how many vectors there are.
        undriven: how many results were never driven.
        alignment: how lines were lost, added or shifted; None if they are in step, or if nothing says how.
    """

    lines_given: int
    vectors: int
    undriven: int
    alignment: str | None


def check_dump(
    folder: str | Path,
    dump: str | Path,
    *,
    any_nan: bool = False,
    reading: Reading | None = None,
    scales: str | Path | None = None,
) -> DumpFinding | None:
    """Return the differences of a dump, None if every code is right.

    Args:
        folder: of the vectors.
        dump: text as `$readmemh` reads it, a table, a waveform or a memory file (`dumps/`): results, results and
            flags, or operands before them.
        any_nan: whether any NaN is as good as the canonical one.
        reading: what the file does not say by itself.
        scales: file of the scales of blocks, if the dump has none.

    Raises:
        ConfigError: vectors or dump are missing or damaged, a code is wider than the format, or operands of the dump
            are not those of the vectors.
        BackendUnavailable: the package that reads a waveform is not installed.
    """
    vectors = read_vectors(folder)
    reading = reading or Reading()
    given = None if scales is None else read_scales(vectors.description, Path(scales), radix=reading.radix)
    # the count settles whether words beside each other are columns
    words = read_dump(dump, replace(reading, count=vectors.description.count))
    return judge(vectors, words, any_nan=any_nan, scales=given)


def judge(vectors: Vectors, dump: Dump, *, any_nan: bool = False, scales: Column | None = None) -> DumpFinding | None:
    """Return the differences of a dump that is read, None if every code is right.

    Args:
        vectors: what is right.
        dump: what a unit wrote.
        any_nan: whether any NaN is as good as the canonical one.
        scales: the scales of blocks, if they stand in a file of their own.

    Raises:
        ConfigError: as `check_dump`.
    """
    d = vectors.description
    columns = assigned(dump, d, d.count)
    if FLAGS in columns:
        _require_flags(columns[FLAGS].codes, dump.source)
        if dump.is_testfloat:
            # lines of TestFloat have IEEE 754's flags whatever the description says
            vectors = with_flags_of("ieee", vectors)
    finding: DumpFinding | None = None
    shift: Alignment | None = None
    # the first result comes first: its lines say how all lines belong to vectors
    for name, each in zip(d.result_names, (vectors, *further_results(vectors)), strict=True):
        if name not in columns:
            continue
        fmt, column = each.description.stage.format, columns[name]
        given = Column(fitting(column, fmt, name, dump.source), column.undriven)
        ours = each
        if any_nan:
            given = given._replace(codes=with_canonical_nans(fmt, given.codes))
            ours = replace(each, results=with_canonical_nans(fmt, each.results))
        if each is vectors:
            shift = _shift(ours, columns, given, dump.source)
            given_scales = _scale_column(ours, columns, dump.source) if scales is None else scales
            if any_nan and given_scales is not None:
                canonical = with_canonical_nans(d.scale_formats[SCALE], given_scales.codes)
                given_scales = given_scales._replace(codes=canonical)
            finding = _verdict(ours, given, columns.get(FLAGS), shift, given_scales)
        else:
            finding = _both(finding, _verdict(ours, given, None, shift), name)
    return finding


def check_register(vectors: Vectors, dump: Path, *, radix: str | None = None) -> list[str]:
    """Return which counts of a unit's register differ, as sentences; none if all are right.

    Args:
        vectors: with a register in their description.
        dump: the counts, a word each, in the order of `statistics.hex`.
        radix: of the words, if they do not say it.

    Raises:
        ConfigError: the description has no register, or the file is damaged or has another number of words.
    """
    register = register_of(vectors)
    if register is None:
        raise ConfigError(
            f"vectors must have a register to be compared with {dump}, got none; write them with --statistics"
        )
    rows = register_rows(register)
    words = read_dump(dump, Reading(radix=radix, count=len(rows)))
    # words beside each other follow one another
    codes, undriven = (np.stack(list(parts.values()), axis=1).reshape(-1) for parts in (words.columns, words.undriven))
    if codes.size != len(rows):
        raise ConfigError(
            f"a register must be {len(rows)} counts, as in statistics.hex, got {codes.size} in {dump}; dump all of them"
        )
    return [
        f"register: {what}: {'x' if absent else int(code)}, expected {count}"
        for (what, count), code, absent in zip(rows, codes, undriven, strict=True)
        if absent or int(code) != count
    ]


def _both(first: DumpFinding | None, own: DumpFinding | None, name: str) -> DumpFinding | None:
    """Return the finding of the first results with the lines of further ones behind it."""
    if own is None:
        return first
    lines = [f"{name}: {own.lines[0]}", *own.lines[1:]]
    causes = tuple(f"{name}: {cause}" for cause in own.causes)
    if first is None:
        return replace(own, lines=tuple(lines), causes=causes)
    return replace(first, lines=(*first.lines, *lines), causes=(*first.causes, *causes))


def _require_flags(codes: Codes, source: str) -> None:
    beyond = np.flatnonzero(codes >> np.uint64(ACCUMULATOR_BIT + 1))
    if beyond.size:
        raise ConfigError(
            f"flags must have at most {ACCUMULATOR_BIT + 1} bits, got 0x{int(codes[beyond[0]]):x} in line "
            f"{int(beyond[0])} of {source}, from 0; say what the columns are with --columns"
        )


def _shift(vectors: Vectors, columns: Mapping[str, Column], given: Column, source: str) -> Alignment | None:
    """Return how lines belong to vectors, None if each belongs to that of its number.

    Raises:
        ConfigError: operands of the dump are those of no vector.
    """
    d = vectors.description
    wanted: dict[str, Codes] = dict(zip(NAMES, vectors.operands, strict=False))
    if vectors.rbits is not None:
        wanted["rbits"] = vectors.rbits
    names = [name for name in columns if name in wanted]
    if not names:
        if given.codes.size == d.count and ((given.codes == vectors.results) | given.undriven).all():
            return None
        return alignment(vectors.results, given.codes, given.undriven)
    if d.depth > 1:
        raise ConfigError(
            f"operands of products of {d.depth} terms must not be columns of a dump, got them in {source}"
        )
    formats = dict(zip(NAMES, d.operand_formats, strict=False))
    # random bits have no format, but a width
    widths = {name: formats[name].width_bits if name in formats else d.n_rbits for name in names}
    theirs = [
        columns[name]._replace(codes=fitting(columns[name], formats[name], f"operand {name}", source))
        if name in formats else columns[name]
        for name in names
    ]  # fmt: skip
    ours = [wanted[name].reshape(-1) for name in names]
    # each different row of operands gets a number, (vectors + lines,): `alignment` then compares one code a line
    rows = np.unique(np.stack([np.concatenate(pair) for pair in zip(ours, (c.codes for c in theirs), strict=True)], 1),
                     axis=0, return_inverse=True)[1].reshape(-1).astype(np.uint64)  # fmt: skip
    expected, their_rows = rows[: d.count], rows[d.count :]
    unknown = np.logical_or.reduce([column.undriven for column in theirs])
    common = min(d.count, their_rows.size)
    wrong = (expected[:common] != their_rows[:common]) | unknown[:common]
    if not wrong.any():
        # the operands that are there agree; if lines are missing or too many, the ends are sought
        return None if their_rows.size == d.count else alignment(expected, their_rows)
    shift = alignment(expected, their_rows, unknown)
    if shift is not None:
        # a shift explains operands only if each line then has exactly those of its vector
        belongs = shift.vectors >= 0
        if (expected[shift.vectors[belongs]] == their_rows[belongs]).all():
            return shift
    index = int(np.flatnonzero(wrong)[0])
    name, column, right = next(
        (name, column, right) for name, column, right in zip(names, theirs, ours, strict=True)
        if column.undriven[index] or column.codes[index] != right[index]
    )  # fmt: skip
    digits = -(-widths[name] // 4)
    got = "x" if column.undriven[index] else f"0x{int(column.codes[index]):0{digits}x}"
    raise ConfigError(
        f"operand {name} of vector {index} must be 0x{int(right[index]):0{digits}x}, got {got} in {source}, as in "
        f"{int(wrong.sum())} of {common} lines; name the folder of these vectors, or judge the dump by itself with --op"
    )


def _scale_column(vectors: Vectors, columns: Mapping[str, Column], source: str) -> Column | None:
    """Return the column of scales, a code a line; None if there is none."""
    if SCALE not in columns or vectors.description.blocks is None:
        return None
    codes = fitting(columns[SCALE], vectors.description.scale_formats[SCALE], SCALE, source)
    return columns[SCALE]._replace(codes=codes)


def _verdict(
    vectors: Vectors,
    given: Column,
    flags: Column | None,
    shift: Alignment | None,
    scales: Column | None = None,
) -> DumpFinding | None:
    d, count, size = vectors.description, vectors.description.count, given.codes.size
    lines = np.arange(size)
    owners = shift.vectors if shift is not None else np.where(lines < count, lines, -1)
    # of two lines of a vector the first counts
    indices, first = np.unique(owners, return_index=True)
    indices, first = indices[indices >= 0], first[indices >= 0]

    def placed(column: Column, otherwise: Codes) -> Column:
        """Return a column in the order of vectors; a vector without a line is undriven, and has the right code."""
        codes, undriven = otherwise.copy(), np.ones(count, np.bool_)
        codes[indices], undriven[indices] = column.codes[first], column.undriven[first]
        return Column(codes, undriven)

    codes, absent = placed(given, vectors.results)
    undriven = np.zeros(count, np.bool_)
    undriven[indices] = given.undriven[first]
    raised, unknown_flags = None, np.zeros(count, np.bool_)
    if flags is not None:
        raised = placed(flags, vectors.flags).codes
        unknown_flags[indices] = flags.undriven[first]
        # unknown flags are taken for right, so that they count neither way
        raised = np.where(unknown_flags, vectors.flags, raised)
    # a scale a line has to be gathered by block; in a file of its own there is a scale a block
    if scales is not None and scales.codes.size == size != count // d.together:
        scales = scales_of_lines(placed(scales, np.zeros(count, np.uint64)), d.together)
    difference = compare(vectors, codes, raised, undriven=absent | undriven, scales=scales)
    texts = list(_of_lines(count, size, shift))
    texts += _never_driven(vectors, "result", undriven) if undriven.any() else []
    texts += _never_driven(vectors, "flag", unknown_flags) if unknown_flags.any() else []
    if scales is not None:
        texts += _undriven_scales(scales, np.all(absent.reshape(-1, d.together), axis=1))
    causes = () if shift is None else (shift.name,)
    at_vectors = "" if shift is None else "with every line at its vector, "
    if difference is not None:
        texts += [f"{at_vectors}{difference.lines[0]}", *difference.lines[1:]]
        causes += difference.causes
    elif texts:
        others = "every result that is there is" if not undriven.any() else "every other result is"
        right = int((~(absent | undriven)).sum())
        texts.append(f"{at_vectors}{others} right: {right} of {count}" if right else "no result could be compared")
    if not texts:
        return None
    wrong, index = (0, None) if difference is None else (difference.wrong, difference.index)
    judged = count if difference is None else difference.count
    name = None if shift is None else shift.name
    return DumpFinding(
        wrong, judged, index, tuple(texts), causes, size, count, int(undriven.sum()), name,
        wrong_scales=0 if difference is None else difference.wrong_scales,
    )  # fmt: skip


def _of_lines(count: int, size: int, shift: Alignment | None) -> Iterator[str]:
    more = abs(size - count)
    lines = f"{more} line{'s' * (more != 1)} {'more' if size > count else 'fewer'} than vectors"
    if shift is not None:
        yield f"{lines if more else 'as many lines as vectors, but out of step'}: {shift.name}"
    elif more:
        yield f"{lines}, {size} of {count}; nothing says which: the first {min(count, size)} are compared as they stand"


def _undriven_scales(scales: Column, absent: Mask) -> Iterator[str]:
    """Yield how many scales were never driven, of blocks that the dump has."""
    blocks = np.flatnonzero(scales.undriven & ~absent)
    if blocks.size:
        were = "scale was" if blocks.size == 1 else "scales were"
        yield f"{blocks.size} {were} never driven (x), first that of block {int(blocks[0])}"


def _never_driven(vectors: Vectors, what: str, mask: Mask) -> list[str]:
    d, index, number = vectors.description, int(np.flatnonzero(mask)[0]), int(mask.sum())
    were = f"{what} was" if number == 1 else f"{what}s were"
    lines = [f"{number} {were} never driven (x), first at vector {index}:"]
    for name, fmt, codes in zip(NAMES, d.operand_formats, vectors.operands, strict=False):
        terms = np.atleast_1d(codes[index])
        for k, code in enumerate(terms[:MOST_TERMS]):
            label = f"{name}[{k}]" if terms.size > 1 else name
            lines.append(f"  {label:<10}{describe_code(fmt, int(code))}")
        if terms.size > MOST_TERMS:
            lines.append(f"  {'':<10}... {terms.size - MOST_TERMS} more")
    lines.append(f"  {'expected':<10}{describe_code(d.stage.format, int(vectors.results[index]))}")
    return lines
