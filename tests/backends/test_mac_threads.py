"""Ordered and exact accumulators: how outputs are shared among threads and cut into blocks never changes a bit."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from agreement import assert_same
from kernel_inputs import random_values

import emu
from emu import Mac
from emu.backends.numba import compiling

UNITS = [
    Mac(accumulator="fp16", order="lanes(3)", rounding="stochastic"),
    Mac("bf16", "exact", rounding="stochastic"),
    Mac(accumulator="bf16", order="pairwise", overflow="satfinite"),
    Mac(accumulator="e4m3", order="pairwise", overflow="satpropagate"),
    Mac(),
]


def hashes() -> list[str]:
    """Hash of each unit's result, large enough to be shared: rows of 37 outputs, so that no block ends with one."""
    found: list[str] = []
    for mac in UNITS:
        a, b = (
            random_values("fp16", (2, 61, 33), 1, anything=False),
            random_values("fp16", (2, 33, 37), 2, anything=False),
        )
        flags, register = emu.Flags(), emu.StatisticsRegister()
        y = emu.matmul(
            a, b, mac=mac, a_format="fp16", b_format="fp16", out_format="fp16", seed=5, flags=flags, register=register,
            backend="numba",
        )  # fmt: skip
        counts = repr((register.to_dict(), flags.counts())).encode()
        found.append(hashlib.sha256(y.tobytes() + counts).hexdigest())
    return found


def test_the_number_of_threads_never_changes_a_bit_of_an_accumulator(monkeypatch: pytest.MonkeyPatch):
    alone = hashes()
    monkeypatch.setattr(compiling, "thread_count", lambda: 2)
    assert hashes() == alone


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_emu_threads_never_changes_a_bit_of_an_accumulator(threads: str):
    script = "import test_mac_threads as t, emu.backends.numba.compiling as c; print(c.thread_count(), *t.hashes())"
    environment = os.environ | {"EMU_THREADS": threads, "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [threads, *hashes()]


@pytest.mark.parametrize("mac", UNITS, ids=str)
def test_more_outputs_than_a_block_holds_are_the_same(mac: Mac):
    a, b = random_values("fp16", (3, 17, 5), 3), random_values("fp16", (3, 5, 37), 4)
    c = random_values("fp32", (17, 1), 5, anything=False)
    formats = {"a_format": "fp16", "b_format": "fp16", "addend": c, "addend_format": "fp32", "out_format": "fp16"}
    assert_same(lambda **where: emu.matmul(a, b, mac=mac, seed=6, **formats, **where), "fp16")
