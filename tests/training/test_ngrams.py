"""Examples of n-grams: known hashes, the same columns as a count by hand, and no byte of the test in training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import ConfigError
from emu.training.data import load_dataset, ngrams
from emu.training.data.ngrams import fnv1a, ngram_columns
from emu.training.recipe import Ngrams

#: Published values of FNV-1a, 64 bits.
KNOWN = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"b": 0xAF63DF4C8601F1A5,
    b"foobar": 0x85944171F73967E8,
    b"chongo was here!\n": 0x46810940EFF5F915,
}


@pytest.mark.parametrize("text", KNOWN, ids=repr)
def test_the_hash_is_fnv_1a(text: bytes):
    assert int(fnv1a(np.frombuffer(text, np.uint8))) == KNOWN[text]


def hash_of(text: bytes) -> int:
    state = 14695981039346656037
    for byte in text:
        state = (state ^ byte) * 1099511628211 % 2**64
    return state


def counted(before: bytes, longest: int, columns: int) -> dict[int, int]:
    """How often each column is named by the n-grams of some bytes."""
    found: Counter[int] = Counter()
    for end in range(1, len(before) + 1):
        for n in range(1, min(longest, end) + 1):
            distance = len(before) - end + 1
            found[hash_of(bytes([n, distance]) + before[end - n : end]) % columns] += 1
    return dict(found)


def table(**keys: Any) -> Ngrams:
    return Ngrams(kind="ngrams", **keys)


@given(
    st.binary(min_size=40, max_size=90),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from([1, 2, 7, 64, 1000, 2**16, 2**33]),
)
def test_every_example_counts_the_n_grams_before_its_byte(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, longest: int, reach: int, stride: int, columns: int
):
    longest = min(longest, reach)
    path = tmp_path_factory.getbasetemp() / "text"
    path.write_bytes(text)
    spec = table(source=str(path), test_share=0.4, reach=reach, longest=longest, stride=stride)
    data = load_dataset(spec, (columns,), 256)
    border = len(text) - round(0.4 * len(text))
    sides = ((data.train_inputs, data.train_labels, 0, border), (data.test_inputs, data.test_labels, border, len(text)))
    for x, labels, begin, end in sides:
        places = range(begin + reach, end, stride)
        assert x.shape == (len(places), columns)
        for row, place in enumerate(places):
            expected = counted(text[place - reach : place], longest, columns)
            part = slice(x.indptr[row], x.indptr[row + 1])
            assert x.indices[part].tolist() == sorted(expected)
            assert x.data[part].tolist() == [expected[column] for column in sorted(expected)]
            assert labels[row] == text[place]


KNOWN_COLUMNS = [20249, 12145, 42458, 46425, 12617, 28443]


def test_the_columns_of_a_known_text():
    windows = np.frombuffer(b"cat", np.uint8)[None]
    names = [b"\1\1t", b"\1\2a", b"\1\3c", b"\2\1at", b"\2\2ca", b"\3\1cat"]
    assert ngram_columns(windows, 3, 2**16)[0].tolist() == [hash_of(name) % 2**16 for name in names] == KNOWN_COLUMNS


def test_no_example_reads_across_the_border(tmp_path: Path):
    """The bytes to train are a, those to test b: no example has both."""
    path = tmp_path / "text"
    path.write_bytes(b"a" * 60 + b"b" * 40)
    data = load_dataset(table(source=str(path), test_share=0.4, reach=6, longest=3), (2**20,), 256)
    assert (len(data.train_inputs), len(data.test_inputs)) == (54, 34)
    assert set(data.train_labels) == {ord("a")}
    assert set(data.test_labels) == {ord("b")}
    for x, byte in ((data.train_inputs, b"a"), (data.test_inputs, b"b")):
        assert {tuple(x[i : i + 1].indices) for i in range(len(x))} == {tuple(sorted(counted(byte * 6, 3, 2**20)))}


def test_the_bundled_text_never_changes():
    data = load_dataset(table(), (2**16,), 256)
    assert data.sha256 == "12c8c14e445c54b64724970793bfb7c03e24ff094db68d25f75bc94cbc2f716f"
    assert data.source == (
        "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I: 10126 bytes to train, 1114 to test; of the "
        "12 bytes before each, n-grams of 1 to 5 bytes in 65536 columns"
    )


def test_where_blocks_end_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    whole = load_dataset(table(stride=5), (2**16,), 256).sha256
    monkeypatch.setattr(ngrams, "BLOCK", 7)
    assert load_dataset(table(stride=5), (2**16,), 256).sha256 == whole


def test_a_short_text_is_refused(tmp_path: Path):
    path = tmp_path / "short"
    path.write_bytes(b"0123456789" * 3)
    with pytest.raises(ConfigError) as caught:
        load_dataset(table(source=str(path)), (64,), 256)
    assert str(caught.value) == (
        f"a text must have more than 12 bytes to train and to test, `reach` of [data], got 27 and 3 in {path}; take a "
        "longer text, or change `test_share`"
    )


def test_longer_n_grams_than_an_example_reads_are_refused():
    with pytest.raises(ConfigError) as caught:
        emu.model("mlp").with_settings({"data": {"kind": "ngrams", "reach": 3}})
    assert "`longest` must be at most `reach`, the bytes that an example reads, got 5 and 3; change one of them" in str(
        caught.value
    )
