"""Every way of the compiled backend: some product takes it first, and has the definition's bits, flags, registers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import HAS_PAIRS, HAS_VECTORS

import emu
from emu import Mac
from emu.backends.interface import encode_mac, encode_stage
from emu.backends.numba.ending import Ended
from emu.backends.numba.table import WAYS
from emu.backends.product import Choice, Product, ProductCode, Way, choose
from emu.backends.reference.definition import DEFINITION
from emu.backends.registry import load
from emu.datapath import OutputStage
from emu.engine.path import codes_of_terms
from emu.engine.scaled_products import plain_format
from emu.formats import Scaled
from emu.testing import assert_bits_equal

#: A unit that sums groups of operands which share scales.
GROUPS = Mac.preset("b200", inputs="nvfp4")
#: A product for each way: whether the processor has it, formats of operands and results, the unit, the shape (M, K, N).
CASES: dict[str, tuple[bool, str, str, Mac, tuple[int, int, int]]] = {
    "integer_dot": (HAS_PAIRS, "fix8f4", "fix16f8", Mac(), (9, 40, 35)),
    "pairwise_sums": (True, "fp32", "fp16", Mac(product="fp32", accumulator="fp32", order="pairwise"), (9, 70, 1)),
    "blas": (True, "fix20f4", "fix16f4", Mac(), (9, 40, 35)),
    "halves": (HAS_PAIRS, "fix32f8", "fix16f2", Mac(), (9, 400, 35)),
    "wide_sums": (True, "fp16", "fp16", Mac(), (9, 40, 35)),
    "blocks_in_tiles": (HAS_VECTORS, "fp16", "fp16", Mac.preset("v100"), (9, 40, 35)),
    "groups_in_tiles": (HAS_VECTORS, "nvfp4", "fp16", GROUPS, (9, 64, 35)),
    "dot_add": (True, "fp16", "fp16", Mac(accumulator="bf16", order="blocks(4, 20)"), (9, 40, 35)),
    "speculation": (HAS_PAIRS, "fix16f8", "fix16f8", Mac(accumulator="fix36f16"), (9, 1000, 35)),
    "in_tiles": (HAS_VECTORS, "fp16", "fp16", Mac(accumulator="fp32"), (9, 40, 35)),
    "in_order": (True, "bf16", "bf16", Mac(accumulator="bf16"), (9, 40, 35)),
    "ordered": (True, "fp16", "fp16", Mac(accumulator="fp16", order="lanes(3)"), (9, 40, 35)),
    "definition": (True, "fix60f8", "fix60f8", Mac(accumulator="fix64f4", rounding="floor"), (3, 5, 4)),
}


def name_of(way: Way[Product]) -> str:
    """Name the file of a way."""
    module = way.loops if isinstance(way, Ended) else sys.modules[type(way).__module__]
    return module.__name__.rsplit(".", 1)[-1]


def chosen(fmt: str, out: str, mac: Mac, sizes: tuple[int, int, int]) -> Choice:
    """What the engine would choose: path and unit by its plan."""
    parsed = emu.parse(fmt)
    is_aligned = isinstance(parsed, Scaled)
    formats: dict[str, str] = {} if is_aligned else {"a_format": fmt, "b_format": fmt}
    # Of the largest values: measured maxima prove nothing beyond the formats.
    largest = 1.0 if is_aligned else float(parsed.max)
    operands = [np.full(shape, largest) for shape in (sizes[:2], sizes[1:])]
    if is_aligned:
        operands = [emu.quantize(x, fmt, axis=axis) for x, axis in zip(operands, (-1, -2), strict=True)]
        parsed = plain_format(parsed)
    plan = emu.explain(emu.matmul, *operands, **formats, out_format=out, mac=mac, backend="numba")
    codes = codes_of_terms((parsed, parsed, None))
    code = ProductCode(codes, encode_mac(plan.mac), plan.path, sizes[1], is_aligned=is_aligned)
    return choose(load("numba").ways, code, encode_stage(OutputStage.of(out)))


def test_every_way_of_the_list_has_a_product_here_and_the_definition_is_the_last():
    assert [name_of(way) for way in WAYS] == list(CASES)
    assert load("reference").ways == (WAYS[-1],)


@pytest.mark.parametrize("way", CASES)
def test_a_product_of_its_kind_takes_the_way_first_and_has_the_definitions_bits_flags_and_register(way: str):
    is_here, fmt, out, mac, (rows, depth, columns) = CASES[way]
    if not is_here:
        pytest.skip("the processor lacks its instructions")
    assert name_of(chosen(fmt, out, mac, (rows, depth, columns)).ways[0]) == way
    shrink = 2.0**-4 if way == "speculation" else 1
    is_aligned = isinstance(emu.parse(fmt), Scaled)
    formats = {} if is_aligned else {"a_format": fmt, "b_format": fmt}
    drawn = "fp16" if is_aligned else fmt
    a, b = (
        random_values(drawn, shape, 3, anything=not is_aligned) * shrink for shape in ((rows, depth), (depth, columns))
    )
    if shrink != 1 or is_aligned:
        a, b = emu.quantize(a, fmt), emu.quantize(b, fmt, **({"axis": -2} if is_aligned else {}))
    results = []
    for backend in ("numba", "reference"):
        flags, register = emu.Flags(), emu.StatisticsRegister(-20, 60)
        options = {"mac": mac, "flags": flags, "register": register, "backend": backend}
        results.append((emu.matmul(a, b, **formats, out_format=out, **options), flags, register))
    assert_bits_equal(results[0][0], results[1][0], emu.parse(out))
    assert results[0][1:] == results[1][1:]


def test_a_reason_is_told_only_where_the_definition_computes():
    assert chosen("fp16", "fp16", Mac(), (2, 2, 2)).fallback == ""
    left = chosen("fix60f8", "fix60f8", Mac(accumulator="fix64f4", rounding="floor"), (3, 5, 4))
    assert left.ways == (DEFINITION,)
    assert left.fallback == "the written format lies outside what float64 loops round"


def test_ways_that_leave_some_numbers_to_others_are_not_taken_where_only_the_definition_follows():
    """Pairwise sums of float32 columns, and of operands too far out for the general loops."""
    mac = Mac(product="fp32", accumulator="fp32", order="pairwise")
    assert [name_of(way) for way in chosen("fp32", "fp32", mac, (9, 70, 1)).ways] == [
        "pairwise_sums",
        "ordered",
        "definition",
    ]
    left = chosen("fp64", "fp32", mac, (9, 70, 1))
    assert left.ways == (DEFINITION,)
    assert left.fallback == "products lie too close to the ends of float64"
