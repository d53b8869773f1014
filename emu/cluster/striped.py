"""Layers divided among devices: each has a stripe of the neurons (or output channels), as owners have of columns.

    forward     y_d = W_d x          a device computes its own neurons, and all devices get them: the bits of one device
    gradient    dW_d = dy_d x^T      each device computes its own, with the same bits
    error       dx = dx_0 + dx_1 + ...   dx_d = W_d^T dy_d is written in the error's format, then added in device order

So striping changes the bits of one result, the error of a layer's input: more roundings, and another order of adds.

Source: CN106062786A, stripes of a model; that partial errors travel in the format of role `error` is our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from typing_extensions import override

from emu.autodiff import Operation, Runner, Value
from emu.cluster.layout import stripes_of
from emu.nn import Layer, every

#: Operations whose first operand has neurons along its second axis, and whose second operand has them along its first.
_PRODUCTS = ("matmul", "conv2d_input_gradient")


class StripedRunner(Runner):
    """Runs operations on another runner; computes error products of striped layers in parts, and adds them up."""

    def __init__(self, inner: Runner, layers: Collection[str], devices: int) -> None:
        """Take a runner.

        Args:
            inner: runs everything.
            layers: names of the striped layers.
            devices: number of devices that share them.
        """
        self._inner, self._layers, self._devices = inner, layers, devices

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        # forward products and gradients of a neuron read no sum over neurons: a device's part has the bits of the whole
        if role != "error" or layer not in self._layers or operation.name not in _PRODUCTS:
            return self._inner.run(operation, role, layer)
        total: Value | None = None
        for device, part in enumerate(self._parts(operation)):
            partial = self._inner.run(part, role, layer)
            if total is None:
                total = partial
                continue
            # parts have names of their own, so that each has its own random bits
            joined = Operation("add", (total, partial), part=f"{operation.part}joined{device}")
            total = self._inner.run(joined, role, layer)
        assert total is not None, "a layer has at least one neuron"
        return total

    def _parts(self, operation: Operation) -> Iterable[Operation]:
        errors, weights = operation.operands
        # weights: (neurons, ...); errors: (batch, neurons, ...)
        for device, stripe in enumerate(stripes_of(weights.shape[0], self._devices)):
            # a layer with fewer neurons than devices leaves some without a part
            if stripe.width:
                of_device = (
                    errors.with_array(errors.array[:, stripe.columns]),
                    weights.with_array(weights.array[stripe.columns]),
                )
                part = f"{operation.part}stripe{device}"
                yield Operation(operation.name, of_device, operation.options, part, operation.factors)

    @override
    def place(self, array: Any) -> Any:
        return self._inner.place(array)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        return self._inner.together(tasks)


def striped_layers(layers: Iterable[Layer]) -> frozenset[str]:
    """Return the names of layers that devices can share: linear layers and convolutions."""
    return frozenset(layer.name for layer in every(layers) if layer.has_units)
