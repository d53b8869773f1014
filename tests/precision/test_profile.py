"""Where the time of a run goes: every call lands at its place, sums add up, a product names its plan."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac, engine
from emu.autodiff import Operation, Value
from emu.engine import Plan, ProductRecord
from emu.hardware import Device
from emu.precision import DatapathRunner, Policy, Profile
from emu.precision.profile import HOST, Category
from tests.products import product

ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master")


class Clock:
    """Every look at it takes a second; `wait` lets more pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def runner_of(profile: Profile | None, backend: str = "reference", **precision: Any) -> DatapathRunner:
    roles = {role: {"format": "fix16f8"} for role in ROLES}
    device = Device.model_validate({"name": "t", "description": "d", "source": "s", "precision": roles | precision})
    return DatapathRunner(Policy(device.precision), backend=backend, profile=profile)


def zeros(*shape: int, fmt: str = "fix16f8") -> Value:
    parsed = emu.parse(fmt)
    return Value(np.zeros(shape, parsed.carrier), parsed)


def test_operations_and_host_add_up_to_the_steps():
    clock = Clock()
    profile = Profile(clock)
    runner = runner_of(profile)
    begun = []
    for step in range(3):
        begun.append(clock.now + 1)  # what `begin_step` will read
        profile.begin_step()
        clock.wait(5.0 + step)
        runner.run(Operation("add", (zeros(4), zeros(4))), "activation", "a")
        runner.run(Operation("quantize", (zeros(2, 3),)), "weight", "a")
        profile.end_step()
        begun[-1] = clock.now - begun[-1]
    work = dict(profile.items())
    assert sum(one.seconds for one in work.values()) == sum(begun)
    assert work[Category("", "", HOST)].calls == 3
    assert work[Category("", "", HOST)].seconds == sum(begun) - 6.0  # each operation lasted one look at the clock
    added, written = work[Category("a", "activation", "add")], work[Category("a", "weight", "quantize")]
    assert (added.calls, added.seconds, added.elements, added.multiply_adds) == (3, 3.0, 12, 0)
    assert (written.calls, written.seconds, written.elements, written.multiply_adds) == (3, 3.0, 18, 0)


def test_only_the_first_call_of_a_process_is_a_first_call():
    profile = Profile(Clock())
    runner = runner_of(profile)
    for _ in range(3):
        runner.run(Operation("add", (zeros(4), zeros(4))), "activation", "a")
    (work,) = (work for _, work in profile.items())
    assert (work.calls, work.first_calls, work.seconds, work.first_seconds) == (3, 1, 3.0, 1.0)
    profile.reset()
    runner.run(Operation("add", (zeros(4), zeros(4))), "activation", "a")
    assert (work.calls, work.first_calls, work.first_seconds) == (1, 0, 0.0)


def test_rows_are_json_and_go_on_in_another_process():
    one, other = Profile(Clock()), Profile(Clock())
    runner_of(one).run(Operation("matmul", (zeros(2, 3), zeros(3, 4))), "activation", "a")
    other.load(json.loads(json.dumps(one.rows())))
    assert other.rows() == one.rows()
    runner_of(other).run(Operation("matmul", (zeros(2, 3), zeros(3, 4))), "activation", "a")
    ((place, work),) = other.items()
    assert place == Category("a", "activation", "matmul", "definition")
    assert (work.calls, work.elements, work.multiply_adds, work.first_calls) == (2, 16, 48, 2)


def test_a_place_where_nothing_was_done_has_no_row():
    profile = Profile(Clock())
    runner_of(profile).run(Operation("add", (zeros(4), zeros(4))), "activation", "a")
    profile.reset()
    assert profile.rows() == []


PRODUCTS = {
    "matmul": (Operation("matmul", (zeros(2, 3), zeros(3, 4))), 24, 8),
    "conv2d": (
        Operation("conv2d", (zeros(2, 3, 6, 5), zeros(4, 3, 3, 3)), {"stride": (1, 1), "padding": (0, 0)}),
        2 * 4 * (4 * 3) * 27,
        2 * 4 * 4 * 3,
    ),
    "conv2d_weight_gradient": (
        Operation(
            "conv2d_weight_gradient",
            (zeros(2, 3, 6, 5), zeros(2, 4, 4, 3)),
            {"kernel": (3, 3), "stride": (1, 1), "padding": (0, 0)},
        ),
        4 * 27 * (2 * 4 * 3),
        4 * 27,
    ),
    "conv2d_input_gradient": (
        Operation(
            "conv2d_input_gradient",
            (zeros(2, 4, 4, 3), zeros(4, 3, 3, 3)),
            {"shape": (2, 3, 6, 5), "stride": (1, 1), "padding": (0, 0)},
        ),
        2 * 3 * (6 * 5) * 36,
        2 * 3 * 6 * 5,
    ),
    "sum": (Operation("sum", (zeros(5, 7),), {"axis": (0,)}), 35, 7),
    "average": (Operation("average", (zeros(5, 4),)), 20, 5),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_is_counted_with_its_path_and_proof(name: str):
    operation, multiply_adds, elements = PRODUCTS[name]
    profile = Profile(Clock())
    runner_of(profile).run(operation, "activation", "a")
    ((place, work),) = profile.items()
    assert place == Category("a", "activation", name, "definition")
    assert (work.multiply_adds, work.elements, work.proof) == (
        multiply_adds,
        elements,
        "the reference runs the definition",
    )


@pytest.mark.parametrize(
    ("mac", "formats"),
    [
        ({}, "fix8f4"),
        ({}, "fp16"),
        ({"accumulator": "fix16f8", "overflow": "saturate"}, "fix8f4"),
    ],
)
def test_the_plan_of_a_product_is_the_one_that_explain_gives(mac: dict[str, str], formats: str):
    roles = {role: {"format": formats} for role in ROLES}
    profile, unit = Profile(Clock()), Mac(**mac)
    a, b = zeros(2, 30, fmt=formats), zeros(30, 4, fmt=formats)
    runner_of(profile, "numba", **roles, mac=mac).run(Operation("matmul", (a, b)), "activation", "a")
    named = {"a_format": formats, "b_format": formats, "out_format": formats}
    plan = engine.explain(engine.matmul, a.array, b.array, **named, mac=unit, backend="numba")
    ((place, work),) = profile.items()
    assert place == Category("a", "activation", "matmul", plan.path, plan.fallback)
    assert work.proof == plan.proof


def test_a_product_left_to_the_reference_stands_for_its_operation_however_small():
    profile = Profile(Clock())
    formats = (emu.parse("fp16"), emu.parse("fp16"), None)
    loss = Operation("mse", (zeros(7), zeros(7)))
    large = ProductRecord((1, 9, 9, 9), formats, Plan("wide", "large", Mac()))
    small = ProductRecord((1, 1, 2, 1), formats, Plan("in_order", "small", Mac(), "too odd"))
    for records in ([large, small], [small, large]):
        profile.log.extend(records)
        profile.add("loss", "loss", loss, 1.0, Value((np.zeros(()), np.zeros(7)), None))
    ((place, work),) = profile.items()
    assert place == Category("loss", "loss", "mse", "in_order", "too odd")
    assert (work.calls, work.elements, work.multiply_adds, work.proof) == (2, 2, 2 * (729 + 2), "small")
    assert profile.log == []


def test_the_largest_product_names_the_path_of_its_operation():
    profile, formats = Profile(Clock()), (emu.parse("fp16"), emu.parse("fp16"), None)
    for size, path in ((3, "wide"), (1, "in_order")):
        profile.log.append(ProductRecord((1, size, 1, 1), formats, Plan(path, "", Mac())))
    profile.add("loss", "loss", Operation("mse", (zeros(7), zeros(7))), 1.0, Value(np.zeros(()), None))
    assert [place.path for place, _ in profile.items()] == ["wide"]


def test_a_log_gets_one_record_for_each_product():
    log: list[ProductRecord] = []
    formats = {"a_format": "fix8f4", "b_format": "fix9f2", "out_format": "fix8f4"}
    addend = {"addend": np.zeros(6), "addend_format": "fp16"}
    product(np.zeros((7, 5, 3)), np.zeros((3, 6)), **formats, **addend, backend="reference", log=log)
    product(np.zeros(3), np.zeros(3), **formats, backend="reference", log=log)
    assert [record.sizes for record in log] == [(7, 5, 3, 6), (1, 1, 3, 1)]
    assert [record.multiply_adds for record in log] == [630, 3]
    assert [[str(f) for f in record.formats] for record in log] == [
        ["fix8f4", "fix9f2", "fp16"],
        ["fix8f4", "fix9f2", "None"],
    ]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_profile_changes_no_bit(name: str):
    operation, _, _ = PRODUCTS[name]
    rng = np.random.default_rng(3)
    operands = tuple(
        x.with_array(rng.integers(-99, 99, x.shape).astype(x.array.dtype) / 256) for x in operation.operands
    )
    operation = Operation(name, operands, operation.options)
    with_one, without = (runner_of(p).run(operation, "activation", "a").array for p in (Profile(), None))
    assert with_one.tobytes() == without.tobytes()
    assert with_one.any()
