"""One pass in float32 and one on the device, with the same master weights.

It measures the noise of each tensor, and the range of errors and gradients that the device must represent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.datapath import StatisticsRegister
from emu.hardware import load_device
from emu.precision import BACKWARD_ROLES, CounterTable, DatapathRunner, Policy, RecordingRunner
from emu.precision.dynamic_point import make_runner
from emu.training.data_tables import Inputs
from emu.training.workbench.model import Model

Array = NDArray[Any]
#: Examples of the batch that are measured.
PROBE_EXAMPLES = 32
#: Positions of registers that count float32's exponents: from -149, of the smallest subnormal number, to 127.
LOWEST, BINS = -149, 277


class Probe(NamedTuple):
    """The difference between a pass in float32 and one on the device.

    Attributes:
        ratios: layer, role and signal-to-noise ratio in dB of each tensor; None if it equals float32's, NaN if
            float32's is all 0 or either is not finite.
        exponents: role, exponent (of leading bits, None for 0) and count of float32's errors and gradients, over all
            layers, S taken out.
    """

    ratios: list[tuple[str, str, float | None]]
    exponents: list[tuple[str, int | None, int]]


def probe(
    model: Model, inputs: Inputs, labels: Array, *, seed: int, step: int, backend: str, scale: float = 1.0
) -> Probe:
    """Run a forward and a backward pass in float32 and on the device, and return how they differ.

    Args:
        model: network and master weights; unchanged.
        inputs: a batch, of which the first `PROBE_EXAMPLES` are used.
        labels: labels of the batch.
        seed: seed of stochastic rounding.
        step: training step, which selects random bits and formats.
        backend: backend that computes.
        scale: S of the loss in both passes.
    """
    # a slice of rows, of an array or of a sparse matrix
    inputs, labels = inputs[:PROBE_EXAMPLES], labels[:PROBE_EXAMPLES]
    results: list[dict[tuple[str, str, str], list[Any]]] = []
    counters = CounterTable(lambda: StatisticsRegister(LOWEST, BINS))
    options: dict[str, Any] = {"seed": seed, "backend": backend}
    for inner in (
        # only this pass is counted: the device's counts are those of training itself
        DatapathRunner(Policy(load_device("float32").precision), counters=counters, **options),
        # points stay as they are: a probe must not change the run
        make_runner(model.policy.at(step), model.points, frozen_at=step, **options),
    ):
        inner.step = step
        # results in the order of the passes, which apply the same operations
        recorder = RecordingRunner(inner)
        model.run(recorder, inputs, labels, backward=True, scale=scale)
        results.append(recorder.results)
    ratios = [(layer, role, _ratio(*pairs)) for (layer, role), pairs in _paired(*results).items()]
    # frexp gives 2**n the exponent n + 1; S should be a power of two, and then n is exact
    return Probe(ratios, list(_exponents(counters, math.frexp(scale)[1] - 1)))


def _exponents(counters: CounterTable, shift: int) -> Iterator[tuple[str, int | None, int]]:
    for role in BACKWARD_ROLES:
        histogram: dict[int, int] = {}
        zeros = 0
        for (_, counted), counts in counters.items():
            if counted == role:
                zeros += counts.register.none
                for exponent, count in counts.register.histogram().items():
                    # gradients and errors carry S: taking it out of an exponent is a subtraction
                    histogram[exponent - shift] = histogram.get(exponent - shift, 0) + count
        yield from ((role, exponent, count) for exponent, count in sorted(histogram.items()))
        yield role, None, zeros


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
    # pooling returns its values with their positions, a loss returns its value with probabilities
    return np.asarray(on_host(result[0] if isinstance(result, tuple) else result), dtype=np.float64).ravel()


def _ratio(truth: list[Array], measured: list[Array]) -> float | None:
    # squares of float32 numbers, below 2**256, cannot overflow float64; differences from infinities can be NaN
    signal = sum(float(np.square(a).sum()) for a in truth)
    with np.errstate(invalid="ignore", over="ignore"):
        noise = sum(float(np.square(a - b).sum()) for a, b in zip(truth, measured, strict=True))
    # equal numbers: the ratio would be infinite, which the table writes as null
    if noise == 0:
        return None
    if signal == 0 or not math.isfinite(signal) or not math.isfinite(noise):
        return math.nan
    return 10 * math.log10(signal / noise)
