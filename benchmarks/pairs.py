"""All 2**32 pairs of binary16 codes: emu's sum or product against integer arithmetic, and how long it takes.

    python benchmarks/pairs.py add [--threads 2] [--rows 65536]

The seconds of emu are those of its public function, called without its operand check on arrays that exist; the oracle,
which unpacks, aligns or multiplies, rounds and packs in integers, is the test suite's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ALL_ROWS = 1 << 16


def run(operation: str, threads: int, rows: int = ALL_ROWS) -> dict[str, Any]:
    """Compare `rows` evenly spaced left codes with all right codes: pairs, mismatches, seconds.

    `threads` are the oracle's; emu uses those of EMU_THREADS, which it reads once.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "exhaustive"))
    from binary16_pairs import scan

    scan(operation, range(2), threads)  # compiles
    started = time.perf_counter()
    found = scan(operation, range(0, ALL_ROWS, -(-ALL_ROWS // rows)), threads)
    return {
        "operation": operation,
        "threads": threads,
        "pairs": found.pairs,
        "mismatches": found.mismatches,
        "total_s": time.perf_counter() - started,
        "emu_s": found.emu_s,
        "oracle_s": found.oracle_s,
        "examples": found.examples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", choices=("add", "multiply"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=ALL_ROWS, help="left codes, evenly spaced; 65536 are all pairs")
    arguments = parser.parse_args()
    os.environ["EMU_THREADS"] = str(arguments.threads)
    result = run(arguments.operation, arguments.threads, arguments.rows)
    print(
        f"{result['operation']}: {result['pairs']} pairs in {result['total_s']:.1f} s on {result['threads']} threads "
        f"(emu {result['emu_s']:.1f} s, oracle {result['oracle_s']:.1f} s), {result['mismatches']} mismatches"
    )
    for code, count in result["examples"]:
        print(f"  left operand {code}: {count} mismatches")
    sys.exit(result["mismatches"] != 0)


if __name__ == "__main__":
    main()
