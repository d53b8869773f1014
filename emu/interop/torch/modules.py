"""Layers of emu as modules of PyTorch: what they compute, and their gradients, are those of emu's own networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu import engine, nn
from emu.autodiff import Graph, Tensor, Value
from emu.errors import ConfigError
from emu.formats import Format
from emu.formats.integers import as_integer, as_pair
from emu.interop.torch.applying import Call, Name
from emu.interop.torch.machine import Machine, On, machine_of
from emu.interop.torch.package import load_torch
from emu.interop.torch.tensors import numbers_of
from emu.nn.layer import Parameter, Parameters, Shape, every
from emu.optim.fingerprint import sha256_of
from emu.precision.functions import require_functions

Array = NDArray[Any]
torch = load_torch()


class Layer(torch.nn.Module):
    """A layer of `emu.nn` as a module: `emu.torch.Layer(emu.nn.BatchNorm("norm", 8))`.

    Its parameters begin as `emu.train` begins them with the machine's seed, in the format of master weights. What is
    read is a working copy of them in the format of weights, made in each call. Formats are found by the layer's name.

    Attributes:
        layer: what it computes.
        machine: what it computes on.
    """

    def __init__(self, layer: nn.Layer, on: On = "float32") -> None:
        """Make the module of a layer.

        Args:
            layer: of `emu.nn`; layers inside it come along.
            on: a device's name or path, what `emu.device` returns, or a `Machine`.

        Raises:
            ConfigError: it is no layer of `emu.nn`, it reads sparse matrices, or a device cannot be used.
        """
        torch.nn.Module.__init__(self)
        if not isinstance(layer, nn.Layer):  # pyright: ignore[reportUnnecessaryIsInstance] - a user may give anything
            raise ConfigError(
                f"a module must be made of a layer of emu.nn, got {type(layer).__name__}; give one such as "
                "emu.nn.BatchNorm('norm', 8)"
            )
        if layer.reads_sparse:
            raise ConfigError(
                f"a layer in PyTorch must read dense tensors, got {layer.name!r} ({layer.type_name}); use "
                "emu.nn.Linear with sparse=True"
            )
        self.layer, self.machine, self._named_by_place = layer, machine_of(on), False
        # layers inside a layer have parameters of their own
        for own, parameter in _parameters(layer):
            values = own.first_values(parameter.part)
            if values is None:
                shape, fans = parameter.shape, (parameter.fan_in, parameter.fan_out)
                name = f"{own.name}.{parameter.part}"
                values = nn.initialise(name, parameter.initialiser, shape, *fans, self.machine.seed)
            master = torch.as_tensor(self._written(own, "master", values), dtype=self.machine.parameter_dtype)
            self._holder(own).register_parameter(parameter.part, torch.nn.Parameter(master))
        for own in every((layer,)):
            for moment in own.moments():
                first = own.first_values(moment.part)
                start = np.full(moment.shape, moment.start) if first is None else first
                # buffers: running moments are saved, and moved to a device, but not trained
                self._holder(own).register_buffer(moment.part, torch.as_tensor(self._written(own, "loss", start)))

    def _holder(self, own: nn.Layer) -> Any:
        """Return the module that holds the arrays of this layer, or of one inside it."""
        holder: Any = self
        if own is not self.layer:
            # a module for each part of the name, so that names in a state dict are those of emu
            for word in own.name.removeprefix(f"{self.layer.name}.").split("."):
                if word not in dict(holder.named_children()):
                    holder.add_module(word, torch.nn.Module())
                holder = holder.get_submodule(word)
        return holder

    def _written(self, own: nn.Layer, role: str, values: Any) -> Array:
        fmt = self.machine.policy.stage(own.name, role).format
        return np.array(engine.quantize(values, fmt, backend=self.machine.backend))

    def extra_repr(self) -> str:
        """Return the layer, and its machine."""
        return f"{self.layer}, on={self.machine.device.name!r}"

    def parameters_of_layers(self) -> list[tuple[nn.Layer, Parameter]]:
        """Return what is known of each parameter, with its layer, in emu's order."""
        return list(_parameters(self.layer))

    def tensors(self) -> dict[Name, Any]:
        """Return the parameters by layer and part, in emu's order."""
        return {
            (own.name, parameter.part): getattr(self._holder(own), parameter.part)
            for own, parameter in _parameters(self.layer)
        }

    def running(self) -> dict[Name, Any]:
        """Return the running moments, tensors, by layer and part."""
        return {
            (own.name, moment.part): getattr(self._holder(own), moment.part)
            for own in every((self.layer,))
            for moment in own.moments()
        }

    def forward(self, x: Any) -> Any:
        """Return the layer's result.

        Args:
            x: a tensor of the layer's shapes, floats of any dtype, or tokens.

        Returns:
            A tensor of `machine.tensor_dtype`, on the device of `x`.

        Raises:
            ShapeError: the layer cannot take this shape.
        """
        moments = {name: self._moment(name, tensor) for name, tensor in self.running().items()}

        def compute(graph: Graph, given: Tensor, own: Parameters) -> Tensor:
            return self.layer.forward(graph, given, own)

        # errors of later modules are written in the format of the layer inside that writes last
        call = Call(self.machine, compute, self.layer.results()[-1], training=self.training, moments=moments)
        result = call(x, self.tensors())
        buffers = self.running()
        for layer, values in call.moved.items():
            # in place: optimisers and state dicts keep references to the buffers
            for part, value in zip(("mean", "variance"), values, strict=True):
                buffers[layer, part].copy_(torch.from_dlpack(value))
        return result

    def _moment(self, name: Name, tensor: Any) -> Value:
        fmt: Format = self.machine.policy.stage(name[0], "loss").format
        return Value(numbers_of(tensor, ".".join(name)).astype(fmt.carrier), fmt)

    def _move_to(self, machine: Machine, path: str) -> None:
        """Compute on another machine, under the name of the module's place; write masters in its formats."""
        self.machine = machine
        # only a layer without a name of its own takes that of its place
        if self._named_by_place and path:
            self.layer = replace(self.layer, name=path)
        self.write_masters()

    def write_masters(self) -> None:
        """Write the parameters, whatever changed them, in the format and dtype of master weights."""
        for (layer, part), tensor in self.tensors().items():
            self._put(tensor, self.as_kept((layer, part), numbers_of(tensor, f"{layer}.{part}")))

    def as_kept(self, name: Name, numbers: Array) -> Array:
        """Return numbers as a parameter or a running moment of this name is kept: in the format of its role.

        They are rounded once. Those of parameters are master weights, those of moments have the format of losses.
        """
        role = "loss" if name in self.running() else "master"
        [own] = [own for own in every((self.layer,)) if own.name == name[0]]
        return self._written(own, role, numbers)

    def put(self, name: Name, kept: Array) -> None:
        """Put what `as_kept` has returned in the place of a parameter or a running moment."""
        self._put({**self.tensors(), **self.running()}[name], kept)

    def _put(self, tensor: Any, kept: Array) -> None:
        if isinstance(tensor, torch.nn.Parameter):
            # `data`: the dtype may change, which `copy_` would not do
            tensor.data = torch.as_tensor(kept, dtype=self.machine.parameter_dtype, device=tensor.device)
        else:
            tensor.copy_(torch.as_tensor(kept))


class Linear(Layer):
    """y = x W^T + b on a device; arguments, shapes and first values are those of `torch.nn.Linear`."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, on: On = "float32", name: str = ""
    ) -> None:
        """Make the layer.

        Args:
            in_features: size of the last axis of the input.
            out_features: size of the last axis of the result.
            bias: whether there is one; the unit adds it before it rounds.
            on: a device's name or path, what `emu.device` returns, or a `Machine`.
            name: by which formats are found; "" is the module's place in the model, once `place` was called.
        """
        super().__init__(nn.Linear(name or "linear", in_features, out_features, bias), on)
        _begin_as_torch(self, torch.nn.Linear.reset_parameters, named_by_place=not name)

    @property
    def in_features(self) -> int:
        """Size of the last axis of the input."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """Size of the last axis of the result."""
        return self.weight.shape[0]


class Conv2d(Layer):
    """Convolution of images on a device; arguments, shapes and first values are those of `torch.nn.Conv2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | str | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        on: On = "float32",
        name: str = "",
    ) -> None:
        """Make the layer.

        Args:
            in_channels: channels of the images.
            out_channels: channels of the result.
            kernel_size: rows and columns of a kernel, or one number for both.
            stride: steps down and right.
            padding: zeros around the images, "valid" for none, or "same".
            dilation: distance of a kernel's rows, and of its columns.
            groups: parts of the channels, each with kernels of its own.
            bias: whether there is one for each output channel.
            on: a device's name or path, what `emu.device` returns, or a `Machine`.
            name: by which formats are found; "" is the module's place in the model, once `place` was called.

        Raises:
            ShapeError: a size is no integer, or too small.
            ConfigError: `groups` does not divide the channels, or "same" is asked for with a stride.
        """
        kernel, steps, apart = (
            _pair(key, given) for key, given in
            (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation))
        )  # fmt: skip
        channels = as_integer("in_channels", in_channels, 1), as_integer("out_channels", out_channels, 1)
        groups = as_integer("groups", groups, 1)
        if channels[0] % groups or channels[1] % groups:
            raise ConfigError(
                f"`groups` must divide the channels, got {groups} for {channels[0]} and {channels[1]}; change one of "
                "them"
            )
        slide = {"stride": steps, "padding": _padding(padding, kernel, steps, apart), "dilation": apart}
        layer = _Convolution(name or "conv2d", *channels, kernel, groups, bias, slide)
        super().__init__(layer, on)
        _begin_as_torch(self, torch.nn.Conv2d.reset_parameters, named_by_place=not name)


@dataclass(frozen=True)
class _Convolution(nn.Layer):
    """Cross-correlation as PyTorch describes it: (N, in_channels, H, W) to (N, out_channels, H', W')."""

    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    groups: int
    bias: bool
    slide: Mapping[str, Any]

    @property
    @override
    def type_name(self) -> str:
        return "conv2d"

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        area, share = math.prod(self.kernel), self.in_channels // self.groups
        fans = (share * area, self.out_channels // self.groups * area)
        # "he" is only what a parameter must name: PyTorch's own first values replace it (`_begin_as_torch`)
        weight = Parameter("weight", (self.out_channels, share, *self.kernel), "he", *fans)
        return (weight, Parameter("bias", (self.out_channels,), "zero", *fans)) if self.bias else (weight,)

    @override
    def output(self, shape: Shape) -> Shape:
        raise NotImplementedError  # PyTorch's models are not shaped before they run

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        own = parameters[self.name].values()
        return graph.apply("conv2d", x, *own, layer=self.name, groups=self.groups, **self.slide)


def _parameters(layer: nn.Layer) -> Iterator[tuple[nn.Layer, Parameter]]:
    for own in every((layer,)):
        for parameter in own.parameters():
            yield own, parameter


def _pair(name: str, given: Any) -> tuple[int, int]:
    return as_pair(name, given if isinstance(given, tuple | list) else (given, given), 1)


def _padding(
    given: Any, kernel: tuple[int, int], stride: tuple[int, int], apart: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    if given == "valid":
        return (0, 0), (0, 0)
    if given == "same":
        if stride != (1, 1):
            raise ConfigError(f"`padding` 'same' must have a stride of 1, got {stride}; give the padding as a number")
        # the odd row or column goes behind, as in PyTorch
        whole = [distance * (size - 1) for size, distance in zip(kernel, apart, strict=True)]
        first, second = ((total // 2, total - total // 2) for total in whole)
        return first, second
    if isinstance(given, str):
        raise ConfigError(f"`padding` must be numbers, 'valid' or 'same', got {given!r}; give one of these")
    down, right = as_pair("padding", given if isinstance(given, tuple | list) else (given, given), 0)
    return (down, down), (right, right)


def _begin_as_torch(module: Any, reset: Callable[[Any], None], *, named_by_place: bool) -> None:
    """Draw first values as PyTorch does, and write them in the format of master weights."""
    module._named_by_place = named_by_place
    # PyTorch's `reset_parameters` reads `bias`, and takes None for none
    if "bias" not in dict(module.named_parameters()):
        module.register_parameter("bias", None)
    reset(module)
    # to its own machine, without a place: writes the drawn values as master weights
    module._move_to(module.machine, "")


# ---- whole models ---------------------------------------------------------------------------------------------------


def layers_of(model: Any) -> dict[str, Layer]:
    """Return the modules of emu inside a model by their place, `model` itself at ""."""
    return {path: module for path, module in model.named_modules() if isinstance(module, Layer)}


def _some_layers_of(model: Any) -> dict[str, Layer]:
    """Return the modules of emu inside a model.

    Raises:
        ConfigError: it is no module, or has none of emu's.
    """
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"a model must be a torch.nn.Module, got {type(model).__name__}; wrap its layers in one")
    if found := layers_of(model):
        return found
    raise ConfigError(
        f"a model must have modules of emu.torch, got {type(model).__name__} without any; make its layers with "
        "emu.torch.Linear and emu.torch.Conv2d, or give all of it to emu.torch.convert"
    )


def place(model: Any, on: On, *, seed: int = 0, backend: str = "auto") -> Machine:
    """Let all modules of emu inside a model compute on one device, each under the name of its place.

    Master weights are written in the device's format, so call it before an optimiser is made.

    Args:
        model: a module of PyTorch.
        on: a device's name or path, what `emu.device` returns, or a `Machine`, whose seed and backend are kept.
        seed: key of all random numbers.
        backend: backend that computes.

    Returns:
        The machine, for losses and optimisers.

    Raises:
        ConfigError: there is no such module, two have one name, or the device has formats that they cannot use.
    """
    found = _some_layers_of(model)
    machine = on if isinstance(on, Machine) else Machine(on, seed=seed, backend=backend)
    for path, module in found.items():
        module._move_to(machine, path)  # pyright: ignore[reportPrivateUsage]
    network = nn.Network(tuple(module.layer for module in found.values()))
    network.require_own_names()
    # formats may change during training: functions must exist for all of them
    for policy in machine.policy.every():
        require_functions(network, policy)
    # losses and other modules that have a machine
    for module in model.modules():
        if not isinstance(module, Layer) and isinstance(getattr(module, "machine", None), Machine):
            module.machine = machine
    return machine


def sha256(model: Any) -> str:
    """Return the hash of master weights and running moments: that of a run of `emu.train` with the same bits.

    Args:
        model: a module of PyTorch; parameters of emu's modules inside count alone.

    Raises:
        ConfigError: there is no module of emu inside.
        FormatError: a parameter is not in the format of master weights; `place` or a step writes it there.
    """
    masters: list[tuple[str, Value]] = []
    moments: list[tuple[str, Value]] = []
    for module in _some_layers_of(model).values():
        policy = module.machine.policy
        # moments have the format of role loss, as in `running`
        for role, tensors, values in (("master", module.tensors(), masters), ("loss", module.running(), moments)):
            for (layer, part), tensor in tensors.items():
                name, fmt = f"{layer}.{part}", policy.stage(layer, role).format
                values.append((name, Value(numbers_of(tensor, name).astype(cast("Any", fmt.carrier)), fmt)))
    return sha256_of([*masters, *moments])
