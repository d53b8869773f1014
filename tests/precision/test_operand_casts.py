"""docs/concepts/roles.md, "What a product reads": casts of stored tensors, along the k of each product."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import emu
from emu.autodiff import Graph, Operation, Runner
from emu.datapath import Hadamard, stream_of
from emu.errors import ConfigError
from emu.formats import ScaledValue, Value
from emu.hardware import PrecisionTable, load_device
from emu.precision import CounterTable, Policy
from emu.precision.casting import with_casts
from emu.precision.runner import DatapathRunner
from emu.precision.shapes import ShapeRunner

RANDOM = np.random.default_rng(20261127)
STORED: dict[str, Any] = {
    role: {"format": "bf16"} for role in ("weight", "bias", "activation", "error", "gradient", "update", "master")
}
MX = {"preset": "b200", "inputs": "mxfp8_e4m3"}
RCEIL = "mxfp8_e4m3 rceil"


def table(operands: Any = None, **more: Any) -> PrecisionTable:
    given = {} if operands is None else {"operands": operands}
    return PrecisionTable(**STORED, mac={"accumulator": "fp32"}, **given, **more)


def every(fmt: Any, mac: Any = None) -> dict[str, Any]:
    """Return the same cast for all factors of all products."""
    products = {"forward": ("activation", "weight"), "error": ("error", "weight"), "gradient": ("error", "activation")}
    tables: dict[str, Any] = {name: dict.fromkeys(factors, fmt) for name, factors in products.items()}
    return tables | ({} if mac is None else {"mac": mac})


def bf16(*shape: int) -> Value:
    array = emu.quantize(RANDOM.normal(size=shape), "bf16")
    return emu.value(array, "bf16")


def passed(precision: PrecisionTable, x: Value, w: Value, g: Value, **runner: Any) -> dict[str, Value]:
    """Return what the three products of a linear layer write."""
    graph = Graph(DatapathRunner(Policy(precision), **runner))
    inputs, weights = graph.variable(x), graph.parameter(w)
    y = graph.apply("linear", inputs, weights, layer="fc")
    gradients = graph.backward(y, g)
    return {"forward": y.value, "error": gradients[id(inputs)], "gradient": gradients[id(weights)]}


X, W, G = bf16(32, 64), bf16(48, 64), bf16(32, 48)
#: The operands of each product, as matrices whose k is last of the first and first of the second.
FACTORS = {
    "forward": (X.array, W.array.T),
    "error": (G.array, W.array),
    "gradient": (G.array.T, X.array),
}


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(
    ("fmt", "mac"),
    [
        (RCEIL, MX),
        ("nvfp4", {"preset": "b200", "inputs": "nvfp4"}),
        ("nvfp4_16x16", {"preset": "b200", "inputs": "nvfp4"}),
        ("fp8_tile", {"preset": "h100", "inputs": "fp8_tile"}),
        ("block(fp8_e5m2, fp32 tensor te)", {"accumulator": "fp32", "scales": "at_result"}),
        ("uint8_affine", {"accumulator": "fix32f0", "overflow": "wrap", "scales": "at_result"}),
    ],
)
def test_each_product_reads_its_operands_cast_along_its_own_k(fmt: str, mac: dict[str, Any], backend: str):
    got = passed(table(every(fmt, mac)), X, W, G, backend=backend)
    unit = table(every(fmt, mac)).mac_of_casts("fc", "activation")
    for product, (a, b) in FACTORS.items():
        casts = emu.quantize(a, fmt, axis=-1, pad=True), emu.quantize(b, fmt, axis=-2, pad=True)
        wanted = emu.matmul(*casts, out_format="bf16", mac=unit, backend="reference")
        assert np.array_equal(got[product].array, wanted), product
        assert str(got[product].format) == "bf16"


def test_products_without_casts_read_what_is_stored():
    casts = {"forward": every(RCEIL)["forward"], "mac": MX}
    got, plain = passed(table(casts), X, W, G), passed(table(), X, W, G)
    assert not np.array_equal(got["forward"].array, plain["forward"].array)
    assert np.array_equal(got["error"].array, plain["error"].array)
    assert np.array_equal(got["gradient"].array, plain["gradient"].array)


def test_the_unit_of_cast_operands_is_not_that_of_stored_ones():
    own = {**every(RCEIL, MX), "gradient": {**every(RCEIL)["gradient"], "mac": {"rounding": "nearest_even"}}}
    precision = table(own)
    assert precision.mac_of("fc") == emu.Mac(accumulator="fp32")
    assert precision.mac_of_casts("fc", "activation") == emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    assert precision.mac_of_casts("fc", "gradient").rounding == "nearest_even"
    policy = Policy(precision)
    assert policy.mac("fc", emu.parse(RCEIL), emu.parse(RCEIL)).scales == ("in_block",)
    assert policy.mac("fc", emu.parse("bf16"), emu.parse("bf16")).scales == ()


def test_stochastic_casts_draw_the_bits_of_their_layer_product_and_factor():
    fmt = {"format": RCEIL, "rounding": "stochastic"}
    casts = {"gradient": {"error": fmt, "activation": RCEIL}, "mac": MX}
    got = passed(table(casts), X, W, G, seed=5)["gradient"]
    stream = stream_of("fc.error", "gradient", 0)
    a = emu.quantize(G.array.T, RCEIL, axis=-1, rounding="stochastic", seed=5, stream=stream, step=0)
    b = emu.quantize(X.array, RCEIL, axis=-2)
    unit = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    assert np.array_equal(got.array, emu.matmul(a, b, out_format="bf16", mac=unit))
    assert not np.array_equal(got.array, passed(table(casts), X, W, G, seed=6)["gradient"].array)


def sylvester(size: int) -> np.ndarray[Any, Any]:
    """Entry (i, j) is -1 to the number of ones that i and j share."""
    return np.array([[(-1) ** bin(i & j).count("1") for j in range(size)] for i in range(size)])


@pytest.mark.parametrize("size", [4, 16])
def test_a_hadamard_transform_rotates_runs_along_k_and_rounds_them_to_the_stored_format(size: int):
    signs = 0b1010
    transform = f"hadamard({size}, {signs:#x})"
    fmt = {"format": RCEIL, "transform": transform}
    casts = {"gradient": {"error": fmt, "activation": fmt}, "mac": MX}
    got = passed(table(casts), X, W, G)["gradient"]
    flips = np.array([-1 if signs >> i & 1 else 1 for i in range(size)])

    def rotated(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        runs = rows.astype(np.float64).reshape(-1, size) * flips  # bfloat16: sums of 16 are exact in binary64
        return emu.quantize((runs @ sylvester(size) / size**0.5).reshape(rows.shape), "bf16")

    a = emu.quantize(rotated(G.array.T), RCEIL, axis=-1)
    b = emu.quantize(rotated(X.array.T).T, RCEIL, axis=-2)
    unit = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    assert np.array_equal(got.array, emu.matmul(a, b, out_format="bf16", mac=unit))
    turned = Hadamard.of(transform).matrix.astype(np.float64)
    assert np.array_equal(turned @ turned.T, np.eye(size))
    assert str(Hadamard.of(transform)) == transform


def test_signs_of_a_transform_are_decimal_or_hexadecimal_whatever_zeros_they_begin_with():
    for text, signs in (("007", 7), ("0", 0), ("010", 10), ("0x0010", 16), ("0XfF", 255)):
        assert Hadamard.of(f"hadamard(16, {text})") == Hadamard(16, signs)


def test_a_run_that_does_not_fit_k_is_refused():
    fmt = {"format": RCEIL, "transform": "hadamard(64, 0)"}
    casts = {"gradient": {"error": fmt, "activation": fmt}, "mac": MX}
    with pytest.raises(emu.ShapeError, match=r"k must be a multiple of the 64 numbers of hadamard\(64, 0x0\), got 32"):
        passed(table(casts), X, W, G)


def test_layers_switch_casts_off_or_have_their_own():
    layers = (
        {"match": "head", "operands": "stored"},
        {"match": "fc2", "operands": {"forward": {"activation": "fp8_tile", "weight": "fp8_tile"}}},
        {"match": "full", "full": True},
    )
    precision = table(every(RCEIL, MX), layers=layers)
    assert precision.casts("head", "forward") is None
    assert precision.casts("full", "error") is None
    shown = {layer: [str(cast) for cast in precision.casts(layer, "forward") or ()] for layer in ("fc", "fc2")}
    assert shown == {"fc": [RCEIL, RCEIL], "fc2": ["fp8_tile", "fp8_tile"]}
    assert [str(cast) for cast in precision.casts("fc2", "error") or ()] == [RCEIL, RCEIL]


def test_a_recipe_s_unit_of_cast_operands_is_laid_over_the_device_s_key_by_key():
    """As `[precision.mac]` is, and as a layer's is."""
    device, keys = load_device("b200-mxfp8").precision, {"mac": {"rounding": "nearest_even"}}
    unit = PrecisionTable(operands=keys).over(device).mac_of_casts("fc1", "activation")
    own = device.mac_of_casts("fc1", "activation")
    assert unit == emu.Mac(accumulator=own.accumulator, order=own.order, rounding="nearest_even", scales=own.scales)
    layer = PrecisionTable(layers=[{"match": "fc*", "operands": keys}]).over(device)
    assert layer.mac_of_casts("fc1", "activation") == unit


def test_a_recipe_replaces_products_of_its_device_and_keeps_the_others():
    device = table(every(RCEIL, MX))
    recipe = PrecisionTable(operands={"error": {"error": "mxfp8_e5m2", "weight": RCEIL}})
    both = recipe.over(device)
    assert [str(cast) for cast in both.casts("fc", "error") or ()] == ["mxfp8_e5m2", RCEIL]
    assert [str(cast) for cast in both.casts("fc", "forward") or ()] == [RCEIL, RCEIL]
    assert PrecisionTable(operands="stored").over(device).casts("fc", "forward") is None
    assert PrecisionTable().over(device).casts("fc", "forward") is not None


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            {"forward": {"activation": "bf16", "weight": RCEIL}},
            "must be cast into a format whose elements share scales, got",
        ),
        (
            {"forward": {"activation": RCEIL}},
            "operands of the forward product must be activation and weight, got activation",
        ),
        (
            {"error": {"activation": RCEIL, "weight": RCEIL}},
            "operands of the error product must be error and weight, got act",
        ),
        (
            {"gradient": {"error": {"format": RCEIL, "transform": "hadamard(16, 1)"}, "activation": RCEIL}},
            "a transform must stand on both operands of the gradient product, got hadamard.* and None; give both",
        ),
        (
            every({"format": RCEIL, "transform": "hadamard(8, 1)"}),
            "must have a size of 4, 16, 64, 256, got 8; choose 16",
        ),
        (every({"format": RCEIL, "transform": "hadamard(4, 16)"}), "must be 4 bits, got 0x10; write 0 for none"),
        (every({"format": RCEIL, "transform": "fft"}), r"must be hadamard\(SIZE, SIGNS\), got 'fft'"),
        (every({"format": RCEIL, "rounding": "up"}), "rounding"),
    ],
)
def test_tables_that_cannot_be_are_refused(operands: Any, message: str):
    with pytest.raises((ConfigError, emu.FormatError, ValueError), match=message):
        table(operands)


class Listed(Runner):
    """Keeps operations, and returns their first operands."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str, int]] = []

    def run(self, operation: Operation, role: str, layer: str, point: int = 0) -> Any:
        self.parts.append((operation.name, operation.part, operation.options["axis"]))
        return operation.operands[0]


def test_casts_have_the_part_of_their_product_and_leave_the_rest_of_it_as_it_is():
    operands = (X, Value(W.array.T, W.format), bf16(48))
    product = Operation("matmul", operands, {"a": 1}, "query", factors=("activation", "weight"))
    listed = Listed()
    got = with_casts(listed, Policy(table(every(RCEIL, MX))), product, "activation", "fc")
    assert listed.parts == [("cast", "query.activation", -1), ("cast", "query.weight", -2)]
    assert (got.name, got.part, got.options) == ("matmul", "query", {"a": 1})
    assert all(a is b for a, b in zip(got.operands, operands, strict=True))


@pytest.mark.parametrize("cast", ["uint8_affine", RCEIL])
def test_convolutions_read_casts_with_scales_of_tensors_and_channels_alone(cast: str):
    weight = "int8_channel" if cast == "uint8_affine" else RCEIL
    mac = {"accumulator": "fix32f0", "overflow": "wrap", "scales": "at_result"} if cast == "uint8_affine" else MX
    casts = {"forward": {"activation": cast, "weight": weight}, "mac": mac}
    x, w = bf16(2, 3, 6, 5), bf16(4, 3, 3, 2)
    options = {"stride": (1, 1), "padding": (1, 0)}
    product = Operation("conv2d", (x, w), options, factors=("activation", "weight"))
    got = DatapathRunner(Policy(table(casts))).run(product, "activation", "conv1")
    if cast == RCEIL:
        wanted = emu.conv2d(x, w, out_format="bf16", mac=emu.Mac(accumulator="fp32"), **options)
    else:
        parts = emu.quantize(x, cast), emu.quantize(w, weight)
        wanted = emu.conv2d(*parts, out_format="bf16", mac=emu.Mac(**mac), **options)
    assert np.array_equal(got.array, wanted)


def test_a_cast_is_shown_with_its_mode_and_transform():
    cast = emu.datapath.Cast.of(RCEIL, "stochastic", "HADAMARD( 4, 5)")
    assert str(cast) == f"{RCEIL}, stochastic, hadamard(4, 0x5)"
    assert str(emu.datapath.Cast.of(RCEIL)) == RCEIL


def test_a_table_of_casts_is_written_as_it_was_given():
    casts = {"forward": {"activation": {"format": RCEIL}, "weight": {"format": RCEIL, "rounding": "stochastic"}}}
    assert table(casts).model_dump()["operands"] == casts


def test_counts_of_blocks_come_back_from_what_they_were_saved_as():
    policy = Policy(table(every(RCEIL, MX)))
    counters = CounterTable(policy.register)
    graph = Graph(DatapathRunner(policy, counters=counters))
    y = graph.apply("linear", graph.variable(X), graph.parameter(W), layer="a/b")
    graph.backward(y, G)
    shapes = {product: (a.shape, b.T.shape) for product, (a, b) in FACTORS.items()}
    blocks = {key: (counts.blocks, counts.elements) for key, counts in counters.scales()}
    assert blocks == {
        ("a/b", role, factor): (shape[0] * -(-shape[1] // 32), shape[0] * shape[1])
        for role, factors, product in (
            ("activation", ("activation", "weight"), "forward"),
            ("error", ("error", "weight"), "error"),
            ("gradient", ("error", "activation"), "gradient"),
        )
        for factor, shape in zip(factors, shapes[product], strict=True)
    }
    copy, saved = CounterTable(policy.register), counters.to_dict()
    copy.scales_of("old", "error", "weight").blocks = 7
    copy.load(json.loads(json.dumps(saved)))
    assert copy.scales() == counters.scales()
    assert copy.sha256() == counters.sha256()
    assert list(copy.to_dict()) == list(saved)
    counts = copy.scales_of("a/b", "activation", "weight")
    assert counts == emu.ScaleCounts.from_dict(saved["a/b/activation/weight/scales"])
    assert counts is copy.scales_of("a/b", "activation", "weight")
    copy.merge(counters)
    single = counters.scales_of("a/b", "activation", "weight")
    assert counts.exponents == {exponent: 2 * count for exponent, count in single.exponents.items()}
    assert (counts.blocks, counts.elements) == (2 * 48 * 2, 2 * 48 * 64)
    assert copy.sha256() != counters.sha256()
    copy.reset()
    assert [counts for _, counts in copy.scales()] == [emu.ScaleCounts()] * 6
    assert copy.scales_of("new", "error", "weight") == emu.ScaleCounts()


def test_counts_are_read_from_plain_data_by_their_names():
    names = ("blocks", "elements", "clipped", "clipped_largest", "vanished", "zero_blocks", "at_limit", "nan_scales")
    plain: dict[str, Any] = {name: i for i, name in enumerate(names, 1)} | {"exponents": [[-3, 4], [2, 1]]}
    counts = emu.ScaleCounts.from_dict(plain)
    assert {name: getattr(counts, name) for name in names} == {name: plain[name] for name in names}
    assert counts.exponents == {-3: 4, 2: 1}
    assert counts.to_dict() == plain | {"exponents": [(-3, 4), (2, 1)]}


def test_a_level_without_a_place_in_the_unit_is_refused_before_anything_is_computed():
    runner = ShapeRunner(Policy(table(every("nvfp4", {"accumulator": "fp32"}))))
    with pytest.raises(emu.FormatError, match="each level of scales must have a place in the Mac, got none for"):
        runner.run(
            Operation("matmul", (X, Value(W.array.T, W.format)), factors=("activation", "weight")), "activation", "fc"
        )


def test_a_cast_reads_the_stored_bits_and_writes_those_of_elements_and_scales():
    runner = ShapeRunner(Policy(table(every(RCEIL, MX))))
    runner.run(
        Operation("matmul", (X, Value(W.array.T, W.format)), factors=("activation", "weight")), "activation", "fc"
    )
    seen = [(d.operation, [str(fmt) for fmt, _ in d.operands], str(d.result_format)) for d in runner.demands]
    assert seen == [
        ("cast", ["bf16"], RCEIL),
        ("cast", ["bf16"], RCEIL),
        ("matmul", [RCEIL, RCEIL], "bf16"),
    ]


@pytest.mark.parametrize("device", ["b200-mxfp8", "b200-nvfp4", "h800-fp8-tile"])
def test_devices_cast_for_all_products_of_linear_layers_but_the_last(device: str):
    precision = load_device(device).precision
    for product in ("forward", "error", "gradient"):
        assert precision.casts("think1.wide", product) is not None
        assert precision.casts("output", product) is None
    assert precision.mac_of("think1.wide").scales == ()
    assert precision.mac_of_casts("think1.wide", "error").scales


def test_attention_multiplies_stored_tensors():
    """The products of queries and keys have no weights: their operation names no factors."""
    a, b = bf16(2, 4, 8), bf16(2, 8, 4)
    precision = table(every(RCEIL, MX))
    runner = DatapathRunner(Policy(precision))
    y = runner.run(Operation("matmul", (a, b)), "activation", "heads.scores")
    wanted = emu.matmul(a, b, out_format="bf16", mac=emu.Mac(accumulator="fp32"))
    assert np.array_equal(y.array, wanted)
    assert not isinstance(y, ScaledValue)


ROTATED = {"format": "fp8_tensor", "transform": "hadamard(4, 5)"}


@pytest.mark.parametrize(
    ("activation", "weight", "is_cast"),
    [
        ("uint8_affine", "int8_channel", True),
        ("fp8_tensor", "fp8_tensor", True),
        (RCEIL, RCEIL, False),
        ("int8_channel", "int8_channel", False),
        ("fp8_row", "fp8_row", False),
        (ROTATED, ROTATED, False),
    ],
)
def test_convolutions_read_casts_of_tensors_and_channels_alone(activation: Any, weight: Any, is_cast: bool):
    mac = {"product": "exact", "accumulator": "fp32", "scales": "at_result"}
    if activation == "uint8_affine":
        mac = {"accumulator": "fix32f0", "overflow": "wrap", "scales": "at_result"}
    x, w = bf16(2, 3, 8, 8), bf16(4, 3, 4, 4)
    precision = table({"forward": {"activation": activation, "weight": weight}, "mac": mac})
    graph = Graph(DatapathRunner(Policy(precision)))
    y = graph.apply("conv2d", graph.variable(x), graph.parameter(w), layer="conv", stride=(1, 1), padding=(1, 1)).value
    stored = emu.conv2d(x, w, out_format="bf16", mac=emu.Mac(accumulator="fp32"), padding=(1, 1))
    assert np.array_equal(y.array, stored) != is_cast
    if is_cast:
        casts = emu.quantize(x, activation), emu.quantize(w, weight)
        unit = precision.mac_of_casts("conv", "activation")
        assert np.array_equal(y.array, emu.conv2d(*casts, out_format="bf16", mac=unit, padding=(1, 1)))
