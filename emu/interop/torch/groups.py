"""What an optimiser is given: groups of parameters, each with settings of its own, checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, cast

from emu.errors import ConfigError
from emu.interop.torch.package import load_torch

torch = load_torch()
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
        is_number = isinstance(number, Real) and not isinstance(number, bool)
        if is_number and (least < number < most or (may_equal and number == least)):
            continue
        rule = f"{'from' if may_equal else 'above'} {least:g}{'' if math.isinf(most) else f' to below {most:g}'}"
        remedy = f"write float({name})" if isinstance(number, torch.Tensor) else "choose one such as 0.01"
        raise ConfigError(f"`{name}` must be a finite number {rule}, got {number!r}; {remedy}")
