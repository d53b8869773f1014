"""One call of a module: emu's tape forward and backward, inside one function of PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from emu.autodiff import Graph, Operation, Tensor, Value
from emu.interop.torch.machine import Machine
from emu.interop.torch.package import load_torch
from emu.interop.torch.tensors import Note, arrived, as_tensor, hosted, note_of, noted, numbers_of, read, tensor_of

torch = load_torch()
#: Name of a parameter: its layer, its part.
Name: TypeAlias = tuple[str, str]
#: Computes a result from the input and the parameters and moments, by layer, then part.
Compute: TypeAlias = Callable[[Graph, Tensor, Mapping[str, Mapping[str, Tensor]]], Tensor]


class Call:
    """One pass of a module.

    Attributes:
        machine: computes.
        compute: what is computed.
        layer: layer that writes the result.
        role: role of the gradient that later modules return: an error, or the factor of a loss.
        training: whether dropout drops, and normalisation takes the batch's moments.
        moments: running moments of the layers inside, by name.
        moved: the same after a training pass, by layer.
    """

    def __init__(
        self,
        machine: Machine,
        compute: Compute,
        layer: str,
        *,
        role: str = "error",
        training: bool = False,
        moments: Mapping[Name, Value] | None = None,
    ) -> None:
        self.machine, self.compute, self.layer, self.role = machine, compute, layer, role
        self.training, self.moments = training, moments or {}
        self.moved: dict[str, tuple[Value, ...]] = {}
        # the format is known after the forward pass; the note is then put on the result
        self._note = Note(machine, None)

    def __call__(self, x: Any, parameters: Mapping[Name, Any]) -> Any:
        """Return the result as a tensor.

        Args:
            x: a tensor of PyTorch, or an array.
            parameters: PyTorch's, by name.
        """
        x = as_tensor(x, "x")
        self._reads, self._names = note_of(x, self.machine), list(parameters)
        # gradients are returned in the dtypes of the tensors that they belong to
        self._dtypes = [tensor.dtype for tensor in (x, *parameters.values())]
        # asked here: PyTorch turns gradients off while it runs a function's forward
        tracked = torch.is_grad_enabled()
        self._needs = [tracked and tensor.requires_grad for tensor in (x, *parameters.values())]
        result = _Function.apply(self, x, *parameters.values())
        return noted(result, self._note)

    # ---- inside of PyTorch's function -------------------------------------------------------------------------------

    def forward(self, x: Any, *parameters: Any) -> Any:
        """Compute on emu's tape, and keep it for the way back."""
        runner = self.machine.runner()
        self._graph = graph = Graph(runner, training=self.training)
        self._input = (graph.variable if self._needs[0] else graph.constant)(read(self.machine, x))
        known: dict[str, dict[str, Tensor]] = {}
        self._leaves = [self._input]
        for (layer, part), tensor, needs in zip(self._names, parameters, self._needs[1:], strict=True):
            # the working copy is made in each call: a backward pass reads the copy of its own forward pass
            master = Value(runner.place(numbers_of(tensor, f"{layer}.{part}")))
            copy = runner.run(Operation("quantize", (master,)), part, layer)
            leaf = (graph.parameter if needs else graph.constant)(copy)
            self._leaves.append(leaf)
            known.setdefault(layer, {})[part] = leaf
        for (layer, part), value in self.moments.items():
            placed = value.with_array(runner.place(value.array))
            known.setdefault(layer, {})[part] = graph.constant(placed)
        # keeps the tape: backward runs later, perhaps after other calls
        self._result = self.compute(graph, self._input, known)
        self.moved = graph.moments
        self._note.format = self._result.value.format
        return tensor_of(hosted(self._result.value), self.machine.tensor_dtype, x.device)

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        """Return the gradients of the input and of each parameter; None for those that need none."""
        seed = arrived(self.machine, gradient, self._note, self.role, self.layer)
        found = self._graph.backward(self._result, seed)
        gradients: list[Any] = []
        for leaf, needs, dtype in zip(self._leaves, self._needs, self._dtypes, strict=True):
            value = found.get(id(leaf)) if needs else None
            gradients.append(None if value is None else tensor_of(hosted(value), dtype, gradient.device))
            # the module before this one compares what PyTorch hands it with this error, to take it as written
            if leaf is self._input and value is not None and self._reads is not None:
                self._reads.errors.append(hosted(value))
        return tuple(gradients)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, x: Any, *parameters: Any) -> Any:
        ctx.call = call
        return call.forward(x, *parameters)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        # None: `call` is an argument of `forward`, too, and has no gradient
        return (None, *ctx.call.backward(gradient))
