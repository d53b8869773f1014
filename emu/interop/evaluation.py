"""What a device does to a network from elsewhere, layer by layer, without training.

    float32 pass ──► answers, results of every step ─────┐
    device pass ───► answers, results of every step ─────┴──► signal to noise of each step
    one step on the device, all others in float32 ──────────► how many answers change because of this step alone

A step alone reads its inputs in the device's formats of the steps that write them, its parameters in the device's
formats, and writes its result in them. Only the steps that depend on it are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.autodiff import Tensor, Value
from emu.backends.arrays import on_host
from emu.errors import ConfigError, nearest_name
from emu.formats import PRESETS
from emu.hardware import Device, load_device
from emu.interop.examples import Examples, examples_for
from emu.interop.graph import Graph, Machine
from emu.interop.loading import load
from emu.nn.layer import Shape
from emu.nn.network import answers_of
from emu.nn.wired import Step, Wired
from emu.precision import CounterTable, Policy

Array = NDArray[Any]
FLOAT32 = PRESETS["fp32"]
#: Examples of a pass.
BATCH = 64
#: Receives how many steps of the work are done, and how many there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StepError:
    """What a device does to one step.

    Attributes:
        name: the step.
        kind: its operator in the file.
        signal_to_noise_db: of its result when the whole network is on the device, against float32; infinite if equal.
        alone_changed: answers that differ from float32's if this step alone is on the device; None if not asked.
        alone_accuracy: accuracy then; None without labels, or if not asked.
        overflow: share of its results that overflowed when the whole network was on the device.
        underflow: share that became 0 or lost all but subnormal digits.
        weights_overflow: share of its parameters that overflowed.
        has_elements: whether it computes with integers of the graph, for which the device has no format.
    """

    name: str
    kind: str
    signal_to_noise_db: float
    alone_changed: int | None
    alone_accuracy: float | None
    overflow: float
    underflow: float
    weights_overflow: float
    has_elements: bool = False


@dataclass(frozen=True)
class GraphEvaluation(Drawn):
    """What a device does to a network.

    Attributes:
        path: file of the network.
        device: name of the device.
        examples: how many there were.
        accuracy: share of examples that the device classifies right; None without labels.
        float_accuracy: the same in float32.
        changed: answers that differ between the two.
        answers: how many answers there are: examples, times positions of each; 0 if the output names no classes.
        largest_difference: of the outputs; NaN if one of them is NaN.
        steps: steps that compute, worst first.
        counters: registers and flags of the device's pass.
    """

    path: Path
    device: str
    examples: int
    accuracy: float | None
    float_accuracy: float | None
    changed: int
    answers: int
    largest_difference: float
    steps: tuple[StepError, ...]
    counters: CounterTable


def evaluate_graph(
    network: str | Path | Graph,
    device: str | Path | Device,
    data: str | Path | Examples,
    *,
    only: str | Sequence[str] = ("*",),
    backend: str = "auto",
    progress: Progress | None = None,
) -> GraphEvaluation:
    """Return what a device does to a network from an ONNX file.

    Args:
        network: the file, or what `emu.onnx.load` returns.
        device: formats and units: a name, a path, or what `emu.device` returns.
        data: examples, or a file of them; see `emu.interop.examples`.
        only: globs of the steps that are tried alone; a string is one glob, and none tries none.
        backend: backend that computes.
        progress: receives how far it is.

    Raises:
        ConfigError: network, device or data cannot be used, or no step has such a name.
        ShapeError: inputs have not the shape that the network reads.
        FormatError: elements do not fit the 8 bits of the network's input.
    """
    only = (only,) if isinstance(only, str) else only
    graph = network if isinstance(network, Graph) else load(network)
    machine = load_device(device)
    require_usable(graph, machine)
    wired = graph.wired()
    examples = examples_for(graph, data)
    # a step that only moves numbers rounds nothing, and one of elements has no format of the device
    alone = [step for step in wired.steps if not step.only_moves and not step.has_elements]
    chosen = [step for step in alone if _is_chosen(step.name, only)]
    names = [step.name for step in alone]
    for glob in only:
        # "*" may match nothing: a network of moves and integers alone has no step to try
        if glob == "*" or any(fnmatchcase(name, glob) for name in names):
            continue
        of_elements = any(fnmatchcase(step.name, glob) for step in wired.steps if step.has_elements)
        hint = ", which computes with integers of the graph; leave it out" if of_elements else nearest_name(glob, names)
        raise ConfigError(f"`only` must match a layer that computes with formats of the device, got {glob!r}{hint}")
    require_classes(wired, examples)
    return _Comparison(graph, wired, machine, examples, chosen, backend, progress).result()


def _is_chosen(name: str, only: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in only)


def require_usable(graph: Graph, device: Device) -> None:
    """Raise ConfigError if a network has several inputs, or a device leaves binary points open."""
    if len(graph.inputs) != 1:
        raise ConfigError(
            f"a network that is evaluated must have one input, got {', '.join(graph.inputs)} of {graph.path}; call "
            "emu.onnx.load(path)(...) with an array for each"
        )
    if device.has_open_points:
        raise ConfigError(
            f"a device must say every binary point to evaluate a network from elsewhere, got {device.name!r}, whose "
            "points follow from training; choose formats such as fix8f4"
        )


def classes_of(shape: Shape) -> int | None:
    """Return how many classes an output names, (N, classes) or (N, length, classes); None if it names none.

    Axes of size 1 after the second, as global pooling leaves them, do not count.
    """
    sizes = list(shape)
    while len(sizes) > 2 and sizes[-1] == 1:
        del sizes[-1]
    return sizes[-1] if len(sizes) in (2, 3) and sizes[-1] > 1 else None


def require_classes(wired: Wired, examples: Examples) -> None:
    """Raise ConfigError if examples have labels that the network's first output has no class for."""
    shape = (len(examples), *wired.result)
    classes = classes_of(shape)
    if examples.labels is None:
        return
    if classes is None:
        raise ConfigError(
            f"labels must be of a network whose output is (n, classes), got an output of {shape}; leave the labels out"
        )
    if examples.labels.size and int(examples.labels.max()) >= classes:
        raise ConfigError(
            f"labels must be 0..{classes - 1}, the network's classes, got {int(examples.labels.max())} in "
            f"{examples.source}; check the data"
        )


def _answers(output: Array) -> Array:
    """Return the class that each output names; none if it names no classes."""
    if classes_of(output.shape) is None:
        return np.zeros(0, np.int64)
    while output.ndim > 2 and output.shape[-1] == 1:
        output = output[..., 0]
    return answers_of(output)


class _Sums(NamedTuple):
    """Squares of results, and of their distance from float32's."""

    signal: float = 0.0
    noise: float = 0.0

    def plus(self, exact: Any, written: Any) -> _Sums:
        # equal infinities, as of masked scores of attention, are no noise, and say nothing of the signal
        infinite = np.isinf(exact) & (written == exact)
        # of float64, so squares of finite float32 do not overflow; infinities and NaN need no warning
        with np.errstate(all="ignore"):
            signal = float(np.square(np.where(infinite, 0.0, exact)).sum())
            noise = float(np.square(np.where(infinite, 0.0, written - exact)).sum())
        # NaN, and infinities where the other number is finite, count as infinite noise
        return _Sums(self.signal + signal, self.noise + (noise if math.isfinite(noise) else math.inf))

    @property
    def decibels(self) -> float:
        if self.noise == 0:
            return math.inf
        return -math.inf if self.signal == 0 or math.isinf(self.noise) else 10 * math.log10(self.signal / self.noise)


class _Comparison:
    """The passes of an evaluation."""

    def __init__(
        self, graph: Graph, wired: Wired, device: Device, examples: Examples, chosen: Sequence[Step], backend: str,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        self._graph, self._wired, self._device, self._examples = graph, wired, device, examples
        self._chosen, self._progress = chosen, progress
        self._counters = CounterTable(Policy(device.precision).register)
        self._exact = Machine(wired, load_device("float32"), backend)
        self._whole = Machine(wired, device, backend, self._counters)
        # without counters: what one step writes alone must not be counted with the whole device's pass
        self._alone = Machine(wired, device, backend)
        self._writers = wired.writers()
        self._sums: dict[str, _Sums] = {}
        self._answers: list[Array] = []
        self._own: dict[str, list[Array]] = {step.name: [] for step in chosen}
        self._whole_answers: list[Array] = []
        self._largest = 0.0

    def result(self) -> GraphEvaluation:
        """Run all passes."""
        starts = range(0, len(self._examples), BATCH)
        # for each batch the float32 pass, the device's, and one for each step alone
        work, done = len(starts) * (len(self._chosen) + 2), 0
        for start in starts:
            for _ in self._batch(self._examples.inputs[start : start + BATCH]):
                done += 1
                if self._progress is not None:
                    self._progress(done, work)
        return self._evaluation()

    def _batch(self, inputs: Array) -> Any:
        """Run a batch; yield after every pass."""
        # of this batch's shapes: the last batch may be shorter
        steps = self._wired.steps_of((inputs.shape,))
        exact = self._pass(self._exact, steps, inputs)
        yield
        whole = self._pass(self._whole, steps, inputs)
        output = self._wired.returns[0]
        numbers = {name: _numbers(tensor.value) for name, tensor in exact.items()}
        for step in steps:
            if not step.only_moves:
                before = self._sums.get(step.name, _Sums())
                self._sums[step.name] = before.plus(numbers[step.name], _numbers(whole[step.name].value))
        self._answers.append(_answers(numbers[output]))
        written = _numbers(whole[output].value)
        self._whole_answers.append(_answers(written))
        with np.errstate(invalid="ignore"):
            # equal infinities differ by nothing
            apart = np.where(written == numbers[output], 0.0, np.abs(written - numbers[output]))
        self._largest = float(np.maximum(self._largest, apart.max(initial=0.0)))  # NaN stays
        yield
        # each step alone, after both whole passes: it reads float32's results
        for place, step in enumerate(steps):
            if step.name in self._own:
                self._own[step.name].append(_answers(_numbers(self._with_one(steps, place, exact, output))))
                yield

    def _pass(self, machine: Machine, steps: Sequence[Step], inputs: Array) -> dict[str, Tensor]:
        known = dict(zip(self._wired.inputs, machine.inputs([inputs]), strict=True))
        for step in steps:
            known[step.name] = step.apply(machine.tape, known, machine.constants)
        return known

    def _with_one(self, steps: Sequence[Step], place: int, exact: dict[str, Tensor], output: str) -> Value:
        """Return the output if one step is on the device and all others are in float32."""
        step = steps[place]
        read = {name: self._written(name, exact[name]) for name in step.reads}
        result = step.apply(self._alone.tape, read, self._alone.constants).value
        # back in float32: later steps read the device's numbers, exactly
        changed = {step.name: self._exact.written("activation", step.name, _numbers(result))}
        # steps that do not depend on the changed one have float32's results already
        for later in steps[place + 1 :]:
            if not changed.keys().isdisjoint(later.reads):
                changed[later.name] = later.apply(self._exact.tape, {**exact, **changed}, self._exact.constants)
        return (changed.get(output) or exact[output]).value

    def _written(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor in the format that the device has for it; tokens and elements as they are."""
        if tensor.value.format != FLOAT32:
            return tensor
        return self._alone.written("activation", self._writers[name], tensor.value.array)

    def _evaluation(self) -> GraphEvaluation:
        labels = self._examples.labels
        answers, whole = np.concatenate(self._answers), np.concatenate(self._whole_answers)
        if labels is not None and labels.shape != answers.shape:
            raise ConfigError(
                f"labels must have the shape {answers.shape} of the network's answers, got {labels.shape} in "
                f"{self._examples.source}; check the data"
            )
        rows = [self._row(step, answers, labels) for step in self._wired.steps if not step.only_moves]
        # worst first: most answers changed, then the least signal to noise
        rows.sort(key=lambda row: (-(row.alone_changed or 0), row.signal_to_noise_db))
        return GraphEvaluation(
            self._graph.path,
            self._device.name,
            len(self._examples),
            None if labels is None else float((whole == labels).mean()),
            None if labels is None else float((answers == labels).mean()),
            int((answers != whole).sum()),
            answers.size,
            self._largest,
            tuple(rows),
            self._counters,
        )

    def _row(self, step: Step, answers: Array, labels: Array | None) -> StepError:
        own = np.concatenate(self._own[step.name]) if step.name in self._own else None
        overflow, underflow = self._shares(step.name, ("activation",))
        return StepError(
            step.name,
            step.type_name,
            self._sums[step.name].decibels,
            None if own is None or not answers.size else int((own != answers).sum()),
            None if own is None or labels is None else float((own == labels).mean()),
            overflow,
            underflow,
            self._shares(step.name, ("weight", "bias"))[0],
            step.has_elements,
        )

    def _shares(self, name: str, roles: tuple[str, ...]) -> tuple[float, float]:
        """Return which shares of what the device wrote in some roles of a step overflowed, and underflowed."""
        counted = [c for (layer, role), c in self._counters.items() if layer == name and role in roles]
        elements = sum(c.elements for c in counted)
        if not elements:
            return 0.0, 0.0
        overflow, underflow = (sum(getattr(c.flags, name) for c in counted) for name in ("overflow", "underflow"))
        return overflow / elements, underflow / elements


def _numbers(value: Value) -> Array:
    """Return the numbers of a value in float64."""
    array = np.asarray(on_host(value.array), np.float64)
    fmt: Any = value.format
    # raws of fixed point wider than a float carries stand for raw * 2**-frac_bits
    return array * 2.0**-fmt.frac_bits if getattr(fmt, "carries_raws", False) else array
