"""Compare a network with results that were recorded elsewhere: on a chip, in a runtime, by another model of a chip.

    recorded arrays, by tensor ──┐
    examples ──► device's pass ──┴─► each tensor in order: elements that differ ──► the first layer that differs, why

Each layer is compared twice: in the device's own pass, and computed from what was recorded of its inputs. The second
says where a difference begins, the first what became of it.

Sources of causes: docs/concepts/requantise.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu._files import UNREADABLE_ARRAYS
from emu.autodiff import Tensor, Value
from emu.backends.arrays import on_host
from emu.datapath import Affine, RequantiserKind
from emu.errors import ConfigError, EmuError, nearest_name
from emu.formats import PRESETS
from emu.hardware import Device, load_device
from emu.interop.arrays import read_npz
from emu.interop.evaluation import BATCH, Progress, require_usable
from emu.interop.graph import Graph, Machine
from emu.nn.wired import Step

Array = NDArray[Any]
_FLOAT32 = PRESETS["fp32"]
#: Floats of two runtimes agree if they differ by at most this share of the largest: sums are rounded in other orders.
TOLERANCE = 1e-5
#: Requantisers that may be the cause.
_KINDS = tuple(kind.value for kind in RequantiserKind)


@dataclass(frozen=True)
class Difference(Drawn):
    """How one recorded tensor compares.

    Attributes:
        tensor: its name in the file.
        layer: the layer that writes it.
        operator: of the layer.
        is_integer: whether its elements are integers, which must be equal.
        elements: how many there are.
        different: how many differ in the device's own pass.
        largest: largest difference.
        alone: how many differ if the layer reads what was recorded; None if its inputs were not.
        causes: requantisers that give every recorded element; empty if none does, or none differs.
    """

    tensor: str
    layer: str
    operator: str
    is_integer: bool
    elements: int
    different: int
    largest: float
    alone: int | None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison(Drawn):
    """A network beside recorded results.

    Attributes:
        examples: how many there were.
        rows: compared tensors, in the order in which they are computed.
        left_out: recorded arrays that no tensor of the network has the name of.
    """

    examples: int
    rows: tuple[Difference, ...]
    left_out: tuple[str, ...]

    @property
    def first(self) -> Difference | None:
        """The first tensor that differs; None if all agree."""
        return next((row for row in self.rows if row.different), None)


def compare_with(
    graph: Graph,
    device: str | Path | Device,
    inputs: Any,
    recorded: Mapping[str, Array],
    *,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Comparison:
    """Return how a network's tensors compare with recorded ones.

    Args:
        graph: the network.
        device: formats and units: a name, a path, or what `emu.device` returns.
        inputs: examples, (N, *input), those that the recorded results are of; as a call of the network takes them.
        recorded: arrays by the names of tensors in the file, or of layers, each with N results.
        backend: backend that computes.
        progress: receives how far it is.

    Raises:
        ConfigError: no recorded array is a tensor of the network, or one has another shape; or there is no example.
        ShapeError: inputs have not the shape that the network reads.
        FormatError: elements do not fit the 8 bits of the network's input.
    """
    machine = load_device(device)
    require_usable(graph, machine)
    inputs = graph.as_input(inputs)
    if not len(inputs):
        raise ConfigError(f"a network must be compared for at least one example, got none of {graph.path}; give some")
    return _Pass(graph, machine, backend).compared(inputs, recorded, progress)


def read_recorded(path: str | Path) -> dict[str, Array]:
    """Return the arrays of an `.npz` file, by name.

    Raises:
        ConfigError: the file is missing, damaged or of another kind.
    """
    file = Path(path)
    if not file.is_file() or file.suffix != ".npz":
        raise ConfigError(
            f"--against must be an .npz of arrays named as the network's tensors, got {str(path)!r}; write one with "
            "numpy.savez('dump.npz', **results)"
        )
    try:
        return read_npz(file)
    except UNREADABLE_ARRAYS as error:
        raise ConfigError(
            f"--against must be plain numbers, got {' '.join(str(error).split())!r} while reading {file}; write it "
            "again"
        ) from None


class _Place:
    """A tensor of the file: who writes it, and what its elements stand for.

    Attributes:
        layer: the step, or the network's input.
        how: what its elements stand for, if the file has it as floats that stand for elements.
    """

    def __init__(self, layer: str, how: Affine | None) -> None:
        self.layer, self.how = layer, how

    def numbers(self, value: Value) -> Array:
        """Return the numbers that the file's tensor has, in float64."""
        array = np.asarray(on_host(value.array))
        return (array if self.how is None else self.how.numbers(array)).astype(np.float64)

    def result(self, numbers: Array) -> Array:
        """Return the step's result of the file's numbers."""
        if self.how is None:
            return numbers
        scale, zero = self.how.beside(numbers.ndim)
        # the file has floats that stand for elements: the nearest element of each
        return np.rint(numbers / scale) + zero


class _Pass:
    """The passes of a comparison."""

    def __init__(self, graph: Graph, device: Device, backend: str) -> None:
        self._graph, self._device, self._backend = graph, device, backend
        self._wired = graph.wired()
        self._machine = Machine(self._wired, device, backend)
        self._steps = {step.name: step for step in self._wired.steps}
        self._places = {name: _Place(layer, how) for name, (layer, how) in graph.tensors().items()}

    def compared(self, inputs: Array, recorded: Mapping[str, Array], progress: Progress | None) -> Comparison:
        """Run a pass for each batch, and compare."""
        names, left_out = self._named(recorded, len(inputs))
        rows: dict[str, Difference] = {}
        starts = range(0, len(inputs), BATCH)
        for done, start in enumerate(starts, start=1):
            part = {name: array[start : start + BATCH] for name, array in names.items()}
            for row in self._batch(inputs[start : start + BATCH], part):
                rows[row.tensor] = _joined(rows.get(row.tensor), row)
            if progress is not None:
                progress(done, len(starts))
        # in passes of their own: only after all batches it is known which tensors differ by themselves
        for name, causes in self._all_causes(inputs, names, [row for row in rows.values() if row.alone]).items():
            rows[name] = replace(rows[name], causes=causes)
        return Comparison(len(inputs), tuple(rows.values()), tuple(left_out))

    def _all_causes(
        self, inputs: Array, recorded: Mapping[str, Array], rows: Sequence[Difference]
    ) -> dict[str, tuple[str, ...]]:
        """Return, of tensors whose layers differ by themselves, the requantisers that give all that was recorded."""
        # every kind is a cause until an example contradicts it
        # "by" is the option that has a step's requantiser
        causes = {row.tensor: list(_KINDS) for row in rows if "by" in self._steps[row.layer].options}
        for start in range(0, len(inputs), BATCH) if causes else ():
            part = {name: array[start : start + BATCH] for name, array in recorded.items()}
            _, given, _ = self._given(inputs[start : start + BATCH], part)
            for name, kinds in causes.items():
                place = self._places[name]
                step = self._steps[place.layer]
                kinds[:] = [kind for kind in kinds if self._gives(kind, step, place, part[name], given)]
        return {name: tuple(kinds) for name, kinds in causes.items()}

    def _named(self, recorded: Mapping[str, Array], count: int) -> tuple[dict[str, Array], list[str]]:
        """Return recorded arrays by tensors of the file, in the order of the layers, and the names of all others."""
        layers = {name: place for place, name in enumerate((*self._wired.inputs, *self._steps))}
        # layers are names, too, if the file has no tensor of that name
        by_layer = {name: _Place(name, None) for name in layers}
        self._places = {**by_layer, **self._places}
        known = {name: np.asarray(array) for name, array in recorded.items() if name in self._places}
        if not known:
            wrong = next(iter(recorded), "nothing")
            raise ConfigError(
                f"recorded arrays must have the names of tensors or layers of {self._graph.path}, got {wrong!r}"
                f"{nearest_name(wrong, self._places)}; `emu models` lists the layers"
            )
        for name, array in known.items():
            if array.dtype.kind not in "fiub":
                raise ConfigError(
                    f"recorded arrays must be real numbers, got {array.dtype} for {name!r}; record what the file's "
                    "tensor has"
                )
            if array.ndim == 0 or len(array) != count:
                raise ConfigError(
                    f"recorded arrays must have a result for each of the {count} examples, got the shape {array.shape} "
                    f"for {name!r}; record the same examples"
                )
        order = sorted(known, key=lambda name: layers[self._places[name].layer])
        return {name: known[name] for name in order}, [name for name in recorded if name not in known]

    def _given(
        self, inputs: Array, recorded: Mapping[str, Array]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], set[str]]:  # fmt: skip
        """Return the device's own results, the same with recorded ones in place of some, and the names of these."""
        steps = self._wired.steps_of((inputs.shape,))
        own: dict[str, Tensor] = dict(zip(self._wired.inputs, self._machine.inputs([inputs]), strict=True))
        for step in steps:
            own[step.name] = step.apply(self._machine.tape, own, self._machine.constants)
        given = dict(own)
        for name, array in recorded.items():
            place = self._places[name]
            value = own[place.layer].value
            if place.numbers(value).shape != array.shape:
                raise ConfigError(
                    f"recorded arrays must have the shapes of the network's tensors, {place.numbers(value).shape} for "
                    f"{name!r}, got {array.shape}; record it as the network computes it"
                )
            given[place.layer] = self._as_recorded(place, value, array)
        # steps that only move what was recorded have recorded results, too
        known = {self._places[name].layer for name in recorded} | set(self._wired.inputs)
        for step in steps:
            if step.only_moves and step.name not in known and known.issuperset(step.reads):
                given[step.name] = step.apply(self._machine.tape, given, self._machine.constants)
                known.add(step.name)
        return own, given, known

    def _batch(self, inputs: Array, recorded: Mapping[str, Array]) -> Iterator[Difference]:
        own, given, known = self._given(inputs, recorded)
        # steps of this batch's shapes: the last batch may be shorter
        by_name = {step.name: step for step in self._wired.steps_of((inputs.shape,))}
        for name, array in recorded.items():
            yield self._row(name, array, own, given, known, by_name)

    def _as_recorded(self, place: _Place, value: Value, array: Array) -> Tensor:
        numbers = place.result(array.astype(np.float64))
        return self._machine.tape.constant(
            value.with_array(self._machine.runner.place(numbers.astype(value.array.dtype)))
        )

    def _row(
        self, name: str, array: Array, own: Mapping[str, Tensor], given: Mapping[str, Tensor], known: set[str],
        steps: Mapping[str, Step],
    ) -> Difference:  # fmt: skip
        place = self._places[name]
        step, value = steps.get(place.layer), own[place.layer].value
        is_integer = step is not None and step.has_elements
        apart, largest = _apart(place.numbers(value), array, is_integer=is_integer)
        alone: int | None = None
        if step is not None and known.issuperset(step.reads):
            result = step.apply(self._machine.tape, given, self._machine.constants).value
            alone, _ = _apart(place.numbers(result), array, is_integer=is_integer)
        # an input has no step, and so nothing that it could be computed from
        operator = "input" if step is None else step.type_name
        return Difference(name, place.layer, operator, is_integer, array.size, apart, largest, alone)

    def _gives(self, kind: str, step: Step, place: _Place, array: Array, given: Mapping[str, Tensor]) -> bool:
        """Return whether a requantiser gives every recorded element of the recorded inputs."""
        # the same device with another requantiser in place of its own
        precision = self._device.precision.model_copy(update={"requantiser": kind})
        machine = Machine(self._wired, self._device.model_copy(update={"precision": precision}), self._backend)
        try:
            result = step.apply(machine.tape, given, machine.constants).value
        except EmuError:  # a multiplier that the kind has not
            return False
        return not _apart(place.numbers(result), array, is_integer=True)[0]


def _apart(mine: Array, theirs: Array, *, is_integer: bool) -> tuple[int, float]:
    """Return how many numbers differ, and by how much at most; floats differ beyond a share of the largest."""
    theirs = theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # equal infinities have no difference, although their subtraction gives NaN; two NaN agree
        apart = np.where((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), 0.0, np.abs(mine - theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    least = 0.0 if is_integer else TOLERANCE * float(finite.max(initial=0.0))
    # `~(apart <= least)`, not `apart > least`: NaN beside a number differs
    return int((~(apart <= least)).sum()), float(np.max(apart, initial=0.0))


def _joined(before: Difference | None, row: Difference) -> Difference:
    """Return a tensor's differences in all batches so far."""
    if before is None:
        return row
    alone = None if before.alone is None or row.alone is None else before.alone + row.alone
    return Difference(
        row.tensor, row.layer, row.operator, row.is_integer, before.elements + row.elements,
        before.different + row.different, float(np.maximum(before.largest, row.largest)), alone,
    )  # fmt: skip
