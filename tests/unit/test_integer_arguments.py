"""Axes, strides, sizes, counts: integers of Python or NumPy, at every door; a float, a bool or a text is none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import emu
from emu import engine, nn, optim, sparse
from emu import testing as emu_testing
from emu.autodiff import Graph
from emu.autodiff.plain import PlainRunner
from emu.cluster import Layout, Simulated, stripes_of, trial_sizes
from emu.datapath import Blocks, Lanes, stream_of
from emu.engine.sliding import Sliding, windows_of
from emu.formats.integers import LARGEST, as_axes, as_integer, as_pair
from emu.hardware import Demand, Fabric, Machine, StatisticsUnit, VectorUnit, load_device
from emu.jobs import open_engine
from emu.optim.adaptive import power

#: What equals an integer, or reads like one, and is none; each is given in place of 2.
NO_INTEGERS = [2.0, 2.5, np.float64(2), Fraction(2), 2 + 0j, "2", b"2", None, [2], np.array([2]), np.array(2.0)]
#: 1 == True, so where 1 is asked for they must not pass either.
BOOLS = [True, False, np.True_, np.array(True)]
INTEGERS = [2, np.int8(2), np.uint64(2), np.array(2)]
FIX = {"x_format": "fix16f4", "out_format": "fix32f4"}
X = np.arange(24.0).reshape(2, 3, 4)
IMAGE = np.arange(72.0).reshape(1, 2, 6, 6)
KERNEL = np.ones((1, 2, 3, 3))


def apply(primitive: str, x: Any = IMAGE, **options: Any) -> Any:
    graph = Graph(PlainRunner())
    return graph.apply(primitive, graph.constant(emu.Value(np.array(x))), layer="one", **options).value.array


def convolved(**options: Any) -> Any:
    return emu.conv2d(IMAGE, KERNEL, w_format="fix8f4", **FIX, **options)


#: What takes an integer, 2 among its values, and whether it may be left out (None).
DOORS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "total, axis": (lambda n: engine.total(X, axis=n, **FIX), True),
    "total, axes": (lambda n: engine.total(X, axis=(0, n), **FIX), False),
    "average, axis": (lambda n: engine.average(X, axis=n, **FIX), True),
    "Unit.total, axis": (lambda n: emu.Unit("fix32f4", inputs="fix16f4").total(X, n), True),
    "Unit.average": (lambda n: emu.Unit("fix32f4", inputs="fix16f4").average(X, (n, 1)), False),
    "conv2d, stride down": (lambda n: convolved(stride=(n, 1)), False),
    "conv2d, stride right": (lambda n: convolved(stride=(1, n)), False),
    "conv2d, padding": (lambda n: convolved(padding=(n, 0)), False),
    "Unit.conv2d": (lambda n: emu.Unit("fp32", inputs="fp32").conv2d(IMAGE, KERNEL, stride=(n, n)), False),
    "explain conv2d": (
        lambda n: emu.explain(emu.conv2d, IMAGE, KERNEL, w_format="fix8f4", stride=(n, 1), **FIX).path,
        False,
    ),
    "windows_of, window": (lambda n: windows_of(IMAGE, n, 1).array(), False),
    "windows_of, stride": (lambda n: windows_of(IMAGE, 2, n).array(), False),
    "Sliding, stride": (lambda n: Sliding.of((1, n)).patches(IMAGE, (2, 2)).array(), False),
    "Sliding, padding": (lambda n: Sliding.of((1, 1), (0, n)).patches(IMAGE, (2, 2)).array(), False),
    "Sliding, padding of sides": (lambda n: Sliding.of((1, 1), ((0, 1), (n, 0))).patches(IMAGE, (2, 2)).array(), False),
    "Sliding, dilation": (lambda n: Sliding.of(dilation=(n, 1)).patches(IMAGE, (2, 2)).array(), False),
    "Sliding, groups": (lambda n: Sliding.of(groups=n).patches(IMAGE, (2, 2)).array(), False),
    "Graph, max_pool": (lambda n: apply("max_pool", window=n, stride=2), False),
    "Graph, avg_pool": (lambda n: apply("avg_pool", window=2, stride=n), False),
    "Graph, sum": (lambda n: apply("sum", axis=(n,)), False),
    "Graph, max_pool of two": (lambda n: apply("max_pool", window=(n, 2), stride=2), False),
    "Graph, transpose": (lambda n: apply("transpose", X, axes=(n, 0, 1)), False),
    "Graph, take, axis of": (lambda n: apply("take", X, axis=n, places=[0]), False),
    "Graph, take": (lambda n: apply("take", X, axis=1, places=[n, 0]), False),
    "Graph, take of two axes": (lambda n: apply("take", X, axis=1, places=[[n, 0], [1, -1]]), False),
    "Graph, reshape": (lambda n: apply("reshape", X, shape=(n, 12)), False),
    "Graph, expand": (lambda n: apply("expand", X, shape=(n, 2, 3, 4)), False),
    "Graph, surround": (lambda n: apply("surround", X, pads=((0, n), (0, 0), (0, 0)), value=0.0), False),
    "Graph, integer_surround": (lambda n: apply("integer_surround", X, pads=((n, 1),) * 3, value=0), False),
    "CSR, rows": (lambda n: sparse.CSR.of([], [], [0, 0, 0], (n, 3), "fp32").shape, False),
    "CSR, columns": (lambda n: sparse.CSR.of([], [], [0], (0, n), "fp32").shape, False),
    "Compact": (lambda n: sparse.Compact(np.int64([0]), np.ones((1, 1), np.float32), n, emu.parse("fp32")).rows, False),
    "Linear": (lambda n: nn.Linear("one", n, 3), False),
    "SparseLinear": (lambda n: nn.SparseLinear("one", 3, n), False),
    "Conv2d, kernel": (lambda n: nn.Conv2d("one", 1, 1, n), False),
    "Conv2d, padding": (lambda n: nn.Conv2d("one", 1, 1, 1, 1, n), False),
    "MaxPool": (lambda n: nn.MaxPool("one", n, 2), False),
    "AvgPool": (lambda n: nn.AvgPool("one", 2, n), False),
    "Embedding": (lambda n: nn.Embedding("one", n, 2), False),
    "Position": (lambda n: nn.Position("one", 2, n), False),
    "BatchNorm": (lambda n: nn.BatchNorm("one", n), False),
    "Attention": (lambda n: nn.Attention("one", 4, n), False),
    "initialise, shape": (lambda n: nn.initialise("w", "he", (n,), 1, 1, 0), False),
    "initialise, fan": (lambda n: nn.initialise("w", "he", (2,), n, 1, 0), False),
    "initialise, seed": (lambda n: nn.initialise("w", "he", (2,), 1, 1, n), False),
    "Adam's power": (lambda n: power(0.5, n), False),
    "Lanes": (Lanes, False),
    "Blocks": (lambda n: Blocks(n, 24), False),
    "Philox, seed": (emu.Philox, False),
    "Philox, stream": (lambda n: emu.Philox(0, n), False),
    "Philox, step": (lambda n: emu.Philox(0, 0, n), False),
    "Philox, draw": (lambda n: emu.Philox(0, 0, 0, n), False),
    "seed": (lambda n: emu.quantize([0.3], "fix8f0", rounding="stochastic", seed=n).tolist(), False),
    "step": (lambda n: emu.quantize([0.3], "fix8f0", rounding="stochastic", step=n).tolist(), False),
    "n_rbits": (lambda n: emu.quantize([0.3], "fix8f0", rounding="stochastic", n_rbits=n).tolist(), False),
    "stream_of": (lambda n: stream_of("layer", "role", n), False),
    "LFSR": (lambda n: emu.LFSR(0b11001, 4, n), False),
    "Fixed": (lambda n: emu.Fixed(8, n), False),
    "Float": (lambda n: emu.Float(n, 3), False),
    "Float, bias": (lambda n: emu.Float(4, 3, n), True),
    "register, lowest": (lambda n: emu.StatisticsRegister(n, 4).lowest, True),
    "register, bins": (lambda n: emu.StatisticsRegister(0, n).bins, True),
    "register, counters": (lambda n: emu.StatisticsRegister(0, 4).saturated(n).total, False),
    "register, exponent": (lambda n: emu.StatisticsRegister(0, 4).count_from(n), False),
    "formats": (lambda n: emu_testing.formats(min_width_bits=n) is None, False),
    "macs": (lambda n: emu_testing.formats(floats=False, max_width_bits=n) is None, False),
    "bulk_arrays": (lambda n: emu_testing.bulk_arrays("fp16", (n,)) is None, False),
    "order_tree": (lambda n: str(emu_testing.order_tree("pairwise", n)), False),
    "probe_order": (lambda n: str(emu_testing.probe_order(lambda a, b: float(a @ b), n)), False),
    "check_backend": (lambda n: emu_testing.check_backend(lambda x: x, operations=[], elements=n).failed, False),
    "StatisticsUnit": (lambda n: StatisticsUnit(lanes=n).lanes, False),
    "VectorUnit": (lambda n: VectorUnit(lanes=n), False),
    "VectorUnit.product": (lambda n: VectorUnit().cycles(VectorUnit().product(n, 2, 2, emu.Fixed(16, 8), 8)), False),
    "Fabric": (lambda n: Fabric.of(load_device("k20x-8x"), n).nodes, True),
    "Layout": (Layout, False),
    "Layout, owners": (lambda n: Layout(4, owners=(n,)), False),
    "Simulated": (lambda n: Simulated(n).nodes, False),
    "stripes_of": (lambda n: stripes_of(10, n), False),
    "trial_sizes": (lambda n: trial_sizes(256, multiple=n), False),
    "cost_of": (lambda n: emu.cost_of("mlp", "p100", batch=n).batch, True),
    "open_engine": (lambda n: open_engine("local", n).__class__, True),
}


def shown(found: Any) -> Any:
    return found.tolist() if isinstance(found, np.ndarray) else repr(found)


@pytest.mark.parametrize("door", sorted(DOORS))
def test_what_is_no_integer_is_refused_and_leaves_nothing_behind(door: str):
    call, optional = DOORS[door]
    for wrong in [*NO_INTEGERS, *BOOLS]:
        if (wrong is None and optional) or (door.endswith(", axis") and np.array_equal(wrong, [2])):
            continue  # an axis may be a list of axes
        with pytest.raises(emu.EmuError) as refused:
            call(wrong)
        assert isinstance(refused.value, ValueError)
        text = str(refused.value)
        assert " must " in text, text
        assert "got " in text, text
    expected = shown(call(2))
    for right in INTEGERS:
        assert shown(call(right)) == expected


@pytest.mark.parametrize("kind", [float, np.float64, Fraction])
def test_a_float_poisons_no_cache_of_a_shape_that_comes_for_the_first_time(kind: Callable[[int], Any], backend: str):
    """What equals an integer came first once, and every later call of these shapes failed."""
    size = {float: 11, np.float64: 12, Fraction: 13}[kind] + (backend == "numba") * 10
    x, w = np.arange(float(size * size)).reshape(1, 1, size, size) % 7, np.ones((1, 1, 2, 2))
    options = {"x_format": "fix8f0", "w_format": "fix8f0", "out_format": "fix16f0", "backend": backend}
    for wrong in ({"stride": (kind(1), kind(1))}, {"padding": (kind(0), kind(0))}):
        with pytest.raises(emu.ShapeError, match="must be two integers of at least"):
            emu.conv2d(x, w, **wrong, **options)
    image = x[0, 0]
    expected = image[:-1, :-1] + image[1:, :-1] + image[:-1, 1:] + image[1:, 1:]
    assert np.array_equal(emu.conv2d(x, w, **options)[0, 0], expected)
    for wrong in ((kind(2), 2), (2, kind(2))):
        with pytest.raises(emu.ShapeError, match="must be an integer"):
            windows_of(x, *wrong)
    best, _ = engine.max_pool(windows_of(x, 2, 2), backend=backend)
    halves = image[: size // 2 * 2, : size // 2 * 2].reshape(size // 2, 2, size // 2, 2)
    assert np.array_equal(best.reshape(size // 2, size // 2), halves.max(axis=(1, 3)))


def test_the_cost_of_a_demand_is_not_that_of_one_with_floats():
    fp32, machine = emu.parse("fp32"), Machine(load_device("p100"))
    with pytest.raises(emu.ConfigError, match=r"`results` must be an integer, got 8\.0; write a whole number"):
        machine.time_of(Demand("l", "gradient", "add", 8.0, 12, 0, ((fp32, 6),), fp32))  # type: ignore[arg-type]
    found = machine.time_of(Demand("l", "gradient", "add", 8, 12, 0, ((fp32, 6),), fp32))
    assert [type(n) for n in found[1:]] == [int] * (len(found) - 1)


def test_axes_are_those_of_numpy(backend: str):
    """Every choice of axes, from the front and from the end, against sums of Python's integers."""
    unit = emu.Unit("fix32f4", inputs="fix16f4", backend=backend)
    for count in range(4):
        for axes in itertools.permutations(range(3), count):
            for signs in itertools.product((0, -3), repeat=count):
                given = tuple(axis + sign for axis, sign in zip(axes, signs, strict=True))
                assert np.array_equal(unit.total(X, given), np.sum(X.astype(int), axis=axes))
                if count == 1:
                    assert np.array_equal(unit.total(X, given[0]), np.sum(X.astype(int), axis=axes))
    assert unit.average(X, (0, 2)).tolist() == [7.5, 11.5, 15.5]


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        (3, "`axis` must lie in -3..2 for an array of 3 axes, got 3; choose one that it has"),
        (-4, "`axis` must lie in -3..2 for an array of 3 axes, got -4; choose one that it has"),
        (2**70, f"`axis` must lie in -3..2 for an array of 3 axes, got {2**70}; choose one that it has"),
        ((0, 0), "`axis` must name each axis once, got (0, 0) for an array of 3 axes; leave out the second 0"),
        ((1, -2), "`axis` must name each axis once, got (1, -2) for an array of 3 axes; leave out the second 1"),
        (0.7, "`axis` must be an integer or several, got 0.7; write whole numbers, as (0, 1)"),
        ("0", "`axis` must be an integer or several, got '0'; write whole numbers, as (0, 1)"),
        ("01", "`axis` must be an integer or several, got '01'; write whole numbers, as (0, 1)"),
        ((0, True), "`axis` must be an integer or several, got (0, True); write whole numbers, as (0, 1)"),
    ],
)
def test_other_axes_are_refused(axis: Any, text: str, backend: str):
    unit = emu.Unit("fix32f4", inputs="fix16f4", backend=backend)
    for call in (
        lambda: unit.total(X, axis),
        lambda: unit.average(X, axis),
        lambda: engine.total(X, axis=axis, backend=backend, **FIX),
        lambda: engine.average(X, axis=axis, backend=backend, **FIX),
        lambda: apply("sum", X, axis=axis),
    ):
        with pytest.raises(emu.ShapeError) as refused:
            call()
        assert str(refused.value) == text


def test_an_array_without_axes_has_none_to_sum(backend: str):
    assert engine.total(np.array(3.0), backend=backend, **FIX).item() == 3
    assert engine.total(np.array(3.0), axis=(), backend=backend, **FIX).item() == 3
    with pytest.raises(emu.ShapeError, match="`axis` must name no axis of an array of 0 axes, got 0"):
        engine.total(np.array(3.0), axis=0, backend=backend, **FIX)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"axes": (0, 1)}, "`axes` must name each axis of the array once, got (0, 1) for 3; add the others"),
        (
            {"axes": (0, 1, 1)},
            "`axes` must name each axis once, got (0, 1, 1) for an array of 3 axes; leave out the se",
        ),
        ({"axes": (0, 1, 3)}, "`axes` must lie in -3..2 for an array of 3 axes, got 3"),
    ],
)
def test_a_transpose_has_every_axis_once(options: Any, text: str):
    with pytest.raises(emu.ShapeError) as refused:
        apply("transpose", X, **options)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: windows_of(IMAGE, 7, 1), "`window` must fit the padded image, got 7 x 7 for x (1, 2, 6, 6), padding"),
        (lambda: windows_of(IMAGE[:, :, :3], 4, 1), "`window` must fit the padded image, got 4 x 4 for x (1, 2, 3, 6)"),
        (
            lambda: windows_of(IMAGE[:, :, :, :3], 4, 1),
            "`window` must fit the padded image, got 4 x 4 for x (1, 2, 6, 3)",
        ),
        (lambda: windows_of(IMAGE, 0, 1), "`window` must be in 1..2147483647, got 0; choose a larger one"),
        (lambda: windows_of(IMAGE, 2, -1), "`stride` must be in 1..2147483647, got -1; choose a larger one"),
        (lambda: windows_of(IMAGE[0], 2, 1), "`x` must be images (N, C, H, W), got shape (2, 6, 6)"),
        (
            lambda: convolved(stride=(1, 2**40)),
            "`stride` must be two integers of at least 1 (below 2**31), got (1, 1099",
        ),
        (lambda: nn.Linear("one", 0, 3), "`in_features` must be in 1..2147483647, got 0; choose a larger one"),
        (lambda: nn.Conv2d("one", 1, 1, 1, 1, -1), "`padding` must be in 0..2147483647, got -1; choose a larger one"),
        (lambda: power(0.5, -2), "`exponent` must be at least 0, got -2; choose a larger one"),
        (lambda: Simulated(0), "`nodes` must be at least 1, got 0; choose a larger one"),
        (lambda: emu.cost_of("mlp", "p100", batch=0), "`batch` must be at least 1, got 0; choose a larger one"),
        (
            lambda: emu.StatisticsRegister(0, 4).saturated(0),
            "`counter_bits` must be at least 1, got 0; choose a larger",
        ),
        (lambda: as_integer("n", 9, None, 8), "`n` must be at most 8, got 9; choose a smaller one"),
        (lambda: as_pair("n", (1, 2, 3), 0), "`n` must be two integers of at least 0 (below 2**31), got (1, 2, 3); wr"),
    ],
)
def test_what_lies_outside_its_range_is_named(call: Callable[[], Any], text: str):
    with pytest.raises(emu.EmuError) as refused:
        call()
    assert str(refused.value).startswith(text)


def test_checked_integers_are_pythons():
    assert [type(n) for n in as_axes("axis", (np.int64(0), np.array(1)), 2)] == [int, int]
    assert [type(n) for n in as_pair("stride", np.int32([LARGEST, 1]), 1)] == [int, int]
    assert type(nn.Linear("one", np.int64(2), 3).in_features) is int
    assert type(emu.Philox(np.uint64(2**64 - 1)).seed) is int
    assert type(emu.Float(np.int8(4), np.int8(3)).exponent_bits) is int


def test_an_adam_step_is_counted_in_integers():
    """A step of -2 once asked for the power of a negative number, which never ended."""
    state = SimpleNamespace(slots={}, part="weight", layer="one", master=emu.Value(np.float32(1), emu.parse("fp32")))
    adam: Any = optim.Adam()
    for wrong in (-2, -1, 1.0, True):
        with pytest.raises(emu.FormatError, match="`step` must be"):
            adam.apply(state, state.master, 0.1, wrong, None)


@pytest.mark.parametrize(
    ("primitive", "options", "message"),
    [
        ("take", {"axis": 1, "places": [3]},
         "`places` must lie in -3..2 for axis 1 of shape (2, 3, 4), got 3; choose some that it has"),
        ("take", {"axis": 1, "places": [0, -4]},
         "`places` must lie in -3..2 for axis 1 of shape (2, 3, 4), got -4; choose some that it has"),
        ("take", {"axis": 1, "places": np.array([2**64 - 1], np.uint64)},
         f"`places` must be in -2147483647..2147483647, got {2**64 - 1}; choose a smaller one"),
        ("take", {"axis": 1, "places": np.array([0.9])},
         "`places` must be an integer, got np.float64(0.9); write a whole number"),
        ("take", {"axis": 1, "places": np.array([True, False])},
         "`places` must be an integer, got np.True_; write a whole number"),
        ("surround", {"pads": ((1, 1),), "value": 0.0},
         "`pads` must be two integers, before and after, for each of 3 axes, got ((1, 1),); write (0, 0) for an axis "
         "that stays"),
        ("surround", {"pads": 1, "value": 0.0},
         "`pads` must be two integers, before and after, for each of 3 axes, got 1; write (0, 0) for an axis "
         "that stays"),
        ("reshape", {"shape": b"2"}, "`shape` must be an integer, got b'2'; write a whole number"),
        ("expand", {"shape": (-1, 3, 4)}, "`shape` must be at least 0, got -1; choose a larger one"),
        ("max_pool", {"window": 0, "stride": 1},
         "`window` must be an integer of at least 1 (below 2**31), or two, got 0; write one for both rows and columns, "
         "as 2, or one for each, as (2, 3)"),
    ],
)  # fmt: skip
def test_options_of_primitives_that_move_numbers_are_refused_in_words(
    primitive: str, options: dict[str, Any], message: str
):
    with pytest.raises(emu.ShapeError) as refused:
        apply(primitive, X if primitive != "max_pool" else IMAGE, **options)
    assert str(refused.value) == message


def test_a_shape_may_be_one_size_and_leave_one_open():
    for size in (24, np.array(24), -1):
        assert apply("reshape", X, shape=size).shape == (24,)
    assert apply("reshape", X, shape=[4, -1]).shape == (4, 6)


def test_a_window_may_be_an_array_of_two():
    expected = apply("max_pool", window=(2, 3), stride=(1, 2))
    assert np.array_equal(apply("max_pool", window=np.array([2, 3]), stride=np.array([1, 2])), expected)


def test_places_of_no_elements_are_none():
    assert apply("take", X, axis=1, places=[]).shape == (2, 0, 4)
    assert apply("take", np.ones((2, 0)), axis=1, places=np.array([], np.int64)).shape == (2, 0)


def test_seeds_of_first_values_are_taken_modulo_two_to_the_64():
    def drawn(seed: int) -> list[float]:
        return nn.initialise("w", "he", (5,), 1, 1, seed).tolist()

    assert drawn(-1) == drawn(2**64 - 1)
    assert drawn(2**64) == drawn(0)
    assert drawn(1) != drawn(0)
