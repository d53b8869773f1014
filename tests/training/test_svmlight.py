"""Files of SVMlight are read entry by entry, and what is none of them is named by file, line and column."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

import emu
from emu.errors import ConfigError
from emu.sparse import CSR
from emu.training.data import load_dataset, svmlight
from emu.training.data.split import held_out
from emu.training.data.svmlight import read_svmlight, svmlight_examples
from emu.training.recipe import SvmLight

SMALL = b"""# written by hand
1 3:0.5 7:-2 8:1e-3   # the first
0\t1:+.25\t2:7.

2   # no entry
1  4:-0 \r
"""


PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def written(folder: Path, content: bytes, name: str = "x.svm") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path: Path, columns: int = 8, classes: int = 3, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read_svmlight(path, columns, classes, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- what is read ----


def test_a_file_written_by_hand(tmp_path: Path):
    x, labels = read_svmlight(written(tmp_path, SMALL), 8, 3)
    assert labels.tolist() == [1, 0, 2, 1]
    assert (x.shape, str(x.format), x.indices.dtype, x.data.dtype) == ((4, 8), "fp32", np.int32, np.float32)
    assert x.indptr.tolist() == [0, 3, 5, 5, 6]
    assert x.indices.tolist() == [2, 6, 7, 0, 1, 3]
    assert x.data.tolist() == [0.5, -2, np.float32(1e-3), 0.25, 7, 0]
    assert np.signbit(x.data[5])


def test_the_first_column_has_index_0_where_asked(tmp_path: Path):
    x, _ = read_svmlight(written(tmp_path, b"1 0:2 7:3\n"), 8, 2, zero_based=True)
    assert x.indices.tolist() == [0, 7]


def test_minus_one_and_plus_one_are_two_classes(tmp_path: Path):
    _, labels = read_svmlight(written(tmp_path, b"-1 1:1\n+1 2:1\n1\n-1"), 3, 2)
    assert labels.tolist() == [0, 1, 1, 0]
    _, labels = read_svmlight(written(tmp_path, b"0 1:1\n+1 2:1\n"), 3, 2)
    assert labels.tolist() == [0, 1]


def test_a_gzipped_file_is_the_file(tmp_path: Path):
    plain = read_svmlight(written(tmp_path, SMALL), 8, 3)
    zipped = read_svmlight(written(tmp_path, gzip.compress(SMALL), "x.svm.gz"), 8, 3)
    assert plain[0].data.tobytes() == zipped[0].data.tobytes()
    assert plain[1].tolist() == zipped[1].tolist()


@pytest.mark.parametrize("block", [1, 7, 40])
def test_where_blocks_end_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int):
    path = written(tmp_path, SMALL)
    whole, labels = read_svmlight(path, 8, 3)
    monkeypatch.setattr(svmlight, "BLOCK_BYTES", block)
    again, same = read_svmlight(path, 8, 3)
    assert (again.to_dense() == whole.to_dense()).all()
    assert labels.tolist() == same.tolist()
    assert refused(written(tmp_path, SMALL + b"1 3:a\n")).endswith("line 7, column 3; correct it, or remove the entry")


@st.composite
def examples(draw: st.DrawFn) -> tuple[CSR, list[int]]:
    """Rows of float32 of every size, subnormals, zeros of both signs and rows without an entry among them."""
    columns = draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    rows = [draw(st.lists(st.integers(0, columns - 1), unique=True, max_size=6).map(sorted)) for _ in labels]
    count = sum(map(len, rows))
    values = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=count, max_size=count))
    starts = np.cumsum([0, *map(len, rows)])
    return CSR.of(
        np.float32(values), np.int32([column for row in rows for column in row]), starts, (len(rows), columns), "fp32"
    ), labels


SPACES = st.sampled_from([" ", "\t", "  ", " \t "])


def text_of(x: CSR, labels: list[int], first: int, space: str, ending: str) -> str:
    """The lines of a matrix, `repr` of each number."""
    lines: list[str] = []
    for row, label in enumerate(labels):
        places = range(x.indptr[row], x.indptr[row + 1])
        entries = [f"{x.indices[p] + first}:{float(x.data[p])!r}" for p in places]
        lines.append(space.join([str(label), *entries]) + ending)
    return "".join(lines)


@given(examples(), st.booleans(), SPACES, st.sampled_from(["\n", "\r\n", " # 3:4 qid:1 #\n", "\n\n#\n"]))
def test_what_is_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, given_: tuple[CSR, list[int]], zero: bool, space: str, ending: str
):
    x, labels = given_
    path = written(tmp_path_factory.getbasetemp(), text_of(x, labels, 1 - zero, space, ending).encode())
    found, classes = read_svmlight(path, x.shape[1], 5, zero_based=zero)
    assert found.shape == x.shape
    assert classes.tolist() == labels
    for name in ("data", "indices", "indptr"):
        assert getattr(found, name).tobytes() == getattr(x, name).tobytes()


@given(examples(), st.booleans(), SPACES)
def test_scikit_learn_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, given_: tuple[CSR, list[int]], zero: bool, space: str
):
    x, labels = given_
    text = text_of(x, labels, 1 - zero, space, "\n")
    path = written(tmp_path_factory.getbasetemp(), text.encode())
    found, classes = read_svmlight(path, x.shape[1], 5, zero_based=zero)
    with np.errstate(under="ignore"):
        theirs, same = load_svmlight_file(str(path), n_features=x.shape[1], dtype=np.float32, zero_based=zero)
    assert classes.tolist() == same.tolist()
    assert found.data.tobytes() == theirs.data.tobytes()
    assert found.indices.tolist() == theirs.indices.tolist()
    assert found.indptr.tolist() == theirs.indptr.tolist()


# ---- what is refused ----

FAULTS = {
    b"1 1:2\nabc 1:2\n": "a label must be an integer, got 'abc' in {}, line 2, column 1; number the classes from 0",
    b"  1.5 1:2\n": "a label must be an integer, got '1.5' in {}, line 1, column 3; number the classes from 0",
    b"#\n\n1:2 3:4\n": (
        "a line must begin with a label, got '1:2' in {}, line 3, column 1; write `label index:value index:value ...`"
    ),
    b"3 1:2": "a label must be in 0..2, got '3' in {}, line 1, column 1; correct it, or `classes` of [network]",
    b"-1 1:2": "a label must be in 0..2, got '-1' in {}, line 1, column 1; correct it, or `classes` of [network]",
    b"1 2\n": "an entry must be `index:value`, got '2' in {}, line 1, column 3; put a colon between index and value",
    b"1 1:2 3 4:5\n": (
        "an entry must be `index:value`, got '3' in {}, line 1, column 7; put a colon between index and value"
    ),
    b"1 a:2\n": "an index must be an integer from 1 on, got 'a' in {}, line 1, column 3; correct it",
    b"1 :2\n": "an index must be an integer from 1 on, got '' in {}, line 1, column 3; correct it",
    b"1 -2:2\n": "an index must be an integer from 1 on, got '-2' in {}, line 1, column 3; correct it",
    b"1 1.5:2\n": "an index must be an integer from 1 on, got '1.5' in {}, line 1, column 3; correct it",
    b"1 0:2\n": (
        "an index must be 1 or more, got '0' in {}, line 1, column 3; correct it, or set `zero_based` of [data] to true"
    ),
    b"0 1:1\n1\t9:2\n": (
        "an index must be in 1..8, got '9' in {}, line 2, column 3; correct it, or `input` of [network]"
    ),
    b"1 %b:2\n" % (b"9" * 5000): (
        "an index must be in 1..8, got '9999999999999999999999999999999999999999...' in {}, line 1, column 3; correct "
        "it, or `input` of [network]"
    ),
    b"1 2:1 5:1 3:1\n": (
        "indices must ascend in each line, none of them twice: above 5, got '3' in {}, line 1, column 11; sort them, "
        "and add up what is there twice"
    ),
    b"1 2:1 2:1\n": (
        "indices must ascend in each line, none of them twice: above 2, got '2' in {}, line 1, column 7; sort them, "
        "and add up what is there twice"
    ),
    b"1 2:x\n": "a value must be a number, got 'x' in {}, line 1, column 3; correct it, or remove the entry",
    b"1 2:\n": "a value must be a number, got '' in {}, line 1, column 3; correct it, or remove the entry",
    b"1 2: 3\n": "a value must be a number, got '' in {}, line 1, column 3; correct it, or remove the entry",
    b"1 2:1_0\n": "a value must be a number, got '1_0' in {}, line 1, column 3; correct it, or remove the entry",
    b"1 2:3:4\n": "a value must be a number, got '3:4' in {}, line 1, column 3; correct it, or remove the entry",
    b"1 1:1 2:NaN\n": (
        "a value must be a finite number, got 'NaN' in {}, line 1, column 7; correct it, or remove the entry"
    ),
    b"1 2:-inf\n": (
        "a value must be a finite number, got '-inf' in {}, line 1, column 3; correct it, or remove the entry"
    ),
    b"1 2:1e39\n": (
        "a value must be finite in float32, got '1e39' in {}, line 1, column 3; correct it, or scale the column"
    ),
    b"1 2:-1e999\n": (
        "a value must be finite in float32, got '-1e999' in {}, line 1, column 3; correct it, or scale the column"
    ),
    b"1 qid:3 2:1\n": (
        "an example must have a label and entries alone, got 'qid:3' in {}, line 1, column 3; remove `qid`, which is "
        "of ranking"
    ),
    b"1 2:\x00\xff\n": (
        "a value must be a number, got '\\x00\\xff' in {}, line 1, column 3; correct it, or remove the entry"
    ),
    b"": "a data file must hold at least one example, got none in {}; check the file",
    b"\n# nothing\n \n": "a data file must hold at least one example, got none in {}; check the file",
}  # fmt: skip


@pytest.mark.parametrize("content", FAULTS, ids=lambda content: str(content[:20]))
def test_a_fault_is_named_with_its_place(tmp_path: Path, content: bytes):
    path = written(tmp_path, content)
    assert refused(path) == FAULTS[content].replace("{}", str(path))


def test_the_first_fault_of_several_lines_is_named(tmp_path: Path):
    assert ", line 2, column 3;" in refused(written(tmp_path, b"1 1:1\n1 9:1\n1 x\nabc\n"))


def test_labels_of_two_classes_are_named(tmp_path: Path):
    path = written(tmp_path, b"-1 1:1\n2 1:1\n")
    assert refused(path, classes=2) == (
        f"a label must be 0 or 1, or -1 or +1, got '2' in {path}, line 2, column 1; correct it, or "
        "`classes` of [network]"
    )
    path = written(tmp_path, b"1\n0 1:1\n#\n1\n\n-1 1:1\n0\n")
    assert refused(path, classes=2) == (
        f"labels of two classes must be 0 and 1, or -1 and +1, got 0 and -1 in {path}, lines 2 and 6; write one kind"
    )


def test_an_index_of_a_file_that_begins_with_0_may_not_be_the_number_of_columns(tmp_path: Path):
    path = written(tmp_path, b"1 0:1 8:1\n")
    assert refused(path, zero_based=True) == (
        f"an index must be in 0..7, got '8' in {path}, line 1, column 7; correct it, or `input` of [network]"
    )
    assert "an index must be an integer from 0 on, got '-1'" in refused(written(tmp_path, b"1 -1:1\n"), zero_based=True)


def test_a_missing_file_is_named(tmp_path: Path):
    assert refused(tmp_path / "none.svm") == (
        "`source` and `test_source` of [data] must be readable files, got 'No such file or directory' for "
        f"{tmp_path / 'none.svm'}; check the path, which starts at the current folder"
    )


def test_what_is_no_file_or_damaged_is_named(tmp_path: Path):
    assert refused(tmp_path).startswith(
        f"`source` and `test_source` of [data] must be readable files, got 'Is a directory' for {tmp_path}; check"
    )
    cut = written(tmp_path, gzip.compress(SMALL * 50)[:-20], "cut.gz")
    assert refused(cut).endswith(f"while reading {cut}; copy or download it again")
    for name, pack in PACKED.items():
        cut = written(tmp_path, pack(SMALL * 50)[:-8], f"cut.{name}")
        assert refused(cut).endswith(f"while reading {cut}; copy or download it again")
    damaged = bytearray(lzma.compress(SMALL * 50))
    damaged[20:40] = bytes(20)
    assert "a data file must be a text in the format of SVMlight, maybe compressed, got" in refused(
        written(tmp_path, bytes(damaged))
    )


@pytest.mark.parametrize("name", ["x.svm", "x.svm.gz", "x.bz2", "x"])
@pytest.mark.parametrize("kind", ["plain", "gz", "bz2", "xz"])
def test_first_bytes_tell_how_a_file_is_compressed_whatever_its_name(kind: str, name: str, tmp_path: Path):
    plain, expected = read_svmlight(written(tmp_path, SMALL, "plain"), 8, 3)
    found, labels = read_svmlight(written(tmp_path, PACKED[kind](SMALL) if kind != "plain" else SMALL, name), 8, 3)
    assert labels.tolist() == expected.tolist()
    np.testing.assert_array_equal(found.to_dense(), plain.to_dense())


def test_labels_from_1_on_are_classes_from_0_on_and_that_is_said(tmp_path: Path):
    train = written(tmp_path, b"1 1:1\n3.0 2:1\n2. 3:1\n", "train")
    test = written(tmp_path, b"2 1:1\n1 1:1\n", "test")
    spec = SvmLight(kind="svmlight", source=str(train), test_source=str(test))
    arrays, told = svmlight_examples(spec, 4, 3)
    assert [arrays[1].tolist(), arrays[3].tolist()] == [[0, 2, 1], [1, 0]]
    assert told == f"{train}: 3 examples of 4 columns to train, 2 to test; labels 1..3 moved to 0..2"
    arrays, told = svmlight_examples(spec, 4, 4)  # 0 to 3, of which 0 does not occur
    assert arrays[1].tolist() == [1, 3, 2]
    assert told.endswith("to test")
    arrays, _ = svmlight_examples(SvmLight(kind="svmlight", source=str(test), test_source=str(test)), 4, 2)
    assert arrays[1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("first", "second"), [(b"0 1:1\n1 1:1\n", b"1 1:1\n\n3 1:1\n"), (b"2 1:1\n", b"2 1:1\n\n3 1:1\n")]
)
def test_labels_from_1_on_beside_others_are_named(first: bytes, second: bytes, tmp_path: Path):
    train, test = written(tmp_path, first, "train"), written(tmp_path, second, "test")
    with pytest.raises(ConfigError) as found:
        svmlight_examples(SvmLight(kind="svmlight", source=str(train), test_source=str(test)), 4, 3)
    assert str(found.value) == (
        f"a label must be in 0..2, got '3' in {test}, line 3, column 1; correct it, or `classes` of [network]"
    )


def read_or_refused(path: Path, columns: int, classes: int) -> tuple[CSR, np.ndarray] | str:
    """What a file holds, or the one sentence that refuses it; any other error passes."""
    try:
        return read_svmlight(path, columns, classes)
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message
    return message


damages = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(["cut", "put", "change"]), st.binary(min_size=1, max_size=3)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=400)
@given(examples(), damages)
def test_damage_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, given_: tuple[CSR, list[int]], damage: list[tuple[int, str, bytes]]
):
    x, labels = given_
    content = text_of(x, labels, 1, " ", "\n").encode()
    for place, kind, junk in damage:
        at = place % (len(content) + 1)
        rest = {"cut": at + len(junk), "put": at, "change": at + len(junk)}[kind]
        content = content[:at] + (b"" if kind == "cut" else junk) + content[rest:]
    path = written(tmp_path_factory.getbasetemp(), content)
    read = read_or_refused(path, x.shape[1], 5)
    if isinstance(read, str):
        assert str(path) in read
        return
    found, classes = read
    again = CSR.of(found.data, found.indices, found.indptr, found.shape, "fp32", canonical=True)
    assert np.isfinite(again.data).all()
    assert ((classes >= 0) & (classes < 5)).all()
    assert len(classes) == len(again) > 0


@given(st.text("0123 :.#-+eE\n\tq", max_size=60))
def test_lines_of_the_formats_own_characters_are_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = written(tmp_path_factory.getbasetemp(), text.encode())
    read_or_refused(path, 9, 2)


# ---- data sets ----


def many(count: int) -> bytes:
    return b"".join(b"%d %d:%d\n" % (i % 3, 1 + i % 8, i + 1) for i in range(count))


def test_examples_are_held_out_by_class_and_none_is_lost(tmp_path: Path):
    path = written(tmp_path, many(100))
    data = load_dataset(SvmLight(kind="svmlight", source=str(path)), (8,), 3)
    assert data.source == f"{path}: 90 examples of 8 columns to train, 10 to test"
    tested = held_out(np.arange(100) % 3, 10)
    assert data.test_inputs.data.tolist() == (np.flatnonzero(tested) + 1).tolist()
    assert data.train_inputs.data.tolist() == (np.flatnonzero(~tested) + 1).tolist()
    assert data.test_labels.tolist() == (np.flatnonzero(tested) % 3).tolist()
    assert np.bincount(data.test_labels).tolist() == [4, 3, 3]


SPLIT_OF_40 = [2, 6, 8, 12, 13, 14, 25, 37]
HASH_OF_40 = "fc893c75f373065d02b919f47be72167139da8fc8aa5137b0bc99ff4b41c281a"


def test_the_split_never_changes(tmp_path: Path):
    spec = SvmLight(kind="svmlight", source=str(written(tmp_path, many(40))), test_share=0.2)
    data = load_dataset(spec, (8,), 3)
    assert data.test_inputs.data.tolist() == SPLIT_OF_40
    assert data.sha256 == HASH_OF_40


def test_a_file_of_test_examples_is_read_whole(tmp_path: Path):
    train, test = written(tmp_path, many(9)), written(tmp_path, b"2 8:1\n", "test.svm")
    data = load_dataset(SvmLight(kind="svmlight", source=str(train), test_source=str(test)), (8,), 3)
    assert (len(data.train_inputs), data.test_inputs.indices.tolist(), data.test_labels.tolist()) == (9, [7], [2])


@pytest.mark.parametrize(("count", "share"), [(4, None), (1, 0.9), (3, 0.9)])
def test_a_share_that_leaves_nothing_on_a_side_is_refused(tmp_path: Path, count: int, share: float | None):
    path = written(tmp_path, many(count))
    with pytest.raises(ConfigError) as caught:
        load_dataset(SvmLight(kind="svmlight", source=str(path), test_share=share), (8,), 3)
    assert str(caught.value) == (
        f"`test_share` of [data] must leave examples to train and to test, got {share or 0.1:g} of {count} in {path}; "
        "choose another share, or name a `test_source`"
    )


def test_a_share_beside_a_test_file_is_refused():
    with pytest.raises(ConfigError) as caught:
        emu.model("mlp").with_settings(
            {"data": {"kind": "svmlight", "source": "a.svm", "test_source": "b.svm", "test_share": 0.5}}
        )
    assert "at most one of `test_source` and `test_share` must be given, got 'b.svm' and 0.5; remove one" in str(
        caught.value
    )
