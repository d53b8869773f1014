"""Sparse inputs go wherever dense ones go: the same rows, in the same order, with the same labels."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from emu.sparse import CSR
from emu.training.data import Dataset
from emu.training.data.batches import Batches

ROWS, COLUMNS = 23, 9


def dense() -> np.ndarray:
    rng = np.random.default_rng(4)
    return (rng.integers(-4, 5, (ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.3)).astype(np.float32)


def both() -> tuple[Dataset, Dataset]:
    """The same examples, sparse and dense; the last five are of the test."""
    x, labels = dense(), np.arange(ROWS)
    sparse = CSR.from_dense(x, "fp32")
    one = Dataset.of((sparse[:-5], labels[:-5], sparse[-5:], labels[-5:]), "sparse")
    return one, Dataset.of((x[:-5], labels[:-5], x[-5:], labels[-5:]), "dense")


def equal(x: Any, expected: np.ndarray) -> bool:
    assert isinstance(x, CSR)
    return bool((x.to_dense() == expected).all())


def test_batches_of_sparse_examples_are_those_of_dense_ones():
    sparse, plain = (Batches(data, 4, seed=3) for data in both())
    assert (sparse.examples, sparse.per_epoch) == (plain.examples, plain.per_epoch) == (18, 4)
    for step in range(9):
        (x, labels), (expected, same) = sparse.batch(step), plain.batch(step)
        assert equal(x, expected)
        assert (labels == same).all()
        assert len(x) == 4
    sparse.resize(9, 7)
    plain.resize(9, 7)
    assert equal(sparse.batch(10)[0], plain.batch(10)[0])


def test_the_batches_of_some_steps_together_are_those_of_each_one_behind_the_other():
    for batches in (Batches(data, 4, seed=3) for data in both()):
        x, labels = batches.together(range(2, 6))
        parts = [batches.batch(step) for step in range(2, 6)]
        rows = [part.to_dense() if isinstance(part, CSR) else part for part, _ in parts]
        assert ((x.to_dense() if isinstance(x, CSR) else x) == np.concatenate(rows)).all()
        assert labels.tolist() == np.concatenate([part for _, part in parts]).tolist()


def test_the_hash_covers_shape_entries_columns_and_rows():
    data, _ = both()
    digest = hashlib.sha256()
    for x, labels in ((data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)):
        digest.update(f"sparse{x.shape}".encode())
        for array in (x.data, x.indices, x.indptr, labels):
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    assert digest.hexdigest() == data.sha256


def changes(x: CSR) -> dict[str, CSR]:
    data, indices, starts = x.data.copy(), x.indices.copy(), x.indptr.copy()
    data[3] = np.nextafter(data[3], np.float32(9))
    row = int(np.flatnonzero(np.diff(starts))[0])
    indices[starts[row]] = (indices[starts[row]] + 1) % COLUMNS
    moved = starts.copy()
    moved[row + 1] -= 1
    return {
        "entry": CSR.of(data, x.indices, starts, x.shape, "fp32"),
        "column": CSR.of(x.data, indices, starts, x.shape, "fp32"),
        "row": CSR.of(x.data, x.indices, moved, x.shape, "fp32"),
        "width": CSR.of(x.data, x.indices, starts, (x.shape[0], COLUMNS + 1), "fp32"),
    }


@pytest.mark.parametrize("what", ["entry", "column", "row", "width"])
@pytest.mark.parametrize("side", [0, 2])
def test_any_change_of_sparse_inputs_changes_the_hash(what: str, side: int):
    data, _ = both()
    arrays = [data.train_inputs, data.train_labels, data.test_inputs, data.test_labels]
    arrays[side] = changes(arrays[side])[what]
    assert Dataset.of(tuple(arrays), "changed").sha256 != data.sha256
