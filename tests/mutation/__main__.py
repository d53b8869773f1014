"""The command: `python -m tests.mutation --mutants 100 --seed 1 --workers 2`."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .draw import drawn
from .mutants import Mutant
from .own_tests import own_tests_of
from .page import EQUIVALENT, difference, judgement_of, judgements, report_of, write_between_markers
from .process import Checkout, Verdict

ROOT = Path(__file__).resolve().parents[2]


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--workers", type=int, default=2, help="how many at once")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="only files whose path starts like this")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "mutation.md", help="page with the two markers")
    parser.add_argument("--print", action="store_true", help="print the table, write no page")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--work", type=Path, help="folder of copy and caches, kept; otherwise a new one, removed")
    return parser.parse_args(argv)


def judged(mutants: Sequence[Mutant], checkout: Checkout, workers: int, console: Console) -> list[Verdict]:
    """Run every mutant against its own tests; verdicts in the order of the mutants."""
    tests = [own_tests_of(m.path) for m in mutants]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: dict[int, Verdict] = {}
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(workers) as pool:
        needed = list(dict.fromkeys(tests))
        for _ in progress.track(pool.map(checkout.measure, needed), len(needed), description="without a mutant"):
            pass
        bar = progress.add_task("mutants", total=len(mutants))
        # the longest first, so that the workers end together
        order = sorted(range(len(mutants)), key=lambda i: -checkout.baselines[tests[i]])
        futures = {pool.submit(checkout.judge, mutants[i], tests[i], i): i for i in order}
        for future in as_completed(futures):
            verdict = found[futures[future]] = future.result()
            progress.advance(bar)
            show(verdict, checkout, console)
    return [found[i] for i in range(len(mutants))]


def show(verdict: Verdict, checkout: Checkout, console: Console) -> None:
    m = verdict.mutant
    line = f"{verdict.outcome:9} {verdict.seconds:5.1f} s  {m.path}:{m.line} {m.before} -> {m.after}  {verdict.by}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    if verdict.outcome == "survived":
        console.print("\n".join(difference(m, checkout)), markup=False, highlight=False, soft_wrap=True)


def run(argv: Sequence[str], folder: Path) -> int:
    options = arguments_of(argv)
    start, console = time.monotonic(), Console(stderr=True)
    checkout = Checkout(ROOT, folder)
    set_aside: list[Mutant] = []
    entries = judgements()

    def is_equivalent(mutant: Mutant) -> bool:
        found = judgement_of(mutant, entries).startswith(EQUIVALENT)
        set_aside.extend([mutant] * found)
        return found

    mutants = drawn(checkout.root, options.mutants, options.seed, options.only, is_equivalent)
    if options.list:
        for m in mutants:
            print(f"{m.path}:{m.line} {m.kind}: {m.before} -> {m.after}")
        return 0
    verdicts = judged(mutants, checkout, options.workers, console)
    command = shlex.join(["python", "-m", "tests.mutation", *argv])
    report = report_of(verdicts, checkout, command, time.monotonic() - start, set_aside)
    if options.print:
        print(report)
    else:
        write_between_markers(options.page, report)
    return 0


def main(argv: Sequence[str]) -> int:
    work = arguments_of(argv).work
    if work is not None:
        return run(argv, work)
    with tempfile.TemporaryDirectory(prefix="emu-mutation-") as folder:
        return run(argv, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
