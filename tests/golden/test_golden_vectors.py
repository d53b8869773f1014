"""Bits never change by accident: what every backend writes is what it wrote when the vectors were made."""

from __future__ import annotations

import pytest
from make_vectors import FOLDER, VECTORS, text_of

REMEDY = "bits changed; if that is meant, run python tests/golden/make_vectors.py and put BREAKING into the changelog"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "networks" else name for name in VECTORS]
)
def test_bits_are_those_of_the_golden_vectors(name: str, backend: str):
    expected = (FOLDER / f"{name}.txt").read_text().splitlines()
    actual = text_of(name, backend).splitlines()
    assert len(actual) == len(expected), REMEDY
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours == theirs, REMEDY
