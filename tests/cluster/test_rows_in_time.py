"""Gradients of some rows in simulated time: bytes are those of the wires, steps as long as `emu simulate` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.autodiff import Value
from emu.cluster import Controllers, Exchange, Homes, Simulated, stripes_of
from emu.cluster.codecs import codec_of
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Rows, Share, StepSchedule, fabric_of, play, schedule_of
from emu.cluster.timing.messages import messages_of
from emu.cluster.timing.rows import Sizes, arrived_rows, controlled_sizes, share_of
from emu.cluster.wires import Touched, header_bytes
from emu.hardware import Demand, Machine, load_device
from emu.training import Run, train
from emu.training.time.cluster_simulation import of_one

FP32 = emu.parse("fp32")
K20X = load_device("k20x-8x")
LINES, NUMBERS = 64, 40
SHAPES = {"words.weight": (LINES, NUMBERS), "words.bias": (1, NUMBERS)}


def plan(rows: Rows | None, **cluster: Any) -> StepSchedule:
    """Return the plan of a step of one sparse layer."""
    table = ClusterTable(**cluster)
    operands = ((FP32, 6), (FP32, 2 * NUMBERS))
    work = Demand("words", "gradient", "sparse_transposed_matmul", NUMBERS, NUMBERS, 0, operands, FP32)
    share = Share([work], [], SHAPES, dict.fromkeys(SHAPES, 4), rows={"words.weight": rows} if rows else {})
    return schedule_of(table, Machine(K20X), fabric_of(table, K20X), share)


def sent(found: dict[int, list[int]], **cluster: Any) -> tuple[int, int]:
    """Return the bytes that nodes with these rows send to others, and how many rows there are behind that."""
    table = ClusterTable(**cluster)
    codec, owner_codec = table.codecs("reference")
    rng = np.random.default_rng(3)
    gradients: dict[int, dict[str, Any]] = {
        node: {
            "words.weight": Touched(
                np.array(rows, np.int64), rng.standard_normal((len(rows), NUMBERS)).astype(np.float32)
            ),
            "words.bias": np.ones((1, NUMBERS), np.float32),
        }
        for node, rows in found.items()
    }
    about: dict[str, Any] = {"touched": ["words.weight"]}
    exchange: Exchange | Controllers
    if table.exchange == "controllers":
        about |= {"homes": Homes(table.controllers, table.placement)}
        formats = dict.fromkeys(SHAPES, FP32)
        exchange = Controllers(SHAPES, formats, table.layout(), codec, Simulated(table.nodes), **about)
    else:
        exchange = Exchange(SHAPES, table.layout(), codec, Simulated(table.nodes), owner_codec=owner_codec, **about)
    there = exchange.exchange(gradients, 0)["words.weight"]
    assert isinstance(there, Touched)
    whole = {"words.weight": (LINES, NUMBERS), "words.bias": (NUMBERS,)}
    exchange.returned({name: Value(np.zeros(shape, np.float32), FP32) for name, shape in whole.items()})
    return exchange.sent, len(there.indices)


CLUSTERS: list[dict[str, Any]] = [
    {"nodes": 4},
    {"nodes": 4, "bits": 32},
    {"nodes": 4, "bits": 4, "owner_bits": 32, "streaming": True},
    {"nodes": 4, "owners": [1, 3]},
    {"nodes": 4, "exchange": "controllers", "controllers": [2]},
]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("each", [0, 1, 2, 4, 16])
def test_bytes_are_those_of_the_exchange_where_rows_fall_evenly_e6(cluster: dict[str, Any], each: int):
    """Of each 16 lines a node has touched `each`, below 16 no two nodes the same ones."""
    shift = each if each < 16 else 0
    found = {
        node: [16 * part + (shift * node + i) for part in range(4) for i in range(each)]
        for node in range(4)
    }  # fmt: skip
    real, there = sent(found, **cluster)
    rows = Rows.of([4 * each] * 4, LINES, arrived=there)
    assert play(plan(rows, **cluster)).sent_bytes == real
    assert there == min(16 * each, 64)


@pytest.mark.parametrize("cluster", CLUSTERS[:2])
def test_bytes_are_within_a_row_a_message_where_nodes_have_touched_a_few_more_or_less_e6(cluster: dict[str, Any]):
    """Nodes have 2, 2, 3 and 9 rows, which are spread over stripes; 4 are taken of each."""
    counts, stripes = [2, 2, 3, 9], stripes_of(LINES, 4)
    found = {
        node: [stripe.start + i for stripe in stripes for i in range(share_of(count, stripe, LINES))]
        for node, count in enumerate(counts)
    }
    assert [len(rows) for rows in found.values()] == counts
    real, there = sent(found, **cluster)
    simulated = play(plan(Rows.of(counts, LINES, arrived=there), **cluster)).sent_bytes
    row_bytes = codec_of(cluster.get("bits", 1)).message_bytes(1, NUMBERS) + 4
    assert 0 < abs(simulated - real) <= 2 * 4 * 3 * row_bytes


def test_a_message_of_some_rows_has_its_header_by_hand_e6():
    """Two nodes, 32 lines each; 6 rows are sent, 3 of each stripe, and 8 come back, 4 of each.

    A line of 40 numbers of 32 bits has 160 bytes, and 4 bytes of bits say which: up 4 + 4 + 480, down 4 + 4 + 640. Of
    the 40 numbers of the bias each node adds up 20.
    """
    (group,) = plan(Rows(6, 6, 8), nodes=2, bits=32).groups
    assert header_bytes(3, 32) == 8
    assert group.messages.up_bytes.tolist() == [488 + 80, 488 + 80]
    assert group.messages.down_bytes.tolist() == [648 + 80, 648 + 80]
    assert group.messages.sent_numbers.tolist() == [120 + 20, 120 + 20]
    assert group.messages.numbers.tolist() == [160 + 20, 160 + 20]


def test_all_rows_of_a_stripe_are_sent_and_come_back_where_that_is_fewer_bytes_e6():
    """Lines of one number at 32 bits: of 31 of 32 all are sent, 4 and 128 bytes; of 30, 4 and 4 and 120."""
    codec = codec_of(32)
    most, fewer = (messages_of([(64, 1)], 2, (), codec, codec, [Rows(n, n, n)]) for n in (62, 60))
    assert [sizes.tolist() for sizes in most] == [[32, 32], [132, 132], [132, 132], [32, 32]]
    assert [sizes.tolist() for sizes in fewer] == [[30, 30], [128, 128], [128, 128], [30, 30]]
    assert controlled_sizes(32, 1, (31, 31), codec, 8) == Sizes(32, 132, 4 + 32 * 8, 32)
    assert controlled_sizes(32, 1, (30, 31), codec, 8) == Sizes(31, 128, 4 + 4 + 31 * 8, 30)


def test_kernels_of_some_rows_move_these_alone_e6():
    """12 bytes a number that is encoded, and what travels; without rows all 64 lines."""
    some, every = (plan(rows, nodes=2, bits=1) for rows in (Rows(6, 6, 8), None))
    assert [group.sent_numbers for group in some.groups] == [7 * NUMBERS]
    assert [group.numbers for group in some.groups] == [9 * NUMBERS]
    assert [(group.sent_numbers, group.numbers) for group in every.groups] == [(65 * NUMBERS, 65 * NUMBERS)]
    assert play(some).quantise_ps < play(every).quantise_ps


def test_rows_of_units_of_a_node_are_taken_together_and_behind_no_exchange_all_of_them():
    assert Rows.of([3, 5, 4, 5], 16, units=2, arrived=9) == Rows(5, 9, 9)
    assert Rows.of([3, 5, 4, 5], 64) == Rows(5, 5, 17)
    assert Rows.of([9, 9], 16, units=2) == Rows(9, 16, 16)


def test_rows_that_arrive_are_all_of_a_stripe_where_a_message_has_all_of_it_e6():
    """A line of one number at 32 bits: 31 of 32 lines are sent as all; 30 are not."""
    table = ClusterTable(nodes=2, bits=32)
    some, most = np.arange(30), np.arange(31)
    assert arrived_rows([some, some[:3]], table, 64, 1).tolist() == some.tolist()
    assert arrived_rows([most, some], table, 64, 1).tolist() == list(range(32))
    quantised, own = (
        ClusterTable(nodes=2, bits=32, owner_bits=1, quantise_own=quantises) for quantises in (True, False)
    )
    assert arrived_rows([most, some], quantised, 64, 1).tolist() == list(range(32))
    assert arrived_rows([most, some], own, 64, 1).tolist() == most.tolist()  # node 0 owns the stripe: no message
    assert arrived_rows([some, most], own, 64, 1).tolist() == list(range(32))
    one = table.model_copy(update={"exchange": "controllers"})
    assert arrived_rows([most, some], one, 64, 1).tolist() == most.tolist()


# ---- one of several nodes ----


def demand(layer: str, size: int, role: str = "activation", *, again: bool = False) -> Demand:
    return Demand(layer, role, "matmul", size, size, 0, ((FP32, size),), FP32, again)


def longest_of(demands: list[Demand], models: int) -> list[Demand]:
    return of_one(demands, models, {"words"}, lambda one: one.results)


def test_all_nodes_wait_for_the_one_with_most_entries():
    first, second = [demand("words", 7), demand("fc", 9)], [demand("words", 8), demand("fc", 9)]
    assert longest_of([*first, *second], 2) == second
    assert longest_of([*second, *first], 2) == second


def test_nodes_that_take_turns_are_told_apart_by_size():
    """Two products of a sparse layer of each of two nodes, which take turns; one of them runs one again."""
    turns = [demand("words", size) for size in (7, 8, 3, 2)]
    again = demand("words", 8, again=True)
    assert longest_of([*turns[:2], again, *turns[2:]], 2) == [turns[1], again, turns[2]]


# ---- training ----

SMALL: dict[str, Any] = {
    "network.input": [1024],
    "data.reach": 6,
    "data.longest": 3,
    "training.steps": 1,
    "training.batch": 16,
}


def trained(out: Path, settings: dict[str, Any], model: str = "text_sparse") -> Run:
    return train(emu.model(model), K20X, out=out, backend="numba", overrides=SMALL | settings)


@most_are_slow("settings", [
    {"cluster.nodes": 4},
    {"cluster.nodes": 4, "cluster.bits": 32, "network.input": [96]},
    {"cluster.nodes": 2, "cluster.units": 1, "cluster.exchange": "controllers"},
    {"cluster.nodes": 3, "cluster.workers": [0, 2], "cluster.owners": [1]},
    {"cluster.nodes": 2, "cluster.model_parallel": 2},
    {"cluster.nodes": 2, "cluster.model_parallel": 2, "cluster.model_split": "layers"},
    {"cluster.nodes": 2, "loss_scaling": {"policy": "fixed", "scale": 8.0}, "clipping.rules": [{"rule": "variance"}]},
    {"cluster.nodes": 1},
], keep=[
    {"cluster.nodes": 4},
    {"cluster.nodes": 2, "cluster.units": 1, "cluster.exchange": "controllers"},
    {"cluster.nodes": 2, "loss_scaling": {"policy": "fixed", "scale": 8.0}, "clipping.rules": [{"rule": "variance"}]},
])  # fmt: skip
def test_a_first_step_with_a_sparse_layer_takes_as_long_as_it_is_simulated(tmp_path: Path, settings: dict[str, Any]):
    run = trained(tmp_path / "run", settings)
    found = emu.simulate(
        emu.model("text_sparse"), K20X, nodes=[settings["cluster.nodes"]], batches=[16], overrides=SMALL | settings
    )
    assert run.info["simulated_picoseconds_by_phase"] == {"training": found.steps[0].time.step_ps}


@pytest.mark.parametrize("cluster", [
    {"nodes": 4}, {"nodes": 4, "bits": 32}, {"nodes": 2, "exchange": "controllers"},
])  # fmt: skip
def test_bytes_of_training_are_those_simulated_where_rows_fall_evenly_e6(tmp_path: Path, cluster: dict[str, Any]):
    """Example i has an entry in column i of each quarter of 128 columns: no two have a column in common."""
    lines = [f"{i % 2} " + " ".join(f"{32 * part + i + 1}:1" for part in range(4)) for i in range(32)]
    (tmp_path / "even.svm").write_text("\n".join(lines) + "\n")
    settings = {
        "network.input": [128],
        "network.classes": 2,
        "network.layers": [{"type": "sparse_linear", "out_features": 8}, {"type": "linear", "out_features": 2}],
        "data": {"kind": "svmlight", "source": str(tmp_path / "even.svm"), "test_share": 0.25},
        "training.batch": 8,
        "training.steps": 3,
        **{f"cluster.{name}": value for name, value in cluster.items()},
    }
    run = train(emu.model("text_sparse"), K20X, out=tmp_path / "run", backend="numba", overrides=settings)
    found = emu.simulate(
        emu.model("text_sparse"), K20X, nodes=[cluster["nodes"]], batches=[8], overrides=settings
    ).steps[0].time  # fmt: skip
    assert run.info["metrics"]["bytes_sent"] == 3 * found.sent_bytes
    assert run.info["simulated_picoseconds_by_phase"] == {"training": 3 * found.step_ps}


def test_everything_sends_about_the_bytes_that_are_simulated(tmp_path: Path):
    overrides = {"training.steps": 2, "cluster.warm_start": 0}
    run = train(emu.model("everything"), K20X, out=tmp_path / "run", overrides=overrides)
    found = emu.simulate(emu.model("everything"), K20X, nodes=[4]).steps[0].time
    assert abs(run.info["metrics"]["bytes_sent"] / (2 * found.sent_bytes) - 1) < 0.03
