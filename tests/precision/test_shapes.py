"""What an operation asks of a machine: the same by shapes alone as when it computes, and by formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.autodiff import Operation, PlainRunner, SparseValue, Value
from emu.datapath import Affine, Cast
from emu.formats import Format
from emu.hardware import Demand, load_device
from emu.operations import OPERATIONS, DoneBy
from emu.operations.fixed_point import exponentials
from emu.operations.kinds import BACKWARD, FORWARD, UPDATE, kind_of, pass_of
from emu.operations.reference_integers import Written
from emu.operations.row import Energy
from emu.precision import DatapathRunner, Policy
from emu.precision.profile import Profile
from emu.precision.shapes import ShapeArray, ShapeRunner
from emu.sparse import CSR

RNG = np.random.default_rng(3)
FP16 = emu.parse("fp16")
POLICY = Policy(load_device("fp16-mixed").precision)


def values(*shape: int, fmt: Format = FP16) -> Value:
    return Value(emu.quantize(RNG.normal(size=shape), fmt, backend="reference"), fmt)


def integers(most: int, *shape: int) -> Value:
    return Value(RNG.integers(0, most, shape), None)  # type: ignore[arg-type] - indices have no format


def saved_of(name: str, *operands: Value, **options: Any) -> Any:
    """What an operation keeps for the way back, beside its result."""
    result = DatapathRunner(POLICY, backend="reference").run(Operation(name, operands, options), "activation", "fc")
    kept: Any = result.array[1:]
    return kept


X, Y, ROW = values(6, 5), values(6, 5), values(5)
MATRIX = CSR.from_dense(np.where(RNG.random((6, 5)) < 0.5, X.array, 0), FP16)
SPARSE = SparseValue(MATRIX.data, FP16, MATRIX)
LABELS = integers(5, 6)
IMAGES, KERNELS, ERRORS = values(2, 3, 7, 6), values(4, 3, 3, 2), values(2, 4, 3, 3)
STEPS = {"stride": (3, 2), "padding": (1, 0)}
NORMAL = {"axes": (0,), "along": 1, "eps": 1e-5, "momentum": 0.1, "training": True}
NORMALISED = saved_of("normalise", X, ROW, ROW, **NORMAL)[0]
POOLED = {"window": (2, 2), "stride": (2, 2)}
G = values(1).with_array(np.float32(0.5))


#: Operands and options of each operation, every size another one.
def elements(*shape: int) -> Value:
    return Value(RNG.integers(-128, 128, shape).astype(np.float32), BYTE)


BYTE = emu.parse("fix8f0")
BYTES = Affine.of(BYTE, 0.05, 3)
WRITTEN = Written(BYTES, -128, 127)
WIDELY = Written(Affine.of(BYTE, 40.0, 3), -128, 127)
SHARES = Written(Affine.of(BYTE, 1 / 256, -128), -128, 127)
CHANNELS = Affine.of(BYTE, np.float32([0.01, 0.02, 0.03, 0.04]), 0, 0)
CASES: dict[str, tuple[tuple[Value, ...], dict[str, Any]]] = {
    **{name: ((X, ROW), {}) for name in ("add", "subtract", "multiply", "divide")},
    "fma": ((X, Y, ROW), {}),
    **{name: ((X,), {}) for name in ("quantize", "negate", "relu")},
    "sqrt": ((X.with_array(np.abs(X.array)),), {}),
    **{f"{name}_slope": ((X,), {}) for name in ("sigmoid", "tanh", "gelu")},
    "select": ((X, Y), {}),
    "divide_by": ((X,), {"divisor": 3}),
    "function": ((X,), {"function": "exp"}),
    "dropout": ((X,), {"rate": 0.5}),
    "dropout_gradient": ((X,), {"rate": 0.5, "saved": X.array > 0}),
    "sum": ((values(4, 3, 5),), {"axis": (0, -1)}),
    "average": ((values(4, 3, 5),), {}),
    "matmul": ((values(2, 6, 3), values(2, 3, 5), ROW), {}),
    "sparse_entries": ((X,), {}),
    "sparse_matmul": ((SPARSE, values(5, 3), values(3)), {"entries": SPARSE.array.size}),
    "sparse_transposed_matmul": ((SPARSE, values(6, 3)), {"entries": SPARSE.array.size}),
    "conv2d": ((IMAGES, KERNELS, values(4)), STEPS),
    "conv2d_input_gradient": ((ERRORS, KERNELS), {"shape": (2, 3, 7, 6), **STEPS}),
    "conv2d_weight_gradient": ((IMAGES, ERRORS), {"kernel": (3, 2), **STEPS}),
    "max_pool": ((values(2, 3, 6, 8),), POOLED),
    "unpool": ((values(2, 3, 3, 4), values(2, 3, 6, 8)), {**POOLED, "saved": np.ones((2, 3, 3, 4), np.uint16)}),
    "embedding": ((values(9, 4), integers(9, 2, 3)), {}),
    "embedding_gradient": ((values(2, 3, 4), integers(9, 2, 3)), {"rows": 9}),
    **{name: ((X, LABELS), {}) for name in ("softmax_cross_entropy", "mse", "euclidean")},
    **{
        f"{name}_gradient": ((G, X, LABELS), {"saved": saved_of(name, X, LABELS)})
        for name in ("softmax_cross_entropy", "mse", "euclidean")
    },
    "softmax": ((X,), {"scale": 0.5, "causal": False}),
    "softmax_gradient": ((X, Y), {"scale": 0.5}),
    "normalise": ((X, ROW, ROW, ROW, ROW), NORMAL),
    "normalise_gradient": ((Y, ROW), {"axes": (0,), "along": 1, "saved": NORMALISED}),
    "gamma_gradient": ((Y,), {"along": 1, "saved": NORMALISED}),
    "beta_gradient": ((Y,), {"along": 1}),
    "squared_norm": ((X,), {}),
    "clip": ((X,), {"least": -0.5, "most": 0.25}),
    **{name: ((X, ROW), {}) for name in ("larger", "smaller")},
    "kept": ((X,), {"saved": Y.array > 0, "where": False}),
    "by_sign": ((X, Y), {}),
    "by_slope": ((X, Y, ROW), {}),
    "quantize_linear": ((X,), {"to": BYTES}),
    "bipolar": ((X,), {"to": Affine.of(emu.parse("fix2f0"), 1.0)}),
    "dequantize_linear": ((elements(6, 5),), {"of": BYTES}),
    "dynamic_quantize": ((X,), {"to": emu.parse("ufix8f0"), "gives": "elements"}),
    "integer_matmul": ((elements(2, 6, 3), elements(2, 3, 5)), {"of": (BYTES, BYTES)}),
    "integer_conv2d": (
        (elements(*IMAGES.shape), elements(*KERNELS.shape), Value(np.int32([1, 2, 3, 4]))),
        {"of": (BYTES, CHANNELS), "names": ("bias",), "to": BYTE, "by": emu.Requantiser("float32", 1.0), **STEPS},
    ),
    **{
        name: ((elements(6, 5), elements(5)), {"of": (BYTES, BYTES), "to": Affine.of(BYTE, 0.5, 3)})
        for name in ("integer_add", "integer_multiply")
    },
    "integer_max_pool": ((elements(2, 3, 6, 8),), POOLED),
    "reference_quantize": ((X,), {"to": WRITTEN}),
    "scale_sums": (
        (Value(np.int32([[30, -400, 17], [5, 6, 7]])),),
        {"of": (np.float32(0.1), np.float32([0.05, 0.01, 0.2])), "to": WRITTEN},
    ),
    "table_of_elements": ((elements(6, 5),), {"table": np.arange(256) // 2 - 64, "first": -128, "to": WRITTEN}),
    **{
        name: ((elements(6, 5), elements(5)), {"of": (BYTES, BYTES), "to": WIDELY})
        for name in ("add_shifted", "multiply_requantised")
    },
    "average_windows": ((elements(2, 3, 6, 8),), {**POOLED, "padding": ((0, 1), (1, 0)), "to": WRITTEN}),
    "mean_of_axes": ((elements(2, 3, 6, 8),), {"axes": (1, 2), "of": BYTES, "to": WIDELY}),
    "softmax_of_table": ((elements(6, 5),), {"table": exponentials(0.05), "to": SHARES}),
    "join_elements": ((elements(6, 5), elements(6, 2)), {"axis": 1, "to": BYTE}),
    "pad_elements": ((elements(6, 5),), {"pads": ((0, 0), (2, 3)), "value": 7, "to": BYTE}),
    **{name: ((X,), {"alpha": 0.75}) for name in ("elu", "elu_slope")},
    "concatenate": ((X, values(6, 2), values(6, 3)), {"axis": 1}),
    "surround": ((X,), {"pads": ((1, 0), (2, 3)), "value": 0.5}),
    "cast": ((values(6, 64),), {"cast": Cast.of("mxfp8_e4m3"), "axis": -1}),
    "integer_surround": ((elements(2, 3),), {"pads": ((1, 0), (2, 1)), "value": -3}),
}  # fmt: skip
#: More of the operations whose passes depend on an option, or on how many operands there are.
MORE = {
    "softmax without a scale": ("softmax", (X,), {"scale": 1, "causal": True}),
    "softmax_gradient without a scale": ("softmax_gradient", (X, Y), {"scale": 1}),
    "normalise without running moments": ("normalise", (X, ROW, ROW), NORMAL),
    "squared_norm with a factor": ("squared_norm", (X, G), {}),
}


def computed(operation: Operation) -> Demand:
    profile = Profile()
    profile.demands = []
    DatapathRunner(POLICY, backend="reference", profile=profile).run(operation, "activation", "fc")
    return profile.demands[0]


def in_shapes(operation: Operation) -> Demand:
    runner = ShapeRunner(POLICY)
    shapes = [one.with_array(ShapeArray(one.array.shape, one.array.dtype)) for one in operation.operands]
    runner.run(Operation(operation.name, tuple(shapes), operation.options), "activation", "fc")
    return runner.demands[0]


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_an_operation_asks_in_shapes_what_it_asks_when_it_computes(name: str):
    operation = Operation(*MORE[name]) if name in MORE else Operation(name, *CASES[name])
    assert in_shapes(operation) == computed(operation)


def test_what_is_moved_back_keeps_the_format_of_the_gradient():
    gradient, x = values(2, 3, 3, 4, fmt=emu.parse("bf16")), values(2, 3, 6, 8)
    operation = Operation("unpool", (gradient, x), CASES["unpool"][1])
    assert in_shapes(operation) == computed(operation)
    assert in_shapes(operation).result_format == emu.parse("bf16")


def test_every_row_of_the_table_is_compared():
    assert set(OPERATIONS) == set(CASES)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_row_has_every_column(name: str):
    row = OPERATIONS[name]
    assert row.name == name
    assert all(callable(column) for column in (row.datapath, row.float64, row.asks, row.beside))
    assert isinstance(row.done_by, DoneBy)
    assert isinstance(row.energy, Energy)
    assert row.lane_instructions >= 1


def whole_of(value: Value) -> Any:
    """What an operation has written; of a matrix whose entries alone are stored, the matrix."""
    return value.structure.to_dense() if isinstance(value, SparseValue) else value.array


def shape_of(array: Any) -> Any:
    """The shape of an array; of a tuple, those of its members."""
    if isinstance(array, tuple):
        return tuple(shape_of(one) for one in array)  # pyright: ignore[reportUnknownVariableType]
    return np.shape(array.array if isinstance(array, Value) else array)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_the_shape_that_a_row_names_is_that_of_datapath_and_float64(name: str):
    operation = Operation(*MORE[name]) if name in MORE else Operation(name, *CASES[name])
    row = OPERATIONS[operation.name]
    asked = row.asks([one.shape for one in operation.operands], operation.options).shape
    for runner in (DatapathRunner(POLICY, backend="reference"), PlainRunner()):
        array = whole_of(runner.run(operation, "activation", "fc"))
        beside = row.beside(ShapeArray(asked, float), operation.operands)
        assert shape_of(array[0] if beside else array) == asked
        assert isinstance(array, tuple) == bool(beside)
        assert not beside or len(array) == 1 + len(beside)


#: Where numbers are drawn, or cut to a few bits: those of float64 are none of a run's.
DRAWN = {"dropout", "cast"}
#: What writes integers.
ROUNDED = {
    "quantize_linear", "dynamic_quantize", "integer_conv2d", "integer_add", "integer_multiply", "reference_quantize",
    "scale_sums", "add_shifted", "multiply_requantised", "average_windows", "mean_of_axes", "softmax_of_table",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name not in DRAWN])
def test_float64_of_a_row_is_what_its_datapath_rounds(name: str):
    operation = Operation(name, *CASES[name])
    policy = Policy(load_device("float32").precision)
    written = whole_of(DatapathRunner(policy, backend="reference").run(operation, "activation", "fc"))
    exact = PlainRunner().run(operation, "activation", "fc").array
    written, exact = (x[0] if isinstance(x, tuple) else x for x in (written, exact))
    atol = 0.501 if name in ROUNDED else 1e-4
    np.testing.assert_allclose(np.asarray(written, float), np.asarray(exact, float), rtol=1e-3, atol=atol)


def test_an_operation_without_a_row_is_refused_by_name():
    with pytest.raises(emu.EmuError, match=r"an operation must be a row .* got 'matmull'.*matmul"):
        OPERATIONS["matmull"]


@pytest.mark.parametrize(
    ("role", "kind", "during"),
    [
        ("activation", FORWARD, FORWARD), ("slope", FORWARD, FORWARD), ("loss", FORWARD, FORWARD),
        ("error", BACKWARD, BACKWARD), ("gradient", BACKWARD, BACKWARD), ("unscaled", UPDATE, BACKWARD),
        ("weight", UPDATE, FORWARD), ("norm", UPDATE, FORWARD),
    ],
)  # fmt: skip
def test_kind_and_pass_of_an_operation_follow_from_the_role(role: str, kind: str, during: str):
    assert (kind_of(role), pass_of(role)) == (kind, during)


@pytest.mark.parametrize(
    ("name", "results", "multiply_adds", "passes"),
    [
        ("add", 30, 0, 0), ("average", 4 * 3, 4 * 3 * 5, 0), ("sum", 3, 4 * 3 * 5, 0), ("matmul", 60, 60 * 3, 0),
        ("conv2d", 2 * 4 * 3 * 3, 2 * 4 * 3 * 3 * 18, 0), ("conv2d_weight_gradient", 4 * 18, 4 * 18 * 2 * 9, 0),
        ("conv2d_input_gradient", 2 * 3 * 7 * 6, 2 * 3 * 7 * 6 * 4 * 6, 0), ("dropout", 30, 0, 1),
        ("embedding_gradient", 9 * 4, 9 * 4 * 6, 0), ("softmax_cross_entropy", 1, 30 + 6, 7), ("mse", 1, 30, 3),
        ("softmax_gradient", 30, 30, 4), ("normalise", 30, 60, 13), ("squared_norm", 1, 30, 1), ("unpool", 288, 0, 0),
    ],
)  # fmt: skip
def test_results_multiply_adds_and_passes_are_those_of_the_formula(
    name: str, results: int, multiply_adds: int, passes: int
):
    found = in_shapes(Operation(name, *CASES[name]))
    assert (found.results, found.multiply_adds, found.passes) == (results, multiply_adds, passes)


def test_constant_moments_ask_for_no_means():
    """Centred, widened, inverse deviation, normalised; and, for the gradient, scaled."""
    later = in_shapes(Operation("normalise", CASES["normalise"][0], {**NORMAL, "training": False}))
    assert (later.results, later.multiply_adds, later.passes) == (30, 0, 4)
    operands, options = CASES["normalise_gradient"]
    back = in_shapes(Operation("normalise_gradient", operands, {**options, "axes": ()}))
    assert (back.results, back.multiply_adds, back.passes) == (30, 0, 1)
