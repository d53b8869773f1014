"""The compiled loops of `Fabric`: messages pass stations, whose resources serve one message at a time.

At a station each message occupies two resources, which may be the same one, from its first byte to its last. Resources
serve round by round. Within a round the messages that can begin earliest begin; if they compete, arbitration decides:

    repeat: t = the earliest time at which a waiting message has its first chunk and both resources free
            of the messages that can begin at t, in the order of arbitration, each begins if both are still free

If no resource has two messages in a round, there is nothing to decide. Otherwise a heap holds the waiting messages.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from emu.backends.numba.compiling import kernel
from emu.hardware.fabric import BUSY, DOWN, FREE, SERVED, UP, USED, WIRE

Integers = npt.NDArray[np.int64]

#: Numbers of the rules of arbitration in compiled code.
FIRST_COME, LOWEST, ROUND_ROBIN = 0, 1, 2
#: Numbers of the faults that a message may have.
NOTHING, NO_RECEIVER, TO_ITSELF, NO_BYTES, TOO_LONG, EARLY = 0, 1, 2, 3, 4, 5
#: The end of a message that ends too late for 63 bits; -1 is that of no message.
TOO_LATE = -2
#: bytes * 10**12 / bandwidth is a long division in base 10**6, two digits after the bytes: remainders are below the
#: bandwidth, at most 9e12 (`fabric.MOST_BYTES_PER_S`), so 10**6 times them stay below 2**63 (9.22e18).
_BASE = 10**6


@kernel
def first_wrong(ready: Integers, to: Integers, size: Integers, most: int) -> tuple[int, int, int]:
    """Return the fault of the first faulty message, its round and its sender."""
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
def _duration(size: int, bytes_per_s: int, known: Integers) -> int:
    """Return picoseconds for a number of bytes, rounded up; `known` caches the last size and its time."""
    # messages of a phase have few sizes: for most of them two divisions are saved
    if known[0] != size:
        # whole seconds, then six digits for microseconds, then six more, rounded up, for picoseconds
        rest = (size % bytes_per_s) * _BASE
        upper = rest // bytes_per_s
        rest = (rest % bytes_per_s) * _BASE
        known[0] = size
        known[1] = (size // bytes_per_s * _BASE + upper) * _BASE + (rest + bytes_per_s - 1) // bytes_per_s
    return known[1]


@partial(kernel, inlined=True)
def _transmit(m: int, now: int, size: int, speed: Integers, arrives: Integers, end: Integers, known: Integers) -> int:
    """Move the chunks of message m, from `now` on; return how long bytes move.

    `arrives` has the time at which each chunk comes to the station, and then that at which it comes to the next. The
    end of a message of which some time does not fit 63 bits is `TOO_LATE`.
    """
    chunks = arrives.shape[1]
    # all pieces are of this size but the last
    piece = (size + chunks - 1) // chunks if chunks > 1 else size
    left, moved, chunk, fits = size, 0, 0, True
    while left > 0:
        # a cache for whole pieces and another for last ones, or they would replace each other at every message
        duration = _duration(piece, speed[0], known[0]) if left >= piece else _duration(left, speed[0], known[1])
        # a chunk begins when the one before it is through, and when it has come itself
        now = max(now, arrives[m, chunk]) + duration
        arrives[m, chunk] = now + speed[1]
        # sums of two times that do not fit wrap below 0
        fits &= now >= 0 and arrives[m, chunk] >= 0
        moved += duration
        left -= piece
        chunk += 1
    # pieces are rounded up, so that there may be fewer than chunks: those that are missing come with the last
    for later in range(chunk, chunks):
        arrives[m, later] = arrives[m, chunk - 1]
    end[m] = now if fits else TOO_LATE
    return moved


@partial(kernel, inlined=True)
def _begin(
    m: int,
    now: int,
    first: Integers,
    second: Integers,
    size: Integers,
    speed: Integers,
    arrives: Integers,
    state: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Begin message m, whose resources are free: occupy both until its last byte has left."""
    moved = _transmit(m, now, size[m], speed, arrives, end, known)
    a, b = first[m], second[m]
    # not free between two chunks, even if the later one has not come yet
    state[FREE, a] = state[FREE, b] = end[m]
    # round robin goes by the second resource, the receiver's port
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
    arrives: Integers,
    state: Integers,
    begin: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Let competing messages begin, in the order of time.

    The heap `soonest` has the waiting messages, by a time before which they cannot begin; they may have to wait longer.
    """
    free, served, senders = state[FREE], state[SERVED], len(first)
    candidates, keys = np.empty(senders, np.int64), np.empty(senders, np.int64)
    soonest = [(arrives[m, 0], m) for m in range(senders) if first[m] >= 0]
    heapify(soonest)
    while len(soonest):
        # every message that may begin at `now` competes; no message in the heap can begin earlier
        now, count = soonest[0][0], 0
        while len(soonest) and soonest[0][0] == now:
            m = heappop(soonest)[1]
            if arbitration == FIRST_COME:
                keys[count] = arrives[m, 0]
            elif arbitration == LOWEST:
                keys[count] = m
            else:
                # how far behind the sender served last, in the ring of senders; -1, nobody, begins with sender 0
                keys[count] = (m - served[second[m]] - 1) % senders
            candidates[count] = m
            count += 1
        # stable: of equal keys the lowest sender, as they came off the heap
        for k in np.argsort(keys[:count], kind="mergesort"):
            m = int(candidates[k])
            # one that began in this loop may have taken a resource: the loser comes back when that is free
            at = max(free[first[m]], free[second[m]])
            if at <= now:
                begin[m] = now
                _begin(m, now, first, second, size, speed, arrives, state, end, known)
            else:
                heappush(soonest, (at, m))


@kernel
def pass_station(
    first: Integers,
    second: Integers,
    size: Integers,
    speed: Integers,
    arbitration: int,
    arrives: Integers,
    state: Integers,
    begin: Integers,
    end: Integers,
    known: Integers,
) -> None:
    """Let the messages of a round pass a station; messages without resources (-1) do not pass it.

    Args:
        first: resource of each message, (P,).
        second: the other one, (P,).
        size: bytes of each message, (P,).
        speed: bytes per second, picoseconds of latency.
        arbitration: rule that chooses among competing messages.
        arrives: when each chunk comes to the station, (P, chunks); then, when it comes to the next.
        state: state of each resource, (4, resources).
        begin: when each message begins, (P,); -1 if it does not pass.
        end: when its last byte has left, (P,); -1 if it does not pass.
        known: cached sizes and their times, (2, 2).
    """
    free, used = state[FREE], state[USED]
    used[:] = 0
    crowded = False
    for m in range(len(first)):
        a, b = first[m], second[m]
        begin[m] = end[m] = -1
        if a >= 0:
            # a message's own two resources may be one, which is no competition
            crowded |= used[a] + used[b] > 0
            used[a] = used[b] = 1
    if crowded:
        _arbitrate(first, second, size, speed, arbitration, arrives, state, begin, end, known)
        return
    # no two messages share a resource: they begin independently of each other, in any order
    for m in range(len(first)):
        if first[m] >= 0:
            begin[m] = max(arrives[m, 0], max(free[first[m]], free[second[m]]))
            _begin(m, begin[m], first, second, size, speed, arrives, state, end, known)


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
        arbitration: arbitration of the crossbar; copies are served in order of arrival.
        resources: resources of each processor at each station, (3, 2, P).
        speeds: speeds of each station, (3, 2).
        state: state of each resource, (4, resources).
        times: begin and end at each station, then arrival, (7 or 3, R, P).
    """
    rounds, senders = to.shape
    arrives, first, second = (
        np.empty((senders, chunks), np.int64),
        np.empty(senders, np.int64),
        np.empty(senders, np.int64),
    )
    # for each station, as their speeds differ: pieces and last pieces, each a size and its time
    known = np.full((3, 2, 2), -1, np.int64)
    arrived = len(times) - 1
    for r in range(rounds):
        for i in range(senders):
            # all chunks are at the sender from the beginning
            arrives[i] = ready[r, i]
        for station in range(UP if over_hosts else WIRE, DOWN + 1 if over_hosts else WIRE + 1):
            for i in range(senders):
                j = to[r, i]
                # a copy has both resources at one end: at the sender on the way up, at the receiver on the way down
                at_sender, at_receiver = (i if station != DOWN else j), (j if station != UP else i)
                first[i] = -1 if j < 0 else resources[station, 0, at_sender]
                second[i] = -1 if j < 0 else resources[station, 1, at_receiver]
                if over_hosts and station == WIRE and j >= 0 and resources[WIRE, 0, i] == resources[WIRE, 0, j]:
                    first[i] = -1  # both devices are at one host
            row = 2 * station if over_hosts else 0
            rule = arbitration if station == WIRE else FIRST_COME
            begin, end = times[row, r], times[row + 1, r]
            pass_station(first, second, size[r], speeds[station], rule, arrives, state, begin, end, known[station])
        for i in range(senders):
            times[arrived, r, i] = arrives[i, chunks - 1] if to[r, i] >= 0 else -1


@kernel
def pass_ring(
    ready: Integers,
    sends: npt.NDArray[np.bool_],
    members: Integers,
    messages: Integers,
    of_receiver: bool,
    rounds: int,
    latency: int,
    out: Integers,
    into: Integers,
    times: Integers,
) -> int:
    """Let rounds of a ring pass ports that nothing else uses meanwhile; return the bytes of all messages.

    In round r, member i sends to member i + r: so no port has two messages in a round, and there is nothing to decide.

    Args:
        ready: when each member is ready, (N,).
        sends: whether it sends, (N,).
        members: its number, (N,).
        messages: bytes of its messages, of those that it sends or gets, 0 for none; how long each takes, (2, N).
        of_receiver: whether these are the messages that it gets.
        rounds: how many; after N - 1 of them they begin again.
        latency: picoseconds behind the last byte.
        out: state of its port out: free from, busy for, sender served last; changed, (3, N).
        into: the same of its port in, (3, N).
        times: when each member has everything, and when everything of it has arrived elsewhere; changed, (2, N).
    """
    count, total = len(ready), 0
    sizes, durations = messages[0], messages[1]
    arrived, finished = times[0], times[1]
    for r in range(rounds):
        distance = r % (count - 1) + 1
        for i in range(count):
            # (i + distance) modulo count, without a division
            j = i + distance - (count if i + distance >= count else 0)
            message = j if of_receiver else i
            if sends[i] and sizes[message] > 0:
                duration = durations[message]
                end = max(ready[i], max(out[FREE, i], into[FREE, j])) + duration
                out[FREE, i] = into[FREE, j] = end
                out[BUSY, i] += duration
                into[BUSY, j] += duration
                into[SERVED, j] = members[i]
                arrived[j] = max(arrived[j], end + latency)
                finished[i] = max(finished[i], end + latency)
                total += sizes[message]
    return total
