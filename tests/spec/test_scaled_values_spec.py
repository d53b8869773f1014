"""docs/concepts/scaled.md: scaled formats, their text, values, moves and bytes."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import emu
from emu.formats import SCALED_PRESETS, Scaled, ScaledValue, parse
from emu.formats.packing import pack, swizzle, unpack, unswizzle
from emu.formats.scale_rules import SCALE_RULES

RANDOM = np.random.default_rng(20260801)
X = RANDOM.normal(size=(32, 64)).astype(np.float32)


@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_the_text_of_a_named_format_is_its_name_and_its_parts_read_back(name: str):
    fmt = parse(name)
    assert str(fmt) == name
    levels = ", ".join(map(str, fmt.levels))
    assert parse(f"block({fmt.element}, {levels})") == fmt


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mxfp8_e4m3 rceil", "mxfp8_e4m3 rceil"),
        ("mxfp8_e4m3 floor", "mxfp8_e4m3"),
        ("mxfp8_e4m3 rceil ignore_nan", "mxfp8_e4m3 rceil ignore_nan"),
        ("mxfp4_e2m1 ignore_nan", "mxfp4_e2m1 ignore_nan"),
        ("nvfp4 nvfp4_torchao", "nvfp4 nvfp4_torchao"),
        ("block(fp8_e4m3, fp8_e8m0 1x32 rceil)", "mxfp8_e4m3 rceil"),
        (
            "block(e4m3 finite nans=top, ue8m0 finite nans=top no-zero 1x16 rceil)",
            "block(fp8_e4m3, fp8_e8m0 1x16 rceil)",
        ),
        ("block(fix16f0, fp8_e8m0 row ceil)", "block(fix16f0, fp8_e8m0 row ceil)"),
        ("block(fp8_e5m2, fp32 tensor te nan_block)", "block(fp8_e5m2, fp32 tensor te nan_block)"),
    ],
)
def test_a_text_reads_back_to_an_equal_format(text: str, shown: str):
    assert str(parse(text)) == shown
    assert parse(shown) == parse(text)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("mxfp8_e4m3", 8.25), ("mxfp6_e2m3", 6.25), ("mxfp4_e2m1", 4.25), ("nvfp4", 4.5), ("nvfp4_16x16", 4.03125),
     ("fp8_tile", 8.25), ("fp8_tensor", 8.0), ("block(ufix8f0, fp32 1x32 symmetric)", 9.0),
     ("block(ufix8f0, fp32 1x32 ort)", 9.25), ("uint8_affine", 8.0)],
)  # fmt: skip
def test_bits_of_an_element_hold_its_share_of_scales_and_zero_points(name: str, bits: float):
    assert parse(name).bits_per_element == bits


@pytest.mark.parametrize("rule", SCALE_RULES.values(), ids=SCALE_RULES)
def test_a_rule_names_what_it_reads_and_a_source(rule: Any):
    given = {"amax", "M", "P", "MAX", "min", "max", "up", "down", "scale", "digits"}
    given |= {"lo", "hi", "LO", "HI", "even", "away", "abs"} if rule.has_zero else set()
    outer = set() if rule.outer is None else {"top", *(name for name, _ in rule.outer.statements)}
    known = given | outer | {name for name, _ in rule.steps.statements}
    assert rule.steps.reads <= known
    assert rule.element.reads <= known | {"x"}
    assert rule.value.reads <= {"q", "s", "t", "z"}
    assert ("z" in rule.value.reads) == rule.has_zero
    assert rule.source


@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_numbers_of_a_value_are_elements_times_scales_of_their_blocks(name: str):
    fmt = parse(name)
    v = emu.quantize(X, name, pad=True)
    exact = v.exact()
    assert v.shape == exact.shape == X.shape
    across, along = fmt.tiling.across or X.shape[0], fmt.tiling.along or X.shape[1]
    for i, j in [(0, 0), (31, 63), (15, 15), (16, 16), (7, 32), (1, 31)]:
        scale = Fraction(float(v.scales[0][min(i // across, v.scales[0].shape[0] - 1), j // along]))
        outer = Fraction(float(v.scales[1].item())) / 2688 if len(v.scales) > 1 else 1
        zero = 0 if v.zero is None else int(v.zero.item())
        assert exact[i, j] == (Fraction(float(v.array[i, j])) - zero) * scale * outer
        assert np.asarray(v)[i, j] == pytest.approx(float(exact[i, j]), rel=2**-21)
    if len(v.scales) == 1:  # one product of binary32
        assert np.array_equal(np.asarray(v), exact.astype(np.float32))


def test_exact_numbers_are_nan_where_a_scale_is():
    x = X.copy()
    x[3, 40] = np.nan
    for name in ("mxfp8_e4m3", "nvfp4 nvfp4_torchao"):
        exact = emu.quantize(x, name).exact()
        is_nan = np.array([[math.isnan(e) for e in row] for row in exact])
        expected = np.zeros(x.shape, bool)
        expected[3, 32:64] = True
        assert np.array_equal(is_nan, expected if name == "mxfp8_e4m3" else np.ones(x.shape, bool))


@pytest.mark.parametrize(
    ("fmt", "scales"),
    [
        ("block(fp8_e5m2, fp8_e8m0 1x16 floor)", ([[0.5, 2.0]],)),
        ("block(fp8_e5m2, fp8_ue4m3 1x16 nvfp4, fp32 tensor)", ([[0.5, 2.0]], [[3 * 2.0**-149]])),
        ("block(fp8_e5m2, fp8_ue4m3 1x16 nvfp4, fp32 tensor)", ([[0.5, 2.0]], [[np.float32(0.1)]])),
    ],
)
def test_exact_numbers_of_infinite_elements_are_infinite(fmt: str, scales: Any):
    elements = np.ones((1, 32))
    elements[0, [3, 20, 25]] = np.inf, -np.inf, np.nan
    exact = emu.value((elements, *scales), fmt).exact()
    assert [float(e) for e in exact[0, [3, 20]]] == [math.inf, -math.inf]
    assert math.isnan(exact[0, 25])
    # all others are what they are beside finite elements
    finite, others = np.isfinite(elements), emu.value((np.ones((1, 32)), *scales), fmt).exact()
    assert exact[finite].tolist() == others[finite].tolist()
    assert np.isfinite(exact.astype(np.float64))[finite].all()


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "nvfp4", "fp8_row", "fp8_tensor", "nvfp4_16x16"])
@pytest.mark.parametrize("axis", [-1, -2])
def test_a_transposed_value_keeps_its_scales_and_its_numbers(name: str, axis: int):
    v = emu.quantize(X, name, axis=axis)
    turned = emu.quantize(X.T.copy(), name, axis=-3 - axis)
    assert v.T.axis == turned.axis
    assert np.array_equal(v.T.codes, turned.codes)
    for mine, theirs, before in zip(v.T.scales, turned.scales, v.scales, strict=True):
        assert np.array_equal(mine, theirs)
        assert np.array_equal(mine, before)
    assert np.array_equal(np.asarray(v.T), np.asarray(v).T)


def test_squares_and_tensors_serve_either_axis():
    for name in ("nvfp4_16x16", "fp8_tensor"):
        v = emu.quantize(X, name, axis=-1)
        other = emu.quantize(X, name, axis=-2)
        assert np.array_equal(v.along(-2).codes, other.codes)
        assert all(np.array_equal(a, b) for a, b in zip(v.along(-2).scales, other.scales, strict=True))
        assert np.array_equal(np.asarray(v.along(-2)), np.asarray(v))
    with pytest.raises(emu.FormatError, match=r"blocks of 1x32 along axis -1 must not be read along axis -2: quantize"):
        emu.quantize(X, "mxfp8_e4m3").along(-2)


def test_axes_of_a_stack_are_moved_with_their_scales():
    x = RANDOM.normal(size=(2, 3, 32)).astype(np.float32)
    v = emu.quantize(x, "mxfp8_e4m3")
    moved = v.transpose(2, 0, 1)
    assert (moved.shape, moved.axis) == ((32, 2, 3), -3)
    assert np.array_equal(np.asarray(moved), np.asarray(v).transpose(2, 0, 1))
    assert np.array_equal(np.asarray(v.transpose(1, 0, 2)), np.asarray(v).transpose(1, 0, 2))
    square = emu.quantize(RANDOM.normal(size=(2, 16, 32)), "nvfp4_16x16")
    assert np.array_equal(np.asarray(square.transpose(0, 2, 1)), np.asarray(square).transpose(0, 2, 1))
    with pytest.raises(emu.FormatError, match="must stay the last two"):
        square.transpose(1, 0, 2)
    with pytest.raises(emu.ShapeError, match="must be a permutation of 3 axes"):
        square.transpose(0, 0, 2)


def test_axes_are_given_as_numpy_takes_them():
    v = emu.quantize(RANDOM.normal(size=(2, 3, 32)).astype(np.float32), "mxfp8_e4m3")
    for axes in ((), (None,), ((1, 0, 2),), ([-3, 2, -2],), (1, 0, 2), (np.int64(0), -1, 1)):
        moved = v.transpose(*axes)
        assert np.array_equal(np.asarray(moved), np.asarray(v).transpose(*axes))
        assert moved.shape == v.array.transpose(*axes).shape
    for wrong in ((0, 1, 5), (0, -4, 2), (0, 1), (0, 1, 1), (0.5, 1, 2), ("x",)):
        with pytest.raises(emu.ShapeError, match=r"`axes` must be a permutation of 3 axes, got .*; name each"):
            v.transpose(*wrong)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mxfp8_e4m3", np.s_[3:7, 32:64]),
        ("mxfp8_e4m3", np.s_[:, :32]),
        ("mxfp8_e4m3", np.s_[..., 32:]),
        ("nvfp4_16x16", np.s_[16:, 16:48]),
        ("fp8_row", np.s_[5:6, 3:9]),
        ("fp8_tensor", np.s_[1:2]),
        ("nvfp4", np.s_[2:3, 16:32]),
    ],
)
def test_a_part_of_whole_blocks_keeps_its_numbers(name: str, part: Any):
    v = emu.quantize(X, name)
    assert np.array_equal(np.asarray(v[part]), np.asarray(v)[part])
    assert np.array_equal(v[part].codes, v.codes[part])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (np.s_[:, 16:32], r"must hold whole blocks of 1x32, got 16:32 of 64; select from np.asarray\(value\), or at"),
        (np.s_[:, :40], "must hold whole blocks of 1x32, got 0:40 of 64"),
        (np.s_[0], "must be selected by slices without steps, got 0; select from"),
        (np.s_[::2], "must be selected by slices without steps, got slice"),
        (np.array([0, 1]), r"must be selected by slices without steps, got array\(\[0, 1\]\); select from"),
        (np.s_[..., np.array([0, 1])], "must be selected by slices without steps, got .*Ellipsis, array"),
        (np.s_[..., :, ...], "must be selected by slices without steps, got .*Ellipsis"),
    ],
)
def test_a_part_that_cuts_blocks_is_refused(part: Any, message: str):
    with pytest.raises(emu.FormatError, match=message):
        emu.quantize(X, "mxfp8_e4m3")[part]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mxfp8_e4m3", (8, 4, 64)), ("mxfp8_e4m3", (64, 32)), ("mxfp8_e4m3", (2048,)), ("fp8_row", (4, 8, 64)),
     ("fp8_tensor", (2, 1024)), ("nvfp4", (16, 128))],
)  # fmt: skip
def test_a_shape_of_whole_blocks_keeps_its_numbers(name: str, shape: tuple[int, ...]):
    v = emu.quantize(X, name)
    assert np.array_equal(np.asarray(v.reshape(shape)), np.asarray(v).reshape(shape))
    assert np.array_equal(v.reshape(shape).reshape(X.shape).scales[0], v.scales[0])


@pytest.mark.parametrize(
    ("name", "shape", "axis"),
    [("mxfp8_e4m3", (128, 16), -1), ("fp8_row", (64, 32), -1), ("nvfp4_16x16", (2, 16, 64), -1),
     ("mxfp8_e4m3", (64, 32), -2)],
)  # fmt: skip
def test_a_shape_that_cuts_blocks_is_refused(name: str, shape: tuple[int, ...], axis: int):
    with pytest.raises(emu.FormatError, match="blocks must stay whole and along the last axis, got shape"):
        emu.quantize(X, name, axis=axis).reshape(shape)


def test_channels_stay_where_their_axis_does():
    v = emu.quantize(X, "int8_channel")
    assert np.array_equal(np.asarray(v.reshape(32, 8, 8)).reshape(X.shape), np.asarray(v))
    column = emu.quantize(X[:3, :1], "int8_channel")
    with pytest.raises(emu.FormatError, match="blocks must stay whole"):
        column.reshape(3)  # an array of one axis is one channel
    with pytest.raises(emu.FormatError, match="blocks must stay whole"):
        emu.quantize(X[0, :3], "int8_channel").reshape(3, 1)
    assert emu.quantize(X[0], "int8_channel").reshape(-1).shape == (64,)


def test_rows_without_elements_keep_their_number():
    empty = emu.quantize(X[:3, :0], "fp8_row")
    assert empty.reshape(3, 1, 0).scales[0].shape == (3, 1, 1)
    with pytest.raises(emu.FormatError, match="blocks must stay whole"):
        empty.reshape(0)


def test_squares_that_leave_the_last_two_axes_are_refused():
    squares = emu.quantize(np.stack([X, X]), "nvfp4_16x16")
    with pytest.raises(emu.FormatError, match=r"must stay the last two, got axes \(2, 0, 1\)"):
        squares.transpose(2, 0, 1)
    assert squares.transpose(0, 2, 1).shape == (2, 64, 32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda e, s: (e, ()), emu.ShapeError, "must have 1 arrays of scales, got 0"),
        (lambda e, s: (e, (*s, *s)), emu.ShapeError, "must have 1 arrays of scales, got 2"),
        (lambda e, s: (e + 0.5, s), emu.FormatError, "`packed` must hold integers, got"),
        (lambda e, s: (e.astype(int) + 256, s), emu.FormatError, r"must be bytes, 0\.\.255, got"),
        (lambda e, s: (e[0, 0], s), emu.ShapeError, "must have an axis"),
    ],
)
def test_bytes_that_are_none_are_refused(change: Any, error: type[Exception], message: str):
    packed = emu.quantize(X, "mxfp8_e4m3").packed()
    with pytest.raises(error, match=message):
        ScaledValue.from_packed(change(packed.elements, packed.scales), parse("mxfp8_e4m3"))


def test_bytes_need_a_format_and_an_axis_that_the_value_has():
    packed = emu.quantize(X, "mxfp8_e4m3").packed()
    with pytest.raises(emu.FormatError, match="`fmt` must be a scaled format, got 'mxfp8_e4m3'"):
        ScaledValue.from_packed(packed, "mxfp8_e4m3")
    with pytest.raises(emu.ShapeError, match=r"`axis` must be in -2\.\.1, got 5"):
        ScaledValue.from_packed(packed, parse("mxfp8_e4m3"), axis=5)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_bytes_hold_a_value(name: str, axis: int):
    fmt = parse(name)
    v = emu.quantize(X, name, axis=axis, pad=True)
    for layout in ("plain", "128x4") if fmt.levels[0].scale.width_bits <= 8 else ("plain",):
        packed = v.packed(layout)
        assert packed.elements.nbytes == X.size * fmt.element.width_bits // 8
        back = ScaledValue.from_packed(packed, fmt, axis, layout)
        assert np.array_equal(np.asarray(back), np.asarray(v))
        assert back.axis == v.axis
        if axis == -1 and layout == "plain":
            assert np.array_equal(ScaledValue.from_packed(packed, fmt).array, v.array)
        assert np.array_equal(back.array, v.array)
        assert np.array_equal(np.signbit(back.array), np.signbit(v.array))
        assert all(np.array_equal(a, b) for a, b in zip(back.scales, v.scales, strict=True))


def test_codes_lie_in_bytes_from_the_lowest_bits_on():
    assert pack(np.array([0x1, 0x2, 0xF, 0x0], np.uint8), 4).tolist() == [0x21, 0x0F]
    assert pack(np.array([0b100001, 0b110011, 0b101010, 0b011110], np.uint8), 6).tolist() == [
        0b11_100001, 0b1010_1100, 0b011110_10]  # fmt: skip
    for width in range(1, 9):
        codes = RANDOM.integers(0, 1 << width, (3, 16)).astype(np.uint8)
        assert np.array_equal(unpack(pack(codes, width), width), codes)
    with pytest.raises(emu.ShapeError, match=r"codes of 4 bits must fill whole bytes, got 3 along .* multiple of 2"):
        pack(np.zeros(3, np.uint8), 4)
    with pytest.raises(emu.ShapeError, match="bytes must hold whole codes of 6 bits, got 1 along"):
        unpack(np.zeros(1, np.uint8), 6)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (129, 5), (32, 16), (300, 9)])
def test_the_layout_of_matrix_units_has_each_scale_at_its_published_offset(shape: tuple[int, int]):
    rows, columns = shape
    scales = RANDOM.integers(1, 255, shape).astype(np.uint8)
    line = swizzle(scales)
    padded_columns = -(-columns // 4) * 4
    for i in range(rows):
        for j in range(columns):
            offset = (i // 128 * (padded_columns // 4) + j // 4) * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4
            assert line[offset] == scales[i, j]
    assert np.count_nonzero(line) == scales.size
    assert np.array_equal(unswizzle(line, shape), scales)
    with pytest.raises(emu.ShapeError, match=r"must have .* bytes, got 3"):
        unswizzle(np.zeros(3, np.uint8), shape)


def test_elements_and_scales_make_a_value():
    v = emu.quantize(X, "nvfp4")
    again = emu.value((v.array, *v.scales), "nvfp4")
    assert np.array_equal(again.codes, v.codes)
    assert np.array_equal(np.asarray(again), np.asarray(v))
    assert emu.value(v, "nvfp4") is v


@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_numbers_that_a_rule_writes_make_a_value_of_these_numbers(name: str):
    numbers = np.asarray(emu.quantize(X, name, pad=True))
    if parse(name).rule.divides_exactly:
        assert np.array_equal(np.asarray(emu.value(numbers, name)), numbers)
    with pytest.raises(emu.FormatError, match=r"every value must belong to .* got .* at index .* quantize it first"):
        emu.value(X[:, :64] if name != "fp8_tile_128x128" else np.tile(X, (4, 2)), name) if "tile" not in name else (
            emu.value(np.tile(X, (4, 2)), name)
        )


def test_flags_count_elements_that_clip_and_vanish():
    flags = emu.Flags()
    x = np.float32([[1.9375, 0, 1e-6, 0.5]])  # floor: 1.9375 * 2**8 is 496, beyond 448 by more than half a step
    v = emu.quantize(x, "block(fp8_e4m3, fp8_e8m0 1x4 floor)", flags=flags)
    assert v.array.tolist() == [[448.0, 0.0, 0.0, 128.0]]
    assert (flags.overflow, flags.underflow, flags.inexact) == (1, 1, 2)


def test_a_register_observes_numbers_before_they_are_scaled():
    register = emu.StatisticsRegister(lowest=-20, bins=41)
    emu.quantize(np.float32([[8.0, 1.0, 0.25, 0.0]]), "block(fp8_e4m3, fp8_e8m0 1x4 floor)", register=register)
    assert register.positive == {-2: 1, 0: 1, 3: 1}
    assert register.none == 1


def test_random_bits_of_elements_are_those_of_their_places():
    fmt = "block(fp4_e2m1, fp8_e8m0 1x8 floor)"
    options: dict[str, Any] = {"rounding": "stochastic", "seed": 7, "stream": 2, "step": 3}
    v = emu.quantize(X, fmt, **options)
    scale = np.repeat(v.scales[0], 8, axis=1)
    plain = emu.quantize(X / scale, "fp4_e2m1", overflow="satfinite", **options)
    assert np.array_equal(v.array, plain)
    turned = emu.quantize(X, fmt, axis=-2, **options)
    scale = np.repeat(turned.scales[0].T, 8, axis=0)
    assert np.array_equal(turned.array, emu.quantize(X / scale, "fp4_e2m1", overflow="satfinite", **options))


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("rule", SCALE_RULES)
def test_backends_write_the_same_bits(rule: str, backend: str):
    row = SCALE_RULES[rule]
    levels = {"power": "fp8_e8m0 1x16 {}", "float32": "fp32 1x16 {}", "float": "fp8_ue4m3 1x16 {}"}[row.stores]
    element = "ufix8f0" if row.has_zero else "fp4_e2m1"
    fmt = f"block({element}, {levels.format(rule)}{', fp32 tensor' if row.outer else ''})"
    x = (X * np.exp2(RANDOM.integers(-40, 40, (32, 1)))).astype(np.float32)
    v, w = emu.quantize(x, fmt, backend=backend), emu.quantize(x, fmt, backend="reference")
    assert np.array_equal(v.codes, w.codes)
    assert all(np.array_equal(a, b) for a, b in zip(v.scale_codes, w.scale_codes, strict=True))


def test_numbers_that_are_not_binary32_are_rounded_to_it_where_the_source_computes_in_it():
    x = np.full((1, 32), 1 + 2**-30)
    x[0, 0] = 448.0 * (1 + 2**-25)  # binary32 rounds it to 448, whose scale is 1
    assert emu.quantize(x, "mxfp8_e4m3 rceil").scales[0].item() == 1.0
    assert emu.quantize(x, "mxfp8_e4m3 ceil").scales[0].item() == 2.0


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.float16])
def test_numbers_of_other_dtypes_are_taken_at_their_values(dtype: Any):
    x = np.arange(64).reshape(2, 32).astype(dtype)
    for name in ("mxfp8_e4m3", "mxfp8_e4m3 rceil"):
        v, w = emu.quantize(x, name), emu.quantize(x.astype(np.float64), name)
        assert np.array_equal(v.codes, w.codes)
        assert np.array_equal(v.scales[0], w.scales[0])


def test_arrays_without_elements_have_no_blocks():
    assert emu.quantize(np.zeros((0, 32), np.float32), "mxfp8_e4m3").scales[0].shape == (0, 1)
    assert emu.quantize(np.zeros((3, 0), np.float32), "mxfp8_e4m3").scales[0].shape == (3, 0)
    assert emu.quantize(np.zeros((3, 0), np.float32), "nvfp4").scales[1].tolist() == [[0.0]]


def test_an_array_of_zeros_has_zeros_under_every_rule():
    for name, rule in SCALE_RULES.items():
        levels = {"power": "fp8_e8m0 row {}", "float32": "fp32 row {}", "float": "fp8_ue4m3 row {}"}[rule.stores]
        element = "ufix8f0" if rule.has_zero else "fp4_e2m1"
        fmt = f"block({element}, {levels.format(name)}{', fp32 tensor' if rule.outer else ''})"
        v = emu.quantize(np.zeros((2, 4), np.float32), fmt, flags=emu.Flags())
        assert not np.asarray(v).any()
        assert not v.codes.any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("block(fp8_e4m3)", "must have a level of scales, got 'block"),
        ("block(fp8_e4m3, fp8_e8m0 1x32)", "the finest level of a scaled format must have a rule; write"),
        ("block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4, fp32 tensor nan_block)", "must stand at the level with the rule"),
        ("block(fp8_e4m3, fp8_e8m0 1x32 flor)", "a scale rule must be known, got 'flor'; did you mean 'floor'"),
        ("block(fp8_e4m3, fp8_e8m0 32 floor)", "a level must be a scale format and a shape, got 'fp8_e8m0 32 floor'"),
        ("block(fp8_e4m3, 1x32 floor)", "a level must be a scale format and a shape, got '1x32 floor'"),
        ("block(fp8_e4m3, fp8_e8m0 1x0 floor)", r"`along` must be in 1\.\.1048576, got 0"),
        ("block(fp8_e4m3, fp8_e8m0 1x32 floor ceil)", "a level must have one rule, got 'floor ceil'"),
        ("block(fp8_e4m3, fp8_ue4m3 1x32 floor)", "needs scales that are powers of two with a NaN, got .* fp8_ue4m3"),
        (
            "block(fp8_e4m3, fp8_e8m0 1x32 te)",
            "needs scales that are binary32, got the scale format fp8_e8m0; write fp32",
        ),
        ("block(fp4_e2m1, fp8_e4m3 1x16 nvfp4, fp32 tensor)", "needs scales that are unsigned floats with a fraction"),
        ("block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4)", "nvfp4 must have two levels, the outer one fp32 of scales, got 1"),
        (
            "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4, fp16 tensor)",
            "the outer level .* must be fp32 for the tensor, or for rows",
        ),
        ("block(fp8_e4m3, fp8_e8m0 1x32 floor, fp32 tensor)", "the rule floor must have one level of scales, got 2"),
        ("block(fp8_e4m3, fp8_e8m0 1x32 floor, fp32 tensor te)", "outer levels must have no rule, got te: that of"),
        (
            "block(fix16f?, fp8_e8m0 1x32 floor)",
            "elements must have a format that shares no .* in place, got 'fix16f",
        ),
        ("block(mxfp8_e4m3, fp32 tensor te)", "a format that shares no scales .* got 'mxfp8_e4m3'"),
        ("block(fp64, fp8_e8m0 1x32 floor)", "elements must be numbers of binary32, got fp64; choose a narrower"),
        ("block(fp8_e8m0, fp8_e8m0 1x32 floor)", "elements must have a zero, got fp8_e8m0; choose another"),
        ("block(fp8_e4m3, fix8f0 1x32 floor)", "scales must be floats, got fix8f0 in"),
        ("block(ap_fixed<8,2>, fp32 row te)", r"must have no commas of their own, got 'block\(ap_.*\)'; write fix8f6"),
        ("mxfp8_e4m3 rceil floor", "a name must be followed by one rule, got 'rceil floor'"),
        ("mxfp8_e4m3 te", "the rule te needs scales that are binary32"),
    ],
)
def test_a_format_whose_parts_do_not_fit_is_refused(text: str, message: str):
    with pytest.raises(emu.FormatError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda: emu.quantize(X[:, :60], "mxfp8_e4m3"), emu.ShapeError,
         r"blocks of 1x32 must divide the size along the axis, got 60 of shape \(32, 60\) for axis -1, which leaves "
         "28; give pad=True for a short last block, or pad the array by 4 zeros"),
        (lambda: emu.quantize(X[:20], "nvfp4_16x16"), emu.ShapeError,
         r"blocks of 16x16 must divide the size across the axis, got 20 .* pad the array by 12 zeros"),
        (lambda: emu.quantize(X, "mxfp8_e4m3", axis=2), emu.ShapeError, r"`axis` must be in -2\.\.1, got 2"),
        (lambda: emu.quantize(1.0, "mxfp8_e4m3"), emu.ShapeError, "must have an axis along which blocks lie"),
        (lambda: emu.quantize(X[0], "nvfp4_16x16"), emu.ShapeError, "must be one of an array's last two"),
        (lambda: emu.quantize(X, "fix8f4", axis=1), emu.FormatError, "`axis`, `pad`, `counts`, `scale` and `zero` mus"),
        (lambda: emu.value(X, "fix8f4", axis=1), emu.FormatError, "`axis` must be left out for"),
        (lambda: emu.quantize(X, "mxfp8_e4m3", out=X), emu.ShapeError, "`out` must be left out for mxfp8_e4m3"),
        (lambda: emu.quantize([[2**53 + 1, 2]], "block(fp8_e4m3, fp8_e8m0 1x2 floor)"), emu.FormatError,
         r"numbers that share scales must be float64, got 9007199254740993, which it does not hold, for block"),
        (lambda: emu.quantize(emu.Value(np.array([1, 2**62]), parse("fix64f-1000")), "mxfp8_e4m3", pad=True),
         emu.FormatError,
         r"must be float64, got 4611686018427387904 \* 2\*\*1000, which it does not hold, for mxfp8_e4m3; round them"),
        (lambda: emu.quantize(emu.Value(np.array([2, 1]), parse("fix64f1075")), "mxfp8_e4m3", pad=True),
         emu.FormatError, r"must be float64, got 1 \* 2\*\*-1075, which it does not hold"),
        (lambda: emu.Mac(accumulator="mxfp8_e4m3"), emu.FormatError, "whose elements share scales; write the"),
        (lambda: emu.value((X, np.ones((32, 3))), "mxfp8_e4m3", check=False), emu.ShapeError,
         r"scales of 1x32 must have the shape \(32, 2\) for elements \(32, 64\) and axis -1, got \(32, 3\)"),
        (lambda: emu.value((X, ), "mxfp8_e4m3", check=False), emu.ShapeError, "must have 1 arrays of scales, got 0"),
        (lambda: emu.value((), "mxfp8_e4m3"), emu.ShapeError,
         r"a value of mxfp8_e4m3 must be given elements, then their scales, got \(\); give both"),
        (lambda: emu.quantize(X, "mxfp8_e4m3", counts=emu.Flags()),  # pyright: ignore[reportArgumentType]
         emu.FormatError, r"`counts` must be an emu.ScaleCounts, got Flags\(.*; write emu.ScaleCounts\(\)"),
        (lambda: emu.value((np.ones((32, 64)), np.zeros((32, 2))), "mxfp8_e4m3"), emu.FormatError,
         "`scales of 1x32`: every value must belong to fp8_e8m0, got .*0.0"),
        (lambda: emu.value((np.ones((32, 64)), -np.ones((32, 2))), "mxfp8_e4m3"), emu.FormatError, "got .*-1.0"),
        (lambda: emu.value(emu.quantize(X, "mxfp8_e4m3"), "mxfp8_e5m2"), emu.FormatError, "a value of mxfp8_e5m2"),
        (lambda: emu.quantize(X, "mxfp8_e4m3").packed("swizzled"), emu.FormatError, "`layout` must be plain or 128x4"),
        (lambda: emu.quantize(X, "fp8_row").packed("128x4"), emu.FormatError, "must have at most 8 bits, got fp32"),
        (lambda: emu.quantize(X.reshape(2, 16, 64), "mxfp8_e4m3").packed("128x4"), emu.ShapeError, "that of a matrix"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_scaled_value_is_refused_with_the_remedy(action: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        action()


def test_a_value_is_shown_with_its_format_and_axis():
    v = emu.quantize([[1.0, 2.0]], "block(fp8_e4m3, fp8_e8m0 1x2 floor)")
    assert repr(v) == "ScaledValue([[1., 2.]], 'block(fp8_e4m3, fp8_e8m0 1x2 floor)', axis=-1)"
    assert v.tolist() == [[1.0, 2.0]]


def test_arrays_of_a_value_are_read_only():
    v = emu.quantize(X, "nvfp4")
    for part in (v.array, *v.scales):
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 0


def test_named_formats_are_those_of_their_sources():
    assert {name: (str(f.element), str(f.tiling), f.levels[0].rule) for name, f in SCALED_PRESETS.items()} == {
        "mxfp8_e4m3": ("fp8_e4m3", "1x32", "floor"), "mxfp8_e5m2": ("fp8_e5m2", "1x32", "floor"),
        "mxfp6_e2m3": ("fp6_e2m3", "1x32", "floor"), "mxfp6_e3m2": ("fp6_e3m2", "1x32", "floor"),
        "mxfp4_e2m1": ("fp4_e2m1", "1x32", "floor"), "mxint8": ("fix8f6", "1x32", "floor"),
        "nvfp4": ("fp4_e2m1", "1x16", "nvfp4"), "nvfp4_16x16": ("fp4_e2m1", "16x16", "nvfp4"),
        "fp8_tile": ("fp8_e4m3", "1x128", "deepgemm"), "fp8_tile_128x128": ("fp8_e4m3", "128x128", "deepgemm"),
        "fp8_row": ("fp8_e4m3", "row", "te"), "fp8_tensor": ("fp8_e4m3", "tensor", "te"),
        "int8_tensor": ("fix8f0", "tensor", "symmetric"), "int8_channel": ("fix8f0", "channel", "symmetric"),
        "int8_affine": ("fix8f0", "tensor", "tflite"), "uint8_affine": ("ufix8f0", "tensor", "ort"),
    }  # fmt: skip
    assert all(isinstance(fmt, Scaled) for fmt in SCALED_PRESETS.values())
    assert [a != b for a, b in pairwise(SCALED_PRESETS.values())] == [True] * 15


def test_integers_of_mxint8_saturate_symmetrically():
    v = emu.quantize(np.float32([[-1.999, 1.999, 1.0, -0.5]]), "block(fix8f6, fp8_e8m0 1x4 floor)")
    assert v.array.tolist() == [[-127 / 64, 127 / 64, 1.0, -0.5]]


def test_zero_points_halfway_between_two_are_rounded_away_from_zero_by_tflite():
    for element, zero in (("fix8f0", -1), ("ufix8f0", 128)):
        v = emu.quantize(np.float32([-1, 1]), f"block({element}, fp32 tensor tflite)")
        assert v.zero is not None
        assert v.zero.tolist() == [zero]


def test_elements_halfway_between_two_are_rounded_as_the_source_of_their_rule_does():
    halves = np.float32([0.5, 1.5, 2.5, -0.5, -2.5])
    assert emu.quantize(halves, "int8_affine", scale=1, zero=7).array.tolist() == [8, 9, 10, 6, 4]
    assert emu.quantize(halves, "uint8_affine", scale=1, zero=7).array.tolist() == [7, 9, 9, 7, 5]


def test_ranges_too_small_for_binary32_have_scales_and_zero_points_that_are_numbers():
    v = emu.quantize(np.float32([1e-44, 0]), "int8_affine")
    w = emu.quantize(np.float32([-380 * 2.0**-149, 0]), "uint8_affine")
    assert v.zero is not None
    assert w.zero is not None
    assert (v.scales[0].tolist(), v.zero.tolist(), v.array.tolist()) == ([1.0], [-128], [-128, -128])
    assert (w.scales[0].tolist(), w.zero.tolist(), w.array.tolist()) == ([2.0**-149], [255], [0, 255])


def test_quotients_far_beyond_elements_with_zero_points_saturate():
    v = emu.quantize(np.float32([2.0**24, -(2.0**24), 2.0**23, 2.0**100]), "uint8_affine", scale=1, zero=3)
    assert v.array.tolist() == [255, 0, 255, 255]


@pytest.mark.parametrize("fmt", ["uint8_affine", "int8_affine"])
def test_a_nan_among_numbers_with_a_zero_point_makes_the_scale_nan(fmt: str):
    v = emu.quantize(np.float32([np.nan, 1.0]), fmt)
    assert v.zero is not None
    assert np.isnan(v.scales[0]).all()
    assert (v.zero.tolist(), v.array.tolist()) == ([0], [0, 0])


def test_counts_say_what_became_of_blocks():
    counts = emu.ScaleCounts()
    x = np.float32([[480.0, 448.0, 1.0, 1e-4], [0.0, -0.0, 0.0, 0.0], [np.nan, 1.0, 2.0, 3.0], [2.0**-130, 0, 0, 0]])
    fmt = "block(fp8_e4m3, fp8_e8m0 1x4 floor)"
    v = emu.quantize(x, fmt, counts=counts)
    assert v.scales[0].ravel().tolist()[:2] == [1.0, 2.0**-127]
    assert (counts.blocks, counts.elements, counts.nan_scales, counts.zero_blocks) == (4, 16, 1, 1)
    assert (counts.clipped, counts.clipped_largest, counts.vanished) == (1, 1, 1)  # 480, its block, 1e-4
    assert counts.at_limit == 1  # 2**-130 asks for 2**-138
    assert counts.exponents == {-127: 2, 0: 1}
    emu.quantize(np.float32([[470.0, 1, 1, 1]]), f"{fmt[:-1]} ignore_nan)", counts=counts, rounding="toward_zero")
    assert (counts.blocks, counts.clipped, counts.clipped_largest) == (5, 1, 1)  # 470 is cut to 448
    assert counts.exponents == {-127: 2, 0: 2}
    assert str(counts).startswith("1 of 20 elements clipped; 1 vanished; 1 of 5 blocks clip their largest number; 1 ")
    counts.reset()
    assert counts == emu.ScaleCounts()


@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_counts_agree_with_elements_and_scales(name: str):
    counts, flags = emu.ScaleCounts(), emu.Flags()
    x = (X * np.exp2(RANDOM.integers(-12, 12, X.shape))).astype(np.float32)
    v = emu.quantize(x, name, pad=True, counts=counts, flags=flags)
    assert counts.blocks == v.scales[0].size == sum(counts.exponents.values()) + int((v.scales[0] == 0).sum())
    assert counts.clipped == flags.overflow
    assert counts.vanished == np.count_nonzero((v.array == (0 if v.zero is None else v.zero)) & (x != 0))
    assert counts.clipped_largest <= counts.clipped
    if v.zero is not None:  # one of the two ends may be clipped, by the rounding of the zero point
        assert counts.clipped_largest == (counts.clipped > 0)
    assert (counts.clipped_largest > 0) == (counts.clipped > 0)
    if name == "mxfp8_e4m3":
        counts.reset()
        emu.quantize(x, f"{name} rceil", counts=counts)
        assert counts.clipped == counts.clipped_largest == 0


def test_largest_numbers_that_stochastic_rounding_may_clip_are_counted():
    counts = emu.ScaleCounts()
    fmt = "block(fp8_e4m3, fp8_e8m0 1x2 floor)"
    emu.quantize(np.float32([[449.0, 1], [448.0, 1]]), fmt, counts=counts, rounding="stochastic", seed=1)
    assert counts.clipped_largest == 1


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e4m3 rceil", "nvfp4"])
def test_subnormal_numbers_of_a_daz_format_are_zeros_of_their_block(fmt: str, backend: str):
    """They are 0 of their sign, for the scale and for the elements, as they are for every other format."""
    x = np.zeros(32, np.float32)
    x[:2] = [1e-39, -2e-39]
    flushed = emu.quantize(x, fmt, x_format="fp32 daz", backend=backend)
    zeros = emu.quantize(np.copysign(np.float32(0), x), fmt, backend=backend)
    assert np.array_equal(flushed.codes, zeros.codes)
    assert all(np.array_equal(a, b) for a, b in zip(flushed.scale_codes, zeros.scale_codes, strict=True))
    assert not np.array_equal(emu.quantize(x, fmt, backend=backend).codes, zeros.codes)
