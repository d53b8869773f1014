"""Bits never change by accident: what every backend writes is what it wrote when the vectors were made."""

from __future__ import annotations

from itertools import product

from fast_suite import most_are_slow
from make_vectors import FOLDER, VECTORS, text_of

REMEDY = "bits changed; if that is meant, run python tests/golden/make_vectors.py and put BREAKING into the changelog"


@most_are_slow(
    ("backend", "name"),
    product(["reference", "numba"], VECTORS),
    # the others compile a kernel for every format, and tests/backends holds them against the reference
    keep=lambda backend, name: (
        name not in ("networks", "casts") and (backend == "reference" or name in ("matmul", "training", "scaled"))
    ),
)
def test_bits_are_those_of_the_golden_vectors(backend: str, name: str):
    expected = (FOLDER / f"{name}.txt").read_text().splitlines()
    actual = text_of(name, backend).splitlines()
    assert len(actual) == len(expected), REMEDY
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours == theirs, REMEDY
