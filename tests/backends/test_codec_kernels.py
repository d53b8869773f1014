"""Gradient codecs: vector code and plain loops give the definition's bits, whatever a codec is told."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from codec_cases import DTYPES, KINDS, MORE_STEPS, OPTIONS, ROWS, TWO_STEPS, columns_of, differing, run
from fast_suite import most_are_slow
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import VARIANTS, running

from emu.backends import codecs
from emu.backends.codecs import ColumnsCode
from emu.backends.numba import NumbaKernels
from emu.backends.reference import ReferenceKernels
from emu.cluster.codecs import Address, Memory, Quantiser, codec_of

BOTH = {"reference": ReferenceKernels, "numba": NumbaKernels}
QUIET = {np.dtype(np.float32): 0x7FC00000, np.dtype(np.float64): 0x7FF8000000000000}


@cache
def _expected(place: int, columns: int, rows: int, dtype: Any, kind: str) -> dict[str, Any]:
    return run("reference", OPTIONS[place], columns, rows, dtype, kind)


@most_are_slow(
    ("options", "variant"),
    product(OPTIONS, VARIANTS),
    keep=[(options, list(VARIANTS)[place % 4]) for place, options in enumerate(OPTIONS)],
    ids=str,
)
def test_every_option_gives_the_definitions_bits_c1_c2_c3_c4(variant: str, options: dict[str, Any]):
    place = OPTIONS.index(options)
    with running(variant):
        for number, (rows, dtype) in enumerate((rows, dtype) for rows in ROWS for dtype in DTYPES):
            case = 1 + number % 3, rows, dtype, KINDS[(number + place) % len(KINDS)]
            assert not differing(_expected(place, *case), run("numba", options, *case)), case


@most_are_slow(
    ("kind", "variant"), product(KINDS, VARIANTS), keep=[*zip(KINDS, VARIANTS, strict=True), ("odd", "generic")]
)
def test_long_columns_give_the_definitions_bits_c2_c3(variant: str, kind: str):
    with running(variant):
        for options in (*TWO_STEPS[:3], *MORE_STEPS[:2], {"steps": 16}):
            for dtype in DTYPES:
                case = options, 5, 2048, dtype, kind
                assert not differing(run("reference", *case), run("numba", *case)), case


@given(
    st.sampled_from(OPTIONS),
    st.integers(1, 4),
    st.integers(0, 300),
    st.sampled_from(DTYPES),
    st.sampled_from(KINDS),
)
@settings(deadline=None)
def test_drawn_columns_give_the_definitions_bits_c2_c3_c4(
    options: dict[str, Any], columns: int, rows: int, dtype: Any, kind: str
):
    case = options, columns, rows, dtype, kind
    assert not differing(run("reference", *case), run("numba", *case))


def test_results_too_large_for_the_caches_are_the_same_bits():
    """Decoded columns of 16 MiB go past them."""
    gradients = columns_of("normal", 2048, 2048, np.float32, 1)
    found = [codec_of(1, backend=backend) for backend in BOTH]
    messages = [codec.encode(gradients, Memory.empty(*gradients.shape), Address()) for codec in found]
    assert messages[0].to_bytes() == messages[1].to_bytes()
    first, second = (codec.decode(message, 2048) for codec, message in zip(found, messages, strict=True))
    np.testing.assert_array_equal(first.view(np.uint32), second.view(np.uint32))


def _one_bit(columns: np.ndarray, held: np.ndarray, *, at_mean: bool) -> tuple[list[list[int]], list[Any], np.ndarray]:
    """Codes, levels and residuals, number by number."""
    number, codes, levels, left = columns.dtype.type, list[list[int]](), list[Any](), held.copy()

    def mean(values: list[Any], places: list[int]) -> Any:
        lanes = [number(0)] * 64
        for place, value in zip(places, values, strict=True):
            lanes[place % 64] = lanes[place % 64] + value
        while len(lanes) > 1:
            lanes = [a + b for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0] / number(len(values)) if values else number(0)

    for gradients, kept, out in zip(columns, held, left, strict=True):
        values = [g + k for g, k in zip(gradients, kept, strict=True)]
        threshold = mean(values, list(range(len(values)))) if at_mean else number(0)
        sides = [[i for i, v in enumerate(values) if (v >= threshold) == above] for above in (False, True)]
        stands_for = [np.float32(mean([values[i] for i in side], side)) for side in sides]
        for above, side in enumerate(sides):
            for i in side:
                out[i] = values[i] - number(stands_for[above])
        codes.append([int(v >= threshold) for v in values])
        levels.append(stands_for)
    return codes, levels, left


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", ["zero", "mean"])
def test_one_bit_is_what_scalars_give_number_by_number_c1_c2_c3(backend: str, dtype: Any, threshold: Any):
    for rows in (1, 40, 64, 150, 337):
        codec, memory = Quantiser(threshold=threshold, backend=backend), Memory.empty(3, rows, dtype)
        for step in range(3):
            gradients = columns_of("finite", 3, rows, dtype, step)
            codes, levels, left = _one_bit(gradients, memory.residual.copy(), at_mean=threshold == "mean")
            message = codec.encode(gradients, memory, Address(step=step))
            assert [[int(w[i // 32]) >> i % 32 & 1 for i in range(rows)] for w in message.words] == codes
            np.testing.assert_array_equal(message.levels, np.array(levels))
            np.testing.assert_array_equal(memory.residual, left)


@pytest.mark.parametrize("backend", BOTH)
def test_residuals_are_written_where_they_lie_and_gradients_are_left(backend: str):
    gradients, memory = columns_of("normal", 3, 70, np.float32, 1), Memory.empty(3, 70)
    before, place = gradients.copy(), memory.residual
    for options in ({}, {"steps": 5}, {"levels": "ends"}):
        Quantiser(**options, backend=backend).encode(gradients, memory, Address())
        assert memory.residual is place
        np.testing.assert_array_equal(gradients, before)


@pytest.mark.parametrize("backend", BOTH)
def test_gradients_and_sums_may_lie_in_any_order(backend: str):
    gradients = columns_of("normal", 5, 70, np.float32, 1)
    wide = np.zeros((10, 140), np.float32)
    wide[::2, ::2] = gradients
    for options in ({}, {"steps": 5}):
        codec, expected = Quantiser(**options, backend=backend), Memory.empty(5, 70)
        message = codec.encode(gradients, expected, Address())
        total = codec.decode(message, 70) + np.float32(1)
        for laid in (np.asfortranarray(gradients), gradients[::-1].copy()[::-1], wide[::2, ::2]):
            memory, sums = Memory.empty(5, 70), np.ones((70, 5), np.float32).T
            memory.residual = np.asfortranarray(memory.residual)
            assert codec.encode(laid, memory, Address()).to_bytes() == message.to_bytes()
            np.testing.assert_array_equal(memory.residual, expected.residual)
            codec.decode_and_add(message, sums)
            np.testing.assert_array_equal(sums, total)


@pytest.mark.parametrize("backend", BOTH)
def test_gradients_and_residuals_of_two_widths_are_computed_in_the_wider(backend: str):
    narrow, wide = (columns_of("normal", 2, 70, dtype, 1) for dtype in DTYPES)
    for gradients, kept in ((narrow, np.float64), (wide, np.float32)):
        memory, expected = Memory.empty(2, 70, kept), Memory.empty(2, 70, np.float64)
        codec = Quantiser(backend=backend)
        message = codec.encode(gradients, memory, Address())
        assert message.to_bytes() == codec.encode(gradients.astype(np.float64), expected, Address()).to_bytes()
        assert memory.residual.dtype == np.float64
        np.testing.assert_array_equal(memory.residual, expected.residual)


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("options", [{}, {"threshold": "mean"}, {"steps": 4}, {"steps": 5, "levels": "means"}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_nan_written_is_the_quiet_one_without_a_sign(backend: str, options: dict[str, Any], dtype: Any):
    codec, memory = Quantiser(**options, backend=backend), Memory.empty(1, 70, dtype)
    gradients = columns_of("normal", 1, 70, dtype, 1)
    gradients[0, :3] = np.inf, -np.inf, -np.nan
    message, total = codec.encode(gradients, memory, Address()), columns_of("normal", 1, 70, dtype, 2)
    codec.decode_and_add(message, total)
    assert memory.means is not None
    seen = 0
    for array in (message.levels, memory.residual, memory.means, codec.decode(message, 70), total):
        patterns = array.view(f"u{array.itemsize}")[np.isnan(array)]
        assert set(patterns.tolist()) <= {QUIET[array.dtype]}
        seen += len(patterns)
    assert seen >= 3


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]])
def test_zero_as_the_least_or_largest_value_is_positive_c3(backend: str, zeros: list[float]):
    gradients = np.array([zeros * 40], np.float32)
    memory = Memory(np.full((1, 80), -0.0, np.float32))
    message = Quantiser(levels="ends", backend=backend).encode(gradients, memory, Address())
    assert message.levels.view(np.uint32).tolist() == [[0, 0]]


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("steps", [2, 5])
def test_a_kernel_that_does_not_settle_leaves_the_residual(backend: str, steps: int):
    kernels, residual = BOTH[backend](), columns_of("normal", 2, 70, np.float32, 2)
    before = residual.copy()
    code = ColumnsCode(steps, codecs.AT_ZERO, codecs.MEANS, 4.0, 0.0)
    gradients = columns_of("normal", 2, 70, np.float32, 1)
    looked = kernels.encode_columns(gradients, residual, code, None, None, None, settles=False)
    np.testing.assert_array_equal(residual, before)
    settled = kernels.encode_columns(gradients, residual, code, None, None, None, settles=True)
    assert (residual != before).any()
    for seen, written in zip(looked, settled, strict=True):
        np.testing.assert_array_equal(seen, written)
