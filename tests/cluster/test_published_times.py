"""The published times of 1-bit SGD beside those simulated on `k20x-8x`: no number is fitted to a row.

python -m tests.cluster.test_published_times    prints the table of docs/simulate.md
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import emu
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, StepSchedule, fabric_of, play, schedule_of
from emu.formats import Float
from emu.hardware import Demand, Machine, load_device
from emu.training.cluster_time import SimulatedStep

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulate.md"
DEVICE, FP32 = load_device("k20x-8x"), Float(8, 23)
#: Columns of 2048 float32 numbers: 46.0 million, as published.
COLUMNS, ROWS = 22461, 2048


#: What the source says of its program: AdaGrad on the gradients, momentum on their sum, one bit, one step late, and a
#: mini-batch that is worked through in two halves, one of which is exchanged while the other is computed.
PROGRAM = {"training.optimiser.name": "adagrad"}
EXCHANGE = {"cluster.rule": "momentum"}
HALVES = 2


class Row(NamedTuple):
    """A published number, ours without a schedule, and ours with the program of the source."""

    what: str
    published: float
    predicted: float
    unit: str
    scheduled: float | None = None

    @property
    def error(self) -> float:
        """Of the prediction, in percent."""
        return 100 * (self.predicted / self.published - 1)

    @property
    def scheduled_error(self) -> float:
        """Of the prediction with the program of the source, in percent."""
        assert self.scheduled is not None
        return 100 * (self.scheduled / self.published - 1)

    def line(self) -> str:
        cells = [
            self.what,
            f"{self.published:g} {self.unit}",
            f"{self.predicted:.4g} {self.unit}",
            f"{self.error:+.1f} %",
        ]
        if self.scheduled is not None:
            cells += [f"{self.scheduled:.4g} {self.unit}", f"{self.scheduled_error:+.1f} %"]
        return "| " + " | ".join(cell.strip() for cell in cells) + " |"


@lru_cache
def step(nodes: int, batch: int, parts: int = 1, *, as_published: bool = False) -> SimulatedStep:
    """Return dnn46m at one bit, one step late; with the program of the source, on half a mini-batch."""
    overrides: dict[str, object] = dict(PROGRAM) if as_published else {}
    if nodes * parts > 1:
        overrides |= {"cluster.double_buffering": True, "cluster.model_parallel": parts}
        if as_published:
            overrides |= EXCHANGE
            batch //= HALVES
    found = emu.simulate(emu.model("dnn46m"), DEVICE, nodes=[nodes], batches=[batch], bits=[1], overrides=overrides)
    return found.steps[0]


def exchange(nodes: int, bits: int) -> StepSchedule:
    """Return the exchange of 46 million gradients alone."""
    table = ClusterTable(nodes=nodes, bits=bits)
    gradient = Demand("all", "gradient", "add", 1, 0, 0, ((FP32, 1),) * 2, FP32)
    share = Share([gradient], (), {"all.weight": (COLUMNS, ROWS)})
    return schedule_of(table, Machine(DEVICE), fabric_of(table, DEVICE), share)


def transfers() -> list[Row]:
    published = {2: (184, 30.7, 5.93), 4: (276, 46.0, 8.89), 8: (322, 53.7, 10.38)}
    rows: list[Row] = []
    for nodes, (size, time, _) in published.items():
        found = sent(nodes, 32)
        rows.append(Row(f"{nodes} nodes, float32: a node sends", size, found[0] / 1e6, "MB"))
        rows.append(Row(f"{nodes} nodes, float32: at 6 GB/s in", time, found[1] / 1e9, "ms"))
    return rows + [
        Row(f"{nodes} nodes, one bit: a node sends", size, sent(nodes, 1)[0] / 1e6, "MB")
        for nodes, (_, _, size) in published.items()
    ]


@lru_cache
def sent(nodes: int, bits: int) -> tuple[float, int]:
    """Return bytes that a node sends in an exchange, and picoseconds that it takes."""
    found = play(exchange(nodes, bits).exchange_alone())
    return found.sent_bytes / nodes, found.step_ps


def speed(what: str, published: float, nodes: int, batch: int, parts: int = 1) -> Row:
    """Return a row of thousands of frames in a second."""
    ours, theirs = (step(nodes, batch, parts, as_published=like).samples_per_s / 1e3 for like in (False, True))
    return Row(what, published, ours, "kfps", theirs)


def speed_up(what: str, published: float, batch: int) -> Row:
    """Return a row of the speed of eight nodes against that of one."""
    ours, theirs = (
        step(8, batch, as_published=like).samples_per_s / step(1, batch, as_published=like).samples_per_s
        for like in (False, True)
    )
    return Row(what, published, ours, "", theirs)


def alone() -> list[Row]:
    return [
        speed("1 GPU, mini-batch 2880", 7.5, 1, 2880),
        speed("1 GPU, mini-batch 16k", 8.1, 1, 16384),
    ]


def speeds() -> list[Row]:
    return [
        speed("8x1, mini-batch 16k", 50.6, 8, 16384),
        speed("4x2, mini-batch 16k (not stated)", 40.9, 4, 16384, 2),
        speed("8 nodes, mini-batch 2880", 27, 8, 2880),
        speed("8 nodes, mini-batch 16k", 51, 8, 16384),
        speed_up("speed-up over one GPU, 2880", 3.6, 2880),
        speed_up("speed-up over one GPU, 16k", 6.3, 16384),
    ]


def rows() -> list[Row]:
    return [*transfers(), *alone(), *speeds()]


def test_the_page_shows_every_published_number_beside_ours_c():
    text = PAGE.read_text(encoding="utf-8")
    for row in rows():
        assert row.line() in text


def test_published_transfers_are_predicted_as_printed_but_for_latency_c6():
    """Sizes as they are printed; times longer by the 20 us of two phases."""
    for row in transfers():
        latency = 100 * 0.02 / row.published if row.unit == "ms" else 0
        digits = 0.5 if row.published > 100 else 0.05 if row.unit == "ms" else 0.006
        assert abs(row.predicted * (1 - latency / 100) - row.published) <= digits, row.what


def test_the_order_of_published_speeds_is_predicted_c():
    """The larger mini-batch the faster, and with the higher speed-up; 8x1 before 4x2 by physics alone.

    With the program of the source, 4x2 comes out level with 8x1, which it was not.
    """
    for like in (False, True):
        large, small = step(8, 16384, as_published=like), step(8, 2880, as_published=like)
        assert large.samples_per_s > small.samples_per_s
        assert large.speed_up > small.speed_up
    assert step(8, 16384).samples_per_s > step(4, 16384, 2).samples_per_s
    whole, parts = (
        at.samples_per_s for at in (step(8, 16384, as_published=True), step(4, 16384, 2, as_published=True))
    )
    assert abs(parts / whole - 1) < 0.005
    assert all(row.error > 0 for row in (*alone(), *speeds())), "without a schedule, what costs time is left out"


#: Errors of a model whose units always work at the speed that a vendor printed for large products, in percent.
AT_THE_PEAK = (58.8, 81.6, 146.1, 57.5, 78.8, 21.7)


def test_one_gpu_is_predicted_within_a_tenth_and_eight_at_least_twice_as_well_as_at_the_peak_c():
    assert all(abs(row.scheduled_error) <= 10 for row in alone())
    for row, before in zip(speeds(), AT_THE_PEAK, strict=True):
        assert abs(row.error) < before
        assert abs(row.scheduled_error) <= before / 2, row.what


if __name__ == "__main__":
    for found in rows():
        print(found.line())
