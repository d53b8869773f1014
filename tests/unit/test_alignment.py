"""Lines that were lost, added or shifted are named, and each line is at its vector; a wrong unit in step is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.testing.vectors.alignment import alignment

Codes = np.ndarray
COUNT = 1200
#: Bits of the codes: rare ones, and so few that every one is common.
BITS = (16, 8, 4)


def right(bits: int) -> Codes:
    """Codes of which every fifth is the same, as results that overflow are."""
    generator = np.random.default_rng(bits)
    codes = generator.integers(0, 1 << bits, COUNT).astype(np.uint64)
    codes[generator.random(COUNT) < 0.2] = 5
    return codes


def junk(bits: int, count: int) -> Codes:
    return np.random.default_rng(99).integers(0, 1 << bits, count).astype(np.uint64)


def without(*indices: int) -> Callable[[Codes, int], Codes]:
    return lambda codes, _: np.delete(codes, indices)


def every(period: int, first: int) -> Callable[[Codes, int], Codes]:
    return lambda codes, _: np.delete(codes, slice(first, None, period))


def late(lines: int) -> Callable[[Codes, int], Codes]:
    return lambda codes, bits: np.concatenate([junk(bits, lines), codes[:-lines]])


def early(lines: int) -> Callable[[Codes, int], Codes]:
    return lambda codes, bits: np.concatenate([codes[lines:], junk(bits, lines)])


#: What happened to a dump, and its name; {v} is a vector, blurred where neighbours are equal.
EXACT = {
    "every result one line too late": late(1),
    "every result 2 lines too late": late(2),
    "every result 37 lines too late": late(37),
    "every result one line too early": early(1),
    "every result 3 lines too early": early(3),
    "every result 250 lines too early": early(250),
    "dropped: every 2nd result, the first is that of vector 1": every(2, 1),
    "dropped: every 3rd result, the first is that of vector 1": every(3, 1),
    "dropped: every 7th result, the first is that of vector 6": every(7, 6),
    "dropped: every 8th result, the first is that of vector 0: the first of each burst of 8": every(8, 0),
    "dropped: every 21st result, the first is that of vector 11": every(21, 11),
    "dropped: all but every 4th result, the first that is there is that of vector 3": lambda codes, _: codes[3::4],
    "every result stands 3 times": lambda codes, _: np.repeat(codes, 3),
    "duplicated: every 5th result, the first is that of vector 4": lambda codes, _: np.insert(
        codes, np.arange(5, COUNT + 1, 5), codes[4::5]
    ),
    "lost at the start: the first 2 results": without(0, 1),
    "lost at the end: the last 900 results": lambda codes, _: codes[:300],
    "one line too many at the end": lambda codes, bits: np.append(codes, junk(bits, 1)),
    "2 lines too many at the start": lambda codes, bits: np.concatenate([junk(bits, 2), codes]),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", EXACT)
def test_what_happened_to_all_lines_is_named(name: str, bits: int):
    codes = right(bits)
    given = EXACT[name](codes, bits)
    shift = alignment(codes, given)
    assert shift is not None
    assert shift.name == name
    assert shift.vectors.shape == given.shape
    belongs = shift.vectors >= 0
    assert np.array_equal(codes[shift.vectors[belongs]], given[belongs])


@pytest.mark.parametrize("bits", BITS[:2])
def test_a_loss_in_the_middle_is_at_its_vector(bits: int):
    codes = right(bits)
    codes[598:603] = (1, 2, 3, 4, 6)
    shift = alignment(codes, np.delete(codes, 600))
    assert shift is not None
    assert shift.name == "dropped: the result of vector 600"
    assert shift.vectors.tolist() == [*range(600), *range(601, COUNT)]
    many = alignment(codes, np.delete(codes, np.arange(600, 800)))
    assert many is not None
    assert many.name == "dropped: 200 results, from that of vector 600 on"


@pytest.mark.parametrize("bits", BITS[:2])
def test_a_stall_that_writes_a_result_twice_is_named_though_the_length_is_right(bits: int):
    codes = right(bits)
    codes[598:603] = (1, 2, 3, 4, 6)
    shift = alignment(codes, np.insert(codes, 601, codes[600])[:-1])
    assert shift is not None
    assert shift.name == "duplicated: the result of vector 600 stands twice; lost at the end: the last result"
    assert shift.vectors.tolist() == [*range(601), *range(600, COUNT - 1)]


@pytest.mark.parametrize("bits", BITS[:2])
def test_every_seventh_lost_and_the_rest_filled_up_is_named(bits: int):
    codes = right(bits)
    kept = np.delete(codes, slice(6, None, 7))
    shift = alignment(codes, np.concatenate([kept, junk(bits, COUNT - kept.size)]))
    assert shift is not None
    assert shift.name.startswith("dropped: every 7th result, the first is that of vector 6; ")


def test_losses_at_no_period_are_counted_and_the_first_are_listed():
    codes = np.arange(COUNT, dtype=np.uint64) * np.uint64(7)
    shift = alignment(codes, np.delete(codes, [3, 40, 300, 301, 800, 1100]))
    assert shift is not None
    assert shift.name == "dropped: 6 results: from vectors 3, 40, 300, 800 ... on"
    bursts = alignment(codes, np.delete(codes, [0, 9, 21, 30, 44, 51]))
    assert bursts is not None
    assert bursts.name == "dropped: 6 results, perhaps the first of each burst: those of vectors 0, 9, 21, 30 ..."


@pytest.mark.parametrize("bits", BITS)
def test_lines_of_a_unit_that_is_wrong_as_well_are_aligned(bits: int):
    codes = right(bits)
    wrong = codes.copy()
    wrong[np.random.default_rng(3).random(COUNT) < 0.3] ^= np.uint64(1)
    dropped = alignment(codes, np.delete(wrong, slice(6, None, 7)))
    assert dropped is not None
    assert dropped.name == "dropped: every 7th result, the first is that of vector 6"
    lagging = alignment(codes, np.concatenate([junk(bits, 4), wrong[:-4]]))
    assert lagging is not None
    assert lagging.name == "every result 4 lines too late"
    cut = alignment(codes, wrong[:700])
    assert cut is not None
    assert cut.name == "lost at the end: the last 500 results"


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
def test_a_wrong_unit_in_step_has_no_shift(bits: int, share: float):
    codes = right(bits)
    wrong = np.where(np.random.default_rng(5).random(COUNT) < share, junk(bits, COUNT), codes)
    assert alignment(codes, wrong) is None
    assert alignment(codes, np.full(COUNT, 5, np.uint64)) is None
    assert alignment(codes, codes) is None


def test_lines_that_were_never_driven_say_nothing():
    codes = right(16)
    given = np.concatenate([np.zeros(2, np.uint64), codes[:-2]])
    undriven = np.zeros(COUNT, bool)
    undriven[:2] = undriven[77] = True
    given[77] = 0
    shift = alignment(codes, given, undriven)
    assert shift is not None
    assert shift.name == "every result 2 lines too late"
    assert alignment(codes, np.zeros(COUNT, np.uint64), np.ones(COUNT, bool)) is None


def test_lines_that_were_never_driven_are_not_taken_for_their_code():
    """They have the code 0, and so have six neighbouring vectors to which they do not belong."""
    codes = np.arange(1, COUNT + 1, dtype=np.uint64)
    codes[490:496] = 0
    given = np.delete(codes, 900)
    undriven = np.zeros(COUNT - 1, bool)
    undriven[480:486] = True
    given[480:486] = 0
    shift = alignment(codes, given, undriven)
    assert shift is not None
    assert shift.name == "dropped: the result of vector 900"
    assert shift.vectors[470:490].tolist() == [*range(470, 490)]


def test_results_that_are_all_the_same_cannot_be_aligned_but_counted():
    codes = np.full(20, 7, np.uint64)
    shift = alignment(codes, codes[:18])
    assert shift is not None
    assert shift.name == "lost at the end: the last 2 results"
    assert alignment(codes, codes) is None
    assert alignment(codes, codes[:0]) is None


def test_a_lag_of_four_lines_is_told_by_few_vectors():
    codes = np.array([0x3C00, 0x4000, 0x4200, 0x4400], np.uint64)
    shift = alignment(codes, np.roll(codes, 1))
    assert shift is not None
    assert shift.name == "every result one line too late"
    assert shift.vectors.tolist() == [-1, 0, 1, 2]


def test_a_wrong_result_where_codes_change_is_no_shift():
    codes = np.repeat(np.array([0, 1, 2], np.uint64), 8)
    wrong = codes.copy()
    wrong[7] = 1
    wrong[15] = 2
    assert np.array_equal(wrong[:-1], codes[1:])
    assert alignment(codes, wrong) is None


def test_a_long_dump_is_aligned_from_block_to_block():
    codes = np.random.default_rng(2).integers(0, 1 << 16, 20_000).astype(np.uint64)
    shift = alignment(codes, np.delete(codes, [4000, 9001, 15_002]))
    assert shift is not None
    assert shift.name == "dropped: 3 results: those of vectors 4000, 9001, 15002"


@pytest.mark.parametrize("bits", BITS[:2])
@pytest.mark.parametrize("count", [15, 16, 40, 300])
def test_lines_inserted_within_a_block_are_followed_however_many_they_are(bits: int, count: int):
    codes = right(bits)
    codes[598:603] = (1, 2, 3, 4, 6)
    given = np.insert(codes, 601, np.full(count, 1 << 20, np.uint64))
    shift = alignment(codes, given)
    assert shift is not None
    assert shift.name == f"duplicated: the result of vector 600 stands {count + 1} times"
    assert shift.vectors.tolist() == [*range(601), *[600] * count, *range(601, COUNT)]


def test_lines_inserted_after_many_lost_ones_are_followed():
    codes = np.arange(COUNT, dtype=np.uint64) * np.uint64(7)
    given = np.insert(np.delete(codes, np.arange(200, 300)), 700, np.full(50, 1 << 20, np.uint64))
    shift = alignment(codes, given)
    assert shift is not None
    assert shift.vectors.tolist() == [*range(200), *range(300, 800), *[799] * 50, *range(800, COUNT)]


@pytest.mark.parametrize(("period", "word"), [(3, "3rd"), (11, "11th"), (12, "12th"), (21, "21st"), (32, "32nd")])
def test_a_period_is_an_ordinal_number(period: int, word: str):
    right = np.arange(400, dtype=np.uint64) ** 2
    shift = alignment(right, np.delete(right, slice(2, None, period)))
    assert shift is not None
    assert shift.name == f"dropped: every {word} result, the first is that of vector 2"
