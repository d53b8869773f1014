"""Measure the CUDA backend against the GPU's own limits, and write the table into docs/benchmarks.md.

    python benchmarks/gpu.py

Ten rows of at most a quarter of a minute each, written after every one. Without a GPU it rehearses: every row runs at
a small size on kernels compiled for this processor, and its bits are compared; then it says what it needs the device
for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import emu
import emu.backends.cuda
from benchmarks.measuring.arrays import reals
from benchmarks.measuring.markdown import fill, render
from benchmarks.measuring.sheets import Sheet
from benchmarks.measuring.timing import Pace, alternate, ratios
from emu.backends import registry
from emu.backends.arrays import on_host
from emu.backends.cuda import CudaKernels, Device, loader, nvrtc
from emu.testing import assert_bits_equal
from tests.cuda.cuda_on_host import HostDevice

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
PACE = Pace(rounds=15, least=5, budget_s=10.0, sample_s=0.02, warm_up=2)
ELEMENTS, SIDE, BATCH = 1 << 28, 8192, 64
#: Numbers made on the host, and repeated on the device; the side of such a matrix.
BLOCK, BLOCK_SIDE = 1 << 20, 1024
SMALL_ELEMENTS, SMALL_SIDE, SMALL_BATCH = 1000, 40, 4
COLUMNS = ("work", "emu", "limit", "ratio", "bar", "reached")
Work = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """What is measured: a name, what makes our side and the limit's, how much work it is, the limit's name, the bar."""

    name: str
    sides: Callable[[Device, bool], tuple[Work, Work | None]]
    amount: float
    unit: str
    limit: str
    bar: float | None


def stage(fmt: str, **options: Any) -> Callable[[Device, bool], tuple[Work, Work]]:
    def sides(device: Device, small: bool) -> tuple[Work, Work]:
        found = emu.parse(fmt)
        values = reals(SMALL_ELEMENTS if small else BLOCK, found)
        x = device.xp.tile(device.xp.asarray(values), 1 if small else ELEMENTS // BLOCK)
        out = device.xp.empty(x.shape, np.float32)
        register, flags = emu.StatisticsRegister(), emu.Flags()
        if small:
            expected = emu.quantize(values, found, backend="numba", **options)
            assert_bits_equal(on_host(emu.quantize(x, found, backend="cuda", **options)), expected, found)

        def copy() -> None:
            out[...] = x

        return lambda: emu.quantize(x, found, register=register, flags=flags, backend="cuda", **options), copy

    return sides


def product(fmt: str, out: str, mac: emu.Mac, limit: Any) -> Callable[[Device, bool], tuple[Work, Work]]:
    """Return the sides of a square product; the limit is the vendor's product of arrays of that dtype."""

    def sides(device: Device, small: bool) -> tuple[Work, Work]:
        size, times, rng = (
            SMALL_SIDE if small else BLOCK_SIDE,
            1 if small else SIDE // BLOCK_SIDE,
            np.random.default_rng(1),
        )
        formats = {"a_format": fmt, "b_format": fmt, "out_format": out, "mac": mac}
        operands = [emu.quantize(rng.standard_normal((size, size)), fmt) for _ in range(2)]
        a, b = (device.xp.tile(device.xp.asarray(x), (times, times)) for x in operands)
        size *= times
        register, flags = emu.StatisticsRegister(), emu.Flags()
        ours = {**formats, "register": register, "flags": flags, "check": False, "backend": "cuda"}
        if small:
            expected = emu.matmul(*operands, **formats, backend="numba")
            assert_bits_equal(on_host(emu.matmul(a, b, **ours)), expected, emu.parse(out))
        left, right = (device.xp.ones((1, size - size % 16, size - size % 16), limit) for _ in range(2))
        integers = limit is np.int8  # CuPy itself has no such product; its others are cuBLAS's, without tf32
        vendor = partial(device.multiply, left, right, 1) if integers else partial(device.xp.matmul, left, right)
        return lambda: emu.matmul(a, b, **ours), vendor

    return sides


def step(device: Device, small: bool) -> tuple[Work, Work | None]:
    from emu.training.loop import Loop  # it alone needs all that emu depends on
    from emu.training.workbench import Workbench

    recipe = emu.model("lenet_caffe").with_settings({"training.batch": SMALL_BATCH if small else BATCH})
    loop = Loop(Workbench.of(recipe, emu.device("fixed16"), "cuda"))

    def run() -> None:
        loop.steps.done %= loop.steps.planned
        loop.advance()

    return run, torch_step(loop)


def torch_step(loop: Any) -> Work | None:
    """Return PyTorch's own float32 step on the GPU, None without it."""
    torch: Any = importlib.import_module("torch") if find_spec("torch") else None
    if torch is None or not torch.cuda.is_available():
        return None
    from benchmarks.measuring.row import StepWork
    from benchmarks.measuring.torch_network import plain_optimiser, torch_network

    images, labels = loop.bench.batches.batch(0)
    task = StepWork("fixed16", loop.bench.recipe.network.built(), images, labels, 0.01, 0.9)
    network = torch_network(task).cuda()
    optimiser, loss_of = plain_optimiser(task, network), torch.nn.CrossEntropyLoss()

    def run() -> None:
        batch = torch.from_numpy(images).cuda(), torch.from_numpy(labels).cuda()
        optimiser.zero_grad()
        loss_of(network(batch[0]), batch[1]).backward()
        optimiser.step()
        torch.cuda.synchronize()

    return run


def rows() -> list[Row]:
    """Return every row of the table."""
    macs, copy = float(SIDE) ** 3, "copy on the device"
    found = [
        Row(f"float32 to {fmt}, nearest even", stage(fmt), ELEMENTS, "GElem/s", copy, 0.8)
        for fmt in ("fix8f4", "fix16f8", "fp16", "fp8_e4m3")
    ]
    stochastic = {"rounding": "stochastic", "n_rbits": 24}
    found.append(Row("float32 to fix16f8, stochastic", stage("fix16f8", **stochastic), ELEMENTS, "GElem/s", copy, None))
    exact, in_order = emu.Mac(), emu.Mac(accumulator="fp32")
    products = (
        ("fix8f4, exact", "fix8f4", "fix8f4", exact, np.int8, "cuBLAS int8", 0.5),
        ("fix16f8, exact", "fix16f8", "fix16f8", exact, np.float64, "cuBLAS float64", 0.8),
        ("fix32f16, exact in 128 bits", "fix32f16", "fix32f16", exact, np.float64, "cuBLAS float64", None),
        ("fp16, float32 in order", "fp16", "fp16", in_order, np.float32, "cuBLAS float32", 0.5),
    )
    for name, fmt, out, mac, dtype, limit, bar in products:
        found.append(Row(f"{name}, {SIDE}^3", product(fmt, out, mac, dtype), macs, "GMAC/s", limit, bar))
    return [*found, Row("training step of lenet_caffe, fixed16", step, 1e9, "step/s", "PyTorch float32", None)]


def measured(row: Row, device: Device) -> tuple[str, ...]:
    """Return a row's line."""
    ours, limit = row.sides(device, False)
    wait = device.xp.cuda.Device().synchronize
    sides = [synchronised(side, wait) for side in (ours, limit) if side is not None]
    seconds = alternate(sides, PACE)
    rate = f"{row.amount / 1e9 / float(np.median(seconds[0])):.3g} {row.unit}"
    if limit is None:
        return row.name, rate, f"{row.limit}: absent", "", "", ""
    ratio = ratios(seconds[0], 1.0, seconds[1], 1.0)
    bound = f"{row.limit} {row.amount / 1e9 / float(np.median(seconds[1])):.3g}"
    reached = "" if row.bar is None else "yes" if ratio.median >= row.bar else f"{ratio.median / row.bar:.2f} of it"
    spread = f"{ratio.median:.2f} ({ratio.low:.2f} .. {ratio.high:.2f})"
    return row.name, rate, bound, spread, "" if row.bar is None else f"{row.bar:g}", reached


def synchronised(work: Work, wait: Work) -> Work:
    def run() -> None:
        work()
        wait()

    return run


def rehearse(found: list[Row]) -> None:
    """Run every row at a small size on the host."""
    loader.status = lambda: loader.Status("ready", "ready")
    emu.backends.cuda.on_gpu = lambda: CudaKernels(HostDevice())
    registry.forget()
    for row in found:
        ours, limit = row.sides(HostDevice(), True)
        ours()
        if limit is not None:
            limit()
        print(f"rehearsed on the host, bits compared: {row.name}")


def main(arguments: list[str]) -> None:
    if arguments:
        print(__doc__)
        return
    found, state = rows(), loader.status()
    if state.state != "ready":
        rehearse(found)
        sys.exit(f"benchmarks/gpu.py needs a GPU from here on, to measure {len(found)} rows: {state.reason}")
    device = loader.CupyDevice()
    text, lines = heading(device), list[tuple[str, ...]]()
    for row in found:
        row.sides(device, True)  # compared with the processor's bits
        lines.append(measured(row, device))
        print(*lines[-1], sep="  ", flush=True)
        table = text + render(Sheet("GPU", COLUMNS, tuple(lines)))
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"gpu": table}), encoding="utf-8")


def heading(device: loader.CupyDevice) -> str:
    """Return the line above the table: which GPU, when, and versions."""
    name = device.xp.cuda.runtime.getDeviceProperties(device.xp.cuda.Device().id)["name"].decode()
    day, compiler = datetime.now(UTC).date().isoformat(), ".".join(map(str, nvrtc.version()))
    return f"{name}, {day}; CuPy {device.xp.__version__}, NVRTC {compiler}, emu {emu.__version__}\n\n"


if __name__ == "__main__":
    main(sys.argv[1:])
