"""The command: `python -m tests.fuzz --cases 10000 --seed 1`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.progress import track

from .runner import Case, Range
from .targets import Target, targets


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--seed", default="1", help="which")
    parser.add_argument("--only", default="", metavar="TEXT", help="only targets whose name contains this")
    parser.add_argument("--keep", type=Path, help="folder of the last case, kept; otherwise a new one, removed")
    return parser.parse_args(argv)


def drawn(count: int, seed: str, only: str = "") -> Iterator[Case]:
    """Cases, each target as often as its weight says."""
    listed: list[Target] = [target for target in targets() if only in target.name]
    chosen = random.Random(seed).choices(listed, [target.weight for target in listed], k=count)
    for i, target in enumerate(chosen):
        yield Case(target, f"{seed}.{i}")


def main(argv: Sequence[str]) -> int:
    arguments = arguments_of(argv)
    started, codes, faults = time.monotonic(), Counter[object](), 0
    with tempfile.TemporaryDirectory(prefix="emu-fuzz-") as folder:
        cases = Range(arguments.keep or Path(folder))
        for case in track(list(drawn(arguments.cases, arguments.seed, arguments.only)), "cases"):
            ending, fault = cases.run(case)
            codes[ending.code] += 1
            if fault:
                faults += 1
                print(f"\n{case}: {fault}\n{ending.err[-1500:]}", flush=True)
    ends = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items(), key=str))
    print(
        f"{arguments.cases} cases, seed {arguments.seed}: {ends}; {faults} faults; {time.monotonic() - started:.0f} s"
    )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
