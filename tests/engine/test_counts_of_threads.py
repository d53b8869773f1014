"""One register, one set of flags, many threads: no count is lost, whichever thread chooses the positions."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import emu
from emu import Flags, StatisticsRegister
from emu.datapath import FLAG_NAMES

THREADS, ROUNDS, TRIALS = 8, 20, 3
#: In fix8f4: 3 are inexact, 1 overflows, 1 becomes 0; their leading bits lie at 1, -1, -7, 8 and -3.
X = np.array([2.5, -0.51, 0.01, 300.03125, 0.125])


@pytest.fixture(autouse=True)
def threads_that_take_turns_often() -> Generator[None, None, None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run `work(thread)` in threads that begin at the same moment; raise what one of them raises."""
    begin, errors = threading.Barrier(threads), []

    def run(number: int) -> None:
        begin.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not errors


def operations(register: StatisticsRegister, flags: Flags, backend: str) -> list[Callable[[], Any]]:
    options: dict[str, Any] = {"register": register, "flags": flags, "backend": backend}
    rows, one = np.array([[1.5, -2.25, 6.0]]), np.ones((3, 1))
    return [
        lambda: emu.quantize(X, "fix8f4", x_format="fp64", **options),
        lambda: emu.add(X, 0.5, out_format="fix8f4", **options),
        lambda: emu.matmul(rows, one, a_format="fp64", b_format="fp64", out_format="fix8f4", **options),
    ]


def test_no_count_of_a_register_without_positions_is_lost(backend: str):
    """The first observation chooses the positions, and there are many first ones."""
    alone, sticky = StatisticsRegister(), Flags()
    for operation in operations(alone, sticky, backend):
        operation()
    expected = {name: count * THREADS * ROUNDS for name, count in zip(FLAG_NAMES, sticky.counts(), strict=True)}
    for _ in range(TRIALS):
        register, flags = StatisticsRegister(), Flags()
        work = operations(register, flags, backend)

        def run(number: int, work: list[Callable[[], Any]] = work) -> None:
            for turn in range(ROUNDS * len(work)):
                work[(number + turn) % len(work)]()

        run_together(run)
        assert dict(zip(FLAG_NAMES, flags.counts(), strict=True)) == expected
        assert register.total == alone.total * THREADS * ROUNDS
        assert (register.lowest, register.bins, register.max_exponent) == (alone.lowest, alone.bins, 8)
        for side in ("positive", "negative"):
            every = {exponent: count * THREADS * ROUNDS for exponent, count in getattr(alone, side).items()}
            assert getattr(register, side) == every


def test_the_first_counts_of_every_thread_are_kept(backend: str):
    """Every thread finds no positions, and chooses them: whoever comes later throws nothing away."""
    for trial in range(100):
        registers = [StatisticsRegister() for _ in range(20)]

        def run(number: int, registers: list[StatisticsRegister] = registers) -> None:
            for register in registers:
                emu.quantize(X, "fix8f4", register=register, backend=backend)

        run_together(run, 4)
        assert [register.total for register in registers] == [4 * X.size] * len(registers), trial


def test_counts_are_added_and_merged_and_copied_at_the_same_time():
    """Half of the threads count, others merge registers and flags of their own, the last one looks and copies."""
    register, flags, copies = StatisticsRegister(-8, 20), Flags(), []
    own, sticky = StatisticsRegister(-8, 20), Flags()
    emu.quantize(X, "fix8f4", register=own, flags=sticky)
    counts = own._counts.copy()

    def run(number: int) -> None:
        for _ in range(500):
            if number == THREADS - 1:
                seen = pickle.loads(pickle.dumps(register))
                assert sum(seen.histogram().values()) + seen.below + seen.none == seen.total - seen.above
                copies.append((copy.deepcopy(flags), repr(register)))
            elif number % 2:
                register.merge(own)
                flags.merge(sticky)
            else:
                register.add_counts(counts, 8)
                flags.add(sticky.counts())

    run_together(run)
    assert register.total == 500 * (THREADS - 1) * X.size
    assert flags.counts() == tuple(500 * (THREADS - 1) * count for count in sticky.counts())
    assert all(taken.overflow <= flags.overflow for taken, _ in copies)


def test_a_register_that_has_its_positions_keeps_its_counts():
    """A thread that saw no positions comes to place them when another has counted already."""
    register = StatisticsRegister()
    emu.quantize(X, "fix8f4", register=register)
    before = register.to_dict()
    register.place(emu.Fixed(40, 12), 40, emu.Fixed(8, 4))
    assert register.to_dict() == before


def test_a_register_and_flags_merge_with_themselves():
    register, flags = StatisticsRegister(), Flags()
    emu.quantize(X, "fix8f4", register=register, flags=flags)
    register.merge(register)
    flags.merge(flags)
    assert (register.total, flags.overflow) == (2 * X.size, 2)
    assert copy.deepcopy(register) == register
