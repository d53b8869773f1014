"""Random multiply-accumulate units: the compiled loops run, and return the reference's bits."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from agreement import assert_same
from hypothesis import assume, given
from hypothesis import strategies as st

import emu
from emu import Float, Mac, Overflow
from emu.backends.interface import encode_format, encode_mac, encode_stage
from emu.backends.reference.definition import Definition
from emu.backends.registry import load
from emu.datapath import OutputStage
from emu.formats import Format
from emu.testing import bulk_arrays, formats, macs
from tests.backends.table_products import fallback
from tests.products import product

#: Output stages: few, for each is compiled.
STAGES = [
    {"out_format": "fp32"},
    {"out_format": "fp16", "rounding": "stochastic", "n_rbits": 8},
    {"out_format": "fix16f8", "rounding": "floor", "overflow": "wrap"},
]


def in_reach(fmt: Format | str) -> bool:
    """Whether float64 loops round into a format: with fraction bits, and exponents far from float64's."""
    return not isinstance(fmt, Float) or (fmt.fraction_bits > 0 and fmt.exponent_bits <= 8)


def is_held(fmt: Format | str) -> bool:
    """Whether compiled loops have units that round into a format: floats of those have a sign."""
    return in_reach(fmt) and (not isinstance(fmt, Float) or fmt.signed)


narrow = formats(max_width_bits=16).filter(in_reach)
addends = st.one_of(st.none(), formats(raws=True).filter(in_reach))
sizes = st.sampled_from([0, 1, 1, 2, 3, 5, 7])


def units(**options: Any) -> Any:
    return macs(max_width_bits=22, **options).filter(lambda mac: is_held(mac.product) and is_held(mac.accumulator))


def declines(a: Any, b: Any, addend: Any, mac: Mac, stage: dict[str, Any], divisor: int = 1) -> str:
    """Why the compiled backend leaves a product in its order (or an exact one beyond float64) to the reference."""
    codes = tuple(None if f is None else encode_format(emu.parse(f)) for f in (a, b, addend))
    path = "wide" if mac.is_exact else "in_order"
    written = OutputStage.of(stage["out_format"], **{k: v for k, v in stage.items() if k != "out_format"})
    return fallback(load("numba"), codes, encode_mac(mac), path, encode_stage(written), divisor=divisor)


def assert_compiled_is_reference(
    a, b, c, names, mac: Mac, stage: dict[str, Any], note: Any = "", **options: Any
) -> None:
    """Compare backends, the compiled one without help."""
    fa, fb, fc = names
    formats = {"a_format": fa, "b_format": fb, "addend": c, "addend_format": fc, "mac": mac, **stage, **options}
    helped = AssertionError(f"left to the reference: {mac}")

    def call(backend: str, **counts: Any) -> np.ndarray:
        if backend == "reference":
            return product(a, b, backend=backend, **formats, **counts)
        with patch.object(Definition, "compute", side_effect=helped):
            return product(a, b, backend=backend, **formats, **counts)

    assert_same(call, stage["out_format"], (names, mac, stage, options, note))


def draw_operands(data: Any, fa: Format, fb: Format, fc: Format | None) -> tuple[Any, Any, Any]:
    batch, m, depth, n = data.draw(st.sampled_from([1, 1, 2, 3])), data.draw(sizes), data.draw(sizes), data.draw(sizes)
    specials = {"nan": data.draw(st.booleans()), "infinity": data.draw(st.booleans())}
    a = data.draw(bulk_arrays(fa, (batch, m, depth), **specials))
    b = data.draw(bulk_arrays(fb, (batch, depth, n), **specials))
    if fc is None:
        return a, b, None
    rows, columns = data.draw(st.sampled_from([(m, n), (1, n), (m, 1), (1, 1)]))
    return a, b, data.draw(bulk_arrays(fc, (data.draw(st.sampled_from([1, batch])), rows, columns), **specials))


@given(st.data(), narrow, narrow, addends, units(exact=False), st.sampled_from(STAGES), st.integers(0, 2**64 - 1))
def test_rounding_accumulators_are_the_same(data, fa, fb, fc, mac, stage, seed):
    assume(not declines(fa, fb, fc, mac, stage))
    divisor = data.draw(st.sampled_from([1, 1, 2, 3, 9, 1000003]))
    a, b, c = draw_operands(data, fa, fb, fc)
    where = {"seed": seed, "stream": seed % 2**32, "step": seed % 1000, "divisor": divisor}
    assert_compiled_is_reference(a, b, c, (fa, fb, fc), mac, stage, **where)


@pytest.mark.slow
@given(st.data(), narrow, narrow, addends, units(fixed=False), st.sampled_from(STAGES), st.integers(0, 2**64 - 1))
def test_exact_accumulators_are_the_same(data, fa, fb, fc, mac, stage, seed):
    mac = Mac(mac.product, "exact", mac.order, mac.rounding, None if mac.product == "exact" else mac.overflow)
    divisor = data.draw(st.sampled_from([1, 1, 2, 3, 9, 1000003]))
    assume(not declines(fa, fb, fc, mac, stage, divisor))
    a, b, c = draw_operands(data, fa, fb, fc)
    assert_compiled_is_reference(a, b, c, (fa, fb, fc), mac, stage, seed=seed, divisor=divisor)


@given(narrow, narrow, st.one_of(st.none(), narrow), units(), st.sampled_from(STAGES))
def test_no_unit_of_narrow_formats_is_declined_unless_it_wraps_hides_infinities_or_has_unusual_codes(
    fa, fb, fc, mac, stage
):
    reason = declines(fa, fb, fc, mac, stage)
    left_out = ("without NaN", "only the reference writes")
    assert not reason or mac.overflow is Overflow.WRAP or any(words in reason for words in left_out)
