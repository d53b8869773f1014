"""The limit of everything that reads an array once and writes one: a copy at the speed of the memory.

Two ways to copy, spread over emu's own threads; the faster one here is the limit, and its name stands in the table:

    memcpy          the C library's, through NumPy
    bypassing       vector stores that do not pass through the caches (non-temporal)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba.extending
from llvmlite import ir  # pyright: ignore[reportMissingTypeStubs]
from numba.core import types  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from benchmarks.measuring.arrays import aligned
from benchmarks.measuring.timing import Pace, Spread, alternate
from emu.backends.numba.compiling import kernel, over_ranges

Array = NDArray[Any]
_IR: Any = ir
_TYPES: Any = types
_INTRINSIC: Any = vars(numba.extending)["intrinsic"]
#: One cache line as a vector of float32, and how many a turn of the loop moves.
LINE, UNROLLED = 16, 4
BLOCK = LINE * UNROLLED
#: Enough to tell the ways apart.
CHOOSING = Pace(rounds=9, budget_s=1.0)


@_INTRINSIC
def _stream_block(typingctx: Any, target: Any, source: Any, start: Any) -> Any:
    """Copy `BLOCK` float32 from `source[start:]` past the caches to `target[start:]`, which is aligned to a line."""
    signature = _TYPES.void(target, source, _TYPES.int64)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        line = _IR.VectorType(_IR.FloatType(), LINE)
        number = _IR.IntType(32)
        past_caches = builder.module.add_metadata([_IR.Constant(number, 1)])
        pointers = [
            builder.gep(context.make_array(kind)(context, builder, array).data, [values[2]])
            for kind, array in zip(signature.args[:2], values[:2], strict=True)
        ]
        to, of = (builder.bitcast(pointer, line.as_pointer()) for pointer in pointers)
        loads = [builder.load(builder.gep(of, [_IR.Constant(number, i)])) for i in range(UNROLLED)]
        for i, load in enumerate(loads):
            load.align = 4
            store = builder.store(load, builder.gep(to, [_IR.Constant(number, i)]))
            store.align = 4 * LINE
            store.set_metadata("nontemporal", past_caches)
        return context.get_dummy_value()

    return signature, generate


@kernel
def _bypassing(target: Any, source: Any, start: int, stop: int) -> None:
    whole = start + (stop - start) // BLOCK * BLOCK
    for i in range(start, whole, BLOCK):
        _stream_block(target, source, i)
    for i in range(whole, stop):
        target[i] = source[i]


def _memcpy(target: Array, source: Array, start: int, stop: int) -> None:
    target[start:stop] = source[start:stop]


WAYS: dict[str, Callable[[Array, Array, int, int], None]] = {
    "memcpy": _memcpy,
    "bypassing": _bypassing,
}


def copy(way: str, target: Array, source: Array) -> None:
    """Copy float32 in one of the `WAYS`; `target` lies on a cache line."""
    over_ranges(lambda _, start, stop: WAYS[way](target, source, start, stop), source.size, BLOCK)


@lru_cache(maxsize=8)
def fastest_way(size: int) -> str:
    """Return the way that copies `size` float32 fastest here and now."""
    source, target = aligned((size,)), aligned((size,))
    source.fill(1)
    sides = [lambda way=way: copy(way, target, source) for way in WAYS]
    medians = [Spread.of(seconds).median for seconds in alternate(sides, CHOOSING)]
    return min(zip(medians, WAYS, strict=True))[1]
