"""The statistics register in vector code: one-hot words, added bit by bit without carrying.

Each result becomes a word with one bit set, at the position of its leading bit. Words go through a tree of carry-save
adders into counters that lie across the words: plane j holds bit j of all counters. The first two levels of the tree
stay in registers, four words at a time; a chunk of 32 leaves eight carries for the next three, eight chunks eight more:

    plane     0 ones   1 twos   2 fours   3 eights   4 sixteens   |   5    6    7   |   8.. ripple
    inputs      32       16        8          4           2       |   8    4    2   |   1
                          of a chunk                              |         of eight chunks

Results of both signs are counted in one set of words, negative ones again in a second.
"""

from __future__ import annotations

from typing import Any

from emu.backends.bounds import bounded
from emu.backends.numba.vector.lanes import I32, I64, LANES, Emitter, Vector, carry_save

WORD_BITS = 32
#: Vectors added in registers at a time, and vectors of one chunk; carries that a tree takes.
QUAD, TREE, CARRIES = 4, 32, 8
QUAD_PLANES, TREE_PLANES, GROUP_PLANES = 2, 5, 8
PLANES = 16
#: Chunks between two readings of the counters.
MAX_CHUNKS = bounded((1 << (PLANES - TREE_PLANES)) - 1, 1, ((1 << PLANES) - 1) // TREE, "a counter has one bit a plane")


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
            e.store(plane.now, planes, _plane(e, e.integer(kind), e.integer(j)))


def _plane(e: Emitter, kind: Any, j: Any) -> Any:
    """Return where plane `j` of a set of words lies, in words of 32 bits."""
    return e.builder.mul(e.builder.add(e.builder.mul(kind, e.integer(PLANES)), j), e.integer(LANES))


def _add(e: Emitter, inputs: list[Vector], planes: Any, kind: Any, first: int) -> Vector:
    """Add eight words of weight 2**first to the planes from `first` on; return the carry out of three."""
    for j in range(first, first + CARRIES.bit_length() - 1):
        place = _plane(e, kind, e.integer(j))
        plane = e.load(I32, planes, place)
        carries: list[Vector] = []
        for i in range(0, len(inputs), 2):
            plane, carry = carry_save(plane, inputs[i], inputs[i + 1])
            carries.append(carry)
        e.store(plane, planes, place)
        inputs = carries
    return inputs[0]


class Carries:
    """Room for what trees leave: the carries of a chunk's quads, and of eight chunks; `sets` of words side by side."""

    def __init__(self, e: Emitter, sets: int) -> None:
        self.e, self.sets = e, sets
        self._of_quads, self._of_chunks = (e.buffer(I32, max(sets, 1) * CARRIES * LANES) for _ in range(2))
        self._clear()

    def _place(self, number: Any, kind: Any) -> Any:
        builder, e = self.e.builder, self.e
        return builder.mul(builder.add(builder.mul(number, e.integer(self.sets)), kind), e.integer(LANES))

    def _all(self, carries: Any, kind: Any) -> list[Vector]:
        return [self.e.load(I32, carries, self._place(self.e.integer(i), kind)) for i in range(CARRIES)]

    def _clear(self) -> None:
        for i in range(CARRIES * self.sets):
            self.e.store(self.e.splat(I32, 0), self._of_chunks, self.e.integer(i * LANES))

    def keep(self, carry: Vector, quad: Any, kind: int) -> None:
        """Keep what the quad of that number carries."""
        self.e.store(carry, self._of_quads, self._place(quad, self.e.integer(kind)))

    def add_chunk(self, planes: Any, number: Any) -> None:
        """Add the quads' carries of the chunk of that number to the planes, and behind each eighth the chunks'."""
        e, builder = self.e, self.e.builder
        slot = builder.and_(number, e.integer(CARRIES - 1))
        for kind in map(e.integer, range(self.sets)):
            e.store(
                _add(e, self._all(self._of_quads, kind), planes, kind, QUAD_PLANES),
                self._of_chunks,
                self._place(slot, kind),
            )
        with builder.if_then(builder.icmp_signed("==", slot, e.integer(CARRIES - 1))):
            self.add_group(planes)

    def add_group(self, planes: Any) -> None:
        """Add the carries of the chunks since the last eighth to the planes."""
        e = self.e
        with e.loop(e.integer(self.sets)) as kind:
            carry = _add(e, self._all(self._of_chunks, kind), planes, kind, TREE_PLANES)
            for j in range(GROUP_PLANES, PLANES):
                place = _plane(e, kind, e.integer(j))
                held = e.load(I32, planes, place)
                e.store(held ^ carry, planes, place)
                carry = held & carry
        self._clear()


def drain(e: Emitter, planes: Any, sets: Any, used: Any, totals: Any) -> None:
    """Add the counters' values to `totals` (int64, 32 per set) and clear the `used` lowest planes."""
    builder = e.builder
    zero = e.splat(I32, 0)
    with e.loop(sets) as kind, e.loop(used) as plane:
        place = _plane(e, kind, plane)
        held = e.load(I32, planes, place)
        e.store(zero, planes, place)
        first = builder.mul(kind, e.integer(WORD_BITS))
        with e.loop(e.integer(WORD_BITS)) as position:
            bit = builder.shl(e.integer(1, I32), builder.trunc(position, I32))
            mask = (held & e.splat(I32, bit)) != 0
            amount = builder.shl(mask.count(), plane)
            total = e.at(totals, builder.add(first, position), I64)
            builder.store(builder.add(builder.load(total, typ=I64), amount), total)
