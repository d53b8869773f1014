"""The statistics register in vector code: one-hot words, added bit by bit without carrying.

Each result becomes a word with one bit set, at the position of its leading bit. Words go through a tree of carry-save
adders into counters that lie across the words: plane j holds bit j of all counters. The first two levels of the tree
stay in registers, four words at a time; a chunk of 32 leaves eight carries for the rest:

    plane     0 ones     1 twos     2 fours     3 eights     4 sixteens     5.. ripple
    inputs      32         16           8           4             2             1

Results of both signs are counted in one set of words, negative ones again in a second.
"""

from __future__ import annotations

from typing import Any

from emu.backends.numba.vector.lanes import I32, I64, LANES, Emitter, Vector, carry_save

WORD_BITS = 32
#: Vectors added in registers at a time, and vectors of one chunk.
QUAD, TREE = 4, 32
QUAD_PLANES, TREE_PLANES = 2, 5
#: Planes above the tree; counters of a span of chunks must not leave them.
RIPPLE_PLANES = 11
PLANES = TREE_PLANES + RIPPLE_PLANES
MAX_CHUNKS = (1 << RIPPLE_PLANES) - 1


def one_hot(e: Emitter, position: Vector, words: int) -> list[Vector]:
    """Return words with the bit of each lane's position set; of positions outside, none."""
    made: list[Vector] = []
    one = e.splat(I32, 1)
    for word in range(words):
        shift = position - WORD_BITS * word if word else position
        inside = shift.below_unsigned(WORD_BITS)
        made.append(inside.choose(one << shift, 0))
    return made


class Quads:
    """The two planes of one set of words that stay in registers."""

    def __init__(self, e: Emitter) -> None:
        self.ones, self.twos = (e.variable(e.splat(I32, 0)) for _ in range(QUAD_PLANES))

    def add(self, words: list[Vector]) -> Vector:
        """Add four words; return the carry into the fours."""
        ones, first = carry_save(self.ones.now, words[0], words[1])
        ones, second = carry_save(ones, words[2], words[3])
        twos, carry = carry_save(self.twos.now, first, second)
        self.ones.set(ones)
        self.twos.set(twos)
        return carry

    def store(self, e: Emitter, planes: Any, kind: int) -> None:
        """Put the planes beside the others of their set."""
        for j, plane in enumerate((self.ones, self.twos)):
            e.store(plane.now, planes, _plane(e, kind, j))


def _plane(e: Emitter, kind: int, j: int) -> Any:
    return e.integer((kind * PLANES + j) * LANES)


def add_chunk(e: Emitter, buffer: Any, planes: Any, sets: int) -> None:
    """Add a chunk's carries into the fours, `sets` side by side, to the planes."""
    for kind in range(sets):
        inputs = [e.load(I32, buffer, e.integer((i * sets + kind) * LANES)) for i in range(TREE // QUAD)]
        for j in range(QUAD_PLANES, TREE_PLANES):
            plane = e.load(I32, planes, _plane(e, kind, j))
            carries: list[Vector] = []
            for i in range(0, len(inputs), 2):
                plane, carry = carry_save(plane, inputs[i], inputs[i + 1])
                carries.append(carry)
            e.store(plane, planes, _plane(e, kind, j))
            inputs = carries
        carry = inputs[0]
        for j in range(TREE_PLANES, PLANES):
            held = e.load(I32, planes, _plane(e, kind, j))
            e.store(held ^ carry, planes, _plane(e, kind, j))
            carry = held & carry


def drain(e: Emitter, planes: Any, sets: Any, used: Any, totals: Any) -> None:
    """Add the counters' values to `totals` (int64, 32 per set) and clear the `used` lowest planes."""
    builder = e.builder
    zero = e.splat(I32, 0)
    with e.loop(sets) as kind, e.loop(used) as plane:
        at = builder.mul(builder.add(builder.mul(kind, e.integer(PLANES)), plane), e.integer(LANES))
        held = e.load(I32, planes, at)
        e.store(zero, planes, at)
        first = builder.mul(kind, e.integer(WORD_BITS))
        with e.loop(e.integer(WORD_BITS)) as position:
            bit = builder.shl(e.integer(1, I32), builder.trunc(position, I32))
            mask = (held & e.splat(I32, bit)) != 0
            amount = builder.shl(mask.count(), plane)
            place = e.at(totals, builder.add(first, position), I64)
            builder.store(builder.add(builder.load(place, typ=I64), amount), place)
