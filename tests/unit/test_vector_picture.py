"""The lines that show a vector: the bits of an exact result stand above those of the code that is expected."""

from __future__ import annotations

import pytest

from emu.testing.vectors.description import Description
from emu.testing.vectors.making import make_vectors
from emu.testing.vectors.picture import picture


@pytest.mark.parametrize(
    ("source", "fmt"), [("fix8f4", "fix8f4"), ("fix8f4", "fix8f4 sign-magnitude"), ("fp8_e4m3", "fp8_e4m3")]
)
def test_the_kept_bits_of_a_result_that_is_exact_are_those_of_its_code(source: str, fmt: str):
    vectors = make_vectors(Description(operation="quantize", formats=(source,), out_format=fmt))  # all 256 inputs
    exact = 0
    for index in range(vectors.results.size):
        lines = dict(line.split(maxsplit=1) for line in picture(vectors, None, index) if not line.startswith(" "))
        bits = [line.strip() for line in picture(vectors, None, index) if "guard, round, sticky" in line]
        # beyond the range more bits are shown than the code has
        if not bits or not bits[0].endswith("exact") or int(vectors.flags[index]):
            continue
        code = lines["expected"].split("  ")[1]
        assert bits[0].partition("  guard")[0] == f"{code}|0 0 0", (index, lines["expected"])
        exact += 1
    assert exact > 240
