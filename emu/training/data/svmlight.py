"""Files of sparse examples in the format of SVMlight and LIBSVM: a label, and the numbers that are not 0, line by line.

    +1 3:0.5 7:-2 8:1e-3   # a comment

    lines ──► one expression matches a megabyte of them ──► numbers ──► in range, ascending, finite ──► rows of a CSR
                    └── no ──► an error explains the first wrong line ◄── no ──┘

Numbers are read as float64 and rounded to fp32. Source: T. Joachims, SVMlight, "Input file format".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emu._files import UNREADABLE_ARRAYS
from emu.errors import ConfigError
from emu.sparse import CSR
from emu.training.data.compressed import open_compressed
from emu.training.data.files import unreadable
from emu.training.data.forms import shifted
from emu.training.data.split import held_out
from emu.training.data_tables import Arrays, Labels, SvmLight

#: Bytes of lines that are read at a time.
BLOCK_BYTES = 1 << 20
#: Share of the examples that is held out if a table names neither a test file nor a share.
TEST_SHARE = 0.1
#: Characters of a wrong word that a message shows.
SHOWN = 40
# Runs of characters have possessive quantifiers (`++`, `*+`), so that a text that does not match fails soon. Groups
# have none: before Python 3.11.5 a possessive group that had begun to match counted as matched.
_LABEL = rb"[+-]?[0-9]++(?:\.0*+)?"
_NUMBER = rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_LINES = re.compile(rb"(?:[ \t\r]*+(?:%b(?:[ \t\r]++[0-9]++:%b)*)?[ \t\r]*+\n)*" % (_LABEL, _NUMBER))
_COMMENT, _WORD = re.compile(rb"#[^\n]*+"), re.compile(rb"[^ \t\r\n]++")


@dataclass(frozen=True)
class _Rules:
    """The rules for the numbers of a file.

    Attributes:
        path: path of the file.
        columns: columns of an example.
        classes: number of classes.
        first: the smallest index.
        counts_from_one: whether labels may be 1..classes.
    """

    path: Path
    columns: int
    classes: int
    first: int
    counts_from_one: bool = True

    @property
    def most_label(self) -> int:
        """The largest label."""
        return self.classes if self.counts_from_one else self.classes - 1

    @property
    def least_label(self) -> int:
        """The smallest label: -1 stands for class 0 of two."""
        return -1 if self.classes == 2 else 0


def svmlight_examples(spec: SvmLight, columns: int, classes: int) -> tuple[Arrays, str]:
    """Return sparse examples with their classes, to train and to test, and their description.

    Args:
        spec: the files.
        columns: columns of an example.
        classes: number of classes.

    Raises:
        ConfigError: a file cannot be read, a line is not in the format, or no example is left to train or to test.
    """
    path, more = Path(spec.source), [] if spec.test_source is None else [Path(spec.test_source)]
    files = [_Rules(file, columns, classes, 0 if spec.zero_based else 1) for file in (path, *more)]
    # a matrix and labels for each file; labels still as the file has them
    (train, *tests), stored = zip(*map(_read, files), strict=True)
    labels, *test_labels = _class_numbers(stored, files)
    if tests:
        arrays = (train, labels, tests[0], test_labels[0])
    else:
        share = TEST_SHARE if spec.test_share is None else spec.test_share
        count = round(share * len(labels))
        if not 0 < count < len(labels):
            raise ConfigError(
                f"`test_share` of [data] must leave examples to train and to test, got {share:g} of {len(labels)} in "
                f"{path}; choose another share, or name a `test_source`"
            )
        tested = held_out(labels, count)
        arrays = (train[~tested], labels[~tested], train[tested], labels[tested])
    source = f"{path}: {len(arrays[0])} examples of {columns} columns to train, {len(arrays[2])} to test"
    # the same condition as in `_class_numbers`, which has moved them
    count_from_one = max(int(of_file.max()) for of_file in stored) == classes
    return arrays, f"{source}; {shifted(classes)}" if count_from_one else source


def read_svmlight(path: Path, columns: int, classes: int, *, zero_based: bool = False) -> tuple[CSR, Labels]:
    """Return the examples of a file, plain or compressed: a row each, columns ascending, and their classes.

    Labels are 0..classes-1, or 1..classes. Of two classes they may be -1 and +1 instead, which are the classes 0 and 1.

    Args:
        path: path of the file.
        columns: columns of an example.
        classes: number of classes.
        zero_based: whether the first column has index 0, not 1.

    Raises:
        ConfigError: the file cannot be read or holds no example, or a line is not in the format; names file, line and
            column.
    """
    rules = _Rules(path, columns, classes, 0 if zero_based else 1)
    examples, labels = _read(rules)
    return examples, _class_numbers([labels], [rules])[0]


def _read(rules: _Rules) -> tuple[CSR, Labels]:
    """Return the examples of a file with the labels of the file."""
    path = rules.path
    try:
        blocks = [_block(lines, begin, rules) for begin, lines in _blocks(path)]
    except ConfigError:
        raise
    except UNREADABLE_ARRAYS as error:
        # errors of decompression are OSErrors too, but the system has no text for them
        if not isinstance(error, OSError) or error.strerror is None:
            raise unreadable(path, "a text in the format of SVMlight, maybe compressed", error) from None
        raise ConfigError(
            f"`source` and `test_source` of [data] must be readable files, got {error.strerror!r} for {path}; check "
            "the path, which starts at the current folder"
        ) from None
    labels, counts, indices, data = (np.concatenate(parts) for parts in zip(*blocks, strict=True)) if blocks else _NONE
    if not labels.size:
        raise ConfigError(f"a data file must hold at least one example, got none in {path}; check the file")
    _require_one_kind(labels, rules)
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return CSR.of(data, indices, starts, (labels.size, rules.columns), "fp32", check=False), labels


def _class_numbers(stored: Sequence[Labels], files: Sequence[_Rules]) -> list[Labels]:
    """Return the classes 0..K-1 of labels; the labels of all files together decide whether they count from 1.

    Raises:
        ConfigError: a label is K, but another one is not in 1..K.
    """
    classes = files[0].classes
    # nothing reaches `classes`: they count from 0, and -1 of two classes is class 0
    if max(int(labels.max()) for labels in stored) < classes:
        return [np.maximum(labels, 0) for labels in stored]
    if min(int(labels.min()) for labels in stored) != 1:
        for rules in files:
            _read(replace(rules, counts_from_one=False))  # raises an error that names the line
    return [labels - 1 for labels in stored]


_Block = tuple[Labels, NDArray[np.int64], NDArray[np.signedinteger], NDArray[np.float32]]
_NONE: _Block = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


def _blocks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield some lines at a time, with the number of the first."""
    begin = 1
    with open_compressed(path) as file:
        while lines := file.readlines(BLOCK_BYTES):
            yield begin, lines
            begin += len(lines)


def _block(lines: list[bytes], begin: int, rules: _Rules) -> _Block:
    """Return labels, entries of each row, columns and values of some lines."""
    text = b"".join(lines)
    # only the last line of a file may lack its end
    text = _COMMENT.sub(b"", text if text.endswith(b"\n") else text + b"\n")
    if not _LINES.fullmatch(text):
        raise _first_fault(lines, begin, rules)
    # entries of each line that is not blank; a line without entries is an example of zeros
    counts = np.array([line.count(b":") for line in text.split(b"\n") if line.strip()], np.int64)
    # float rounds each decimal correctly to float64
    numbers = np.fromiter(map(float, text.replace(b":", b" ").split()), np.float64)
    ends = np.cumsum(counts)
    # a line is a label and two numbers for each entry: before line i there are i labels and all earlier entries
    of_labels = 2 * (ends - counts) + np.arange(counts.size)
    labels, pairs = numbers[of_labels], np.delete(numbers, of_labels)
    columns, values = pairs[::2] - rules.first, pairs[1::2]
    data = _float32(values)
    follows = np.ones(columns.size, bool)  # whether an entry has another one before it in its line
    follows[(ends - counts)[counts > 0]] = False
    sound = (
        (labels >= rules.least_label).all()
        and (labels <= rules.most_label).all()
        and (columns >= 0).all()
        and (columns < rules.columns).all()
        # ascending within each line: the first entry of a line is not compared with the line before
        and (np.diff(columns, prepend=-1.0)[follows] > 0).all()
        and np.isfinite(data).all()
    )
    if not sound:
        raise _first_fault(lines, begin, rules)
    indices = columns.astype(np.int32 if rules.columns < 2**31 else np.int64)
    return labels.astype(np.int64), counts, indices, data


# ---- what is wrong ----


def _first_fault(lines: Sequence[bytes], begin: int, rules: _Rules) -> ConfigError:
    """Return the error that explains the first line that is not in the format."""
    for number, line in enumerate(lines, begin):
        words = list(_WORD.finditer(line.partition(b"#")[0]))
        fault = _fault([word.group() for word in words], rules)
        if fault is not None:
            index, (rule, got, remedy) = fault
            position = f"{rules.path}, line {number}, column {words[index].start() + 1}"
            return ConfigError(f"{rule}, got {_shown(got)} in {position}; {remedy}")
    # the slow rules repeat those of the expression and of `_block`: what these refuse breaks a rule in some line
    raise AssertionError(f"lines {begin} and later of {rules.path} have no fault")


def _fault(words: list[bytes], rules: _Rules) -> tuple[int, tuple[str, bytes, str]] | None:
    """Return the index of the first wrong word of a line, with rule, word and remedy; None if the line is right."""
    if not words:
        return None
    wrong = _fault_of_label(words[0], rules)
    if wrong is not None:
        return 0, wrong
    # below every index, so the first entry always ascends
    before = -1.0
    for index, word in enumerate(words[1:], 1):
        wrong = _fault_of_entry(word, before, rules)
        if wrong is not None:
            return index, wrong
        before = float(word.partition(b":")[0])
    return None


def _fault_of_label(word: bytes, rules: _Rules) -> tuple[str, bytes, str] | None:
    if b":" in word:
        return "a line must begin with a label", word, "write `label index:value index:value ...`"
    if not re.fullmatch(_LABEL, word):
        return "a label must be an integer", word, "number the classes from 0"
    if not rules.least_label <= float(word) <= rules.most_label:
        allowed = "0 or 1, or -1 or +1" if rules.classes == 2 else f"in 0..{rules.classes - 1}"
        return f"a label must be {allowed}", word, "correct it, or `classes` of [network]"
    return None


def _fault_of_entry(word: bytes, before: float, rules: _Rules) -> tuple[str, bytes, str] | None:
    index, colon, value = word.partition(b":")
    first, last = rules.first, rules.first + rules.columns - 1
    if index == b"qid" and colon:
        return "an example must have a label and entries alone", word, "remove `qid`, which is of ranking"
    if not colon:
        return "an entry must be `index:value`", word, "put a colon between index and value"
    if not re.fullmatch(rb"[0-9]++", index):
        return f"an index must be an integer from {first} on", index, "correct it"
    if float(index) < first:
        return "an index must be 1 or more", index, "correct it, or set `zero_based` of [data] to true"
    if float(index) > last:
        return f"an index must be in {first}..{last}", index, "correct it, or `input` of [network]"
    if float(index) <= before:
        rule = f"indices must ascend in each line, none of them twice: above {before:.0f}"
        return rule, index, "sort them, and add up what is there twice"
    if not re.fullmatch(_NUMBER, value):
        rule = "a value must be a finite number" if _is_special(value) else "a value must be a number"
        return rule, value, "correct it, or remove the entry"
    if not np.isfinite(_float32([float(value)])):
        return "a value must be finite in float32", value, "correct it, or scale the column"
    return None


def _float32(values: ArrayLike) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32)


def _is_special(value: bytes) -> bool:
    return value.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity")


def _shown(word: bytes) -> str:
    text = word.decode("latin-1")
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _require_one_kind(labels: Labels, rules: _Rules) -> None:
    """Raise ConfigError if labels of two classes contain both -1 and 0, because each of them is class 0."""
    if not (labels < 0).any() or not (labels == 0).any():
        return
    first, second = sorted(int(np.flatnonzero(labels == label)[0]) for label in (-1, 0))
    raise ConfigError(
        f"labels of two classes must be 0 and 1, or -1 and +1, got {labels[first]} and {labels[second]} in "
        f"{rules.path}, lines {_line_of(first, rules.path)} and {_line_of(second, rules.path)}; write one kind"
    )


def _line_of(row: int, path: Path) -> int:
    """Return the number of an example's line."""
    for begin, lines in _blocks(path):
        filled = [n for n, line in enumerate(lines, begin) if line.partition(b"#")[0].strip()]
        if row < len(filled):
            return filled[row]
        row -= len(filled)
    raise AssertionError("the file has become shorter")
