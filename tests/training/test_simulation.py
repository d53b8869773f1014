"""Simulated time of training: the sum of what every operation, every redo and every transfer costs."""

from __future__ import annotations

import json
from typing import Any

import emu
from emu.cluster.timing.program import LINK, REDO
from emu.hardware import DECISION, ROLES, Demand, Device, Machine, machine_of
from emu.training.time.simulation import HostWork, Simulation

WORD, FP32 = emu.parse("fix16f10"), emu.parse("fp32")
#: 4 lanes at 1 GHz, a host of 2 lanes at 1 GHz, a link of 1 GB/s behind 1 ns: a cycle is 1000 ps, and so is a byte.
TEXT: dict[str, Any] = {
    "name": "small",
    "description": "d",
    "source": "s",
    "precision": {
        "register": {"bins": 7, "counter_bits": 16},
        **{role: {"format": "fix16f10"} for role in ROLES},
    },
    "compute": {
        "clock_hz": {"value": 1e9, "source": "s"},
        "units": {
            "vector": {"kind": "mac_array", "lanes": {"value": 4, "source": "s"}, "operands": ["fix*"]},
            "host": {"kind": "host", "lanes": {"value": 2, "source": "s"}},
        },
    },
    "links": [
        {
            "to": "host",
            "bandwidth_bytes_per_s": {"value": 1e9, "source": "s"},
            "latency_s": {"value": 1e-9, "source": "s"},
        }
    ],
}
#: 100 results of 8 multiply-adds each: 200 cycles. A register of 7 positions of 16 bits and its total: 16 bytes.
PRODUCT = Demand("fc1", "activation", "matmul", 100, 800, 0, ((WORD, 80), (WORD, 80)), WORD)
AGAIN = PRODUCT._replace(again=True)
UPDATE = Demand("fc1", "update", "add", 40, 0, 0, ((WORD, 40), (WORD, 40)), WORD)
DECIDE = Demand("fc1", "activation", DECISION, 0, 0, 0, (), None)
LOSS = Demand("loss", "loss", "mse", 1, 0, 3, ((WORD, 10), (FP32, 10)), FP32)
NS = 1000


def simulation(batch_elements: int = 10, *, on_host: bool = True) -> Simulation:
    return Simulation(Machine(Device.model_validate(TEXT)), HostWork(batch_elements, batch_elements, on_host))


def step(of: Simulation, *demands: Demand, number: int = 1, phase: str = "training") -> int:
    """Return how long a step with these demands took."""
    before = of.total_ps
    of.demands += demands
    of.end_step(number, phase)
    return of.total_ps - before


def spent(of: Simulation, kind: str) -> int:
    return sum(row["picoseconds"] for row in of.rows() if row["kind"] == kind)


def test_a_step_is_its_operations_one_after_the_other():
    sim = simulation()
    step(sim, PRODUCT)
    assert step(sim, PRODUCT, UPDATE) == (200 + 10) * NS
    assert spent(sim, "forward") == 400 * NS
    assert spent(sim, "update") == 10 * NS


def test_every_redo_is_charged_like_the_first_run():
    sim = simulation()
    step(sim, PRODUCT)
    once = step(sim, PRODUCT, DECIDE)
    twice = step(sim, PRODUCT, DECIDE, AGAIN)
    assert twice - once == 200 * NS == spent(sim, REDO)
    assert [row["calls"] for row in sim.rows() if row["kind"] == REDO] == [1]


def test_a_decision_on_the_host_costs_a_register_up_and_a_point_down():
    on_host, on_device = simulation(), simulation(on_host=False)
    for sim in (on_host, on_device):
        step(sim, PRODUCT)
    assert step(on_host, PRODUCT, DECIDE) == (200 + 1 + 16 + 1 + 1) * NS
    assert step(on_device, PRODUCT, DECIDE) == 200 * NS


def test_the_host_works_on_words_that_come_and_go_over_the_link():
    """20 bytes up, 3 passes over 10 elements on 2 lanes; its float32 result stays where it is."""
    sim = simulation()
    step(sim, PRODUCT)
    assert step(sim, PRODUCT, LOSS) == (200 + 1 + 20 + 15) * NS
    assert spent(sim, "host") >= 15 * NS


def test_the_next_batch_is_prepared_and_sent_while_the_device_runs():
    """1000 elements: 500 cycles of the host, 1000 bytes; a step that is shorter waits for them."""
    sim = simulation(1000)
    step(sim, PRODUCT)
    assert step(sim, PRODUCT) == 1501 * NS
    assert step(sim, *[PRODUCT] * 8) == 1600 * NS


def test_the_first_step_waits_for_its_program_and_its_batch():
    """10 elements: 5 cycles of the host, 10 bytes, and 64 for each operation of the program."""
    sim = simulation()
    assert step(sim, PRODUCT, UPDATE) == (5 + 1 + 10 + 2 * 64 + 210) * NS


def test_rows_add_up_to_the_time_and_the_bytes_of_units_and_of_the_link_in_the_events():
    sim = simulation()
    for number in (1, 2):
        step(sim, PRODUCT, DECIDE, AGAIN, LOSS, UPDATE, number=number)
    for resource in ("vector", "host", LINK):
        events = [event for event in sim.events if event.resource == resource]
        rows = [row for row in sim.rows() if row["unit"] == resource]
        assert sum(event.duration_ps for event in events) == sum(row["picoseconds"] for row in rows)
        if resource != "host":  # its bytes are the link's
            assert sum(event.details["bytes"] for event in events) == sum(row["bytes"] for row in rows) > 0


def test_the_first_two_steps_of_each_phase_are_kept_event_by_event():
    sim = simulation()
    for number in range(1, 9):
        step(sim, PRODUCT, number=number, phase="pre-training" if number < 4 else "training")
    kept = {(event.details["phase"], event.details["step"]) for event in sim.events}
    assert kept == {("pre-training", 1), ("pre-training", 2), ("training", 4), ("training", 5)}
    assert sum(sim.by_phase.values()) == sim.total_ps


def test_a_simulation_goes_on_from_plain_data_as_if_it_had_not_stopped():
    work = [(PRODUCT, DECIDE), (PRODUCT, DECIDE, AGAIN), (PRODUCT, UPDATE), (LOSS,)]
    whole, first, second = simulation(), simulation(), simulation()
    for number, demands in enumerate(work, 1):
        step(whole, *demands, number=number)
    for number, demands in enumerate(work[:2], 1):
        step(first, *demands, number=number)
    second.load(json.loads(json.dumps(first.to_dict())))
    for number, demands in enumerate(work[2:], 3):
        step(second, *demands, number=number)
    assert second.to_dict() == whole.to_dict()
    assert second.seconds == whole.seconds


def test_the_node_of_an_event_is_kept_and_events_of_older_checkpoints_are_those_of_the_first():
    sim, again = simulation(), simulation()
    step(sim, PRODUCT)
    sim.events.append(sim.events[0]._replace(node=3))
    data = json.loads(json.dumps(sim.to_dict()))
    assert {len(event) for event in data["events"][:-1]} == {6}
    again.load(data)
    assert again.events == sim.events
    assert {event.node for event in again.events[:-1]} == {0}


def test_an_interval_begins_anew_and_the_total_goes_on():
    sim = simulation()
    step(sim, PRODUCT)
    sim.reset()
    assert sim.rows() == []
    taken = sim.total_ps
    step(sim, UPDATE)
    assert sim.total_ps > taken
    assert spent(sim, "forward") == 0


def test_a_device_without_a_link_decides_for_itself_and_one_without_a_clock_has_no_time():
    sim = Simulation(Machine(Device.model_validate(TEXT | {"links": []})), HostWork(10, 10, True))
    step(sim, PRODUCT)
    assert step(sim, PRODUCT, DECIDE) == 200 * NS
    compute = {key: value for key, value in TEXT["compute"].items() if key != "clock_hz"}
    assert machine_of(Device.model_validate(TEXT | {"compute": compute})) is None


# ---- sparse layers ----

#: As docs/sparse.md has it by hand: 6 entries give 4 rows of 2; indices have 64 bytes.
SPARSE = Demand("words", "gradient", "sparse_transposed_matmul", 8, 12, 0, ((WORD, 6), (WORD, 8)), WORD, False, 64)


def sparse_simulation() -> Simulation:
    compute = TEXT["compute"] | {"memory_bandwidth_bytes_per_s": {"value": 1e9, "source": "s"}}
    machine = Machine(Device.model_validate(TEXT | {"compute": compute}))
    return Simulation(machine, HostWork(1, 1), sparse_columns={"words": 6})


def test_a_step_is_charged_its_sparse_product_and_no_transposed_copy_e1():
    """12 + 16 + 16 bytes of words, 64 of indices: 108; a copy reads 76 and writes 12 and 4 * 13: 140."""
    sim = sparse_simulation()
    step(sim, SPARSE)
    assert step(sim, SPARSE) == 108 * NS
    assert sim.sparse_rows() == [
        {
            "layer": "words",
            "entries": 12,
            "rows": 8,
            "product_ps": 2 * 108 * NS,
            "transpose_ps": 2 * 140 * NS,
            "product_bytes": 2 * 108,
            "transpose_bytes": 2 * 140,
        }
    ]
    charged = [row for row in sim.rows() if row["layer"] == "words"]
    assert [(row["picoseconds"], row["bytes"]) for row in charged] == [(2 * 108 * NS, 2 * 108)]


def test_a_product_that_runs_again_would_need_no_second_copy_e1():
    sim = sparse_simulation()
    step(sim, SPARSE, SPARSE._replace(again=True))
    (row,) = sim.sparse_rows()
    assert (row["product_ps"], row["transpose_ps"]) == (2 * 108 * NS, 140 * NS)
    assert (row["entries"], row["rows"]) == (6, 4)


def test_a_batch_without_entries_has_no_rows():
    empty = SPARSE._replace(results=0, multiply_adds=0, operands=((WORD, 0), (WORD, 8)), index_bytes=40)
    sim = sparse_simulation()
    step(sim, empty)
    (row,) = sim.sparse_rows()
    assert (row["entries"], row["rows"], row["transpose_bytes"]) == (0, 0, 40 + 4 * 7)


def test_sparse_costs_go_on_from_plain_data_and_begin_anew_with_an_interval():
    whole, first, second = sparse_simulation(), sparse_simulation(), sparse_simulation()
    for number in (1, 2, 3):
        step(whole, SPARSE, number=number)
    step(first, SPARSE)
    second.load(json.loads(json.dumps(first.to_dict())))
    for number in (2, 3):
        step(second, SPARSE, number=number)
    assert second.to_dict() == whole.to_dict()
    assert second.sparse_rows() == whole.sparse_rows()
    second.reset()
    assert second.sparse_rows() == []


def test_a_checkpoint_without_sparse_costs_is_read():
    sim = sparse_simulation()
    data = sim.to_dict()
    del data["sparse"]
    sim.load(data)
    assert sim.sparse_rows() == []


def test_a_batch_of_another_size_changes_only_the_steps_that_follow():
    sim, small = simulation(), simulation()
    for of in (sim, small):
        step(of, UPDATE)
    sim.resize(1000, 1000)
    assert step(sim, UPDATE) > step(small, UPDATE)
    sizes = {of: sum(row["bytes"] for row in of.rows() if row["kind"] == "transfer") for of in (sim, small)}
    assert sizes[sim] - sizes[small] == 1000 - 10


def test_plain_data_replace_what_a_simulation_has_spent():
    saved, used = simulation(), simulation()
    step(saved, PRODUCT)
    step(used, UPDATE)
    used.load(json.loads(json.dumps(saved.to_dict())))
    assert used.rows() == saved.rows()
