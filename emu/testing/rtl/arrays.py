"""Arrays become codes by file, and codes become arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Flags
from emu.errors import FormatError, ShapeError
from emu.formats import Format
from emu.testing.hard import Places, hard_codes
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.ports import FLAG_BITS, INFINITE
from emu.testing.vectors.description import Codes

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Operands:
    """Operands of a call.

    Attributes:
        codes: of each operand, (n,), or (n, depth) of the factors of sums.
        shape: of the results.
        are_codes: whether codes were given, so that codes are returned.
        rbits: random bits, (n,), or None.
    """

    codes: tuple[Codes, ...]
    shape: tuple[int, ...]
    are_codes: bool
    rbits: Codes | None = None

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return len(self.codes[0])

    @property
    def depth(self) -> int:
        """Terms of each sum."""
        return self.codes[0].shape[1] if self.codes[0].ndim > 1 else 1

    def columns(self, bench: Bench) -> dict[str, Codes]:
        """Return the codes by the letter of their file."""
        # `bench.inputs` lists the operands first, in the order of `codes`, then the random bits
        letters = [row.file for row in bench.inputs if row.file != "rbits"]
        given = dict(zip(letters, self.codes, strict=True))
        return given if self.rbits is None else {**given, "rbits": self.rbits}

    def with_more(self, others: Operands) -> Operands:
        """Return the vectors of both; sums have the same number of terms."""
        codes = tuple(np.concatenate(pair) for pair in zip(self.codes, others.codes, strict=True))
        rbits = None if self.rbits is None or others.rbits is None else np.concatenate([self.rbits, others.rbits])
        return Operands(codes, codes[0].shape[:1], self.are_codes, rbits)

    def taking(self, indices: Any) -> Operands:
        """Return some of the vectors."""
        codes = tuple(x[indices] for x in self.codes)
        return Operands(codes, codes[0].shape[:1], self.are_codes, None if self.rbits is None else self.rbits[indices])


def n_factors(bench: Bench) -> int:
    """Return how many operands, from the first on, have an axis of terms: none, or the factors, at most two."""
    ins = list(bench.ins.values())
    # a third operand of a sum is an addend, which has no terms
    return min(2, len(ins)) if bench.is_serial or ins[0].terms > 1 else 0


def operands_of(bench: Bench, arrays: Sequence[Any], rbits: Any) -> Operands:
    """Return the codes of arrays that broadcast against each other.

    Raises:
        FormatError: a number is none of the operand's format, or random bits are missing or do not fit their port.
        ShapeError: there are too few or too many operands, or their shapes do not fit.
    """
    ins = bench.ins
    if len(arrays) != len(ins):
        raise ShapeError(f"{bench.top} must have {len(ins)} operands, {', '.join(ins)}, got {len(arrays)}; give each")
    given = [np.asarray(x) for x in arrays]
    are_codes = all(x.dtype.kind == "u" for x in given)
    codes = [_codes(name, port.format, x) for (name, port), x in zip(ins.items(), given, strict=True)]
    sums = n_factors(bench)
    depth = _depth(bench, codes[:sums])
    # the axis of terms does not broadcast: it must be the same for both factors
    batches = [x.shape[:-1] if i < sums else x.shape for i, x in enumerate(codes)]
    widths = [row.width_bits for row in bench.inputs if row.file == "rbits"]
    has_random = bool(widths)
    if has_random != (rbits is not None):
        raise FormatError(
            f"`rbits` must {'hold random bits for each result' if has_random else 'be left out: no port takes them'}, "
            f"got {'none' if rbits is None else 'some'}; give what the unit reads"
        )
    random = None if rbits is None else _random_bits(rbits, widths[0])
    try:
        shape = np.broadcast_shapes(*batches, *([random.shape] if random is not None else []))
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in codes)
        raise ShapeError(
            f"operands of {bench.top} must broadcast against each other, got shapes {shapes}; reshape them"
        ) from None
    flat = tuple(
        # one row for each vector, as the files of the testbench list them
        np.broadcast_to(x, (*shape, depth)).reshape(-1, depth) if i < sums else np.broadcast_to(x, shape).reshape(-1)
        for i, x in enumerate(codes)
    )
    return Operands(flat, shape, are_codes, None if random is None else np.broadcast_to(random, shape).reshape(-1))


def _random_bits(rbits: Any, width_bits: int) -> Codes:
    """Return random bits of any shape, which must be integers that fit their port."""
    rule = f"`rbits` must be integers below 2**{width_bits}, the width of their port"
    try:
        array = np.asarray(rbits)
    except ValueError:
        raise FormatError(f"{rule}, got lists of uneven lengths; give an array") from None
    # an empty list is float64: it holds no wrong integer
    if array.dtype.kind not in "iu" and array.size:
        raise FormatError(f"{rule}, got dtype {array.dtype}; draw them with an integer dtype")
    beyond = array[(array < 0) | (array.astype(np.uint64) >> np.uint64(width_bits - 1) > 1)] if array.size else array
    if beyond.size:
        raise FormatError(f"{rule}, got {beyond[0]}; shift or mask them to {width_bits} bits")
    return array.astype(np.uint64)


def _depth(bench: Bench, sums: Sequence[Codes]) -> int:
    if not sums:
        return 1
    sizes = {x.shape[-1] if x.ndim else 0 for x in sums}
    terms = next(iter(bench.ins.values())).terms
    wanted = f"a multiple of {terms}" if bench.is_serial else str(terms)
    size = sizes.pop()
    if sizes or size == 0 or (size % terms if bench.is_serial else size != terms):
        raise ShapeError(
            f"the last axis of the factors of {bench.top} must have the terms of a sum, {wanted}, got shapes "
            f"{', '.join(str(x.shape) for x in sums)}; pad sums with 0"
        )
    return size


def _codes(name: str, fmt: Format, x: Array) -> Codes:
    if x.dtype.kind != "u":
        try:
            return fmt.encode(x).astype(np.uint64)
        except FormatError as error:
            raise FormatError(f"`{name}`: {error}") from None
    # one place less, and compared with 1, so that no word is shifted by all of its 64 bits
    beyond = x.astype(np.uint64) >> np.uint64(fmt.width_bits - 1) > np.uint64(1)
    if beyond.any():
        raise FormatError(
            f"codes of `{name}` must have {fmt.width_bits} bits, got 0x{int(x[beyond][0]):x}; give codes of {fmt}"
        )
    return x.astype(np.uint64)


def hard_operands(bench: Bench, count: int, depth: int | None = None, seed: int = 1) -> Operands:
    """Return operands on which units often fail.

    Args:
        bench: of the unit.
        count: vectors.
        depth: terms of sums; None: those of one transfer, or of four if they come one after the other.
        seed: of the operands.
    """
    ins = list(bench.ins.values())
    sums = n_factors(bench)
    depth = depth or ins[0].terms * (4 if bench.is_serial else 1)
    codes = tuple(
        # operations have at most three operands, and random bits are the fourth stream: no two seeds share one
        hard_codes(port.format, Places.of(seed * 4 + i, (count, depth) if i < sums else (count,)))
        for i, port in enumerate(ins)
    )
    widths = [row.width_bits for row in bench.inputs if row.file == "rbits"]
    rbits = Places.of(seed * 4 + 3, (count,)).noise(1) >> np.uint64(64 - widths[0]) if widths else None
    return Operands(codes, (count,), are_codes=True, rbits=rbits)


def results_of(bench: Bench, operands: Operands, results: Sequence[Codes]) -> Any:
    """Return results as they are wanted, several as a tuple: codes if operands were, else carrier arrays."""
    arrays = [
        (codes.astype(out.format.code_dtype) if operands.are_codes else out.format.decode(codes)).reshape(
            operands.shape
        )
        for out, codes in zip(bench.outs.values(), results, strict=True)
    ]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def require_flags(bench: Bench, flags: Flags | None) -> None:
    """Look whether a port has flags, if they are to be counted.

    Raises:
        FormatError: none has.
    """
    if flags is not None and not bench.flags:
        raise FormatError(
            f"`flags` must be left out, got some: no port of {bench.top} has flags; describe it as Flags(...)"
        )


def count_flags(bench: Bench, raised: Codes, flags: Flags) -> None:
    """Add how often each flag was raised."""
    # words of flags have the bits of FLAG_BITS, wherever the unit's ports have theirs
    for bit, (name, wire_bit) in enumerate(zip(FLAG_BITS, bench.flag_bits, strict=True)):
        if wire_bit is not None:
            own = "division_by_zero" if name == INFINITE else name
            count = int((raised >> np.uint64(bit) & np.uint64(1)).sum())
            setattr(flags, own, getattr(flags, own) + count)
