"""Words of 54 to 64 bits: no operation passes their raws through float64."""

from __future__ import annotations

import numpy as np
import pytest
import wide_words

import emu
from emu import Mac
from emu.backends.interface import encode_format
from emu.backends.reference.raws import raw_of


@pytest.mark.parametrize("draw", [wide_words.cases, wide_words.elementwise_cases], ids=["products", "elementwise"])
def test_every_pair_of_carriers_gives_what_integers_give(draw: wide_words.Draw, backend: str):
    for case in draw(150, seed=1):
        case.assert_right_on(backend)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [wide_words.cases, wide_words.elementwise_cases], ids=["products", "elementwise"])
def test_every_pair_of_carriers_gives_what_integers_give_many_times(draw: wide_words.Draw, backend: str):
    for case in draw(5000, seed=2):
        case.assert_right_on(backend)


@pytest.mark.parametrize(
    ("left", "right", "formats", "mac", "expected"),
    [
        ([2**53 + 1, 1], [1, 1], ("ufix60f0", "ufix1f0", "fix64f0"), Mac(), 2**53 + 2),
        ([2**53 + 1, 1], [1, 1], ("ufix60f0", "ufix1f0", "fix64f0"), Mac(accumulator="fix64f0"), 2**53 + 2),
        ([2**53 + 1, 1], [1, 1], ("ufix54f0", "ufix1f0", "fix56f0"), Mac(accumulator="fix56f0"), 2**53 + 2),
        ([2**63, 2**63 - 1], [1, 1], ("ufix64f0", "ufix1f0", "ufix64f0"), Mac(), 2**64 - 1),
        ([2**64 - 1, 1], [1, -1], ("ufix64f0", "fix2f0", "ufix64f0"), Mac(), 2**64 - 2),
    ],
)
def test_unsigned_words_meet_narrower_ones_in_products(
    left: list[int], right: list[int], formats: tuple[str, str, str], mac: Mac, expected: int, backend: str
):
    names = dict(zip(("a_format", "b_format", "out_format"), formats, strict=True))
    y = emu.matmul(np.array([left], np.uint64), np.array(right)[:, None], **names, mac=mac, backend=backend)
    assert y.tolist() == [[expected]]


def test_an_unsigned_addend_keeps_its_last_bit_in_an_accumulator(backend: str):
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "addend_format": "ufix54f0", "out_format": "fix64f0"}
    addend = np.array([[2**53 + 1]], np.uint64)
    y = emu.matmul([[1, 1]], [[1], [1]], **formats, addend=addend, mac=Mac(accumulator="fix60f0"), backend=backend)
    assert y.tolist() == [[2**53 + 3]]


def test_raws_are_int64_or_integers_of_python_and_nothing_else():
    """NumPy promotes int64 beside uint64 to float64."""
    fmt = encode_format(emu.parse("ufix64f0"))
    for raws, dtype in (([2**63 - 1], np.int64), ([2**63], object), ([], np.int64)):
        found = raw_of(np.array(raws, np.uint64), fmt)
        assert found.dtype == dtype
        assert found.tolist() == raws


@pytest.mark.parametrize(
    ("fmt", "dtype", "raw"),
    [
        ("ufix60f8", np.int64, 256),
        ("fix64f8", np.int64, 256),
        ("ufix64f8", np.uint64, 256),
        ("fix60f8", np.uint64, 256),
        ("ufix54f0", np.int64, 1),
    ],
)
def test_raws_of_wide_words_are_written_into_an_integer_array_as_they_are(
    fmt: str, dtype: type, raw: int, backend: str
):
    out = np.zeros(1, dtype)
    assert emu.quantize([1.0], fmt, out=out, backend=backend) is out
    assert out.tolist() == [raw]
