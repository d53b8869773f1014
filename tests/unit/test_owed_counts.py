"""What devices owe registers and flags: added up there, collected once, never lost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pytest

import emu
from emu.datapath.owed import MOST_OWED, Counted, Debts
from emu.datapath.registers import NO_EXPONENT

ACTS: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ACTS.clear()


class Elsewhere:
    """Counts that a device holds."""

    def __init__(self, flag: int, top: int = NO_EXPONENT, kind: Hashable = "one") -> None:
        self.kind, self.flag, self.top = kind, flag, top

    def plus(self, others: Sequence[Elsewhere]) -> Elsewhere:
        ACTS.append(f"add {1 + len(others)}")
        every = [self, *others]
        return Elsewhere(sum(x.flag for x in every), max(x.top for x in every), self.kind)

    def collect(self) -> Counted:
        ACTS.append("collect")
        register = np.zeros(2 * 4 + 5, np.int64)
        register[1], register[-1] = self.flag, self.flag
        return Counted(np.array([self.flag, 0, 0, 2 * self.flag, 0, 0]), register, self.top)


def test_nothing_is_fetched_before_somebody_looks():
    flags, register = emu.Flags(), emu.StatisticsRegister(-2, 4)
    for count in (1, 10):
        flags.owe(Elsewhere(count))
        register.owe(Elsewhere(count, count))
    assert ACTS == []
    assert (flags.overflow, flags.invalid) == (11, 22)
    assert (register.positive, register.total, register.max_exponent) == ({-1: 11}, 11, 10)
    assert ACTS == ["add 2", "collect"] * 2


def test_what_is_collected_is_added_to_what_was_there():
    flags = emu.Flags(overflow=3)
    flags.owe(Elsewhere(1))
    flags.add([5, 0, 0, 0, 0, 0])
    assert flags.overflow == 9
    flags.overflow += 1
    assert flags == emu.Flags(overflow=10, invalid=2)


@pytest.mark.parametrize(
    ("count", "added"), [(MOST_OWED - 1, 0), (MOST_OWED, 1), (2 * MOST_OWED - 2, 1), (2 * MOST_OWED - 1, 2)]
)
def test_a_device_adds_up_so_many_at_a_time(count: int, added: int):
    debts = Debts()
    for _ in range(count):
        debts.add(Elsewhere(1))
    assert [f"add {MOST_OWED}"] * added == ACTS
    (collected,) = debts.collect()
    assert collected.flags[0] == count
    assert not debts


def test_one_count_alone_is_collected_as_it_is():
    debts = Debts()
    assert not debts
    assert debts.collect() == []
    debts.add(Elsewhere(1))
    assert debts
    debts.collect()
    assert ACTS == ["collect"]


def test_counts_that_cannot_be_added_there_are_collected_apart():
    debts = Debts()
    for kind in ("one", "other", "one"):
        debts.add(Elsewhere(1, kind=kind))
    assert sorted(int(counted.flags[0]) for counted in debts.collect()) == [1, 2]
    assert ACTS == ["add 2", "collect", "collect"]


def test_reset_forgets_what_is_owed():
    flags, register = emu.Flags(), emu.StatisticsRegister(-2, 4)
    flags.owe(Elsewhere(1))
    register.owe(Elsewhere(1, 1))
    flags.reset()
    register.reset()
    assert (flags, register.total, register.max_exponent) == (emu.Flags(), 0, None)
    assert ACTS == []
