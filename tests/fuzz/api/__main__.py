"""The command: `python -m tests.fuzz.api --cases 20000 --seed 1`; `--case 1.17` shows and judges a single one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.progress import track

from .batches import Report, in_children
from .running import drawn


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.api", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--seed", default="1", help="which")
    parser.add_argument("--case", action="append", default=[], metavar="SEED.N", help="only this one")
    parser.add_argument("--only", default="", metavar="TEXT", help="only calls whose line contains this")
    parser.add_argument("--shown", type=int, default=1, help="cases shown of each kind of fault")
    return parser.parse_args(argv)


def seeds_of(arguments: argparse.Namespace) -> Iterator[str]:
    """The seeds of the cases to run."""
    for seed in arguments.case or (f"{arguments.seed}.{i}" for i in range(arguments.cases)):
        if arguments.only in drawn(seed).line:
            yield seed


def main(argv: Sequence[str]) -> int:
    arguments = arguments_of(argv)
    started, endings = time.monotonic(), Counter[str]()
    kinds: defaultdict[str, list[tuple[Report, str]]] = defaultdict(list)
    seeds = list(seeds_of(arguments))
    for report in track(in_children(seeds), "cases", total=len(seeds)):
        endings[report.ending] += 1
        for kind, detail in report.faults:
            kinds[kind].append((report, detail))
        if arguments.case:
            print(f"{report.seed}: {report.ending}\n    {drawn(report.seed).line}")
    for kind, reports in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"\n{len(reports)} x {kind}")
        for report, detail in reports[: arguments.shown]:
            print(f"    {detail}\n    case {report.seed}: {drawn(report.seed).line}")
    ends = ", ".join(f"{count} {ending}" for ending, count in endings.most_common())
    seconds = time.monotonic() - started
    print(f"\n{len(seeds)} cases, seed {arguments.seed}: {ends}; {len(kinds)} kinds of faults; {seconds:.0f} s")
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
