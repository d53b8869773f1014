"""Controllers: the mean in node order, who takes which layer, what travels, and what comes back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from counting import Counting

from emu import parse
from emu.autodiff import Value
from emu.cluster import Controllers, Homes, Layout, ReplicaError, Simulated
from emu.cluster.codecs import Address, Memory, codec_of
from emu.errors import ConfigError

SHAPES = {"fc1.weight": (10, 33), "fc1.bias": (1, 10), "fc2.weight": (3, 10), "fc2.bias": (1, 3), "out.weight": (2, 3)}
FORMATS = dict.fromkeys(SHAPES, parse("fp32"))
F = np.float32


def gradients_of(workers: Any, step: int = 0, dtype: Any = F) -> dict[int, dict[str, np.ndarray]]:
    rng = np.random.default_rng([step, 9])
    return {n: {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()} for n in workers}


def controllers(nodes: int, bits: int = 32, **options: Any) -> Controllers:
    layout = options.pop("layout", Layout(nodes))
    transport = options.pop("transport", Simulated(nodes))
    homes = Homes(options.pop("controllers", (0,)), options.pop("placement", "fixed"))
    formats = options.pop("formats", FORMATS)
    return Controllers(SHAPES, formats, layout, codec_of(bits), transport, homes=homes, **options)


def parameters_of(formats: Any = FORMATS) -> dict[str, Value]:
    rng = np.random.default_rng(3)
    found = {}
    for name, (columns, rows) in SHAPES.items():
        shape = (columns, rows) if columns > 1 else (rows,)
        fmt = formats[name]
        codes = rng.integers(0, 1 << min(fmt.width_bits, 16), shape)
        found[name] = Value(fmt.decode(codes.astype(f"u{-(-fmt.width_bits // 8)}")).astype(fmt.carrier), fmt)
    return found


PLACES = [
    {"controllers": (0,)},
    {"controllers": (2, 0)},
    {"controllers": (0, 1, 2), "placement": "least_loaded"},
    {"controllers": (3,), "layout": Layout(4, workers=(0, 1, 2))},
    {"controllers": (0, 3), "layout": Layout(4, workers=(0, 1, 2)), "placement": "least_loaded"},
]


@pytest.mark.parametrize("places", PLACES, ids=str)
def test_the_mean_is_the_sum_in_node_order_divided_once_wherever_the_controller_is_d3(places: Any):
    layout = places.get("layout", Layout(3))
    grads = gradients_of(layout.workers)
    found = controllers(layout.nodes, **places).exchange(grads, 0)
    assert set(found) == set(SHAPES)
    for name, array in found.items():
        total = grads[0][name]
        for worker in layout.workers[1:]:
            total = total + grads[worker][name]
        assert array.view(np.uint32).tolist() == (total / F(3)).view(np.uint32).tolist()


def test_the_mean_of_the_published_workers_d3():
    shapes = {"a.weight": (1, 3)}
    running = Controllers(shapes, {"a.weight": parse("fp32")}, Layout(2), codec_of(32), Simulated(2))
    grads = {0: {"a.weight": np.array([[1, 0.5, -1]], F)}, 1: {"a.weight": np.array([[0, 0.5, 1]], F)}}
    assert running.exchange(grads, 0)["a.weight"].tolist() == [[0.5, 0.5, 0]]


def test_a_layer_goes_to_one_controller_the_last_layer_first_d3():
    fixed = controllers(3, controllers=(1, 0)).controller_of
    assert fixed == {"out": 1, "fc2": 0, "fc1": 1}
    least = controllers(3, controllers=(2, 1), placement="least_loaded").controller_of
    assert least == {"out": 1, "fc2": 2, "fc1": 1}, "6, 33 and 340 numbers: ties by node, then the fewest bytes so far"
    assert controllers(3, controllers=(2,)).controller_of == dict.fromkeys(("out", "fc2", "fc1"), 2)


@pytest.mark.parametrize("bits", [1, 4])
def test_gradients_of_few_bits_go_to_the_controller_with_residuals_of_each_worker_c1_d3(bits: int):
    running, memories = controllers(2, bits, controllers=(1,)), dict[Any, Memory]()
    codec = codec_of(bits)
    for step in range(4):
        grads = gradients_of((0, 1), step)
        found = running.exchange(grads, step)
        for name, (columns, rows) in SHAPES.items():
            parts = []
            for node in (0, 1):
                memory = memories.setdefault((name, node), Memory.empty(columns, rows))
                parts.append(codec.decode(codec.encode(grads[node][name], memory, Address(step=step)), rows))
            assert found[name].tobytes() == ((parts[0] + parts[1]) / F(2)).tobytes()


@pytest.mark.parametrize("bits", [1, 8, 32])
def test_what_is_applied_and_all_residuals_are_the_sum_of_true_gradients_c1_d3(bits: int):
    """Means times workers, in float64 to 1e-12 of the largest sum."""
    running = controllers(3, bits, dtype=np.float64)
    true, applied = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(20):
        grads = gradients_of(range(3), step, np.float64)
        for name, array in running.exchange(grads, step).items():
            applied[name] += 3 * array
            true[name] += sum(grads[node][name] for node in range(3))
    largest = max(np.abs(total).max() for total in true.values())
    for name, left in running.residuals().items():
        assert np.abs(applied[name] + left - true[name]).max() <= 1e-12 * largest


@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize("places", PLACES, ids=str)
def test_bytes_sent_are_bytes_received_and_those_of_the_wire_format_d3(places: Any, bits: int):
    layout = places.get("layout", Layout(3))
    transport = Counting(layout.nodes)
    running = controllers(layout.nodes, bits, transport=transport, **places)
    grads = gradients_of(layout.workers)
    running.exchange(grads, 0)
    running.returned(parameters_of())
    assert running.sent == transport.bytes() == running.step_bytes()
    up = down = 0
    for name, (columns, rows) in SHAPES.items():
        controller = running.controller_of[name.split(".")[0]]
        others = [worker for worker in layout.workers if worker != controller]
        words = -(-rows // 32) + 2 if bits == 1 else rows
        up += len(others) * 4 * columns * words
        down += (layout.nodes - 1) * 4 * columns * rows
    assert [sum(map(len, swap.values())) for swap in transport.swaps] == [up, down]


def test_codes_that_people_look_at_are_those_of_the_first_local_node_d3():
    """Worker 1 sends zeros, whose levels would be 0."""
    running, gradients = controllers(2, bits=1), gradients_of((0, 1))
    gradients[1] = {name: np.zeros_like(array) for name, array in gradients[1].items()}
    running.exchange(gradients, 0)
    counted = dict.fromkeys(SHAPES, 0)
    for name, count in running.code_counts():
        counted[name] += count.values
        assert (count.level > 0) == (count.code == 1)
    assert counted == {name: columns * rows for name, (columns, rows) in SHAPES.items()}


@pytest.mark.parametrize("fmt", ["fp32", "fp16", "bf16", "fix16f12", "fix12f4", "e4m3", "fp64"])
def test_parameters_come_back_as_codes_of_their_format_d3(fmt: str):
    formats = dict.fromkeys(SHAPES, parse(fmt))
    running = controllers(2, formats=formats)
    for name, parameter in parameters_of(formats).items():
        data = running.parameters_message(name, parameter)
        size = {"fp32": 4, "fp64": 8, "e4m3": 1}.get(fmt, 2)
        assert len(data) == size * parameter.array.size
        back = running.parameter_of(name, data, parameter.with_array(np.zeros_like(parameter.array)))
        assert back.array.dtype == parameter.array.dtype
        assert back.array.tobytes() == parameter.array.tobytes()


class Apart(Simulated):
    """One node of several that share no memory: each in a thread of its own, meeting at every swap."""

    def __init__(self, nodes: int, node: int, post: list[dict[Any, bytes]], barrier: threading.Barrier) -> None:
        super().__init__(nodes)
        self.local, self._post, self._barrier = (node,), post, barrier

    def _meet(self, given: dict[Any, bytes]) -> dict[Any, bytes]:
        self._post[self.local[0]] = given
        self._barrier.wait()
        found = {key: data for one in self._post for key, data in one.items()}
        self._barrier.wait()
        return found

    def swap(self, parcels: Mapping[tuple[int, int], bytes]) -> dict[tuple[int, int], bytes]:
        return {pair: data for pair, data in self._meet(dict(parcels)).items() if pair[1] == self.local[0]}

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        found = self._meet(dict(parcels))
        return [found[node] for node in range(self.nodes)]


def test_nodes_that_share_no_memory_end_with_the_parameters_of_controllers_d3():
    places: Any = {"controllers": (0, 2), "layout": Layout(4, workers=(0, 1, 3))}
    grads, start = gradients_of((0, 1, 3)), parameters_of()

    def updated(held: dict[str, Value], means: Mapping[str, np.ndarray]) -> dict[str, Value]:
        new = {n: held[n].with_array(held[n].array - means[n].reshape(held[n].shape)) for n in means}
        return {**held, **new}

    together = controllers(4, 1, **places)
    expected = together.returned(updated(start, together.exchange(grads, 0)))
    post, barrier = [{} for _ in range(4)], threading.Barrier(4, timeout=60)

    def of_node(node: int) -> tuple[set[str], dict[str, Value], int]:
        running = controllers(4, 1, transport=Apart(4, node, post, barrier), **places)
        means = running.exchange({node: grads[node]} if node in grads else {}, 0)
        return set(means), running.returned(updated(start, means)), running.sent

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(of_node, range(4)))
    assert [len(means) for means, _, _ in found] == [3, 0, 2, 0], "out and fc1 at node 0, fc2 at node 2"
    for _, parameters, _ in found:
        assert {n: v.array.tobytes() for n, v in parameters.items()} == {
            n: v.array.tobytes() for n, v in expected.items()
        }
    assert {sent for _, _, sent in found} == {together.sent} == {together.step_bytes()}


def test_a_parameter_that_differs_is_named_with_node_tensor_and_index_d3():
    transport = Counting(3, damage=(0, 2, 4 * 6 + 4 * 12))  # behind out.weight: fc2.weight, column 1, row 2
    running = controllers(3, transport=transport)
    running.exchange(gradients_of(range(3)), 0)
    text = r"on node 2 and .* on node 0 in 'fc2.weight', column 1, row 2; the transport or the memory of a node"
    with pytest.raises(ReplicaError, match=text):
        running.returned(parameters_of())


def test_controllers_go_on_from_a_checkpoint_to_the_same_bits_c1_d3():
    first, again = (controllers(3, 2, seed=4) for _ in range(2))
    for step in range(3):
        first.exchange(gradients_of(range(3), step), step)
    again.load({name: array.copy() for name, array in first.arrays().items()})
    for step in range(3, 6):
        found, expected = (running.exchange(gradients_of(range(3), step), step) for running in (again, first))
        assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in expected.items()}


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ((3,), r"`controllers` must be nodes 0\.\.2, got 3; name nodes of the cluster, or raise `nodes`"),
        ((-1,), r"`controllers` must be nodes 0\.\.2, got -1"),
        ((1, 1), r"`controllers` must be nodes, at least one, each once, got \[1, 1\]"),
        ((), r"`controllers` must be nodes, at least one, each once, got \[\]"),
    ],
)
def test_controllers_that_do_not_fit_are_refused_d3(places: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        controllers(3, controllers=places)
