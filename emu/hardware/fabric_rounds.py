"""The compiled loops of `Fabric`: messages pass stations, whose resources serve one message at a time.

A station gives every message two resources, which may be one and the same, and holds both from the first byte until the
last. A resource works round by round. Within a round, of all messages that can begin, those begin earliest; where they
compete, the first in the order of arbitration does:

    repeat: t = the earliest time at which a message that waits has its first chunk and both resources free
            those that can begin at t, in order: begin, if both resources are still free

If no resource has two messages in a round, there is nothing to decide. Otherwise a heap holds the waiting messages.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from emu.backends.numba.compiling import kernel

Integers = npt.NDArray[np.int64]

#: Orders of arbitration, by their numbers in compiled code.
FIRST_COME, LOWEST, ROUND_ROBIN = 0, 1, 2
#: What may be wrong with a message.
NOTHING, NO_RECEIVER, TO_ITSELF, NO_BYTES, TOO_LONG, EARLY = 0, 1, 2, 3, 4, 5
#: Stations on the way, and columns of the tables that describe them.
UP, WIRE, DOWN = 0, 1, 2
#: What is known of a resource: free from, busy for, sender served last, whether a message of this round uses it.
FREE, BUSY, SERVED, USED = 0, 1, 2, 3
#: A picosecond is found in two steps of long division, whose rests stay below 2**63.
_STEP = 10**6


@kernel
def first_wrong(ready: Integers, to: Integers, size: Integers, most: int) -> tuple[int, int, int]:
    """Return what is wrong with the first message that has something wrong, its round, its sender."""
    rounds, senders = to.shape
    for r in range(rounds):
        for i in range(senders):
            receiver = to[r, i]
            if receiver < -1 or receiver >= senders:
                return NO_RECEIVER, r, i
            if receiver >= 0:
                if receiver == i:
                    return TO_ITSELF, r, i
                if size[r, i] < 1:
                    return NO_BYTES, r, i
                if size[r, i] > most:
                    return TOO_LONG, r, i
                if ready[r, i] < 0:
                    return EARLY, r, i
    return NOTHING, 0, 0


@partial(kernel, inlined=True)
def _holding(size: int, bytes_per_s: int, known: Integers) -> int:
    """Return picoseconds of a number of bytes, rounded up; `known` holds the size before and its time."""
    if known[0] != size:
        rest = (size % bytes_per_s) * _STEP
        upper = rest // bytes_per_s
        rest = (rest % bytes_per_s) * _STEP
        known[0] = size
        known[1] = (size // bytes_per_s * _STEP + upper) * _STEP + (rest + bytes_per_s - 1) // bytes_per_s
    return known[1]


@partial(kernel, inlined=True)
def _transmit(m: int, now: int, size: int, speed: Integers, lies: Integers, end: Integers, known: Integers) -> int:
    """Move the chunks of message m, from `now` on; return for how long something moves.

    `lies` says when each chunk has come, and then when it has arrived.
    """
    chunks = lies.shape[1]
    piece = (size + chunks - 1) // chunks if chunks > 1 else size
    left, moved, chunk = size, 0, 0
    while left > 0:
        held = _holding(piece, speed[0], known[0]) if left >= piece else _holding(left, speed[0], known[1])
        now = max(now, lies[m, chunk]) + held
        lies[m, chunk] = now + speed[1]
        moved += held
        left -= piece
        chunk += 1
    for later in range(chunk, chunks):
        lies[m, later] = lies[m, chunk - 1]
    end[m] = now
    return moved


@partial(kernel, inlined=True)
def _begin(
    m: int,
    now: int,
    first: Integers,
    second: Integers,
    size: Integers,
    speed: Integers,
    lies: Integers,
    state: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Begin message m, whose resources are free: hold both until its last byte has left."""
    moved = _transmit(m, now, size[m], speed, lies, end, known)
    a, b = first[m], second[m]
    state[FREE, a] = state[FREE, b] = end[m]
    state[SERVED, b] = m
    state[BUSY, a] += moved
    if a != b:
        state[BUSY, b] += moved


@kernel
def _arbitrate(
    first: Integers,
    second: Integers,
    size: Integers,
    speed: Integers,
    arbitration: int,
    lies: Integers,
    state: Integers,
    begin: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Let messages that compete begin, one instant after the other.

    `soonest` holds who waits, by a time before which it cannot begin; it may be later by now.
    """
    free, served, senders = state[FREE], state[SERVED], len(first)
    able, keys = np.empty(senders, np.int64), np.empty(senders, np.int64)
    soonest = [(lies[m, 0], m) for m in range(senders) if first[m] >= 0]
    heapify(soonest)
    while len(soonest):
        now, count = soonest[0][0], 0
        while len(soonest) and soonest[0][0] == now:
            m = heappop(soonest)[1]
            if arbitration == FIRST_COME:
                keys[count] = lies[m, 0]
            elif arbitration == LOWEST:
                keys[count] = m
            else:
                keys[count] = (m - served[second[m]] - 1) % senders
            able[count] = m
            count += 1
        # stable: of equal keys the lowest sender, as they came off the heap
        for k in np.argsort(keys[:count], kind="mergesort"):
            m = int(able[k])
            at = max(free[first[m]], free[second[m]])
            if at <= now:
                begin[m] = now
                _begin(m, now, first, second, size, speed, lies, state, end, known)
            else:
                heappush(soonest, (at, m))


@kernel
def pass_station(
    first: Integers,
    second: Integers,
    size: Integers,
    speed: Integers,
    arbitration: int,
    lies: Integers,
    state: Integers,
    begin: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Let the messages of a round pass a station; those without resources (-1) are elsewhere.

    Args:
        first: resource of each message, (P,).
        second: the other one, (P,).
        size: bytes of each message, (P,).
        speed: bytes per second, picoseconds of latency.
        arbitration: who begins where messages compete.
        lies: when each chunk comes, (P, chunks); then, when it has arrived.
        state: state of each resource, (4, resources).
        begin: when each message begins, (P,); -1 elsewhere.
        end: when its last byte has left, (P,); -1 elsewhere.
        known: sizes and their times, (2, 2).
    """
    free, used = state[FREE], state[USED]
    used[:] = 0
    crowded = False
    for m in range(len(first)):
        a, b = first[m], second[m]
        begin[m] = end[m] = -1
        if a >= 0:
            crowded |= used[a] + used[b] > 0
            used[a] = used[b] = 1
    if crowded:
        _arbitrate(first, second, size, speed, arbitration, lies, state, begin, end, known)
        return
    for m in range(len(first)):
        if first[m] >= 0:
            begin[m] = max(lies[m, 0], max(free[first[m]], free[second[m]]))
            _begin(m, begin[m], first, second, size, speed, lies, state, end, known)


@kernel
def pass_rounds(
    ready: Integers,
    to: Integers,
    size: Integers,
    chunks: int,
    over_hosts: bool,
    arbitration: int,
    resources: Integers,
    speeds: Integers,
    state: Integers,
    times: Integers,
) -> None:
    """Let round after round pass all stations.

    Args:
        ready: when each message is ready, (R, P).
        to: its receiver, -1 for none, (R, P).
        size: its bytes, (R, P).
        chunks: into which it is cut.
        over_hosts: whether it is copied to the sender's host, and from the receiver's.
        arbitration: arbitration of the crossbar; copies are served as they come.
        resources: resources of each processor at each station, (3, 2, P).
        speeds: speeds of each station, (3, 2).
        state: state of each resource, (4, resources).
        times: begin and end at each station, then arrival, (7 or 3, R, P).
    """
    rounds, senders = to.shape
    lies, first, second = (
        np.empty((senders, chunks), np.int64),
        np.empty(senders, np.int64),
        np.empty(senders, np.int64),
    )
    known = np.full((3, 2, 2), -1, np.int64)
    arrived = len(times) - 1
    for r in range(rounds):
        for i in range(senders):
            lies[i] = ready[r, i]
        for station in range(UP if over_hosts else WIRE, DOWN + 1 if over_hosts else WIRE + 1):
            for i in range(senders):
                j = to[r, i]
                at_sender, at_receiver = (i if station != DOWN else j), (j if station != UP else i)
                first[i] = -1 if j < 0 else resources[station, 0, at_sender]
                second[i] = -1 if j < 0 else resources[station, 1, at_receiver]
                if over_hosts and station == WIRE and j >= 0 and resources[WIRE, 0, i] == resources[WIRE, 0, j]:
                    first[i] = -1  # both lie at one host
            row = 2 * station if over_hosts else 0
            rule = arbitration if station == WIRE else FIRST_COME
            begin, end = times[row, r], times[row + 1, r]
            pass_station(first, second, size[r], speeds[station], rule, lies, state, begin, end, known[station])
        for i in range(senders):
            times[arrived, r, i] = lies[i, chunks - 1] if to[r, i] >= 0 else -1
