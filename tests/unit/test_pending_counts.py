"""Counts that are still on a device: added up there, fetched once, never lost."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest

import emu
from emu.datapath import FLAG_NAMES
from emu.datapath.pending import MOST_PENDING, NO_EXPONENT, Counted, Lowered, PendingList

ACTS: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ACTS.clear()


class OnDevice:
    """Counts that a device holds."""

    def __init__(self, flag: int, top: int = NO_EXPONENT, kind: Hashable = "one") -> None:
        self.kind, self.flag, self.top = kind, flag, top

    def plus(self, others: Sequence[OnDevice]) -> OnDevice:
        ACTS.append(f"add {1 + len(others)}")
        every = [self, *others]
        return OnDevice(sum(x.flag for x in every), max(x.top for x in every), self.kind)

    def collect(self, others: Sequence[OnDevice]) -> Counted:
        ACTS.append(f"collect {1 + len(others)}")
        return self.plus(others).counted() if others else self.counted()

    def counted(self) -> Counted:
        register = np.zeros(2 * 4 + 5, np.int64)
        register[1], register[-1] = self.flag, self.flag
        return Counted(np.array([self.flag, 0, 0, 2 * self.flag, 0, 0, 0]), register, self.top)


def everything(pending: PendingList) -> list[Counted]:
    found: list[Counted] = []
    pending.collect(found.append)
    return found


def test_the_old_name_of_fetching_works_and_warns():
    flags = emu.Flags()
    flags.add_pending(OnDevice(1))
    with pytest.warns(DeprecationWarning, match="is `fetch_pending` now"):
        flags.settle()
    assert ACTS == ["collect 1"]
    assert flags.overflow == 1


def test_nothing_is_fetched_before_somebody_looks():
    flags, register = emu.Flags(), emu.StatisticsRegister(-2, 4)
    for count in (1, 10):
        flags.add_pending(OnDevice(count))
        register.add_pending(OnDevice(count, count))
    assert ACTS == []
    assert (flags.overflow, flags.invalid) == (11, 22)
    assert (register.positive, register.total, register.max_exponent) == ({-1: 11}, 11, 10)
    assert ACTS == ["collect 2", "add 2"] * 2


def test_what_is_collected_is_added_to_what_was_there():
    flags = emu.Flags(overflow=3)
    flags.add_pending(OnDevice(1))
    flags.add([5, 0, 0, 0, 0, 0, 0])
    assert flags.overflow == 9
    flags.overflow += 1
    assert flags == emu.Flags(overflow=10, invalid=2)


@pytest.mark.parametrize(
    ("count", "added"), [(MOST_PENDING - 1, 0), (MOST_PENDING, 1), (2 * MOST_PENDING - 2, 1), (2 * MOST_PENDING - 1, 2)]
)
def test_a_device_adds_up_so_many_at_a_time(count: int, added: int):
    pending = PendingList()
    for _ in range(count):
        pending.add(OnDevice(1))
    assert [f"add {MOST_PENDING}"] * added == ACTS
    (collected,) = everything(pending)
    assert collected.flags[0] == count
    assert not pending


def test_one_count_alone_is_collected_as_it_is():
    pending = PendingList()
    assert not pending
    assert everything(pending) == []
    pending.add(OnDevice(1))
    assert pending
    everything(pending)
    assert ACTS == ["collect 1"]


def test_counts_that_cannot_be_added_there_are_collected_apart():
    pending = PendingList()
    for kind in ("one", "other", "one"):
        pending.add(OnDevice(1, kind=kind))
    assert sorted(int(counted.flags[0]) for counted in everything(pending)) == [1, 2]
    assert ACTS == ["collect 2", "add 2", "collect 1"]


def test_reset_forgets_what_is_pending():
    flags, register = emu.Flags(), emu.StatisticsRegister(-2, 4)
    flags.add_pending(OnDevice(1))
    register.add_pending(OnDevice(1, 1))
    flags.reset()
    register.reset()
    assert (flags, register.total, register.max_exponent) == (emu.Flags(), 0, None)
    assert ACTS == []


def test_a_count_that_is_set_counts_from_there():
    flags = emu.Flags()
    flags.add_pending(OnDevice(7))
    flags.overflow = 0
    assert flags == emu.Flags(overflow=0, invalid=14)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_has_the_counts_and_nothing_is_pending_for_it(copied: Callable[[Any], Any]):
    flags, register = emu.Flags(), emu.StatisticsRegister(-2, 4)
    flags.add_pending(OnDevice(1))
    register.add_pending(OnDevice(1, 1))
    others = copied(flags), copied(register)
    assert others == (flags, register)
    flags.add_pending(OnDevice(1))
    register.add_pending(OnDevice(1, 1))
    assert (others[0].overflow, others[1].total) == (1, 1)
    assert (flags.overflow, register.total) == (2, 2)
    assert vars(flags) == {**dict(zip(FLAG_NAMES, flags.counts(), strict=True)), "tininess": None}


def test_what_could_not_be_fetched_is_still_pending():
    class Interrupted(OnDevice):
        tries = 0

        def collect(self, others: Sequence[OnDevice]) -> Counted:
            Interrupted.tries += 1
            if Interrupted.tries == 1:
                raise KeyboardInterrupt
            return super().collect(others)

    flags = emu.Flags()
    flags.add_pending(Interrupted(3))
    with pytest.raises(KeyboardInterrupt):
        flags.counts()
    assert flags.overflow == 3


def test_counts_of_results_below_what_was_observed_are_added_up_and_lowered_when_they_arrive():
    register = emu.StatisticsRegister(-2, 4)
    for top in (7, 10, NO_EXPONENT):
        register.add_pending(Lowered(OnDevice(1, top), 3))
    register.add_pending(OnDevice(2, 5))
    assert (register.positive, register.max_exponent) == ({-1: 5}, 7)
    assert ACTS == ["collect 3", "add 3", "collect 1"]


def test_nothing_observed_stays_nothing_when_it_is_lowered():
    many = [Lowered(OnDevice(1), 3) for _ in range(4)]
    assert many[0].plus(many[1:]).collect(()).max_exponent == NO_EXPONENT
