"""Cases in forked children: a child runs many, and says before each which one; what kills it is that one's fault.

parent ──fork──► child: "1.0" judged, "1.1" judged, "1.2" ✗        the parent forks another for "1.3", ...
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .running import drawn, judged

#: What a child may take beyond what its parent holds; seconds after which a case counts as endless.
ROOM_BYTES, MOST_SECONDS = 6 << 30, 90.0
#: Cases of a child.
MOST_CASES = 1000


class Report(NamedTuple):
    """How a case ended.

    Attributes:
        seed: of the case.
        ending: "taken", "refused", "void" (its line is none) or "killed".
        faults: kinds and details.
    """

    seed: str
    ending: str
    faults: list[tuple[str, str]]


def _judged(seed: str) -> tuple[str, Sequence[Any]]:
    return judged(drawn(seed))


def in_children(
    seeds: Sequence[str],
    judge: Callable[[str], tuple[str, Sequence[Any]]] = _judged,
    most_seconds: float = MOST_SECONDS,
) -> Iterator[Report]:
    """Run cases in children and yield how each ended."""
    waiting = list(seeds)
    while waiting:
        done = 0
        for report in _batch(waiting[:MOST_CASES], judge, most_seconds):
            done += 1
            yield report
        waiting = waiting[done:]


def _batch(
    seeds: Sequence[str], judge: Callable[[str], tuple[str, Sequence[Any]]], most_seconds: float
) -> Iterator[Report]:
    """Run cases in one child; ends behind the last one, or the one that killed it."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_the_child(seeds, judge, writing, err.fileno())
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as stream:
            done = yield from _reports(stream, seeds, most_seconds)
        if done == len(seeds):
            os.waitpid(child, 0)
            return
        os.kill(child, signal.SIGKILL) if done < 0 else None
        _, status = os.waitpid(child, 0)
        err.seek(0)
        said = err.read().decode("utf-8", "replace")
    seed = seeds[done if done >= 0 else -done - 1]
    code = os.waitstatus_to_exitcode(status)
    what = (
        f"endless: {most_seconds:.0f} s"
        if done < 0
        else f"killed by {signal.Signals(-code).name}"
        if code < 0
        else f"exit code {code}"
    )
    yield Report(seed, "killed", [(f"{what} ({drawn(seed).function})", said[-600:])])


def _reports(stream: Any, seeds: Sequence[str], most_seconds: float) -> Any:
    """Yield what a child writes; return how many cases it ended, -1 - how many if the next one does not end."""
    done, rest = 0, b""
    while done < len(seeds):
        if not select.select([stream], [], [], most_seconds)[0]:
            return -1 - done
        piece = stream.read(1 << 16)
        if not piece:
            return done
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            seed, ending, faults = json.loads(line)
            done += 1
            yield Report(seed, ending, [(kind, detail) for kind, detail in faults])
    return done


def _be_the_child(
    seeds: Sequence[str], judge: Callable[[str], tuple[str, Sequence[Any]]], writing: int, err: int
) -> None:
    try:
        os.dup2(err, 2)
        faulthandler.enable(2)
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM_BYTES, used + ROOM_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for seed in seeds:
            ending, faults = judge(seed)
            os.write(writing, json.dumps([seed, ending, [list(fault) for fault in faults]]).encode() + b"\n")
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    os._exit(0)
