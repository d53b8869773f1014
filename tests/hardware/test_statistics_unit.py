"""The statistics unit cycle by cycle: what leads, who is counted, where counts stop, how long it takes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu import ConfigError, ShapeError
from emu.hardware import StatisticsUnit

#: Three cycles of eight lanes, as worked by hand in docs/dynamic-fixed-point.md; the last vector is partial.
TRACE = [[0, 1, 5, 127, -1, -2, -128, -64], [3, -3, 64, -65, 2, 0, 0, 1], [100, 100, -100, 9, 9, 9, 9, 9]]
VALID = [[True] * 8, [True] * 8, [True] * 3 + [False] * 5]
AFTER = [{0: 2, 2: 1, 5: 1, 6: 2}, {0: 3, 1: 3, 2: 1, 5: 1, 6: 4}, {0: 3, 1: 3, 2: 1, 5: 1, 6: 7}]


def leading(word: int, width: int) -> int | None:
    """The leftmost 1, of a negative word the leftmost 0, by looking at every bit."""
    bits = [word >> position & 1 for position in range(width - 1)]
    wanted = 0 if word < 0 else 1
    return max((position for position, bit in enumerate(bits) if bit == wanted), default=None)


def counted(counts: np.ndarray) -> dict[int, int]:
    return {position: int(count) for position, count in enumerate(counts) if count}


def test_the_eight_lanes_of_the_example_lead_where_it_says():
    unit = StatisticsUnit()
    one_hot = unit.leading([TRACE[0]])
    assert one_hot.words.tolist() == [[0, 1, 4, 64, 0, 1, 64, 32]]
    assert one_hot.negative.tolist() == [[False] * 4 + [True] * 4]
    assert counted(unit.aggregated(one_hot, signs="positive")[0]) == {0: 1, 2: 1, 6: 1}
    assert counted(unit.aggregated(one_hot, signs="negative")[0]) == {0: 1, 5: 1, 6: 1}


def test_three_cycles_are_those_worked_by_hand():
    unit = StatisticsUnit()
    counts = unit.aggregated(unit.leading(TRACE), VALID)
    after = unit.accumulated(counts, np.array(VALID).sum(axis=1))
    assert [counted(row) for row in after] == AFTER
    assert unit.read().results == 19


@given(st.data())
def test_counts_are_those_of_looking_at_every_bit(data: st.DataObject):
    lanes, width = data.draw(st.integers(1, 9)), data.draw(st.integers(2, 52))
    cycles, counter_bits = data.draw(st.integers(0, 12)), data.draw(st.sampled_from([1, 2, 5, 32]))
    word = st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1) | st.integers(-2, 1)
    words = data.draw(st.lists(st.lists(word, min_size=lanes, max_size=lanes), min_size=cycles, max_size=cycles))
    valid = data.draw(
        st.lists(st.lists(st.booleans(), min_size=lanes, max_size=lanes), min_size=cycles, max_size=cycles)
    )
    signs = data.draw(st.sampled_from(["positive", "negative", "both"]))
    expected, results = Counter[int](), 0
    for row, mask in zip(words, valid, strict=True):
        for one, is_valid in zip(row, mask, strict=True):
            results += is_valid
            chosen = signs == "both" or (one < 0) == (signs == "negative")
            if is_valid and chosen and (position := leading(one, width)) is not None:
                expected[position] = min(expected[position] + 1, 2**counter_bits - 1)
    unit = StatisticsUnit(lanes, width, counter_bits)
    array = np.array(words, np.int64).reshape(cycles, lanes)
    unit.run(array, np.array(valid, bool).reshape(cycles, lanes), signs=signs)
    assert counted(unit.read().counts) == dict(expected)
    assert unit.read().results == min(results, 2**counter_bits - 1)
    assert unit.cycles == (cycles + 2 if cycles else 0)


def test_counters_stop_at_their_largest_value():
    unit = StatisticsUnit(lanes=1, counter_bits=2)
    after = unit.accumulated(unit.aggregated(unit.leading([[1]] * 5)), np.ones(5, np.int64))
    assert after[:, 0].tolist() == [1, 2, 3, 3, 3]
    unit.run([[1]])
    assert unit.read().counts[0] == unit.read().results == 3


def test_sets_are_counted_and_cleared_each_for_itself():
    unit = StatisticsUnit(lanes=2, sets=2)
    unit.run([[1, 2]], into=0)
    unit.run([[4, 4]], into=1)
    unit.clear(0)
    assert counted(unit.read(0).counts) == {}
    assert counted(unit.read(1).counts) == {2: 2}


def test_a_long_stream_is_counted_as_its_pieces():
    words = np.random.default_rng(1).integers(-(2**39), 2**39, (300_000, 8))
    whole, pieces = StatisticsUnit(), StatisticsUnit()
    whole.run(words)
    for piece in np.array_split(words, 7):
        pieces.run(piece)
    assert (whole.read().counts == pieces.read().counts).all()
    assert whole.cycles == 300_002


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda unit: unit.run([[1, 2, 3]]), ShapeError, "vectors of 8 lanes"),
    (lambda unit: unit.run([[2**39] + [0] * 7]), ConfigError, "must fit 40 bits, got 549755813888 at index (0, 0)"),
    (lambda unit: unit.run([[0] * 8], valid=[[True]]), ShapeError, "`valid` must have the shape"),
    (lambda unit: unit.run([[0] * 8], signs="all"), ConfigError, "`signs` must be one of positive, negative, both"),
    (lambda _: StatisticsUnit(width_bits=64), ConfigError, "`width_bits` must be in 2..52, got 64"),
    (lambda _: StatisticsUnit(lanes=0), ConfigError, "`lanes` must be in 1..65536, got 0"),
])  # fmt: skip
def test_what_it_cannot_take_is_named(call, error, said):
    with pytest.raises(error) as caught:
        call(StatisticsUnit())
    assert said in str(caught.value)
