"""The statistics register in vector code: one-hot words, added bit by bit without carrying.

Each result becomes a word with one bit set, at the position of its leading bit. A tree of carry-save adders adds words
to counters that lie across the words: plane j holds bit j of all counters. The first two levels of the tree stay in
registers, four words at a time; a chunk of 32 words carries eight into the next three levels, and eight chunks carry
eight into three more:

    plane     0 ones   1 twos   2 fours   3 eights   4 sixteens   |   5    6    7   |   8.. ripple
    inputs      32       16        8          4           2       |   8    4    2   |   1
                          of a chunk                              |         of eight chunks

All results are counted in one set of words, and the negative ones again in a second.
"""

from __future__ import annotations

from typing import Any

from emu.backends.bounds import bounded
from emu.backends.numba.vector.lanes import I32, I64, LANES, Emitter, Vector, carry_save

WORD_BITS = 32
#: Vectors that are added together in registers, vectors of one chunk, and carries that three levels add.
QUAD, TREE, CARRIES = 4, 32, 8
#: Planes that are added in registers, in a chunk, in eight chunks; and in all, by carries that ripple.
QUAD_PLANES, TREE_PLANES, GROUP_PLANES = 2, 5, 8
PLANES = 16
#: Chunks until the counters are read: each adds at most 2**TREE_PLANES to a counter of PLANES bits.
MAX_CHUNKS = bounded((1 << (PLANES - TREE_PLANES)) - 1, 1, ((1 << PLANES) - 1) // TREE, "a counter has one bit a plane")


def one_hot(e: Emitter, position: Vector, words: int) -> list[Vector]:
    """Return words with the bit of each lane's position set; none for a position outside them."""
    made: list[Vector] = []
    lowest_bit = e.splat(I32, 1)
    for word in range(words):
        shift = position - WORD_BITS * word if word else position
        inside = shift.below_unsigned(WORD_BITS)  # negative ones are large as unsigned numbers
        # A shift by 32 or more is undefined in LLVM: its lanes are not chosen.
        made.append(inside.choose(lowest_bit << shift, 0))
    return made


class Quads:
    """The two planes of one set of words that stay in registers."""

    def __init__(self, e: Emitter) -> None:
        self.ones, self.twos = (e.variable(e.splat(I32, 0)) for _ in range(QUAD_PLANES))

    def add(self, words: list[Vector]) -> Vector:
        """Add four words; return the carry into the fours."""
        # Two words at a time join a plane: the sum stays in the plane, and two carries meet in the twos.
        ones, first = carry_save(self.ones.now, words[0], words[1])
        ones, second = carry_save(ones, words[2], words[3])
        twos, carry = carry_save(self.twos.now, first, second)
        self.ones.set(ones)
        self.twos.set(twos)
        return carry

    def store(self, e: Emitter, planes: Any, kind: int) -> None:
        """Write the planes into the array that has the others of their set."""
        for j, plane in enumerate((self.ones, self.twos)):
            e.store(plane.now, planes, _plane(e, e.integer(kind), e.integer(j)))


def _plane(e: Emitter, kind: Any, j: Any) -> Any:
    """Return the offset of plane `j` of a set of words, in words of 32 bits."""
    return e.builder.mul(e.builder.add(e.builder.mul(kind, e.integer(PLANES)), j), e.integer(LANES))


def _add(e: Emitter, inputs: list[Vector], planes: Any, kind: Any, first: int) -> Vector:
    """Add eight words of weight 2**first to the planes from `first` on; return the carry out of three."""
    # Each level halves the carries: eight, four, two, one.
    for j in range(first, first + CARRIES.bit_length() - 1):
        offset = _plane(e, kind, e.integer(j))
        plane = e.load(I32, planes, offset)
        carries: list[Vector] = []
        for i in range(0, len(inputs), 2):
            plane, carry = carry_save(plane, inputs[i], inputs[i + 1])
            carries.append(carry)
        e.store(plane, planes, offset)
        inputs = carries
    return inputs[0]


class Carries:
    """Room for the carries of a chunk's quads, and of eight chunks; `sets` of words side by side."""

    def __init__(self, e: Emitter, sets: int) -> None:
        self.e, self.sets = e, sets
        self._of_quads, self._of_chunks = (e.buffer(I32, max(sets, 1) * CARRIES * LANES) for _ in range(2))
        # Groups of fewer than eight chunks add what is left as 0.
        self._clear()

    def _offset(self, number: Any, kind: Any) -> Any:
        builder, e = self.e.builder, self.e
        return builder.mul(builder.add(builder.mul(number, e.integer(self.sets)), kind), e.integer(LANES))

    def _all(self, carries: Any, kind: Any) -> list[Vector]:
        return [self.e.load(I32, carries, self._offset(self.e.integer(i), kind)) for i in range(CARRIES)]

    def _clear(self) -> None:
        for i in range(CARRIES * self.sets):
            self.e.store(self.e.splat(I32, 0), self._of_chunks, self.e.integer(i * LANES))

    def keep(self, carry: Vector, quad: Any, kind: int) -> None:
        """Keep what the quad of that number carries."""
        self.e.store(carry, self._of_quads, self._offset(quad, self.e.integer(kind)))

    def add_chunk(self, planes: Any, number: Any) -> None:
        """Add the carries of that chunk's quads to the planes, and after each eighth chunk those of eight chunks."""
        e, builder = self.e, self.e.builder
        # The number modulo eight, a power of two.
        slot = builder.and_(number, e.integer(CARRIES - 1))
        for kind in map(e.integer, range(self.sets)):
            e.store(
                _add(e, self._all(self._of_quads, kind), planes, kind, QUAD_PLANES),
                self._of_chunks,
                self._offset(slot, kind),
            )
        with builder.if_then(builder.icmp_signed("==", slot, e.integer(CARRIES - 1))):
            self.add_group(planes)

    def add_group(self, planes: Any) -> None:
        """Add the carries of the chunks since the last eighth to the planes."""
        e = self.e
        with e.loop(e.integer(self.sets)) as kind:
            carry = _add(e, self._all(self._of_chunks, kind), planes, kind, TREE_PLANES)
            # The one carry of eight chunks ripples through the highest planes.
            for j in range(GROUP_PLANES, PLANES):
                offset = _plane(e, kind, e.integer(j))
                plane = e.load(I32, planes, offset)
                e.store(plane ^ carry, planes, offset)
                # A half adder: bits that both have are carried on.
                carry = plane & carry
        self._clear()


def drain(e: Emitter, planes: Any, sets: Any, used: Any, totals: Any) -> None:
    """Add the counters' values to `totals` (int64, 32 per set) and clear the `used` lowest planes."""
    builder = e.builder
    zero = e.splat(I32, 0)
    with e.loop(sets) as kind, e.loop(used) as j:
        offset = _plane(e, kind, j)
        plane = e.load(I32, planes, offset)
        e.store(zero, planes, offset)
        first = builder.mul(kind, e.integer(WORD_BITS))
        with e.loop(e.integer(WORD_BITS)) as position:
            bit = builder.shl(e.integer(1, I32), builder.trunc(position, I32))
            mask = (plane & e.splat(I32, bit)) != 0
            amount = builder.shl(mask.count(), j)  # each lane has counters of its own, of which plane j is bit j
            total = e.at(totals, builder.add(first, position), I64)
            builder.store(builder.add(builder.load(total, typ=I64), amount), total)
