"""Peak memory: of a lenet training step beside plain NumPy float32, of a whole run, and of a product.

    python benchmarks/memory.py [--device fixed16] [--batch 32]
    python benchmarks/memory.py --product int8 [--size 2048]

Each side runs in its own process. The first figure is the peak of everything allocated by Python and
NumPy during three steps (tracemalloc): the memory of the step. The second is the peak of the whole
process, libraries and compiled kernels included. A run is all steps of the recipe with its report.

A product's figure is the peak of the whole process (float32 arrays as a user has them, checked), less
what stood before: operands, libraries, and the kernels, which a small product has compiled. Beside it
stands what the result alone needs. It reads Linux's /proc.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

STEPS = 3
RATE = 0.03
MOMENTUM = 0.9


def measured(step: Callable[[], None]) -> dict[str, float]:
    step()  # compiles, fills caches
    _release()
    tracemalloc.start()
    for _ in range(STEPS):
        step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"step_mib": peak / 2**20, "process_mib": _peak_mib()}


def emulated(device: str, batch: int) -> dict[str, float]:
    import emu
    from emu.training.loop import Loop
    from emu.training.workbench import Workbench

    recipe = emu.model("lenet").with_settings({"training.batch": batch})
    loop = Loop(Workbench.of(recipe, emu.device(device), "numba"))
    return measured(loop.advance)


def of_run(device: str) -> dict[str, float]:
    """Train lenet in whole."""
    import tempfile

    import emu

    with tempfile.TemporaryDirectory() as folder:
        emu.train("lenet", device=device, out=f"{folder}/run")
    return {"process_mib": _peak_mib()}


#: Formats of operands and result, and the accumulator; None sums exactly.
PRODUCTS = {
    "int8": ("fix8f4", "fix8f4", None),
    "int16": ("fix16f8", "fix16f8", None),
    "fp16": ("fp16", "fp16", "fp32"),
    "fp8": ("fp8_e4m3", "fp16", "fp32"),
}


def of_product(kind: str, size: int) -> dict[str, float]:
    """Multiply square matrices, small ones first: that compiles the kernels."""
    import emu

    operands, out, accumulator = PRODUCTS[kind]
    mac = emu.Mac() if accumulator is None else emu.Mac(accumulator=accumulator)
    formats = {"a_format": operands, "b_format": operands, "out_format": out, "mac": mac}
    rng = np.random.default_rng(0)

    def pair(n: int) -> list[np.ndarray]:
        drawn = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        return [np.asarray(emu.quantize(x, operands), np.float32) for x in drawn]

    for n in (64, 600):
        emu.matmul(*pair(n), **formats)
    a, b = pair(size)
    _release()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from now on
    before = _status_mib("VmRSS")
    result = emu.matmul(a, b, **formats)
    return {"beyond_mib": _status_mib("VmHWM") - before, "result_mib": result.nbytes / 2**20}


def _status_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    [found] = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found) / 2**10


def _release() -> None:
    """Give back what emu keeps to use again, if this process has loaded it."""
    if (memory := sys.modules.get("emu.backends.memory")) is not None:
        memory.release()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


class PlainLenet:
    """LeNet-5 in float32, written as one would by hand: patches kept from forward to backward, momentum."""

    def __init__(self, batch: int) -> None:
        rng = np.random.default_rng(0)
        shapes = [(6, 25), (6,), (16, 150), (16,), (120, 400), (120,), (84, 120), (84,), (10, 84), (10,)]
        self.weights = [(rng.standard_normal(s) * 0.1).astype(np.float32) for s in shapes]
        self.velocity = [np.zeros_like(w) for w in self.weights]
        self.x = rng.random((batch, 1, 28, 28), dtype=np.float32)
        self.labels = rng.integers(0, 10, batch)

    @staticmethod
    def patches(x: np.ndarray, padding: int) -> np.ndarray:
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))
        n, c, rows, columns = windows.shape[:4]
        return windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * 25, rows * columns)

    @staticmethod
    def pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, c, rows, columns = x.shape
        windows = x.reshape(n, c, rows // 2, 2, columns // 2, 2)
        best = windows.max(axis=(3, 5))
        return best, windows == best[:, :, :, None, :, None]

    def step(self) -> None:
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = self.weights
        n = len(self.x)
        p1 = self.patches(self.x, 2)
        a1 = np.maximum((w1 @ p1 + b1[:, None]).reshape(n, 6, 28, 28), 0)
        s1, m1 = self.pool(a1)
        p2 = self.patches(s1, 0)
        a2 = np.maximum((w2 @ p2 + b2[:, None]).reshape(n, 16, 10, 10), 0)
        s2, m2 = self.pool(a2)
        f = s2.reshape(n, 400)
        a3 = np.maximum(f @ w3.T + b3, 0)
        a4 = np.maximum(a3 @ w4.T + b4, 0)
        z = a4 @ w5.T + b5
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(n), self.labels] -= 1
        g5 = p / np.float32(n)
        g4 = (g5 @ w5) * (a4 > 0)
        g3 = (g4 @ w4) * (a3 > 0)
        gs2 = (g3 @ w3).reshape(n, 16, 5, 5)
        g2 = (gs2[:, :, :, None, :, None] * m2).reshape(n, 16, 10, 10) * (a2 > 0)
        g2 = g2.reshape(n, 16, 100)
        columns = (w2.T @ g2).reshape(n, 6, 5, 5, 10, 10)
        gs1 = np.zeros((n, 6, 14, 14), np.float32)
        for i in range(5):
            for j in range(5):
                gs1[:, :, i : i + 10, j : j + 10] += columns[:, :, i, j]
        g1 = (gs1[:, :, :, None, :, None] * m1).reshape(n, 6, 28, 28) * (a1 > 0)
        g1 = g1.reshape(n, 6, 784)
        gradients = [
            np.einsum("nop,ncp->oc", g1, p1, optimize=True),
            g1.sum(axis=(0, 2)),
            np.einsum("nop,ncp->oc", g2, p2, optimize=True),
            g2.sum(axis=(0, 2)),
            g3.T @ f,
            g3.sum(axis=0),
            g4.T @ a3,
            g4.sum(axis=0),
            g5.T @ a4,
            g5.sum(axis=0),
        ]
        for weight, velocity, gradient in zip(self.weights, self.velocity, gradients, strict=True):
            velocity *= MOMENTUM
            velocity += gradient
            weight -= RATE * velocity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="fixed16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--product", choices=PRODUCTS, help="measure a product of matrices instead")
    parser.add_argument("--size", type=int, default=2048, help="of the product's matrices")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        print(json.dumps(SIDES[arguments.side](arguments)))
        return
    options = ["--device", arguments.device, "--batch", str(arguments.batch), "--size", str(arguments.size)]

    def side(name: str, *more: str) -> dict[str, float]:
        command = [sys.executable, __file__, *options, *more, "--side", name]
        return json.loads(subprocess.check_output(command).splitlines()[-1])

    if arguments.product:
        found = side("product", "--product", arguments.product)
        beyond, result = found["beyond_mib"], found["result_mib"]
        print(f"{arguments.product} {arguments.size}: {beyond:.1f} MiB beyond the operands, the result is {result:.1f}")
        return
    ours, plain = side("emu"), side("numpy")
    for name in ("step_mib", "process_mib"):
        ratio = ours[name] / plain[name]
        print(f"{name}: emu {arguments.device} {ours[name]:.1f}, NumPy float32 {plain[name]:.1f}, ratio {ratio:.2f}")
    print(f"whole run: {side('run')['process_mib']:.1f} MiB")


SIDES: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "emu": lambda given: emulated(given.device, given.batch),
    "numpy": lambda given: measured(PlainLenet(given.batch).step),
    "run": lambda given: of_run(given.device),
    "product": lambda given: of_product(given.product, given.size),
}


if __name__ == "__main__":
    main()
