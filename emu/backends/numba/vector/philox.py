"""Philox4x32-10 in vector code: sixteen counters at a time, each word in the low half of a 64-bit lane.

A product of 32 by 32 bits reads the low halves of its lanes and fills a lane; high halves may hold anything until the
words are joined. Words are written in the order of the counters, lowest first, so that a field of 8, 16 or 32 bits is
an element of an array of such integers.

Source: docs/concepts/random-bits.md; Salmon et al., SC 2011.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.backends.numba.vector.lanes import I64, LANES, Emitter, Vector

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF
WORDS_PER_COUNTER = 4
#: Words of sixteen counters.
GROUP_WORDS = LANES * WORDS_PER_COUNTER


class Address(NamedTuple):
    """Scalars that name a sequence of random numbers: draw, stream, step and the key's halves, int64."""

    draw: Any
    stream: Any
    step: Any
    key_low: Any
    key_high: Any


def fill(e: Emitter, buffer: Any, first_counter: Any, groups: int, address: Address) -> None:
    """Write the words of `groups` * 16 counters from `first_counter` on into `buffer` (32-bit words)."""
    lane = e.constants(I64, list(range(LANES)))
    with e.loop(e.integer(groups)) as group:
        first = e.builder.add(first_counter, e.builder.mul(group, e.integer(LANES)))
        words = _rounds(e, (e.splat(I64, first) + lane) & LOW, address)
        _write(e, buffer, e.builder.mul(group, e.integer(GROUP_WORDS // 2)), words)


def _rounds(e: Emitter, counter: Vector, address: Address) -> tuple[Vector, Vector, Vector, Vector]:
    c0, c1, c2, c3 = counter, e.splat(I64, address.draw), e.splat(I64, address.stream), e.splat(I64, address.step)
    keys = [address.key_low, address.key_high]
    for _ in range(ROUNDS):
        p0 = (c0 & LOW) * MULTIPLIERS[0]
        p1 = (c2 & LOW) * MULTIPLIERS[1]
        # The low words c1 and c3 are the products themselves: what stands above them is masked or shifted out later.
        c0, c1 = (p1 >> 32) ^ c1 ^ e.splat(I64, keys[0]), p1
        c2, c3 = (p0 >> 32) ^ c3 ^ e.splat(I64, keys[1]), p0
        keys = [e.builder.add(key, e.integer(step)) for key, step in zip(keys, KEY_STEPS, strict=True)]
    return c0, c1, c2, c3


def _write(e: Emitter, buffer: Any, at: Any, words: tuple[Vector, Vector, Vector, Vector]) -> None:
    """Store counters one after another, their four words lowest first, as pairs of words."""
    first = (words[0] & LOW) | (words[1] << 32)
    second = (words[2] & LOW) | (words[3] << 32)
    half = LANES // 2
    for part in range(2):
        # Four words of a counter are neighbours in memory: lanes of the two vectors alternate.
        order = [lane + half * part + source * LANES for lane in range(half) for source in (0, 1)]
        e.store(first.shuffled(second, order), buffer, e.builder.add(at, e.integer(LANES * part)))
