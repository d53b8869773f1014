"""Peak memory of a lenet training step against the same step in plain NumPy float32.

    python benchmarks/memory.py [--device fixed16] [--batch 32]

Each side runs in its own process. The first figure is the peak of everything allocated by Python and
NumPy during three steps (tracemalloc): the memory of the step. The second is the peak of the whole
process, libraries and compiled kernels included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np

STEPS = 3
RATE = 0.03
MOMENTUM = 0.9


def measured(step: Callable[[], None]) -> dict[str, float]:
    step()  # compiles, fills caches
    tracemalloc.start()
    for _ in range(STEPS):
        step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"step_mib": peak / 2**20, "process_mib": whole / 2**10}


def emulated(device: str, batch: int) -> dict[str, float]:
    import emu
    from emu.training.loop import Loop
    from emu.training.workbench import Workbench

    recipe = emu.model("lenet").with_settings({"training.batch": batch})
    loop = Loop(Workbench.of(recipe, emu.device(device), "numba"))
    return measured(loop.advance)


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
    parser.add_argument("--side", choices=("emu", "numpy"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side == "emu":
        print(json.dumps(emulated(arguments.device, arguments.batch)))
        return
    if arguments.side == "numpy":
        print(json.dumps(measured(PlainLenet(arguments.batch).step)))
        return
    options = ["--device", arguments.device, "--batch", str(arguments.batch)]
    sides = {
        side: json.loads(subprocess.check_output([sys.executable, __file__, *options, "--side", side]))
        for side in ("emu", "numpy")
    }
    for name in ("step_mib", "process_mib"):
        ours, plain = sides["emu"][name], sides["numpy"][name]
        print(f"{name}: emu {arguments.device} {ours:.1f}, NumPy float32 {plain:.1f}, ratio {ours / plain:.2f}")


if __name__ == "__main__":
    main()
