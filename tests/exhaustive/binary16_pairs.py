"""emu's sums and products of many pairs of binary16 codes, through its public functions, against the integer oracle."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from binary16_integers import add_nearest_even, compiled, multiply_nearest_even

import emu

CODES = 1 << 16
#: Left operands of one call of emu; every one meets all right ones: 2**20 results.
ROWS = 16
INFINITY32 = 0x7F800000
MAGNITUDE32 = 0x7FFFFFFF
EXAMPLES = 5


def values_of(codes: Any) -> np.ndarray:
    """The float32 values of binary16 codes, read by NumPy alone."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.asarray(codes).astype(np.uint16).view(np.float16).astype(np.float32)


def _judge_of(oracle: Any) -> Any:
    @compiled
    def judge(left: Any, got: Any, bits_of: Any, start: int, stop: int, wrong: Any) -> None:
        for row in range(left.size):
            a, results = np.int32(left[row]), got[row]
            count = 0
            for b in range(start, stop):
                want, bits = bits_of[oracle(a, np.int32(b))], results[b]
                nans = (bits & MAGNITUDE32) > INFINITY32 and (want & MAGNITUDE32) > INFINITY32
                count += bits != want and not nans
            wrong[row] = count

    return judge


def _results_of(oracle: Any) -> Any:
    @compiled
    def results(a: Any, b: Any) -> Any:
        out = np.empty(a.size, np.uint16)
        for i in range(a.size):
            out[i] = oracle(np.int32(a[i]), np.int32(b[i]))
        return out

    return results


JUDGES = {"add": _judge_of(add_nearest_even), "multiply": _judge_of(multiply_nearest_even)}
#: Codes of the results of arrays of codes, rounded to nearest even.
RESULTS = {"add": _results_of(add_nearest_even), "multiply": _results_of(multiply_nearest_even)}
OPERATIONS = {"add": emu.add, "multiply": emu.multiply}


@dataclass
class Scan:
    """What a scan found.

    Attributes:
        pairs: how many were compared.
        mismatches: how many differed.
        examples: codes of the first left operands with a mismatch, and how many they have.
        emu_s: seconds inside emu.
        oracle_s: seconds inside the oracle, comparison included.
    """

    pairs: int = 0
    mismatches: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)
    emu_s: float = 0.0
    oracle_s: float = 0.0


def scan(operation: str, left: Iterable[int], threads: int = 2, backend: str = "numba") -> Scan:
    """Compare `operation` of every code in `left` with every code; emu's own threads are those of EMU_THREADS."""
    codes, found = np.asarray(list(left), np.uint16), Scan()
    values = values_of(np.arange(CODES))
    assert emu.parse("fp16").contains(values).all()  # once, instead of in every call
    b = np.tile(values, (ROWS, 1))
    a, out = np.empty_like(b), np.empty_like(b)
    judge, ranges = JUDGES[operation], np.linspace(0, CODES, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, codes.size, ROWS):
            rows = codes[first : first + ROWS]
            n = rows.size
            a[:n] = values[rows][:, None]
            started = time.perf_counter()
            OPERATIONS[operation](
                a[:n],
                b[:n],
                a_format="fp16",
                b_format="fp16",
                out_format="fp16",
                out=out[:n],
                backend=backend,
                check=False,
            )
            computed = time.perf_counter()
            wrong = np.zeros((threads, n), np.int64)
            got, bits_of = out.view(np.uint32), values.view(np.uint32)
            list(pool.map(judge, *zip(*_tasks(rows, got, bits_of, ranges, wrong), strict=True)))
            found.emu_s += computed - started
            found.oracle_s += time.perf_counter() - computed
            _record(found, rows, wrong.sum(axis=0))
    return found


def _tasks(rows: np.ndarray, got: np.ndarray, bits_of: np.ndarray, ranges: np.ndarray, wrong: np.ndarray) -> Any:
    for thread, counts in enumerate(wrong):
        yield rows, got, bits_of, ranges[thread], ranges[thread + 1], counts


def _record(found: Scan, rows: np.ndarray, wrong: np.ndarray) -> None:
    found.pairs += rows.size * CODES
    found.mismatches += int(wrong.sum())
    for row in np.flatnonzero(wrong)[: EXAMPLES - len(found.examples)]:
        found.examples.append((f"{rows[row]:#06x}", int(wrong[row])))
