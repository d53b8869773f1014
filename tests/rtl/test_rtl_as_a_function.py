"""Units in Verilog are called with arrays and give what emu's functions give, whatever their handshake."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtl_units import MODES, OPTIONS, PRODUCT, needs, product_vectors, unit_of

import emu
from emu.errors import FormatError, ShapeError
from emu.testing import arrays, assert_bits_equal, check_backend, order_tree, probe_order
from emu.testing.rtl import Constant, Flags, Handshake, Unit
from emu.testing.rtl.simulation import _move
from emu.testing.vectors import Description, make_vectors, write_vectors

pytestmark = needs("icarus")
PRODUCTS = [name for name in OPTIONS if name.startswith("multiply16")]


def numbers(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Codes of binary16 of every kind but signalling NaN and NaN with payload."""
    codes = np.random.default_rng(seed).integers(0, 1 << 16, (2, count), np.uint16)
    values = codes.view(np.float16)
    values[np.isnan(values)] = np.nan
    return values[0], values[1]


@pytest.mark.parametrize("top", PRODUCTS)
def test_products_are_numpys(top: str):
    """NumPy rounds a product of binary16 once, as the product of binary32 is exact."""
    x, y = numbers(500)
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float32) * y.astype(np.float32)).astype(np.float16)
    assert_bits_equal(unit_of(top)(x, y), wanted.astype(np.float32), "fp16")


@pytest.mark.parametrize("top", PRODUCTS)
def test_golden_vectors_find_nothing_in_a_right_unit(top: str):
    assert unit_of(top).check(product_vectors()) is None


def test_flags_that_a_unit_lacks_are_not_compared():
    ports = {**PRODUCT, "flags": Flags({"inexact": 0}, 5)}
    assert unit_of("multiply16_stream", ports=ports).check(product_vectors()) is None


def test_vectors_are_read_from_a_folder_and_choose_the_mode(tmp_path: Path):
    formats = {"formats": ("fp16", "fp16"), "out_format": "fp16", "tininess": "before_rounding"}
    vectors = make_vectors(Description(operation="multiply", **formats, count=60, rounding="floor"))
    signalling = np.zeros(60, bool)
    for codes in vectors.operands:
        signalling |= np.isnan(codes.astype(np.uint16).view(np.float16)) & (codes & np.uint64(0x200) == 0)
    write_vectors(vectors, tmp_path)
    ports = {name: port for name, port in PRODUCT.items() if name != "flags"}
    assert unit_of("multiply16_pipe", ports=ports).check(tmp_path) is None


@pytest.mark.parametrize("mode", MODES)
def test_a_port_chooses_the_rounding_mode(mode: str):
    x, y = numbers(200, seed=1)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) * y.astype(np.float64)
    wanted = emu.quantize(exact, "fp16", rounding=mode, backend="reference")
    assert_bits_equal(unit_of("multiply16_stream")(x, y, rounding=mode), wanted, "fp16")


def test_codes_give_codes_and_values_give_values():
    unit = unit_of("multiply16")
    codes = unit(np.array([0x3E00, 0x7C00], np.uint16), np.uint16(0x4000))
    assert codes.dtype == np.uint16
    assert codes.tolist() == [0x4200, 0x7C00]
    assert unit([1.5], [2.0]).tolist() == [3.0]


def test_operands_broadcast_and_results_have_their_shape():
    unit = unit_of("multiply16")
    assert unit(np.ones((3, 1)), np.ones(4)).shape == (3, 4)
    assert unit(2.0, 4.0).shape == ()
    assert unit(np.ones(0), 2.0).shape == (0,)


def test_flags_are_counted():
    flags = emu.Flags()
    unit_of("multiply16_stream")(
        np.float16([65504, 6e-8, 1, np.inf, 1.0009765625]), np.float16([2, 0.5, 1, 0, 1.0009765625]), flags=flags
    )
    assert (flags.overflow, flags.underflow, flags.inexact, flags.invalid, flags.division_by_zero) == (1, 1, 3, 1, 0)


def test_a_constant_is_driven():
    ports = {**PRODUCT, "mode": Constant(2, 3)}
    assert unit_of("multiply16", ports=ports)([1.0009765625], [-1.0009765625]).tolist() == [-1.0029296875]


def test_threads_that_build_the_same_unit_share_what_was_built(tmp_path: Path):
    meeting, place = Barrier(4), tmp_path / "built"

    def build(number: int) -> list[int]:
        with TemporaryDirectory(dir=tmp_path, ignore_cleanup_errors=True) as made:
            for i in range(100):
                (Path(made) / str(i)).touch()
            meeting.wait()
            _move(Path(made), place)
        return sorted(int(path.name) for path in place.iterdir())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(build, range(4))) == [[*range(100)]] * 4
    # no thread leaves anything beside it
    assert [*tmp_path.iterdir()] == [place]


def test_three_operands_start_a_sum_that_saturates():
    unit = unit_of("mac8_start")
    a, b, c = (np.random.default_rng(3).integers(low, -low, 300) for low in (-128, -128, -32768))
    wanted = np.clip(c + a * b, -32768, 32767) / 256
    assert_bits_equal(unit(a / 16, b / 16, c / 256), wanted.astype(np.float32), "fix16f8")
    formats = {"formats": ("fix8f4", "fix8f4", "fix16f8"), "out_format": "fix16f8"}
    assert unit.check(make_vectors(Description(operation="fma", **formats, count=200))) is None


def test_a_handshake_of_ones_own_is_a_row():
    pulse = Handshake("pulse", offer="start", result="done", overlaps=False, result_at_once=False)
    assert unit_of("mac8_start", handshake=pulse)([2.0, -8.0], [3.0, 7.9375], [0.5, 0.0]).tolist() == [6.5, -63.5]


def test_terms_of_a_sum_come_one_after_the_other(tmp_path: Path):
    unit = unit_of("dot4")
    mac = {"accumulator": "fix16f8"}
    formats = {"formats": ("fix8f4", "fix8f4"), "out_format": "fix16f8"}
    for depth in (1, 4, 7):
        vectors = make_vectors(Description(operation="matmul", **formats, mac=mac, depth=depth, count=60))  # pyright: ignore
        assert unit.check(vectors) is None
    finding = unit_of("dot4", 1).check(vectors, keep=tmp_path)
    assert finding is not None
    assert "wrap" in str(finding)
    assert unit([1.0, 2.0, 3.0], [1.0, 1.0, 0.5]).item() == 4.5
    with pytest.raises(ShapeError, match=r"a multiple of 1, got shapes \(2,\), \(3,\); pad"):
        unit([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(("pairwise", "order"), [(0, "sequential"), (1, "pairwise")])
def test_the_order_of_a_sum_is_drawn(pairwise: int, order: str):
    unit = unit_of("dot4_half", parameters={"PAIRWISE": pairwise})
    assert probe_order(unit, 4, a_format="fp16") == order_tree(order, 4)


def test_the_contract_is_checked_clause_by_clause():
    names = ["nearest_even", "floor", "to_odd"]
    function = unit_of("multiply16_stream").as_function("multiply")
    report = check_backend(function, formats=["fp16"], operations=["multiply"], roundings=names)
    assert report.passed
    assert report["multiply: to_odd"].reason == "no port of multiply16_stream chooses to_odd"
    report = check_backend(
        {"multiply": unit_of("multiply16_pipe", 3).as_function("multiply")},
        formats=["fp16"],
        operations=["multiply"],
        roundings=names,
    )
    assert "multiply: zeros" in report.failed


def test_formats_and_rules_that_a_unit_lacks_are_not_offered():
    function = unit_of("multiply16").as_function("multiply")
    report = check_backend(function, formats=["fp16", "bf16"], operations=["multiply"], roundings=["ceil"])
    assert "`a_format` of multiply16 is fp16, not bf16" in report["multiply: ceil"].reason
    assert report.passed


def test_flags_that_no_port_has_are_not_offered():
    flags = emu.Flags()
    unit_of("multiply16").as_function("multiply")([2.0], [3.0], flags=flags)
    assert flags.overflow == 0
    assert flags.subnormal is None
    flags, fewer = emu.Flags(), {**PRODUCT, "flags": Flags(["inexact", "underflow", "overflow"], 5)}
    unit_of("multiply16", ports=fewer).as_function("multiply")([2.0], [3.0], flags=flags)
    assert (flags.overflow, flags.division_by_zero, flags.invalid) == (0, None, None)


def test_a_matrix_product_takes_rows_and_columns():
    product = unit_of("dot4_half").as_function("matmul", mac=emu.Mac("fp16", "fp16", "sequential", "nearest_even"))
    a, b = np.arange(8.0).reshape(2, 4), np.arange(12.0).reshape(4, 3)
    assert product(a, b).tolist() == (a @ b).tolist()
    # without an addend its format says nothing
    assert product(a, b, addend_format="fp32", out_format="fp16").tolist() == (a @ b).tolist()
    with pytest.raises(NotImplementedError, match="`out_format` of dot4_half is fp16, not fp32"):
        product(a, b, out_format="fp32")
    with pytest.raises(NotImplementedError, match="sums of dot4_half have 4 terms, not 3"):
        product(np.ones((1, 3)), np.ones((3, 1)))
    with pytest.raises(NotImplementedError, match="sums of dot4 have 1 terms, not 0"):
        unit_of("dot4").as_function("matmul")(np.ones((1, 0)), np.ones((0, 1)))


UNIT: list[Unit] = []


@settings(max_examples=8)
@given(st.data())
def test_hypothesis_draws_operands(data: st.DataObject):
    if not UNIT:
        UNIT.append(unit_of("multiply16"))
    x, y = (data.draw(arrays("fp16", (5,))) for _ in range(2))
    assert_bits_equal(
        UNIT[0](x, y),
        emu.multiply(x, y, a_format="fp16", b_format="fp16", out_format="fp16", backend="reference"),
        "fp16",
    )


def test_wrong_calls_are_refused():
    unit = unit_of("multiply16")
    with pytest.raises(ShapeError, match=r"^multiply16 must have 2 operands, a, b, got 1; give each$"):
        unit([1.0])
    with pytest.raises(
        ShapeError, match=r"^operands of multiply16 must broadcast against each other, got shapes \(2,\), \(3,\)"
    ):
        unit([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(FormatError, match=r"`b`: .*0\.1"):
        unit([1.0], [0.1])
    with pytest.raises(FormatError, match="codes of `a` must have 16 bits, got 0x10000"):
        unit(np.array([0x10000], np.uint32), np.array([0], np.uint32))
    with pytest.raises(FormatError, match=r"`rounding` must be a mode of port mode, nearest_even, .*, got to_odd"):
        unit([1.0], [1.0], rounding="to_odd")
    with pytest.raises(FormatError, match="no port of multiply16_strobes chooses a mode"):
        unit_of("multiply16_strobes")([1.0], [1.0], rounding="floor")
    with pytest.raises(FormatError, match="no port of multiply16_strobes has flags"):
        unit_of("multiply16_strobes")([1.0], [1.0], flags=emu.Flags())
    with pytest.raises(FormatError, match="`rbits` must be left out: no port takes them, got some"):
        unit([1.0], [1.0], rbits=[1])
