"""How many nodes share a mini-batch, by what steps have taken; the others' residuals stay."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.cluster import Controllers, Exchange, Homes, Layout, ParallelismFactor, Simulated, StepTimes, balanced_workers
from emu.cluster.codecs import codec_of
from emu.errors import ConfigError
from emu.formats import parse
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.loop.summary import described
from emu.training.systems import SYSTEMS, System
from emu.training.systems.data_parallel import DataParallel
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.workbench import Workbench

CHOICES = (1, 2, 4, 8)

# ---- the rule ----


@given(compute=st.integers(0, 10**15), transfer=st.integers(0, 10**15))
def test_computation_takes_at_least_as_long_as_the_transfer_beside_it_c8(compute: int, transfer: int):
    """With K nodes, computation takes C / K and transfer T: compared as fractions, for each K."""
    balanced = [k for k in CHOICES if Fraction(compute, k) >= transfer]
    assert balanced_workers(compute, transfer, CHOICES) == max(balanced, default=1)


@pytest.mark.parametrize(
    ("compute", "transfer", "workers"),
    [(800, 100, 8), (799, 100, 4), (400, 100, 4), (399, 100, 2), (200, 100, 2), (199, 100, 1), (0, 100, 1), (0, 0, 8)],
)
def test_nodes_are_balanced_at_computation_over_transfer_c8(compute: int, transfer: int, workers: int):
    assert balanced_workers(compute, transfer, CHOICES) == workers


def steps(compute_ps: int, transfer_ps: int, examples: int, workers: int) -> StepTimes:
    """The times of a machine: so long for an example, and for an exchange."""
    return StepTimes(workers, examples, compute_ps * examples // workers, transfer_ps)


def test_the_factor_comes_to_rest_at_the_balanced_number_of_nodes_c8():
    factor = ParallelismFactor(CHOICES)
    for _ in range(5):
        factor.observe(steps(10, 75, 32, factor.workers), 32)  # C = 320, T = 75: 4.3 nodes
    assert factor.workers == 4


def test_the_factor_follows_the_size_of_the_next_mini_batch_c8():
    factor = ParallelismFactor(CHOICES)
    assert factor.observe(steps(10, 75, 32, 8), 32) == 4
    assert factor.observe(steps(10, 75, 32, 4), 80) == 8  # C = 800: 10.7 nodes
    assert factor.observe(steps(10, 75, 80, 8), 16) == 2  # C = 160: 2.1
    assert factor.observe(steps(10, 75, 16, 2), 8) == 1  # C = 80: 1.1


def test_the_factor_follows_an_average_of_what_is_measured_c8():
    """T goes from 60 to 400; the average with decay 1/2 is 230, 315, and back down: 145, 97.5."""
    factor, fast, slow = ParallelismFactor(CHOICES, decay=0.5), steps(10, 60, 48, 4), steps(10, 400, 48, 4)
    averages, workers = [], []
    for times in (fast, fast, slow, slow, steps(10, 60, 48, 1), fast, fast):
        workers.append(factor.observe(times, 48))
        averages.append(factor.to_dict()["transfer"]["now_ps"])
    assert averages == [60, 60, 230, 315, 188, 124, 92]  # 187.5 and halves of even numbers, each to the even one
    assert workers == [8, 8, 2, 1, 2, 2, 4], "of C = 480"
    assert factor.to_dict()["compute"]["now_ps"] == 10_000
    lazy = ParallelismFactor(CHOICES, decay=0.99)
    lazy.observe(steps(10, 100, 48, 4), 48)
    assert lazy.observe(slow, 48) == 4, "of T = 103, C = 480 is 4.7 nodes"


def test_nine_tenths_of_an_average_stay_unless_told_otherwise_c8():
    held = ParallelismFactor([1, 2]).to_dict()
    assert [held[name]["decay"] for name in ("compute", "transfer")] == [0.9, 0.9]


def test_a_step_without_an_exchange_says_nothing_of_transfer_c8():
    factor = ParallelismFactor(CHOICES)
    assert factor.observe(steps(10, 0, 32, 1), 32) == 8, "nothing is known yet"
    assert factor.observe(steps(10, 100, 32, 8), 32) == 2
    assert factor.observe(steps(10, 0, 32, 1), 32) == 2


def test_the_factor_goes_on_from_its_checkpoint_c8():
    factor, again = ParallelismFactor(CHOICES, decay=0.7), ParallelismFactor(CHOICES, decay=0.7)
    factor.observe(steps(13, 170, 24, 8), 24)
    again.load(json.loads(json.dumps(factor.to_dict())))
    for transfer in (90, 1234, 50):
        times = steps(13, transfer, 24, factor.workers)
        assert again.observe(times, 24) == factor.observe(times, 24)
        assert again.to_dict() == factor.to_dict()


# ---- an exchange among some of the nodes ----


@pytest.mark.parametrize("bits", [1, 2, 32])
def test_no_gradient_is_lost_while_nodes_are_idle_c8(bits: int):
    """Sum of what is applied and of all residuals equals the sum of gradients: float64, 1e-12 of the largest sum."""
    rng, shape = np.random.default_rng(5), (12, 30)
    exchange = Exchange(
        {"w": shape}, Layout(4), codec_of(bits), Simulated(4), owner_codec=codec_of(32), dtype=np.float64
    )
    true, applied = np.zeros(shape), np.zeros(shape)
    for step, taking_part in enumerate([(0, 1, 2, 3), (0, 1), (0, 1), (0,), (0, 1, 2), (0, 1, 2, 3)]):
        before = exchange.arrays()
        gradients = {node: {"w": rng.standard_normal(shape)} for node in taking_part}
        applied += exchange.exchange(gradients, step, workers=taking_part)["w"]
        true += sum(parts["w"] for parts in gradients.values())
        for name, array in exchange.arrays().items():
            if name.startswith("worker/") and int(name.rpartition("@")[2].partition("/")[0]) not in taking_part:
                assert array.tobytes() == before[name].tobytes(), "what an idle node remembers stays"
    left = exchange.residuals()["w"]
    assert np.abs(applied + left - true).max() <= 1e-12 * np.abs(true).max()
    assert np.abs(left).max() > 0


def test_controllers_divide_by_the_number_of_nodes_that_take_part_c8():
    formats = {"w.weight": parse("fp32")}
    controllers = Controllers({"w.weight": (4, 3)}, formats, Layout(4), codec_of(1), Simulated(4), homes=Homes((3,)))
    before = controllers.arrays()
    parts = {node: {"w.weight": np.full((4, 3), value, np.float32)} for node, value in ((0, 1.0), (1, 3.0))}
    found = controllers.exchange(parts, 0, workers=(0, 1))["w.weight"]
    np.testing.assert_array_equal(found, np.full((4, 3), 2.0))
    for name, array in controllers.arrays().items():
        if "@2" in name or "@3" in name:
            assert array.tobytes() == before[name].tobytes()


def test_an_exchange_among_some_adds_up_those_in_node_order_c8():
    exchange = Exchange({"w": (4, 3)}, Layout(4), codec_of(32), Simulated(4))
    parts = {node: np.full((4, 3), value, np.float32) for node, value in ((0, 1e8), (1, 3.0), (2, -1e8))}
    found = exchange.exchange({node: {"w": part} for node, part in parts.items()}, 0, workers=(0, 1, 2))["w"]
    np.testing.assert_array_equal(found, parts[0] + parts[1] + parts[2])


# ---- in training ----


class Clock(System):
    """Times of a step that a test sets: of an example, and of an exchange."""

    key = "clock"
    compute_ps, transfer_ps = 1000, 4000

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self.seen: list[StepTimes] = []

    def about(self) -> dict[str, Any]:
        return {"simulated_seconds": 0.0}

    def step_times(self) -> StepTimes:
        workers = self._bench.batches.workers or 4
        self.seen.append(steps(self.compute_ps, self.transfer_ps, self._bench.batches.size, workers))
        return self.seen[-1]


SMALL: dict[str, Any] = {
    "training.steps": 12,
    "training.batch": 8,
    "data.test_images": 8,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
    "cluster.nodes": 4,
    "cluster.search": {"parallelism": True, "multiple": 4, "decay": 0.0},
}


@pytest.fixture
def with_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    at = SYSTEMS.index(SimulatedTime) + 1
    monkeypatch.setattr("emu.training.loop.loop.SYSTEMS", (*SYSTEMS[:at], Clock, *SYSTEMS[at:]))


def loop(backend: str = "numba", device: str = "float32", **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    recipe = emu.model("mlp").with_settings(SMALL | named)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), backend))


def clock_of(found: Loop) -> Clock:
    return next(system for system in found.systems if isinstance(system, Clock))


def advanced(found: Loop, transfers: list[int]) -> Loop:
    """Run a step for each time that transfer takes in it."""
    for transfer_ps in transfers:
        clock_of(found).transfer_ps = transfer_ps
        found.advance()
    return found


#: With C = 8000 ps, four nodes are balanced behind the first step, then two, two, four, one, two.
TRANSFERS = [2000, 4000, 3000, 2000, 5000, 4000]
NODES = [4, 4, 2, 2, 4, 1]


@pytest.mark.usefixtures("with_clock")
def test_as_many_nodes_take_part_as_times_say_c8(monkeypatch: pytest.MonkeyPatch):
    found, parts = loop(), []
    run = found.bench.model.run
    monkeypatch.setattr(
        found.bench.model, "run", lambda *a, **k: (parts.append((len(a[1]), a[0].node)), run(*a, **k))[1]
    )
    advanced(found, TRANSFERS)
    expected = [(8 // nodes, node) for nodes in NODES for node in range(nodes)]
    assert parts == expected
    rows = found.log.history._columns["parallelism"]
    assert (rows["step"], rows["workers"]) == ([2, 4, 5, 6], [2, 4, 1, 2])
    assert described(found, "running")["workers"] == 2


@pytest.mark.usefixtures("with_clock")
def test_residuals_of_idle_nodes_stay_and_are_sent_when_they_take_part_again_c8():
    found = advanced(loop(cluster__search=SMALL["cluster.search"] | {"decay": 0.0}), [2000, 4000])
    system = next(s for s in found.systems if isinstance(s, DataParallel))
    idle = {name: array.copy() for name, array in system.arrays().items() if name.startswith("worker/")}
    idle = {name: array for name, array in idle.items() if name.endswith(("@2/residual", "@3/residual"))}
    assert len(idle) == 2 * (3 * 4 + 3 * 4), "four stripes of each weight, and of each bias"
    advanced(found, [4000, 2000])  # two nodes, and two
    assert found.bench.batches.workers == 4
    assert all(system.arrays()[name].tobytes() == array.tobytes() for name, array in idle.items())
    advanced(found, [2000])
    assert any(system.arrays()[name].tobytes() != array.tobytes() for name, array in idle.items())


@pytest.mark.usefixtures("with_clock")
def test_two_of_four_nodes_give_the_gradients_of_two_c8():
    """At 32 bits, a step of two nodes of four is one of two nodes."""
    settings: Any = {"cluster__bits": 32, "training__schedule": {"name": "constant"}}
    of_four = advanced(loop(**settings), [4000])
    of_two = advanced(loop(**settings, cluster__nodes=2), [1])
    arrays, state = of_two.checkpoint.state()
    of_two.checkpoint.load({**arrays, **of_four.bench.model.arrays()}, state)
    for found in (of_four, of_two):
        clock_of(found).transfer_ps = 4000
        found.advance()
    assert of_four.bench.model.sha256() == of_two.bench.model.sha256()


@pytest.mark.usefixtures("with_clock")
@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_run_goes_on_with_as_many_nodes_c8(at: int, tmp_path: Path):
    whole = advanced(loop(), TRANSFERS)
    folder = RunFolder.create(tmp_path / "run")
    advanced(loop(), TRANSFERS[:at]).checkpoint.save(folder)
    again = loop()
    again.checkpoint.restore(folder)
    assert advanced(again, TRANSFERS[at:]).bench.model.sha256() == whole.bench.model.sha256()
    assert again.bench.batches.workers == whole.bench.batches.workers == 2


@pytest.mark.usefixtures("with_clock")
def test_sizes_and_nodes_are_searched_together_in_the_same_bits_everywhere_c8():
    search = SMALL["cluster.search"] | {"every": 2, "trial": 2, "tolerance": 1e9}
    options: Any = {"device": "fp16-mixed", "loss_scaling": {"policy": "backoff"}, "cluster__search": search}
    found = [advanced(loop(backend, **options), [9000] * 5) for backend in ("reference", "numba")]
    assert found[0].bench.model.sha256() == found[1].bench.model.sha256()
    assert [found[0].bench.batches.size_at(step) for step in range(5)] == [8, 8, 16, 16, 32]
    seen = clock_of(found[1]).seen
    assert [times.workers for times in seen[:3]] == [4, 1, 1]
    assert [times.examples for times in seen] == [8, 8, 16, 16, 32], "trials are not asked"
    assert found[1].bench.batches.workers == 2, "of C = 32000 and T = 9000, 3.6 nodes are balanced"


@pytest.mark.usefixtures("with_clock")
def test_nodes_are_chosen_among_numbers_that_divide_every_size_c8():
    search = SMALL["cluster.search"] | {"multiple": 6}
    found = loop(cluster__nodes=6, training__batch=12, cluster__search=search)
    factor = next(system for system in found.systems if system.key == "search")._factor
    assert factor.choices == (1, 2, 3, 6)


@pytest.mark.usefixtures("with_clock")
def test_every_unit_of_a_node_that_takes_part_has_its_part_c8(monkeypatch: pytest.MonkeyPatch):
    search = SMALL["cluster.search"] | {"multiple": 8}
    found, parts = loop(cluster__units=2, cluster__search=search), []
    run = found.bench.model.run
    monkeypatch.setattr(
        found.bench.model, "run", lambda *a, **k: (parts.append((len(a[1]), a[0].node)), run(*a, **k))[1]
    )
    advanced(found, [4000, 4000])
    assert parts == [(1, unit) for unit in range(8)] + [(2, unit) for unit in range(4)]


# ---- with simulated time ----

#: An operation a nanosecond, and a byte a nanosecond; a message's latency is a nanosecond, too.
DEVICE = "\n".join(
    [
        'name = "hand"',
        'description = "Times by hand."',
        'source = "made up"',
        *(
            f'[precision.{role}]\nformat = "fp32"'
            for role in ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
        ),
        '[compute]\nclock_hz = { value = 1e9, source = "made up" }',
        '[compute.units.one]\nkind = "mac_array"\nlanes = { value = 1, source = "made up" }',
        '[[links]]\nto = "crossbar"',
        'bandwidth_bytes_per_s = { value = 1e9, source = "made up" }',
        'latency_s = { value = 1e-9, source = "made up" }',
        '[crossbar]\nports = { value = 4, source = "made up" }\narbitration = "first_come"',
    ]
)
#: 64 inputs, 12 outputs: 768 weights, three columns for each of four owners.
ONE_LAYER: dict[str, Any] = {
    "network": {
        "input": [1, 8, 8],
        "classes": 12,
        "loss": "mse",
        "layers": [{"type": "flatten"}, {"type": "linear", "name": "fc", "out_features": 12, "bias": False}],
    },
    "data.upsample": 1,
    "data.pad": 0,
    "data.test_images": 8,
    "training.steps": 6,
    "training.batch": 8,
    "training.optimiser": {"name": "sgd", "learning_rate": 0.1},
    "cluster.nodes": 4,
    "cluster.bits": 32,
    "cluster.search": {"parallelism": True, "multiple": 4, "decay": 0.0},
}
NS = 1000


def pass_ps(examples: int) -> int:
    """A pass of a node: weights read into fp32; inputs, two products, the loss (12 numbers) and its gradient (24)."""
    return NS * (768 + examples * (64 + 768 + 12 + 24 + 768))


@pytest.fixture
def device(tmp_path: Path) -> emu.Device:
    (tmp_path / "hand.toml").write_text(DEVICE)
    return emu.device(str(tmp_path / "hand.toml"))


@pytest.fixture
def slow(tmp_path: Path) -> emu.Device:
    """The same with a link ten times as slow."""
    (tmp_path / "slow.toml").write_text(DEVICE.replace("per_s = { value = 1e9", "per_s = { value = 1e8"))
    return emu.device(str(tmp_path / "slow.toml"))


#: Sizes and nodes both change.
SEARCHED: dict[str, Any] = {
    "training__batch": 4,
    "cluster__bits": 4,
    "cluster__search": ONE_LAYER["cluster.search"] | {"every": 1, "trial": 2, "tolerance": 1e9},
    "training__steps": 8,
}
#: T = 2 * (3 * 120 * 10 + 1) ns = 7202 ns: 3 columns of both ends of the range and 64 codes are 120 bytes. A size grows
#: behind the choice, so that C is 9616, 13856, 26944, 53888 ns at 4, 8, 16, 32 examples.
SIZES, CHOSEN = [4, 8, 16, 32, 64, 128], [4, 1, 1, 2, 4, 4]


def simulated(device: emu.Device, backend: str = "numba", **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    recipe = emu.model("mlp").with_settings(ONE_LAYER | named)
    return Loop(Workbench.of(recipe, recipe.machine(device), backend))


def times_of(found: Loop, steps: int) -> list[StepTimes]:
    system = next(one for one in found.systems if isinstance(one, SimulatedTime))
    seen: list[StepTimes] = []
    for _ in range(steps):
        found.advance()
        times = system.step_times()
        assert times is not None
        seen.append(times)
    return seen


#: Two phases, in each of which a node sends three messages of 3 columns, 64 rows, 4 bytes, one after the other.
TRANSFER_PS = 2 * NS * (3 * 768 + 1)


@pytest.mark.parametrize(
    ("batch", "settings", "nodes"),
    [
        (16, {}, [4, 4, 4, 4]),  # C = 4 * 7312 ns, T = 4610 ns: 6.3 nodes
        (8, {}, [4, 2, 2, 2]),  # 4 * 4040 ns: 3.5 nodes; then 2 * 7312 ns: 3.2
        (4, {}, [4, 2, 1, 1]),  # 4 * 2404 ns: 2.1 nodes; then 2 * 4040 ns: 1.8, as each reads all weights; then 1.6
        (4, {"cluster__search": ONE_LAYER["cluster.search"] | {"decay": 0.5}}, [4, 2, 1, 1]),  # 9616, 8848, 8080
    ],
)
def test_as_many_nodes_take_part_as_simulated_time_says_c8(
    batch: int, settings: dict[str, Any], nodes: list[int], device: emu.Device
):
    found = simulated(device, training__batch=batch, **settings)
    expected = [StepTimes(k, batch, pass_ps(batch // k), TRANSFER_PS) for k in nodes]
    assert times_of(found, 4) == expected
    moved = [(step, k) for step, (k, before) in enumerate(zip(nodes[1:], nodes, strict=False), 1) if k != before]
    rows = found.log.history._columns.get("parallelism", {"step": [], "workers": []})
    assert list(zip(rows["step"], rows["workers"], strict=True)) == moved


def test_nodes_that_compute_send_to_a_controller_and_it_to_all_c8(device: emu.Device):
    """Whole layers of 3072 bytes come to its port one after the other, and leave it one after the other."""
    settings: Any = {"cluster__exchange": "controllers", "training__batch": 8}
    found = simulated(device, **settings)
    (of_four,) = times_of(found, 1)
    assert of_four == StepTimes(4, 8, pass_ps(2), NS * (3 * 3072 + 1 + 3 * 3072 + 1))
    assert found.bench.batches.workers == 1, "C = 16160 ns, T = 18434 ns"
    (of_one,) = times_of(found, 1)  # the controller itself
    assert of_one == StepTimes(1, 8, pass_ps(8), NS * (3 * 3072 + 1))


def test_a_step_of_some_nodes_takes_as_long_as_theirs_and_sends_their_bytes_c8(device: emu.Device):
    found = simulated(device, cluster__double_buffering=True)
    system = next(one for one in found.systems if isinstance(one, SimulatedTime))
    of_two = {key: value for key, value in ONE_LAYER.items() if key != "cluster.search"}
    recipe = emu.model("mlp").with_settings(of_two | {"cluster.workers": [0, 1], "cluster.double_buffering": True})
    (step,) = emu.simulate(recipe, device, nodes=[4], batches=[8]).steps
    found.advance()
    before, sent = system.about()["simulated_seconds"], found.log.metrics()["bytes_sent"]
    assert sent == 2 * 4 * 3 * 768
    found.advance()
    assert found.log.metrics()["bytes_sent"] - sent == step.time.sent_bytes == (2 + 4) * 3 * 768
    assert round((system.about()["simulated_seconds"] - before) * 1e12) == step.time.step_ps
    rows = [row for name, row in system.interval() if name == "simulation" and row["kind"] == "send"]
    assert sum(row["bytes"] for row in rows) * 4 == found.log.metrics()["bytes_sent"]


def test_a_warm_start_says_nothing_of_balance_c8(device: emu.Device):
    found = simulated(device, training__batch=4, cluster__warm_start=2)
    system = next(one for one in found.systems if isinstance(one, SimulatedTime))
    seen = []
    for _ in range(4):
        found.advance()
        seen.append((system.step_times() is None, found.bench.batches.workers))
    assert seen == [(True, None), (True, None), (False, 2), (False, 1)]


def test_simulated_time_leads_to_the_same_bits_everywhere_c8(slow: emu.Device):
    found = [simulated(slow, backend, **SEARCHED) for backend in ("reference", "numba")]
    for one in found:
        assert [(times.examples, times.workers) for times in times_of(one, 6)] == list(zip(SIZES, CHOSEN, strict=True))
    assert found[0].bench.model.sha256() == found[1].bench.model.sha256()
    assert found[0].checkpoint.state()[1]["simulation"] == found[1].checkpoint.state()[1]["simulation"]


@pytest.mark.parametrize("at", [1, 3, 4, 5])
def test_a_run_goes_on_with_as_many_nodes_by_simulated_time_c8(at: int, slow: emu.Device, tmp_path: Path):
    whole = simulated(slow, **SEARCHED)
    seen = times_of(whole, 6)
    folder = RunFolder.create(tmp_path / "run")
    killed = simulated(slow, **SEARCHED)
    times_of(killed, at)
    killed.checkpoint.save(folder)
    again = simulated(slow, **SEARCHED)
    again.checkpoint.restore(folder)
    assert times_of(again, 6 - at) == seen[at:]
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    info, expected = described(again, "running"), described(whole, "running")
    for name in ("workers", "batch_size", "simulated_seconds"):
        assert info[name] == expected[name]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("float32", "a device must have a clock, got none in float32; choose one like k20x-8x"),
        (
            "p100",
            "a device must have [crossbar] and a link to it for messages between nodes, got none in p100; choose one "
            "like k20x-8x, or add them",
        ),
    ],
)
def test_parallelism_without_simulated_time_is_refused_before_the_first_step_c8(name: str, why: str):
    with pytest.raises(ConfigError) as caught:
        loop(device=name)
    assert str(caught.value) == (
        f"`parallelism` of [cluster.search] must be left out if no time is simulated, got true on {name!r}: {why}"
    )
