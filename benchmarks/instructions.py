"""What the processor's instructions allow: the inner loop of a row's kernel, and its cycles as llvm-mca counts them.

    python -m benchmarks.instructions [ROW ...] [--cpu icelake-server]

A row of `python -m benchmarks` is prepared small and run once, a step of training with its whole batch. Of the code
that it compiled, the loop with most of the named instructions is taken from the assembly, and given to llvm-mca, which
simulates a hundred turns of it on a model of a processor: operands in the first-level cache, nothing else in the way.
That is the limit of the kernel as it is written. What the row reaches less than that, packing, partial sums, memory and
the interpreter take.

Needs llvm-mca (apt-get install llvm) and a processor with AVX-512. The clock is measured by a chain of multiplications
and additions, 4 cycles a turn.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numba

from benchmarks.rows import all_rows

ROOT = Path(__file__).resolve().parents[1]

#: Stores of whole vectors that are no spills: results of the output stage, 16 float32 each.
STORE = r"vmov\w+\s+%zmm\d+, [-\d]*\(%r(?!sp|bp)"
PHILOX = r"vpmuludq\s.*%zmm"
#: Cuts floats to integers, toward zero.
CUT = r"vcvttps2dq\s.*%zmm"
TURNS = 100
#: Instructions of a stage, at least: it rounds, compares, and counts.
LONG = 100
CHAIN_CYCLES, CHAIN_TURNS = 4, 1 << 28


class Loop(NamedTuple):
    """An inner loop by what it does most.

    Attributes:
        marker: pattern of the instructions that are counted.
        work: results, or multiply-adds, of one of them.
        least: fewest instructions of the loop: shorter ones only copy.
    """

    marker: str
    work: float
    least: int = 0


#: Loops of rows: the first one's work is counted; the cycles of others are added, one turn for each turn of the first.
ROWS: dict[str, tuple[Loop, ...]] = {
    "stage/fix8": (Loop(STORE, 16, LONG),),
    "stage/fix16": (Loop(STORE, 16, LONG),),
    "stage/fp16": (Loop(STORE, 16, LONG),),
    "stage/fp8-e4m3": (Loop(STORE, 16, LONG),),
    # ten rounds make 64 words, as many as a turn of the stage draws at r = 24
    "stage/fix16-r24": (Loop(STORE, 16, LONG), Loop(PHILOX, 0)),
    "product/int8": (Loop(r"vpdpbusd\s.*%zmm", 64),),
    "product/int16-11-bit": (Loop(r"vpdpwssd\s.*%zmm", 32),),
    # words of 16 bits are multiplied as two bytes each
    "product/int16": (Loop(r"vpdpwssd\s.*%zmm", 16),),
    "product/fp16-in-order": (Loop(r"vfmadd\d+ps\s.*%zmm", 16),),
    "product/fp16-stepwise": (Loop(r"vaddph\s.*%zmm", 32),),
    "step/fixed16": (Loop(r"vpdpwssd\s.*%zmm", 32),),
    "step/float32": (Loop(r"vaddps\s.*%zmm", 16),),
    # a block of n products cuts each of them, and the accumulator: n + 1 conversions for n products of a lane
    "step/v100": (Loop(CUT, 16 * 4 / 5),),
    "step/a100": (Loop(CUT, 16 * 8 / 9),),
    "step/h100": (Loop(CUT, 16 * 16 / 17),),
    "step/h100-fp8": (Loop(CUT, 16 * 32 / 33),),
}


class Counted(NamedTuple):
    """A loop as llvm-mca counts it.

    Attributes:
        instructions: of a turn.
        cycles: of a turn.
        busiest: cycles of the busiest execution port.
        work: results, or multiply-adds, of a turn.
    """

    instructions: int
    cycles: float
    busiest: float
    work: float


def inner_loops(assembly: str) -> Iterator[list[str]]:
    """Yield the instructions of each loop that contains no other loop, from its label to the jump back."""
    lines, labels, jumps = assembly.splitlines(), dict[str, int](), list[tuple[int, int]]()
    for number, line in enumerate(lines):
        if label := re.match(r"(\.?\w+):", line):
            labels[label[1]] = number
        if (jump := re.match(r"\s+j\w+\s+(\.?\w+)\s*$", line)) and jump[1] in labels:
            jumps.append((labels[jump[1]], number))
    for begin, end in jumps:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in jumps):
            yield [line for line in lines[begin + 1 : end + 1] if not line.strip().startswith((".", "#"))]


def compiled_assembly() -> Iterator[str]:
    """Yield the assembly of all that Numba has compiled or loaded in this process."""
    for thing in gc.get_objects():
        # by its class: to ask a weak reference for what is gone is an error
        if issubclass(type(thing), numba.core.dispatcher.Dispatcher):
            for overload in thing.overloads.values():
                yield overload.library.get_asm_str()


def counted(loop: Loop, assembly: list[str], cpu: str) -> Counted:
    """Return the loop with most of the marked instructions, as a processor runs it."""
    pattern = re.compile(loop.marker)

    def marked(lines: list[str]) -> int:
        return sum(bool(pattern.search(line)) for line in lines)

    loops = [lines for text in assembly for lines in inner_loops(text) if len(lines) >= loop.least]
    most = max(map(marked, loops), default=0)
    if not most:
        sys.exit(f"no compiled loop has {loop.marker}: this processor takes another kernel")
    # of two with as many, as for a whole tile and for its last rows, the one that is faster
    simulated = [_simulated(lines, most * loop.work, cpu) for lines in loops if marked(lines) == most]
    return min(simulated, key=lambda loop: loop.cycles)


def _simulated(lines: list[str], work: float, cpu: str) -> Counted:
    command = ["llvm-mca", f"-mcpu={cpu}", f"-iterations={TURNS}", "-instruction-info=false"]
    said = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    total = re.search(r"Total Cycles:\s+(\d+)", said)
    pressure = re.search(r"Resource pressure per iteration:\n.*\n(.*)\n", said)
    assert total is not None
    assert pressure is not None
    ports = [float(number) for number in pressure[1].split() if number != "-"]
    return Counted(len(lines), int(total[1]) / TURNS, max(ports), work)


def clock_ghz() -> float:
    """Return the clock of this processor now, in GHz: the fastest of a few runs of a chain of known length."""

    @numba.njit
    def chain(turns: int, x: int) -> int:
        for _ in range(turns):
            x = x * x + 1
        return x

    chain(1, 1)
    seconds: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        chain(CHAIN_TURNS, 1)
        seconds.append(time.perf_counter() - began)
    return CHAIN_CYCLES * CHAIN_TURNS / min(seconds) / 1e9


def measured(name: str, cpu: str) -> list[Counted]:
    """Return the loops of a row, which this process compiles and no other row has compiled before."""
    # ways for large batches are not those for small ones
    is_small = not name.startswith("step/")
    prepared = next(row for row in all_rows() if row.name == name).prepare(is_small)
    prepared.ours.run()
    assembly = list(compiled_assembly())
    return [counted(loop, assembly, cpu) for loop in ROWS[name]]


def in_own_process(name: str, cpu: str) -> list[Counted]:
    """Return the loops of a row, compiled anew: Numba shows no assembly of what comes from a cache."""
    command = [sys.executable, "-m", "benchmarks.instructions", name, "--cpu", cpu, "--one"]
    with TemporaryDirectory() as cache:
        environment = {**os.environ, "EMU_CACHE_DIR": cache}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return [Counted(*parts) for parts in json.loads(done.stdout)]


def main() -> None:
    """Print a table of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="rows; without, all that are known here", metavar="ROW")
    parser.add_argument("--cpu", default="icelake-server", help="llvm-mca's model of a processor")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if shutil.which("llvm-mca") is None:
        sys.exit("llvm-mca is not installed: apt-get install llvm")
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        sys.exit(f"no loops are known of {unknown[0]}; of these they are: {', '.join(ROWS)}")
    if options.one:
        print(json.dumps(measured(options.rows[0], options.cpu)))
        return
    ghz = clock_ghz()
    print(f"{options.cpu}, {ghz:.2f} GHz\n")
    print("| row | instructions of a turn | work | cycles | busiest port | work a cycle | limit, 10^9 a second |")
    print("|---|---|---|---|---|---|---|")
    for name in options.rows or ROWS:
        loops = in_own_process(name, options.cpu)
        cycles, work = sum(loop.cycles for loop in loops), loops[0].work
        cells = (
            " + ".join(str(loop.instructions) for loop in loops),
            f"{work:g}",
            f"{cycles:.1f}",
            f"{sum(loop.busiest for loop in loops):.1f}",
            f"{work / cycles:.2f}",
            f"{work / cycles * ghz:.3g}",
        )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
