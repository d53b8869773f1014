"""How much of each tensor is noise: the device's results against float32 with the same master weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.hardware import load_device
from emu.precision import DatapathRunner, Policy, RecordingRunner
from emu.training.model import Model

Array = NDArray[Any]
#: Images of the batch that is measured.
PROBE_IMAGES = 32


def signal_to_noise(
    model: Model, images: Array, labels: Array, *, seed: int, step: int, backend: str, scale: float = 1.0
) -> list[tuple[str, str, float | None]]:
    """Return layer, role and signal-to-noise ratio in dB of every tensor of one forward and backward pass.

    Args:
        model: network and master weights; unchanged.
        images: a batch, of which the first `PROBE_IMAGES` are used.
        labels: theirs.
        seed: of stochastic rounding.
        step: training step, for the same.
        backend: who computes.
        scale: S of the loss.

    Returns:
        None for a tensor equal to float32's; NaN where float32's is all 0 or either is not finite.
    """
    images, labels = images[:PROBE_IMAGES], labels[:PROBE_IMAGES]
    results: list[dict[tuple[str, str, str], list[Any]]] = []
    for policy in (Policy(load_device("float32").precision), model.policy.at(step)):
        inner = DatapathRunner(policy, seed=seed, backend=backend)
        inner.step = step
        recorder = RecordingRunner(inner)
        model.run(recorder, images, labels, backward=True, scale=scale)
        results.append(recorder.results)
    return [(layer, role, _ratio(*pairs)) for (layer, role), pairs in _paired(*results).items()]


def _paired(
    truth: dict[tuple[str, str, str], list[Any]], measured: dict[tuple[str, str, str], list[Any]]
) -> dict[tuple[str, str], tuple[list[Array], list[Array]]]:
    pairs: dict[tuple[str, str], tuple[list[Array], list[Array]]] = {}
    for (layer, role, part), arrays in truth.items():
        left, right = pairs.setdefault((layer, role), ([], []))
        for a, b in zip(arrays, measured[layer, role, part], strict=True):
            left.append(_array_of(a))
            right.append(_array_of(b))
    return pairs


def _array_of(result: Any) -> Array:
    # pooling returns positions, a loss probabilities, beside their values
    return np.asarray(on_host(result[0] if isinstance(result, tuple) else result), dtype=np.float64).ravel()


def _ratio(truth: list[Array], measured: list[Array]) -> float | None:
    signal = sum(float(np.square(a).sum()) for a in truth)
    with np.errstate(invalid="ignore", over="ignore"):
        noise = sum(float(np.square(a - b).sum()) for a, b in zip(truth, measured, strict=True))
    if noise == 0:
        return None
    if signal == 0 or not math.isfinite(signal) or not math.isfinite(noise):
        return math.nan
    return 10 * math.log10(signal / noise)
