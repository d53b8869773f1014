"""What an optimiser is given: groups of parameters, each with settings of its own, checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, TypeAlias, cast

import numpy as np

from emu.autodiff import Value
from emu.errors import ConfigError
from emu.interop.torch.modules import layers_of
from emu.interop.torch.package import load_torch
from emu.optim import ParameterState

torch = load_torch()
#: What an optimiser moves: a model, its named parameters, or groups of them, each with settings of its own.
Parameters: TypeAlias = Any
#: Bounds of each setting: the least number, whether the setting may be equal to it, and the number that it is below.
_BOUNDS = {
    "lr": (0.0, True, math.inf), "adam_lr": (0.0, True, math.inf), "momentum": (0.0, True, 1.0),
    "weight_decay": (0.0, True, math.inf), "eps": (0.0, True, math.inf), "beta": (0.0, True, 1.0),
    "clip_norm": (0.0, False, math.inf),
}  # fmt: skip


def require_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError unless each setting of an optimiser or of a group is a number within its bounds.

    Numbers of NumPy are numbers. Betas are a pair of them, and `clip_norm` alone may be None.
    """
    betas = settings.get("betas", (0.0, 0.0))
    if not isinstance(betas, list | tuple) or len(cast("list[Any]", betas)) != 2:
        raise ConfigError(f"`betas` must be a pair of numbers, got {betas!r}; write one such as (0.9, 0.999)")
    given = [(name, number) for name, number in settings.items() if name in _BOUNDS]
    given += [("beta", number) for number in cast("list[Any]", betas)]
    for name, number in given:
        if name == "clip_norm" and number is None:
            continue
        least, may_equal, most = _BOUNDS[name]
        if _is_number(number) and (least < number < most or (may_equal and number == least)):
            continue
        rule = f"{'from' if may_equal else 'above'} {least:g}{'' if math.isinf(most) else f' to below {most:g}'}"
        remedy = f"write float({name})" if isinstance(number, torch.Tensor) else "choose one such as 0.01"
        raise ConfigError(f"`{name}` must be a finite number {rule}, got {number!r}; {remedy}")


def _is_number(number: object) -> bool:
    return not isinstance(number, bool) and isinstance(number, Real)


def grouped(parameters: Parameters, states: dict[int, ParameterState]) -> list[dict[str, Any]]:
    """Return groups as PyTorch takes them, and note the name of each parameter.

    Raises:
        ConfigError: a parameter has no name, or a group no parameters.
    """
    if isinstance(parameters, torch.nn.Module):
        # before `named_parameters`, so that parameters of emu's modules keep the names of their layers
        _name_of_modules(parameters, states)
        parameters = [(name, p) for name, p in parameters.named_parameters() if p.requires_grad]
    items = _listed(parameters)
    groups = items if items and all(isinstance(item, dict) for item in items) else [{"params": items}]
    named: list[dict[str, Any]] = []
    for group in groups:
        if "params" not in group:
            raise _nameless("a group without `params`")
        named.append({**group, "params": [_named(item, states) for item in _listed(group["params"])]})
    return named


def _name_of_modules(model: Any, states: dict[int, ParameterState]) -> None:
    """Note parameters of emu's modules under the names of their layers, by which their formats are found."""
    for module in layers_of(model).values():
        known = {(own.name, p.part): p for own, p in module.parameters_of_layers()}
        for (layer, part), tensor in module.tensors().items():
            states[id(tensor)] = ParameterState(layer, part, _nothing(), is_table=known[layer, part].is_table)


def _listed(parameters: Any) -> list[Any]:
    if not isinstance(parameters, Iterable):
        raise _nameless(f"{type(parameters).__name__} without one")
    return list(cast("Iterable[Any]", parameters))


def _named(item: Any, states: dict[int, ParameterState]) -> Any:
    """Return a parameter, and note its name unless it is noted."""
    if isinstance(item, torch.Tensor) and id(item) in states:
        return item
    pair = cast("tuple[Any, ...]", item) if isinstance(item, tuple) else ()
    if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], torch.Tensor):
        raise _nameless(f"{type(cast('object', item)).__name__} without one")
    name, tensor = pair
    layer, _, part = name.rpartition(".")
    # a parameter whose name has no dot belongs to no layer: "parameters" stands for it
    states.setdefault(id(tensor), ParameterState(layer or "parameters", part, _nothing()))
    return tensor


def _nameless(got: str) -> ConfigError:
    return ConfigError(
        f"parameters must have names, by which formats are found, got {got}; give the model, or "
        "model.named_parameters()"
    )


def _nothing() -> Value:
    return Value(np.zeros(0, np.float32))
