"""A model in training: a network, its parameters, and its passes through the datapath."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu import engine, nn
from emu.autodiff import Graph, Operation, RowsValue, Runner, SparseValue, Tensor, Value
from emu.backends.arrays import on_host
from emu.cluster.striped import StripedRunner, striped_layers
from emu.formats import Format
from emu.nn.network import INPUT_LAYER, answers_of
from emu.optim import Optimiser, ParameterState
from emu.optim.fingerprint import sha256_of
from emu.precision import CounterTable, DatapathRunner, Policy
from emu.precision.delayed_scales import DelayedScales
from emu.precision.dynamic_point import DynamicPointRunner, Points, make_runner
from emu.sparse import CSR
from emu.training.data_tables import Inputs

Array = NDArray[Any]
#: A runner of the operations of a step.
StepRunner: TypeAlias = DatapathRunner | DynamicPointRunner
#: Inputs per batch in evaluation.
TEST_BATCH = 64
#: Prefix of the names of moments in checkpoints; and the parts that end them, in the order in which layers give them.
MOMENTS, MOMENT_PARTS = "moments/", ("mean", "variance")


@dataclass
class Pass:
    """The results of one pass over a batch.

    Attributes:
        loss: mean loss.
        correct: number of outputs whose largest value is at their label.
        gradients: gradients by parameter name, multiplied by `scale`; empty after a forward pass.
        moments: running moments after a training batch, by name; empty after a forward pass.
        scale: S, the factor that the gradients carry.
        share: another factor of the gradients of one processing unit of several, so that they add up to the batch's.
        is_applied: whether the update is applied.
    """

    loss: float
    correct: int
    gradients: dict[str, Value]
    moments: dict[str, Value]
    scale: float = 1.0
    is_applied: bool = True
    share: float = 1.0


class Model:
    """A network and its master parameters.

    Attributes:
        network: layers and loss.
        policy: output stage of each role of each layer.
        states: parameters in order.
        moments: running moments by name, in the `loss` role's format of their layer.
        points: binary points of dynamic fixed point; None if no format leaves its point open.
        scales: delayed scales of cast operands; None if no operand has one, or each has that of its own numbers.
        stripes: number of devices that share the output channels of each layer that can be striped.
    """

    def __init__(
        self, network: nn.Network, policy: Policy, states: list[ParameterState], moments: dict[str, Value]
    ) -> None:
        self.network, self.policy, self.states, self.moments = network, policy, states, moments
        self.points: Points | None = None
        self.scales: DelayedScales | None = None
        self.stripes = 1

    @classmethod
    def initial(
        cls, network: nn.Network, policy: Policy, optimiser: Optimiser, seed: int, backend: str = "auto"
    ) -> Model:
        """Return a model with seeded parameters, written into the master format."""
        states: list[ParameterState] = []
        for layer, p in network.parameters():
            # a network from a file begins with the file's weights
            values = network.first_values(layer, p.part)
            if values is None:
                values = nn.initialise(f"{layer.name}.{p.part}", p.initialiser, p.shape, p.fan_in, p.fan_out, seed)
            master = written(values, policy.stage(layer.name, "master").format, backend=backend)
            states.append(ParameterState(layer.name, p.part, master, by_rows=p.by_rows, is_table=p.is_table))
            optimiser.start(states[-1], slot_formats(policy, layer.name))
        optimiser.require(states)
        moments: dict[str, Value] = {}
        for layer, m in network.moments():
            fmt = policy.stage(layer.name, "loss").format
            first = network.first_values(layer, m.part)
            start = np.full(m.shape, m.start) if first is None else first
            moments[f"{layer.name}.{m.part}"] = written(start, fmt, backend="reference")
        return cls(network, policy, states, moments)

    def runner(self, policy: Policy, **options: Any) -> StepRunner:
        """Return a runner of operations at the model's points and scales; options as of `make_runner`."""
        return make_runner(policy, self.points, scales=self.scales, **options)

    def working_copies(self, runner: Runner, rows: Any = None) -> dict[str, dict[str, Value]]:
        """Return the working copies of the parameters, by layer and part.

        Args:
            runner: the datapath.
            rows: rows to copy of parameters that are read by rows; None is all.
        """
        copies: dict[str, dict[str, Value]] = {}
        for state in self.states:
            read = state.rows(rows).master if state.by_rows and rows is not None else state.master
            master = read.with_array(runner.place(read.array))
            # the parts of a parameter, `weight` and `bias`, are the names of its roles
            copy = runner.run(Operation("quantize", (master,)), state.part, state.layer)
            copies.setdefault(state.layer, {})[state.part] = copy
        return copies

    def run(self, runner: Runner, inputs: Inputs, labels: Array, *, backward: bool, scale: float = 1.0) -> Pass:
        """Run a batch forward, and backward if asked.

        Args:
            runner: the datapath.
            inputs: float32, (N, C, H, W) or (N, features); tokens, int64, (N, T); or sparse, fp32, (N, features).
            labels: int64, (N,) or (N, T).
            backward: whether it is a training pass, which returns gradients.
            scale: S, by which the loss is multiplied before the backward pass; a value of the loss's format.
        """
        loss, output, gradients, moments = self.traced(runner, inputs, labels, backward=backward, scale=scale)
        correct = count_correct(on_host(output.array), labels)
        return Pass(float(loss.array), correct, gradients, moments, scale)

    def traced(
        self, runner: Runner, inputs: Inputs, labels: Array, *, backward: bool, scale: float = 1.0
    ) -> tuple[Value, Value, dict[str, Value], dict[str, Value]]:
        """Return loss, output, gradients and moments of a pass, as the runner returns them; arguments as of `run`."""
        if self.stripes > 1:
            runner = StripedRunner(runner, striped_layers(self.network.layers), self.stripes)
        graph = Graph(runner, training=backward)
        # the tape records only what was made from parameters: a forward pass keeps nothing
        make = graph.parameter if backward else graph.constant
        x, rows = self._input(runner, inputs)
        copies = self.working_copies(runner, rows)
        # (layer, part) -> leaf of the graph; `known` has the moments as well, which get no gradient
        leaves = {layer: {part: make(v) for part, v in parts.items()} for layer, parts in copies.items()}
        known = {layer: dict(parts) for layer, parts in leaves.items()}
        for name, value in self.moments.items():
            # from the right: names of layers inside others have dots
            layer, part = name.rsplit(".", 1)
            known.setdefault(layer, {})[part] = graph.constant(value.with_array(runner.place(value.array)))
        # a constant: nobody needs the error of the input
        output = self.network.forward(graph, graph.constant(x), known)
        loss = self.network.apply_loss(graph, output, Tensor(Value(runner.place(labels))))
        gradients = self._gradients(graph, loss, leaves, scale, rows) if backward else {}
        # empty after a forward pass: normalisation then takes the moments that it was given
        moments = {
            f"{layer}.{part}": value
            for layer, values in graph.moments.items()
            for part, value in zip(MOMENT_PARTS, values, strict=True)
        }
        return loss.value, output.value, gradients, moments

    def _input(self, runner: Runner, inputs: Inputs) -> tuple[Value, Any]:
        """Return a batch as the network reads it, and the rows to read of parameters that are read by rows.

        The rows are None if all are read. A sparse batch keeps only the columns that have entries; they correspond to
        those rows, in the same order.
        """
        if not self.network.reads_sparse:
            array = inputs.to_dense() if isinstance(inputs, CSR) else inputs
            x = Value(runner.place(array))
            # tokens are integers: a table of rows is indexed by them
            if array.dtype.kind == "f":
                x = runner.run(Operation("quantize", (x,)), "activation", INPUT_LAYER)
            return x, None
        if not isinstance(inputs, CSR):
            inputs = CSR.from_dense(inputs, "fp32")
        # columns without entries are left out: the product needs no row of the weights for them
        used = inputs.used()
        entries = Value(runner.place(used.data))
        read = runner.run(Operation("quantize", (entries,)), "activation", INPUT_LAYER)
        return SparseValue(read.array, read.format, used), inputs.unique_columns

    def _gradients(
        self, graph: Graph, loss: Tensor, leaves: dict[str, dict[str, Tensor]], scale: float, rows: Any
    ) -> dict[str, Value]:
        # the derivative of the scaled loss with respect to the loss
        seed = np.full((), scale, loss.value.format.carrier)
        arrived = graph.backward(loss, loss.value.with_array(graph.runner.place(seed)))
        named = {f"{layer}.{part}": tensor for layer, parts in leaves.items() for part, tensor in parts.items()}
        # `leaves` keeps the tensors alive, so no two of them have one id
        gradients = {name: arrived[id(tensor)] for name, tensor in named.items()}
        if rows is not None:
            for state in self.states:
                if state.by_rows:
                    gradient = gradients[state.name]
                    # its array has only the rows that were read; `rows` says which rows of the parameter these are
                    gradients[state.name] = RowsValue(gradient.array, gradient.format, rows)
        return gradients

    def evaluate(
        self,
        inputs: Inputs,
        labels: Array,
        *,
        seed: int,
        backend: str,
        counters: CounterTable | None = None,
        after: int = 0,
        finds_points: bool = False,
        answers: list[Array] | None = None,
    ) -> tuple[float, float]:
        """Return mean loss and accuracy of a forward pass over inputs, in batches.

        Args:
            inputs: see `run`.
            labels: see `run`.
            seed: key of every random number.
            backend: backend that computes.
            counters: registers and flags by layer and role.
            after: training step after which the weights were taken; its formats and binary points are used.
            finds_points: whether open binary points are chosen during the pass, because no training has chosen them.
            answers: receives the answers of each batch; see `answers_of`.
        """
        options: dict[str, Any] = {"seed": seed, "backend": backend, "counters": counters}
        # None lets open points be chosen during the pass
        options["frozen_at"] = None if finds_points else after
        runner = self.runner(self.policy.at(after), **options)
        loss, correct = 0.0, 0
        for batch, start in enumerate(range(0, len(inputs), TEST_BATCH)):
            runner.step = batch  # random bits are addressed by it: each batch has its own, and TEST_BATCH decides them
            chosen = slice(start, start + TEST_BATCH)
            mean, output, _, _ = self.traced(runner, inputs[chosen], labels[chosen], backward=False)
            given = answers_of(on_host(output.array))
            # the last batch may be smaller, so means are weighted
            loss += float(mean.array) * len(labels[chosen])
            correct += int((given == labels[chosen]).sum())
            if answers is not None:
                answers.append(given)
        # the loss is a mean over examples, the accuracy a share of outputs
        return loss / len(inputs), correct / labels.size

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a checkpoint by name, on the host: masters, optimiser slots and moments."""
        masters = {f"parameters/{s.name}": on_host(s.master.array) for s in self.states}
        slots = {f"{slot}/{s.name}": on_host(value.array) for s in self.states for slot, value in s.slots.items()}
        moments = {f"{MOMENTS}{name}": on_host(value.array) for name, value in self.moments.items()}
        return masters | slots | moments

    def load(self, arrays: dict[str, Array]) -> None:
        """Take the arrays of a checkpoint."""
        for state in self.states:
            # formats are the model's own: `Identity` has made sure that they are those of the checkpoint
            state.master = state.master.with_array(arrays[f"parameters/{state.name}"])
            for slot, value in state.slots.items():
                state.slots[slot] = value.with_array(arrays[f"{slot}/{state.name}"])
        for name, value in self.moments.items():
            self.moments[name] = value.with_array(arrays[f"{MOMENTS}{name}"])

    def sha256(self) -> str:
        """Return the hash of master parameters and running moments: names, formats, shapes and codes, in order."""
        masters = ((state.name, state.master) for state in self.states)
        return sha256_of([*masters, *self.moments.items()])


def written(values: Array, fmt: Format, source: Format | None = None, *, backend: str = "auto") -> Value:
    """Return real numbers written into a format, rounded to nearest.

    Args:
        values: floats or integers; raws if `source` carries raws.
        fmt: format of the result.
        source: format of the values; None for plain numbers.
        backend: backend that computes.
    """
    # carriers of all other formats hold the numbers themselves
    raws = source if source is not None and source.carries_raws else None
    return Value(engine.quantize(values, fmt, x_format=raws, backend=backend), fmt)


def count_correct(outputs: Array, labels: Array) -> int:
    """Return how many rows have their largest value at their label; a row with NaN is wrong."""
    return int((answers_of(outputs) == labels).sum())


def slot_formats(policy: Policy, layer: str) -> Callable[[str], Format]:
    """Return the function that gives an optimiser the format of a role in a layer, for its slots."""
    return lambda role: policy.stage(layer, role).format
