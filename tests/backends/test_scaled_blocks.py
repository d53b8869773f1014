"""Quantizing into scaled formats: reference, vector code and the definition on compiled stages give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from variants import VARIANTS, needs_vectors, running

import emu
from emu.backends.interface import encode_stage
from emu.backends.numba import scaled
from emu.backends.numba.scaled import Geometry
from emu.backends.registry import load
from emu.datapath import OutputStage
from emu.engine.scaled import stage_of_elements
from emu.formats import SCALED_PRESETS, Scaled, ScaledValue, parse
from emu.formats.scale_rules import SCALE_RULES, SPECIALS
from emu.formats.steps import Steps
from emu.formats.tiles import Tiles

pytestmark = pytest.mark.filterwarnings("ignore:NaN was written as 0")
WIDE = 32
#: Rules that kernels compute; where blocks have zero points the definition does.
RULES = [name for name, rule in SCALE_RULES.items() if not rule.has_zero]
#: Of the elements that each kind of rule is published for, and some others.
ELEMENTS = ("fp8_e4m3", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "fix8f6", "e4m3fnuz", "fix16f0")
LEVELS = {
    "power": ("fp8_e8m0", "ue5m0 finite nans=top no-zero"),
    "float": ("fp8_ue4m3", "ue3m4 finite nans=top"),
    "float32": ("fp32",),
}
#: float32 at whose sides rules change: powers of two, ends, ties of e4m3 and e2m1, numbers that a scale turns to 0.
EDGES = np.array(
    [1.0, 448.0, 464.0, 480.0, 6.0, 7.0, 5.0, 0.25, 0.75, 2688.0, 2.0**-126, 2.0**-127, 2.0**-149, 2.0**127, 1e-4, 0.0],
    np.float32,
)


@np.errstate(over="ignore", under="ignore")
def blocks_of(seed: int, rows: int = 96, *, special: bool = True) -> np.ndarray:
    """Rows of blocks whose numbers are alike, or not at all, beside edges, and with every kind of special number."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2 * WIDE)).astype(np.float32)
    scale = rng.integers(-149, 128, size=(rows, 2)).repeat(WIDE, axis=1)
    x[: rows // 2] = np.ldexp(x[: rows // 2], scale[: rows // 2])  # all over float32
    spread = rows // 2 + rows // 8
    x[rows // 2 : spread] = np.ldexp(x[rows // 2 : spread], rng.integers(-40, 3, size=x.shape)[rows // 2 : spread])
    edges = rng.choice(EDGES, size=x.shape) * rng.choice([1, -1], size=x.shape)
    beside = np.nextafter(edges, rng.choice([-np.inf, 0.0, np.inf], size=x.shape)).astype(np.float32)
    x[spread:-8] = np.where(rng.random(x.shape) < 0.5, edges, beside)[spread:-8]
    x[-8:-6], x[-6, ::5], x[-5] = 0.0, -0.0, np.float32(2.0**-149) * rng.integers(-9, 9, size=2 * WIDE)
    x[~np.isfinite(x)] = 3.0
    if special:
        x[3, 40], x[-7, 5], x[-4, :WIDE], x[7, 9], x[9, 3:5] = np.nan, np.nan, np.nan, np.inf, (-np.inf, np.nan)
        x[-3, :WIDE] = np.where(np.arange(WIDE) < 20, np.nan, 0)
    return x


def assert_same(actual: ScaledValue, expected: ScaledValue, note: Any) -> None:
    """Raise AssertionError unless elements and scales are the same bits, NaN for NaN, of the same shape and dtype."""
    for mine, theirs in zip((actual.array, *actual.scales), (expected.array, *expected.scales), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), note
        alike = (mine == theirs) & (np.signbit(mine) == np.signbit(theirs))
        same = alike | (np.isnan(mine) & np.isnan(theirs))
        assert np.all(same), (note, np.argwhere(~same)[:3])


def assert_equals_reference(x: np.ndarray, fmt: str | Scaled, axis: int, note: Any = "", **options: Any) -> None:
    """Raise AssertionError unless values, scales, flags and counts are the reference's, with and without counting."""
    seen: list[Any] = []
    for backend in ("reference", "numba"):
        flags, counts = emu.Flags(), emu.ScaleCounts()
        value = emu.quantize(x, fmt, axis=axis, backend=backend, flags=flags, counts=counts, **options)
        seen.append((value, flags, counts))
    note = (str(fmt), axis, note)
    assert_same(seen[1][0], seen[0][0], note)
    assert seen[1][1] == seen[0][1], note
    assert seen[1][2] == seen[0][2], note
    assert_same(quantized(x, fmt, axis, **options), seen[0][0], note)


def quantized(x: np.ndarray, fmt: str | Scaled, axis: int, **options: Any) -> ScaledValue:
    """Quantize without counting anything, which is code of its own."""
    return emu.quantize(x, fmt, axis=axis, backend="numba", **options)


def stage_of(fmt: Scaled, **modes: Any) -> Any:
    return encode_stage(OutputStage(fmt.element, **{"overflow": stage_of_elements(fmt).overflow, **modes}))


def is_vector_code(fmt: Scaled, shape: tuple[int, ...], axis: int, **modes: Any) -> bool:
    return scaled._plan(fmt, stage_of(fmt, **modes), shape, axis, False) is not None


def formats_of(rule_name: str) -> list[str]:
    rule = SCALE_RULES[rule_name]
    outer = ", fp32 tensor" if rule.outer is not None else ""
    return [
        f"block({element}, {scale} 1x{WIDE} {rule_name} {special}{outer})"
        for element in ELEMENTS
        for scale in LEVELS[rule.stores]
        for special in SPECIALS
    ]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_the_references_bits_in_every_element_format(rule: str):
    x, ordinary = blocks_of(1), blocks_of(2, special=False)
    for i, fmt in enumerate(formats_of(rule)):
        assert_equals_reference(x if i % 4 < 2 else ordinary, fmt, -1)
        assert_equals_reference(ordinary if i % 4 < 2 else x, fmt, -2)


@needs_vectors
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_vector_code(rule: str):
    for text in formats_of(rule):
        fmt = parse(text)
        assert isinstance(fmt, Scaled)
        assert is_vector_code(fmt, (96, 64), -1), text
        assert is_vector_code(fmt, (96, 64), -2), text


#: Shape, axis and tiling of arrays that vector code reads, and of such that it leaves to the definition.
READ = [
    ((3, 5, 64), -1, "1x32"), ((2, 32, 48), -2, "1x32"), ((64, 3, 16), -3, "1x32"), ((4, 32), -1, "1x16"),
    ((7, 3 * 80), -1, "1x80"), ((2, 32, 48), -1, "16x16"), ((2, 48, 32), -2, "16x16"), ((64, 96), -1, "2x48"),
    ((96, 64), -2, "32x48"), ((256, 128), -1, "128x128"), ((5, 208), -1, "row"), ((2, 5, 48), -2, "row"),
    ((32,), -1, "1x32"),
    ((1, 16), -1, "1x16"), ((9, 96), -1, "1x96"), ((24, 16), -2, "1x1"),
]  # fmt: skip
LEFT = [
    ((3, 40), -1, "1x32"), ((40, 16), -2, "1x32"), ((3, 40), -1, "1x8"), ((32, 40), -2, "1x32"), ((0, 32), -1, "1x32"),
    ((6, 7), -1, "tensor"), ((3, 25), -1, "row"), ((20, 32), -1, "16x16"), ((16, 40), -1, "16x16"), ((0,), -1, "row"),
    ((16, 16), -1, "16x8"),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_of_every_layout_are_the_same_in_every_variant(variant: str):
    with running(variant):
        for shape, axis, tiling in READ + LEFT:
            x = np.resize(blocks_of(3), shape)
            for levels in (f"fp8_e8m0 {tiling} even", f"fp8_ue4m3 {tiling} nvfp4, fp32 tensor"):
                assert_equals_reference(x, f"block(fp4_e2m1, {levels})", axis, (shape, variant), pad=True)


@needs_vectors
@pytest.mark.parametrize(("cases", "is_read"), [(READ, True), (LEFT, False)])
def test_layouts_are_read_by_vector_code_or_left_to_the_definition(cases: list[Any], is_read: bool):
    for shape, axis, tiling in cases:
        fmt = parse(f"block(fp4_e2m1, fp8_e8m0 {tiling} floor)")
        assert isinstance(fmt, Scaled)
        assert is_vector_code(fmt, shape, axis) == is_read, (shape, axis, tiling)


@needs_vectors
@pytest.mark.parametrize("name", SCALED_PRESETS)
def test_named_formats_have_vector_code_along_both_axes_of_a_matrix(name: str):
    fmt = SCALED_PRESETS[name]
    expected = fmt.tiling.across is not None
    assert is_vector_code(fmt, (256, 256), -1) == is_vector_code(fmt, (256, 256), -2) == expected


def test_other_modes_rules_and_arrays_are_left_to_the_definition_and_equal_it():
    x = blocks_of(4)
    for modes in (
        {"rounding": "stochastic", "seed": 3},
        {"rounding": "floor"},
        {"overflow": "ieee"},
        {"overflow": "satpropagate"},
    ):
        for fmt in ("mxfp8_e5m2 floor ignore_nan", "mxfp8_e4m3 floor"):  # the rule under which elements overflow
            assert_equals_reference(x, fmt, -1, modes, **modes)
    for fmt in (
        "block(fp8_e4m3 ftz, fp8_e8m0 1x32 floor)",
        "block(e1m6 finite nans=none, fp8_e8m0 1x32 floor)",
        "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4, fp32 row)",
        "block(fp8_e4m3, ue11m0 finite nans=top no-zero 1x32 floor)",
        "block(bf16, fp8_e8m0 1x32 rceil)",
    ):
        assert_equals_reference(x, fmt, -1)
    for other in (x.astype(np.float64), x.T, x[:, ::2]):
        assert_equals_reference(other, "mxfp8_e4m3", -1)
    assert_equals_reference(x.T[::-1], "nvfp4", -2)


def test_underflow_as_ieee_754_has_it_is_counted_by_the_definition():
    x = blocks_of(5, special=False)
    for tininess in ("before_rounding", "after_rounding"):
        flags = [emu.Flags(tininess=tininess) for _ in range(2)]
        values = [
            emu.quantize(x, "mxfp8_e4m3", flags=each, backend=backend)
            for each, backend in zip(flags, ("numba", "reference"), strict=True)
        ]
        assert flags[0] == flags[1]
        assert_same(values[0], values[1], tininess)


def test_a_register_observes_numbers_and_changes_nothing():
    x, registers = blocks_of(6), [emu.StatisticsRegister() for _ in range(2)]
    for register, backend in zip(registers, ("reference", "numba"), strict=True):
        value = emu.quantize(x, "mxfp8_e4m3", register=register, backend=backend, flags=emu.Flags())
        assert_same(value, emu.quantize(x, "mxfp8_e4m3", backend="reference", flags=emu.Flags()), backend)
    assert registers[0] == registers[1]
    assert registers[0].total == x.size


# ---- sweeps: each proof at the edges of what it says ----------------------------------------------------------------


def bfloat16s(low: int) -> np.ndarray:
    """All finite float32 whose low sixteen bits are these."""
    x = (np.arange(1 << 16, dtype=np.uint32) << 16 | low).view(np.float32)
    return x[np.isfinite(x)]


@pytest.mark.parametrize("low", [0, 1, 0xFFFF])
@pytest.mark.parametrize(
    "fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "mxfp4_e2m1", "block(fix16f14, fp8_e8m0 1x32 floor)"]
)
def test_elements_of_all_exponents_and_leading_digits_are_the_references(fmt: str, low: int):
    x = bfloat16s(low)
    alike, mixed = np.resize(x, (2050, 32)), np.resize(np.random.default_rng(7).permutation(x), (2050, 32))
    # Blocks whose largest number is 448, so that their scale is 1 or near it, beside numbers of all sizes.
    with_448 = np.resize(x[np.abs(x) < 448], (2050, 32)).copy()
    with_448[:, 0] = 448.0
    for each in (alike, mixed, with_448):
        assert_equals_reference(each, fmt, -1)


@pytest.mark.parametrize("rule", RULES)
def test_scales_of_all_largest_magnitudes_are_the_references(rule: str):
    fmt = formats_of(rule)[0].replace(f"1x{WIDE}", "1x16")
    amax = np.abs(np.concatenate([bfloat16s(low)[::5] for low in (0, 1, 0x7FFF, 0x8000, 0xFFFF)]))
    for top in (3.0e38, 448.0, 1e-3, 2.0**-126):
        some = amax[amax <= np.float32(top)][:: 1 if top > 1e38 else 7]
        x = np.zeros((some.size, 16), np.float32)
        x[:, 5] = some
        x[:, 6] = -some / 3
        x[0, 0] = top
        assert_equals_reference(x, fmt, -1, top)


def test_arrays_of_many_panels_equal_the_definition_on_compiled_stages():
    """Above 8 MiB elements are written past the caches; panels end inside of rows and of strips."""
    from emu.backends.interface import RandomCode, Write
    from emu.backends.reference.scaled import quantize_blocks

    rng = np.random.default_rng(8)
    kernels, no_bits = load("numba"), RandomCode(0, 0, 0, 0, None)
    for name, shape, axis in (
        ("mxfp8_e4m3", (1030, 2080), -1),
        ("nvfp4", (1056, 2096), -2),
        ("nvfp4_16x16", (1040, 2064), -1),
        ("mxfp8_e4m3 rceil", (96, 3 * 4000), -2),
        ("fp8_tile_128x128", (128, 640), -1),
        ("fp8_row", (3, 8208), -1),
    ):
        fmt, x = parse(name), rng.normal(size=shape).astype(np.float32)
        assert isinstance(fmt, Scaled)
        x[-1, -1], x[0, 0], x[shape[0] // 2, 3] = np.nan, 0.0, np.inf
        write = Write(stage_of(fmt), no_bits, None)
        for counted in (False, True):
            outcome, scales = kernels.quantize_blocks(x, fmt, axis, write, counted=counted)
            expected, theirs = quantize_blocks(kernels, x, fmt, axis, write)
            mine = ScaledValue.of(outcome.values, scales, fmt, axis)
            assert_same(mine, ScaledValue.of(expected.values, theirs, fmt, axis), name)
            assert not counted or outcome.flags.tolist() == expected.flags.tolist()


@needs_vectors
def test_panels_share_no_block_and_leave_none_out():
    large = [((1030, 2080), -1, "1x32"), ((96, 12000), -2, "1x32"), ((256, 3840), -1, "128x128")]
    for shape, axis, tiling in READ + large:
        fmt = parse(f"block(fp4_e2m1, fp8_e8m0 {tiling} floor)")
        assert isinstance(fmt, Scaled)
        geometry = Geometry.of(Tiles(fmt.tiling, shape, axis))
        assert geometry is not None
        assert geometry.columns % max(geometry.width, 16) == 0
        assert geometry.strips * geometry.rows * geometry.length == np.prod(shape)
        assert geometry.blocks * geometry.rows * geometry.width == np.prod(shape)


@needs_vectors
def test_a_new_rule_needs_no_code_of_its_own():
    """The text of the steps is what is compiled: a rule that nobody has published is as NumPy runs it."""
    text = "u = 3 / amax if amax != 0 else 0.1; v = max(min(u * M, 1000), P); s = scale(v / (7 * u)); r = digits(1 / s)"
    rng = np.random.default_rng(9)
    amax = np.abs(np.concatenate([EDGES, rng.normal(size=48).astype(np.float32), bfloat16s(1)[::97]]))
    amax = np.resize(amax, -(-amax.size // 16) * 16)
    fmt = parse("nvfp4")
    assert isinstance(fmt, Scaled)
    stored, factors = np.empty_like(amax), np.empty_like(amax)
    code, entry = scaled.steps_code(f"|{text}|y = x * r|")
    numbers = scaled._numbers_of_steps(fmt)
    _run(entry, amax, stored, factors, numbers)
    assert code is not None
    kernels = load("reference")
    from emu.backends.reference.scaled import _Rounding, constants_of

    rounding = _Rounding(kernels, fmt)
    functions = {name: getattr(rounding, name) for name in ("up", "down", "scale", "digits")}
    names = Steps(text).run({"amax": amax, **constants_of(fmt, np.float32)}, np.float32, functions)
    assert np.array_equal(stored, names["s"], equal_nan=True)
    assert np.array_equal(factors, names["r"], equal_nan=True)


def _run(entry: int, amax: np.ndarray, stored: np.ndarray, factors: np.ndarray, numbers: np.ndarray) -> None:
    import ctypes

    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(entry)
    call(*(a.ctypes.data for a in (amax, stored, factors)), amax.size // 16, numbers.ctypes.data)
