"""A device as modules of PyTorch share it: formats, random bits, the training step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.backends.registry import load
from emu.errors import ConfigError
from emu.formats import parse_number
from emu.formats.integers import as_integer
from emu.hardware import OPTIONAL_ROLES, ROLES, Device, load_device
from emu.interop.torch.package import load_torch
from emu.precision import CounterTable, DatapathRunner, Policy

torch = load_torch()
#: What a module computes on: the name or path of a device, what `emu.device` returns, or a machine that it shares.
On: TypeAlias = "str | Path | Device | Machine"
#: Roles of what goes from module to module as a tensor, and of what belongs to a parameter: moments of adaptive
#: optimisers have the format of the loss.
_BETWEEN = ("activation", "error", "loss")
_OWN = ("weight", "bias", "gradient", "master", "loss")


class Machine:
    """A device, and what its results depend on besides the operands. Copies of a module share it.

    Attributes:
        device: formats and units.
        policy: the output stage of each role of each layer.
        seed: key of all random numbers.
        backend: backend that computes.
        counters: registers and flags by layer and role; None observes nothing.
        step: training step, part of every random number's address; an optimiser of emu moves it.
        tensor_dtype: dtype of tensors between modules: float32, or float64 if a format of theirs needs it.
        parameter_dtype: dtype of parameters, in the same way.
    """

    def __init__(
        self,
        device: str | Path | Device = "float32",
        *,
        seed: int = 0,
        backend: str = "auto",
        counters: CounterTable | None = None,
    ) -> None:
        """Take a device, at step 0.

        Args:
            device: a name, a path, or what `emu.device` returns.
            seed: key of all random numbers.
            backend: backend that computes.
            counters: receives registers and flags.

        Raises:
            ConfigError: its points or scales follow from earlier steps, a format is too wide for tensors, or the seed
                is no integer.
            BackendUnavailable: the backend cannot compute here.
        """
        self.device = load_device(device)
        _require_fixed(self.device)
        # Python's own: an integer of NumPy does not hold the 64 bits that are asked of it
        self.seed = as_integer("seed", seed, error=ConfigError)
        self.backend, self.counters, self.step = load(backend).name, counters, 0
        self.policy = Policy(self.device.precision)
        self.tensor_dtype = _widest(self.device, _BETWEEN)
        self.parameter_dtype = _widest(self.device, _OWN)
        self._runner = DatapathRunner(self.policy, seed=self.seed, backend=self.backend, counters=counters)

    def __repr__(self) -> str:
        return f"emu.torch.Machine({self.device.name!r}, seed={self.seed}, step={self.step})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Machine:
        """Return the machine itself: copies of a module compute on it, too."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # counters do not travel: they belong to the process that observes
        return _machine_at, (self.device, self.seed, self.backend, self.step)

    def runner(self) -> DatapathRunner:
        """Return the runner of operations, at the formats of the training step."""
        # formats may change with the step, so the runner is brought to it each time
        self._runner.step, self._runner.policy = self.step, self.policy.at(self.step)
        return self._runner


def machine_of(on: On) -> Machine:
    """Return the machine that a module computes on; a new one for a device."""
    return on if isinstance(on, Machine) else Machine(on)


def _machine_at(device: Device, seed: int, backend: str, step: int) -> Machine:
    machine = Machine(device, seed=seed, backend=backend)
    machine.step = step
    return machine


def _require_fixed(device: Device) -> None:
    """Raise ConfigError if formats follow from earlier steps: emu's own loop alone keeps account of them."""
    if device.has_open_points:
        raise ConfigError(
            f"a device in PyTorch must have formats with fixed points, got {device.name}, whose points are chosen "
            "during training; write fraction bits instead of the question marks, or train with emu.train"
        )
    if device.has_delayed_scales:
        raise ConfigError(
            f"a device in PyTorch must scale operands by their own numbers, got {device.name}, whose scales follow "
            "from earlier steps; choose current scaling, or train with emu.train"
        )


def _widest(device: Device, roles: tuple[str, ...]) -> Any:
    """Return torch's dtype that holds the formats of some roles in every layer and step.

    Raises:
        ConfigError: float64 does not hold one.
    """
    is_double = False
    for table in (device.precision, *device.precision.layers):
        for role in (*ROLES, *OPTIONAL_ROLES):
            given = table.role(role)
            if role not in roles or given is None or given.format is None:
                continue
            fmt = parse_number(given.format)
            if fmt.carries_raws:
                raise ConfigError(
                    f"formats of a device in PyTorch must fit float64 exactly, got {fmt} in precision.{role} of "
                    f"{device.name}; choose a narrower format"
                )
            is_double |= fmt.carrier == np.float64
    return torch.float64 if is_double else torch.float32
