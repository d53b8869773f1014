"""One process per number of threads and BLAS kernel; results come back line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.measuring.environment import environment, other_core_type
from benchmarks.measuring.machine import processor_flags
from benchmarks.measuring.result import Result
from benchmarks.measuring.row import Row
from benchmarks.measuring.timing import FULL
from emu.jobs.engine import without_interrupts

#: Lines of a failed process's stderr worth showing.
TAIL = 3
WORKER = "benchmarks.measuring.worker"
#: The checkout: from here `python -m` imports `benchmarks` whatever folder the command was typed in.
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """Rows for one process.

    Attributes:
        rows: what it measures.
        threads: of every side.
        peers: names of the peers.
        quick: small sizes, few rounds.
        core_type: `OPENBLAS_CORETYPE`; empty leaves it as it is.
        budget_s: seconds behind which a row begins no further round.
    """

    rows: tuple[Row, ...]
    threads: int
    peers: tuple[str, ...]
    quick: bool
    core_type: str = ""
    budget_s: float = FULL.budget_s


def jobs(
    rows: list[Row], threads: list[int], peers: list[str], *, quick: bool, budget_s: float = FULL.budget_s
) -> list[Job]:
    """Return the processes a command needs.

    Per thread count all rows, then products with other BLAS kernels; then what is measured more than once, again.
    """
    found: list[Job] = []
    other = other_core_type(os.environ, processor_flags())
    products = tuple(row for row in rows if row.uses_blas)
    for count in threads:
        found.append(Job(tuple(rows), count, tuple(peers), quick, budget_s=budget_s))
        if products and other and not quick:
            found.append(Job(products, count, (), quick, other, budget_s))
    for sweep in range(1, 1 if quick else max(row.sweeps for row in rows)):
        again = tuple(row for row in rows if row.sweeps > sweep)
        found += [Job(again, count, (), quick, budget_s=budget_s) for count in threads]
    return found


def run(job: Job) -> Iterator[Result]:
    """Start a job's process and give its results as they come; rows it never reached carry why."""
    wanted = {
        "rows": [row.name for row in job.rows],
        "peers": list(job.peers),
        "quick": job.quick,
        "threads": job.threads,
        "core_type": job.core_type,
        "budget_s": job.budget_s,
    }
    with tempfile.TemporaryFile("w+") as complaints:
        with without_interrupts():  # else Ctrl-C ends it, too, and its row counts as failed
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                cwd=ROOT,
                env=environment(os.environ, job.threads, job.core_type),
            )
        try:
            yield from _results(process, json.dumps(wanted), job, complaints)
        finally:
            process.kill()
            process.wait()


def _results(process: subprocess.Popen[str], wanted: str, job: Job, complaints: TextIO) -> Iterator[Result]:
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(wanted + "\n")
        process.stdin.flush()
        done = 0
        for line in process.stdout:
            done += 1
            yield Result.from_dict(json.loads(line))
    code = process.wait()
    if done < len(job.rows):
        complaints.seek(0)
        last = " | ".join(complaints.read().strip().splitlines()[-TAIL:])
        for row in job.rows[done:]:
            yield Result(row.name, job.threads, failure=f"the measuring process ended with code {code}: {last}")
