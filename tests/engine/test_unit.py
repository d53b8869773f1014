"""A unit described once does what the functions do with the same words at every call."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import emu
from emu import engine
from emu.engine.description import OPTIONS, PRODUCT_OPTIONS
from emu.testing import assert_bits_equal

RNG = np.random.default_rng(25)
A = emu.quantize(RNG.normal(size=(3, 4)) * 4, "fp16", backend="reference")
B = emu.quantize(RNG.normal(size=(4, 2)) * 4, "fp16", backend="reference")
X = emu.quantize(RNG.normal(size=(2, 3, 5, 5)), "fp16", backend="reference")
W = emu.quantize(RNG.normal(size=(4, 3, 2, 2)), "fp16", backend="reference")
MAC = emu.Mac(accumulator="fp16")
FACTORS = {"a_format": "fp16", "b_format": "fp16"}
STEPS = {"stride": (2, 1), "padding": (1, 0)}
#: Each operation as a method of a unit, and as a function given the same words.
OPERATIONS: dict[str, tuple[Any, Any]] = {
    "quantize": (lambda u: u.quantize(A), lambda o: emu.quantize(A, o.pop("out_format"), **o)),
    "add": (lambda u: u.add(A, A[0]), lambda o: emu.add(A, A[0], **FACTORS, **o)),
    "subtract": (lambda u: u.subtract(A, 0.5), lambda o: emu.subtract(A, 0.5, **FACTORS, **o)),
    "multiply": (lambda u: u.multiply(A, A), lambda o: emu.multiply(A, A, **FACTORS, **o)),
    "divide": (lambda u: u.divide(A, A[::-1]), lambda o: emu.divide(A, A[::-1], **FACTORS, **o)),
    "fma": (lambda u: u.fma(A, A, 1.0), lambda o: emu.fma(A, A, 1.0, c_format="fp16", **FACTORS, **o)),
    "remainder": (lambda u: u.remainder(A, A[::-1]), lambda o: emu.remainder(A, A[::-1], **FACTORS, **o)),
    "round_to_integral": (
        lambda u: u.round_to_integral(A),
        lambda o: emu.round_to_integral(A, a_format="fp16", **o),
    ),
    "sqrt": (lambda u: u.sqrt(A), lambda o: emu.sqrt(A, a_format="fp16", **o)),
    **{
        name: (
            lambda u, name=name: getattr(u, name)(A),
            lambda o, name=name: getattr(emu, name)(A, x_format="fp16", **o),
        )
        for name in ("exp", "log", "tanh", "sigmoid", "erf", "gelu", "rsqrt")
    },
    "matmul": (lambda u: u.matmul(A, B), lambda o: emu.matmul(A, B, mac=MAC, **FACTORS, **o)),
    "matmul with an addend": (
        lambda u: u.matmul(A, B, B[0]),
        lambda o: emu.matmul(A, B, addend=B[0], addend_format="fp16", mac=MAC, **FACTORS, **o),
    ),
    "conv2d": (
        lambda u: u.conv2d(X, W, W[:, 0, 0, 0], **STEPS),
        lambda o: emu.conv2d(
            X, W, bias=W[:, 0, 0, 0], x_format="fp16", w_format="fp16", bias_format="fp16", mac=MAC, **STEPS, **o
        ),
    ),
    "total": (lambda u: u.total(A, 1), lambda o: engine.total(A, axis=1, x_format="fp16", mac=MAC, **o)),
    "average": (lambda u: u.average(A, 1), lambda o: engine.average(A, axis=1, x_format="fp16", mac=MAC, **o)),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_of_a_unit_equals_its_function_in_bits_flags_and_register(operation: str):
    method, function = OPERATIONS[operation]
    words: dict[str, Any] = {"rounding": "stochastic", "n_rbits": 5, "backend": "reference"}
    kept = [(emu.Flags(), emu.StatisticsRegister()) for _ in range(2)]
    source = emu.Philox(seed=3, stream=4, step=5)
    flags, register = kept[0]
    unit = emu.Unit("fix8f4", inputs="fp16", mac=MAC, random=source, flags=flags, register=register, **words)
    found = method(unit)
    flags, register = kept[1]
    words |= {"seed": 3, "stream": 4, "step": 5, "flags": flags, "register": register, "out_format": "fix8f4"}
    assert_bits_equal(found.array, function(words), "fix8f4")
    assert found.format == emu.parse("fix8f4")
    assert kept[0] == kept[1]


def test_every_operation_of_a_unit_is_compared_with_its_function():
    others = {"of", "replace", "of_host", "elementwise", "function"}
    methods = {name for name, found in vars(emu.Unit).items() if inspect.isfunction(found) and not name.startswith("_")}
    assert methods - others == set(OPERATIONS) - {"matmul with an addend"}


def test_a_value_keeps_what_was_checked_whatever_becomes_of_the_array():
    array = np.float32([1.0, 2.0])
    value, whole = emu.value(array, "fp16"), emu.value(array[:1], "fp16")
    array[0] = 0.1
    assert (value.tolist(), whole.tolist()) == ([1.0, 2.0], [1.0])
    for number in (value, emu.Unit("fp16").add(value, value)):
        with pytest.raises(ValueError, match="read-only"):
            number.array[0] = 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mac": "fp16"}, "`mac` must be an emu.Mac, got 'fp16'"),
        ({"mac": None}, "`mac` must be an emu.Mac, got None"),
        ({"flags": 3}, "`flags` must be an emu.Flags, got 3"),
        ({"register": "fix8f4"}, "`register` must be an emu.StatisticsRegister, got 'fix8f4'"),
    ],
)
def test_a_part_of_a_unit_of_another_kind_is_refused_with_the_class_to_write(options: dict[str, Any], said: str):
    with pytest.raises(emu.FormatError, match=said):
        emu.Unit("fp16", **options)
    with pytest.raises(emu.FormatError, match=said):
        emu.matmul(A, B, **FACTORS, out_format="fp16", **options)


def test_a_misspelt_part_of_a_unit_or_operation_is_answered_with_the_nearest_name():
    with pytest.raises(TypeError, match="no option 'roundng'; did you mean 'rounding'"):
        emu.Unit("fp16", roundng="ceil")
    with pytest.raises(emu.FormatError, match="got 'ad'; did you mean 'add'"):
        emu.Unit("fp16").elementwise("ad", 1.0, 2.0)
    with pytest.raises(emu.FormatError, match="`add` must be given 2 operands, got 1"):
        emu.Unit("fp16").elementwise("add", 1.0)
    with pytest.raises(emu.FormatError, match="got 'ad'; did you mean 'add'"):
        engine.elementwise("ad", (1.0, 2.0), (None, None), out_format="fp16")
    with pytest.raises(emu.FormatError, match="`add` must be given 2 operands, got 1"):
        engine.elementwise("add", (1.0,), (None, None), out_format="fp16")
    with pytest.raises(emu.FormatError, match="`sqrt` must be given 1 format, got 2"):
        engine.elementwise("sqrt", (1.0,), (None, None), out_format="fp16")
    with pytest.raises(emu.FormatError, match=r"got a value of fp16; convert it with emu\.quantize"):
        emu.value(emu.value(1.0, "fp16"), "bf16")


def test_a_unit_is_copied_and_sent_as_its_description():
    unit = emu.Unit("fix8f4", inputs="fp16", mac=MAC, rounding="stochastic", random=emu.Philox(seed=3))
    there = pickle.loads(pickle.dumps(unit))
    assert (there, hash(there)) == (unit, hash(unit))
    assert there.matmul(A, B).tolist() == unit.matmul(A, B).tolist()
    counting = unit.replace(flags=emu.Flags())
    assert counting != copy.deepcopy(counting)
    assert counting != unit
    assert unit.replace(rounding="ceil") != unit


def test_a_value_brings_its_format_into_every_operation_of_units_and_functions():
    a, b = emu.value(A, "fp16"), emu.value(B, "fp16")
    expected = emu.matmul(A, B, **FACTORS, out_format="fix8f4", backend="reference")
    unit = emu.Unit("fix8f4", backend="reference")
    assert_bits_equal(unit.matmul(a, b).array, expected)
    assert_bits_equal(emu.matmul(a, b, out_format="fix8f4", backend="reference"), expected)
    tall = emu.conv2d(emu.value(X, "fp16"), emu.value(W, "fp16"), out_format="fp32", backend="reference")
    assert_bits_equal(emu.Unit("fp32", inputs="fp16", backend="reference").conv2d(X, W).array, tall)


def test_what_a_unit_returns_goes_into_the_next_one_without_a_word_about_formats():
    layer = emu.Unit("fix8f4", backend="reference")
    hidden = layer.matmul(emu.value([[1.0, 2.0]], "fix8f4"), emu.value([[0.5], [0.25]], "fix8f4"))
    assert (hidden.tolist(), str(hidden.format)) == ([[1.0]], "fix8f4")
    assert layer.add(hidden, hidden).codes.tolist() == [[0x20]]


def test_a_plain_array_without_inputs_counts_at_its_exact_values_or_is_refused_where_a_format_is_needed():
    unit = emu.Unit("fp16", backend="reference")
    assert unit.add(1.0, 2.0**-30).item() == 1.0
    with pytest.raises(
        emu.FormatError,
        match=r"`a` must have a format.*give emu\.value.*`a_format` of a function, or `inputs` of a unit",
    ):
        unit.matmul(A, B)


def test_a_value_checks_its_numbers_once_and_says_which_one_is_wrong():
    with pytest.raises(emu.FormatError, match=r"`array`: .*0\.3"):
        emu.value([0.5, 0.3], "fix8f4")
    with pytest.raises(emu.FormatError, match=r"`a` is a value of fix8f4, and `a_format` says fp16; leave"):
        emu.add(emu.value([0.5], "fix8f4"), 1.0, a_format="fp16", out_format="fp16")
    assert emu.value([-0.0], "fix8f4").codes.tolist() == [0]


def test_numpy_reads_the_array_of_a_value():
    v = emu.value([[0.5, -1.0]], "fix8f4")
    assert np.asarray(v).tolist() == v.tolist() == [[0.5, -1.0]]
    assert (v.shape, repr(v)) == ((1, 2), "Value([[ 0.5, -1. ]], 'fix8f4')")


@pytest.mark.parametrize("source", [emu.RecordedBits(np.arange(6).reshape(3, 2)), emu.LFSR(0x1D009, 16, 1)])
def test_recorded_bits_and_a_shift_register_have_the_shape_of_the_result(source: Any):
    unit = emu.Unit("fix8f4", inputs="fp16", rounding="stochastic", n_rbits=3, random=source, backend="reference")
    expected = emu.matmul(
        A, B, **FACTORS, out_format="fix8f4", rounding="stochastic", n_rbits=3, random=source, backend="reference"
    )
    assert_bits_equal(unit.matmul(A, B).array, expected)


def test_a_plan_of_a_unit_is_that_of_the_function():
    unit = emu.Unit("fix8f4", inputs="fix8f4")
    a, b = np.zeros((2, 100)), np.zeros((100, 2))
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
    assert emu.explain(unit.matmul, a, b) == emu.explain(emu.matmul, a, b, **formats)
    x, w = emu.value(np.zeros((1, 1, 4, 4)), "fp16"), emu.value(np.zeros((1, 1, 2, 2)), "fp16")
    given = {"x_format": "fp16", "w_format": "fp16", "out_format": "fix8f4"}
    assert emu.explain(unit.conv2d, x, w) == emu.explain(emu.conv2d, x.array, w.array, **given)


def test_a_unit_is_frozen_and_another_one_is_made_by_replace():
    unit = emu.Unit("fix8f4", inputs="fp16", rounding="floor", overflow="wrap", backend="reference")
    with pytest.raises(AttributeError, match=r"a unit is frozen, so `rounding` stays.*unit.replace"):
        unit.rounding = "ceil"
    other = unit.replace(rounding="ceil")
    assert (other.stage.rounding, other.stage.overflow, other.inputs) == ("ceil", "wrap", emu.parse("fp16"))
    assert unit.stage.rounding == "floor"
    assert unit.replace(out="fp16").stage.overflow == "ieee"  # the rule of fixed point is none of floats
    assert unit.replace(out="ufix6f2").stage.overflow == "wrap"
    assert emu.Unit("fp16", overflow="satfinite").replace(out="bf16").stage.overflow == "satfinite"
    with pytest.raises(TypeError, match=r"a unit has no 'roundin'.*rounding"):
        unit.replace(roundin="ceil")


def test_units_of_scaled_formats_equal_none_of_other_formats():
    blocks, plain = emu.Unit("mxfp8_e4m3"), emu.Unit("fix8f4")
    assert blocks != plain
    assert plain != blocks
    assert blocks == emu.Unit("mxfp8_e4m3")
    assert blocks != emu.Unit("mxfp8_e5m2")


def test_a_unit_says_what_differs_from_the_plain_one():
    assert repr(emu.Unit("fp16")) == "Unit('fp16')"
    unit = emu.Unit("fix8f4", inputs="fp16", mac=MAC, rounding="floor", overflow="wrap", flags=emu.Flags())
    assert repr(unit) == (
        "Unit('fix8f4', inputs='fp16', mac=Mac(product='exact', accumulator='fp16', order='sequential', "
        "rounding='nearest_even'), rounding='floor', overflow='wrap', flags=...)"
    )


def test_a_unit_refuses_what_no_unit_can_be():
    with pytest.raises(emu.FormatError, match=r"so its source must be an emu.Philox, got LFSR"):
        emu.Unit("fp16", mac=emu.Mac(accumulator="fp16", rounding="stochastic"), random=emu.LFSR(0x1D009, 16, 1))
    with pytest.raises(emu.FormatError, match=r"`random` must be an emu.Philox"):
        emu.Unit("fp16", random=7)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "fma", "sqrt", "quantize", "exp", "matmul"])
def test_the_options_of_a_function_are_those_of_the_typed_dict_by_name_and_by_type(name: str):
    function = getattr(emu, name)
    options = function.__annotations__["options"]
    assert options == ("Unpack[ProductOptions]" if name == "matmul" else "Unpack[Options]")
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option 'roundin'.*rounding"):
        function(*[1.0] * (len(inspect.signature(function).parameters) > 1), **_needed(function), roundin="floor")
    assert OPTIONS | {"mac"} == PRODUCT_OPTIONS


def _needed(function: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    needed = {p.name: 1.0 for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    return {name: "fp16" if name in ("out_format", "fmt") else x for name, x in needed.items()}


MODULES = [
    "emu",
    *("emu." + name for name in ("autodiff", "backends", "cluster", "datapath", "engine", "formats", "hardware", "nn")),
    *("emu." + name for name in ("optim", "precision", "report", "sparse", "testing", "training")),
    *("emu." + name for name in ("cluster.codecs", "cluster.clipping", "testing.vectors")),
]


@pytest.mark.parametrize("module", MODULES)
def test_no_public_function_or_method_has_more_than_ten_parameters(module: str):
    package = importlib.import_module(module)
    found = {name: getattr(package, name) for name in getattr(package, "__all__", ())}
    methods = {
        f"{name}.{method}": member
        for name, cls in found.items()
        if inspect.isclass(cls) and cls.__module__.startswith("emu")
        for method, member in vars(cls).items()
        if inspect.isfunction(member) and (not method.startswith("_") or method == "__init__")
    }
    functions = {name: f for name, f in found.items() if inspect.isfunction(f)}
    counts = {name: _parameters(f) for name, f in {**functions, **methods}.items() if not _is_generated(f)}
    assert {name: count for name, count in counts.items() if count > 10} == {}


def _parameters(function: Any) -> int:
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return len(names)


def _is_generated(function: Any) -> bool:
    """Whether a dataclass made it of its fields."""
    return function.__code__.co_filename == "<string>"


def test_a_selection_or_another_shape_of_a_value_has_its_format():
    value = emu.value([[0.5, -1.0], [2.0, 0.25]], "fix8f4")
    assert repr(value[0]) == "Value([ 0.5, -1. ], 'fix8f4')"
    assert emu.Unit("fix8f4").add(value[:, 1], value[1]).tolist() == [1.0, 0.5]
    assert (value.reshape(4).shape, value.reshape((1, 4)).shape) == ((4,), (1, 4))
