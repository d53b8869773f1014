"""Several processing units on a node (C1), and layers whose units lie on several devices (C9)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from test_cluster_training import trained, weights

import emu
from emu.autodiff import Graph, Operation, Value
from emu.cluster.striped import StripedRunner, striped_layers
from emu.precision import CounterTable, DatapathRunner, Policy

EQUAL: dict[str, dict[str, Any]] = {
    "float32": {},
    "fixed16": {"device": "fixed16"},
    "dlu16": {"device": "dlu16"},
    "lenet-fp16-mixed": {"model": "lenet", "device": "fp16-mixed", "loss_scaling__policy": "backoff"},
}


@most_are_slow(
    ("case", "nodes"),
    product(EQUAL, [2, 4, 8]),
    keep=[("float32", 8), ("fixed16", 2), ("dlu16", 4), ("lenet-fp16-mixed", 2)],
)
def test_nodes_at_32_bits_equal_one_node_whose_units_add_up_the_same_batch_in_their_order_c1(case: str, nodes: int):
    """The reduction order: gradients of parts in float32, from the first part to the last."""
    options: Any = {"cluster__bits": 32, **EQUAL[case]}
    many = trained(3, **options, cluster__nodes=nodes)
    one = trained(3, **options, cluster__nodes=1, cluster__units=nodes)
    assert one.bench.model.sha256() == many.bench.model.sha256()
    assert one.log.registers().sha256() == many.log.registers().sha256()
    assert (one.log.metrics()["bytes_sent"], many.log.metrics()["bytes_sent"] > 0) == (0, True)


def test_a_node_sends_once_what_all_its_units_have_found_c1():
    single, double = trained(2, cluster__nodes=2), trained(2, cluster__nodes=2, cluster__units=2)
    assert double.log.metrics()["bytes_sent"] == single.log.metrics()["bytes_sent"]
    assert double.bench.model.sha256() != single.bench.model.sha256()


# ---- stripes of layers ----


def runner_of(device: str, counters: CounterTable | None = None) -> DatapathRunner:
    return DatapathRunner(Policy(emu.device(device).precision), backend="reference", counters=counters)


def test_an_error_is_the_sum_of_the_devices_parts_in_their_order_each_written_in_its_format_c9():
    rng = np.random.default_rng(3)
    errors = emu.quantize(rng.normal(size=(5, 7)), "fp16")
    held = emu.quantize(rng.normal(size=(7, 4)), "fp16")
    fp16 = emu.parse("fp16")
    operation = Operation("matmul", (Value(errors, fp16), Value(held, fp16)))
    striped = StripedRunner(runner_of("fp16"), {"fc"}, 3).run(operation, "error", "fc")
    mac = emu.device("fp16").precision.mac_of("")
    parts = [
        emu.matmul(errors[:, s], held[s], a_format="fp16", b_format="fp16", out_format="fp16", mac=mac)
        for s in (slice(0, 3), slice(3, 5), slice(5, 7))
    ]
    expected = emu.add(emu.add(parts[0], parts[1], out_format="fp16"), parts[2], out_format="fp16")
    np.testing.assert_array_equal(striped.array, expected)
    whole = runner_of("fp16").run(operation, "error", "fc")
    assert (striped.array != whole.array).any(), "more roundings: not the bits of one device"


@pytest.mark.parametrize("role", ["activation", "gradient"])
def test_units_and_their_gradients_are_whole_on_every_device_c9(role: str):
    fp16 = emu.parse("fp16")
    operation = Operation("matmul", (Value(np.eye(4, dtype=np.float32), fp16), Value(np.ones((4, 4)), fp16)))
    counters = CounterTable(Policy(emu.device("fp16").precision).register)
    StripedRunner(runner_of("fp16", counters), {"fc"}, 2).run(operation, role, "fc")
    assert counters.of("fc", role).elements == 16


@pytest.mark.parametrize("model", ["mlp", "lenet", "transformer"])
def test_exactly_linear_layers_and_convolutions_are_striped_c9(model: str):
    layers = emu.training.workbench.build.build_network(emu.model(model).network).layers
    found = striped_layers(layers)
    expected = {
        "mlp": {"fc1", "fc2", "output"},
        "lenet": {"conv1", "conv2", "fc1", "fc2", "output"},
    }
    if model in expected:
        assert found == expected[model]
    else:
        assert any(name.endswith(".query") for name in found)
        assert not any("norm" in name or "embedding" in name for name in found)


@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_striped_training_is_exact_where_partial_sums_are_c9(model: str):
    """With two devices, only errors of lower layers change; the last layer's gradient is that of one device."""
    one = trained(1, model=model, cluster__nodes=2, cluster__bits=32)
    striped = trained(1, model=model, cluster__nodes=2, cluster__bits=32, cluster__model_parallel=2)
    last = list(weights(one))[-2:]
    for name in last:
        np.testing.assert_array_equal(weights(striped)[name], weights(one)[name])
    assert striped.bench.model.sha256() != one.bench.model.sha256()


@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_devices_that_share_whole_layers_give_the_bits_of_one_c9(model: str):
    options: Any = {"model": model, "cluster__nodes": 2}
    whole = trained(2, **options, cluster__model_parallel=3, cluster__model_split="layers")
    one = trained(2, **options)
    assert whole.bench.model.sha256() == one.bench.model.sha256()
    assert whole.log.registers().sha256() == one.log.registers().sha256()


def test_more_devices_than_units_leave_some_without_any_c9():
    fp16 = emu.parse("fp16")
    rng = np.random.default_rng(4)
    errors, held = (emu.quantize(rng.normal(size=shape), "fp16") for shape in ((3, 2), (2, 4)))
    operation = Operation("matmul", (Value(errors, fp16), Value(held, fp16)))
    few, many = (StripedRunner(runner_of("fp16"), {"fc"}, devices).run(operation, "error", "fc") for devices in (2, 9))
    np.testing.assert_array_equal(few.array, many.array)


def test_a_graph_on_striped_devices_goes_through_the_same_protocol_c9():
    runner = StripedRunner(runner_of("float32"), {"fc"}, 2)
    graph = Graph(runner)
    x, w = (graph.parameter(Value(np.ones(shape, np.float32), emu.parse("fp32"))) for shape in ((2, 3), (4, 3)))
    y = graph.apply("linear", x, w, layer="fc")
    total = graph.apply("sum", y, layer="total", axis=(0, 1))
    gradients = graph.backward(total, Value(np.ones((), np.float32), emu.parse("fp32")))
    np.testing.assert_array_equal(gradients[id(x)].array, np.full((2, 3), 4))
