"""Kernels that move bytes, and all-reduces: measured and simulated; nothing is fitted to these rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, fabric_of, play, schedule_of
from emu.formats import Float
from emu.hardware import Demand, Machine, load_device

Floats = npt.NDArray[np.float64]

KERNELS, REDUCES = (Path(__file__).with_name(name) for name in ("memory.csv", "all_reduce.csv"))
FP32 = Float(8, 23)
#: Device file, and the nominal bandwidth of the card that was measured.
CARDS = {"v100": ("v100", 900e9), "p100": ("p100", 732e9), "a100": ("a100", 1555e9)}
#: Device file of eight cards, by the card.
SERVERS = {"v100": "dgx-v100-8x", "a100": "dgx-a100-8x", "h200": "dgx-h200-8x"}
#: Operations with two operands; the others have one.
_BINARY = ("add", "mul")
#: Operations that pass over their operand several times.
SEVERAL = ("softmax", "layernorm")


class Kernel(NamedTuple):
    """A measured kernel over a matrix of float32."""

    card: str
    operation: str
    rows: int
    columns: int
    seconds: float


class Reduce(NamedTuple):
    """A measured all-reduce of some bytes over some GPUs of a server."""

    card: str
    gpus: int
    bytes: int
    seconds: float


def kernels() -> list[Kernel]:
    """Return all measured kernels."""
    with KERNELS.open(newline="") as file:
        return [
            Kernel(
                row["card"], row["operation"], int(row["rows"]), int(row["columns"]), float(row["microseconds"]) * 1e-6
            )
            for row in csv.DictReader(file)
        ]


def reduces() -> list[Reduce]:
    """Return all measured all-reduces."""
    with REDUCES.open(newline="") as file:
        return [
            Reduce(row["card"], int(row["gpus"]), int(row["bytes"]), float(row["microseconds"]) * 1e-6)
            for row in csv.DictReader(file)
        ]


def simulated_kernel(kernel: Kernel) -> float:
    """Return the seconds of an operation that reads each operand once and writes its result once."""
    name, bandwidth = CARDS[kernel.card]
    device = load_device(name)
    nominal = device.compute.memory_bandwidth_bytes_per_s
    assert nominal is not None
    compute = device.compute.model_copy(
        update={"memory_bandwidth_bytes_per_s": nominal.model_copy(update={"value": bandwidth})}
    )
    size = kernel.rows * kernel.columns
    operands = ((FP32, size),) * (2 if kernel.operation in _BINARY else 1)
    demand = Demand(
        "kernel", "activation", "add" if kernel.operation in _BINARY else "relu", size, 0, 0, operands, FP32
    )
    return Machine(device.model_copy(update={"compute": compute})).time_of(demand).duration_ps / 1e12


def simulated_reduce(reduce: Reduce) -> float:
    """Return the seconds of an exchange of gradients of 32 bits: of so many bytes, in stripes of equal size."""
    device = load_device(SERVERS[reduce.card])
    table = ClusterTable(nodes=reduce.gpus, bits=32)
    numbers = reduce.bytes // 4 // reduce.gpus
    gradient = Demand("all", "gradient", "add", 1, 0, 0, ((FP32, 1),) * 2, FP32)
    share = Share([gradient], (), {"all.weight": (reduce.gpus, numbers)})
    schedule = schedule_of(table, Machine(device), fabric_of(table, device), share)
    return play(schedule.exchange_alone()).step_ps / 1e12
