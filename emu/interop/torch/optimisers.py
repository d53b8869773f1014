"""Emu's optimisers as those of PyTorch: each step goes through the datapath, in formats of updates and master weights.

The parameters of the model are the master weights. A gradient that emu's modules have computed is taken as it is; any
other, a sum of several among them, is first written in the format of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from emu import engine, optim
from emu.autodiff import Operation, Value
from emu.errors import ConfigError
from emu.formats import PRESETS, Format
from emu.formats.integers import as_integer
from emu.interop.torch.groups import Parameters, grouped, require_settings
from emu.interop.torch.machine import Machine, On, machine_of
from emu.interop.torch.modules import layers_of
from emu.interop.torch.package import load_torch
from emu.interop.torch.tensors import hosted, numbers_of, tensor_of
from emu.optim import ParameterState, clip_by_norm
from emu.optim.muon import globs_of

torch = load_torch()
_COUNT = "step"
_MACHINE_STEP = "machine_step"
#: Formats whose numbers PyTorch's narrow dtypes hold, those of these dtypes themselves.
_NARROW = {torch.bfloat16: PRESETS["bf16"], torch.float16: PRESETS["fp16"]}


class Optimiser(torch.optim.Optimizer):
    """The base of emu's optimisers. `lr` and the other settings of a group may change between steps.

    Attributes:
        machine: the machine whose formats it uses; a step of the optimiser moves it to the next training step.
        clip_norm: all gradients together are shortened to this norm; None clips nothing.
    """

    def __init__(
        self,
        parameters: Parameters,
        settings: Mapping[str, Any],
        on: On | None = None,
        clip_norm: float | None = None,
    ) -> None:
        """Take parameters, and write them in the format of master weights.

        Args:
            parameters: a model; its named parameters; or groups, dicts with named parameters as `params`.
            settings: defaults of a group.
            on: a device's name or path, what `emu.device` returns, or a `Machine`; None is that of the model's modules.
            clip_norm: threshold; None clips nothing.

        Raises:
            ConfigError: there are no parameters, they have no names, a dtype does not hold master weights, or modules
                compute on several machines. No parameter is written then.
        """
        self.machine = _machine_of(parameters, on)
        self.clip_norm = clip_norm
        # by the id of a parameter: its layer and part, as its numbers are in the parameter itself; formats of its slots
        self._states: dict[int, ParameterState] = {}
        self._formats: dict[int, dict[str, Format]] = {}
        self._is_made = False
        require_settings({**settings, "clip_norm": clip_norm})
        # PyTorch's constructor calls `add_param_group` for each group, which only notes it: nothing is written before
        # all of them are checked
        torch.optim.Optimizer.__init__(self, grouped(parameters, self._states), dict(settings))
        self._begin(self._checked(self.param_groups), self.param_groups)
        self._is_made = True

    def _checked(self, groups: Sequence[Mapping[str, Any]]) -> list[ParameterState]:
        """Return the states of all parameters of groups.

        Raises:
            ConfigError: there is none, two have one name, one is there twice, a dtype does not hold master weights, or
                emu's optimiser cannot move them.
        """
        tensors = [p for group in groups for p in group["params"]]
        if not tensors:
            raise ConfigError(
                "an optimiser must have a parameter to move, got none; give the model, or model.named_parameters() "
                "anew, where a parameter has requires_grad"
            )
        named: dict[str, int] = {}
        for tensor in tensors:
            name = self._states[id(tensor)].name
            if named.get(name) == id(tensor):
                raise ConfigError(f"a parameter must be in one group, got {name!r} twice; leave it out of the others")
            if name in named:
                raise ConfigError(
                    f"parameters must have names of their own, got two for {name!r}; call emu.torch.place(model, "
                    "device), which names modules by their places"
                )
            named[name] = id(tensor)
        states = [self._current(p, {**self.defaults, **group}) for group in groups for p in group["params"]]
        self._rule(groups[0]).require(states)
        return states

    def _begin(self, states: Sequence[ParameterState], groups: Sequence[Mapping[str, Any]]) -> None:
        """Write parameters in the format of master weights."""
        for state, tensor in zip(states, (p for group in groups for p in group["params"]), strict=True):
            self._write_master(tensor, state.master)

    def _rule(self, group: Mapping[str, Any]) -> optim.Optimiser:
        """Return emu's optimiser with the settings of a group."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take another group; its parameters have names, and are written in the format of master weights.

        Raises:
            ConfigError: a setting is no number or out of its bounds, a parameter has no name or that of another one, or
                its dtype does not hold master weights. The optimiser and the parameters are as before.
        """
        before = dict(self._states)
        try:
            [group] = grouped([param_group], self._states)
            require_settings(group)
            states = self._checked([*self.param_groups, {**self.defaults, **group}]) if self._is_made else []
            torch.optim.Optimizer.add_param_group(self, group)
        except Exception:
            self._states = before
            raise
        if self._is_made:
            # those of earlier groups come first
            self._begin(states[len(states) - len(group["params"]) :], [group])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient; return what `closure` returns.

        Raises:
            ConfigError: a parameter's dtype does not hold master weights.
            FormatError: a gradient is sparse or complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        runner = self.machine.runner()
        # gradients of all groups together: clipping shortens by their joint norm
        moved = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        states = [self._current(p, group) for group, p in moved]
        gradients = {s.name: self._gradient(s, p.grad) for s, (_, p) in zip(states, moved, strict=True)}
        if self.clip_norm is not None:
            gradients = clip_by_norm(states, gradients, self.clip_norm, runner)
        counts = [int(self.state[tensor].get(_COUNT, 0)) for _, tensor in moved]
        # all is computed before anything is written, so that an error leaves every parameter where it was
        for state, count, (group, _) in zip(states, counts, moved, strict=True):
            self._rule(group).apply(state, gradients[state.name], float(group["lr"]), count, runner)
        for state, count, (_, tensor) in zip(states, counts, moved, strict=True):
            # in place: PyTorch's modules and other references keep the same parameter
            self._write_master(tensor, state.master)
            # as tensors in PyTorch's state, so that `state_dict` saves them
            slots = {name: tensor_of(hosted(v), None, tensor.device) for name, v in state.slots.items()}
            self.state[tensor] = {_COUNT: count + 1, **slots}
        # once for a step of the whole model: every random number of the next step has another address
        self.machine.step += 1
        return loss

    # ---- saved and loaded -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what PyTorch saves of an optimiser, and the machine's step, by which random bits differ."""
        return {**torch.optim.Optimizer.state_dict(self), _MACHINE_STEP: self.machine.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was saved, the machine too; one without the machine's step leaves that as it is.

        Raises:
            ConfigError: the machine's step is no integer from 0.
        """
        given = dict(state_dict)
        step = given.pop(_MACHINE_STEP, None)
        if step is not None:
            step = as_integer(_MACHINE_STEP, step, 0, error=ConfigError)
        torch.optim.Optimizer.load_state_dict(self, given)
        # PyTorch has written slots in the dtype of their parameter, which may be narrower
        for group, saved in zip(self.param_groups, given["param_groups"], strict=True):
            for tensor, key in zip(group["params"], saved["params"], strict=True):
                for name, slot in given["state"].get(key, {}).items():
                    if isinstance(slot, torch.Tensor):
                        self.state[tensor][name] = slot.to(tensor.device)
        if step is not None:
            self.machine.step = step

    @override
    def __getstate__(self) -> dict[str, Any]:
        raise ConfigError(
            f"an optimiser of emu must stay with the parameters that it moves, got a copy of {type(self).__name__}; "
            "make one for the copied model, and call its load_state_dict with state_dict() of this one"
        )

    # ---- a parameter ------------------------------------------------------------------------------------------------

    def _format_of(self, state: ParameterState) -> Callable[[str], Format]:
        return lambda role: self.machine.policy.stage(state.layer, role).format

    def _current(self, tensor: Any, group: Mapping[str, Any]) -> ParameterState:
        """Return the state of a parameter as it is now."""
        known = self._states[id(tensor)]
        kept: Mapping[str, Any] = self.state.get(tensor, {})
        state = ParameterState(known.layer, known.part, self._master(tensor), is_table=known.is_table)
        # zeros before the first step, and for settings that ask for a slot since then
        self._rule(group).start(state, self._format_of(state))
        formats = self._formats.setdefault(id(tensor), {})
        formats.update({slot: value.format for slot, value in state.slots.items()})
        for slot, fmt in formats.items():
            if slot in kept:
                state.slots[slot] = Value(numbers_of(kept[slot], slot).astype(fmt.carrier), fmt)
        return state

    def _master(self, tensor: Any) -> Value:
        """Return a parameter in the format of master weights: as a step wrote it, or rounded, if it was changed."""
        state = self._states[id(tensor)]
        fmt = self._format_of(state)("master")
        array = numbers_of(tensor, state.name)
        self._require_dtype(tensor, fmt)
        # rounding again changes nothing if a step wrote it
        return Value(engine.quantize(array, fmt, backend=self.machine.backend), fmt)

    def _require_dtype(self, tensor: Any, fmt: Format) -> None:
        """Raise ConfigError unless a parameter's dtype holds every number of the format of master weights."""
        needed = torch.float64 if fmt.carrier == np.float64 else torch.float32
        narrow = _NARROW.get(tensor.dtype)
        if tensor.dtype not in (needed, torch.float64, self.machine.parameter_dtype) and fmt != narrow:
            way = "double" if needed == torch.float64 else "float"
            raise ConfigError(
                f"parameter {self._states[id(tensor)].name!r} must be {needed} to hold master weights of {fmt}, got "
                f"{tensor.dtype}; call emu.torch.place, or model.{way}()"
            )

    def _write_master(self, tensor: Any, master: Value) -> None:
        with torch.no_grad():
            tensor.copy_(tensor_of(hosted(master), tensor.dtype, tensor.device))

    def _gradient(self, state: ParameterState, gradient: Any) -> Value:
        array = numbers_of(gradient, f"gradient of {state.name}")
        runner = self.machine.runner()
        fmt = self.machine.policy.at(self.machine.step).stage(state.layer, "gradient").format
        # emu's modules wrote it in this format, or it happens to fit: nothing to round
        if np.asarray(fmt.contains(array)).all():
            return Value(runner.place(array.astype(fmt.carrier)), fmt)
        operation = Operation("quantize", (Value(runner.place(array)),), part=f"{state.part}.written")
        return runner.run(operation, "gradient", state.layer)


class SGD(Optimiser):
    """Gradient descent, with momentum and decay: `emu.optim.GradientDescent`."""

    def __init__(
        self, parameters: Parameters, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, *,
        on: On | None = None, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        """Take parameters; see `Optimiser`.

        Args:
            parameters: a model, its named parameters, or groups of them.
            lr: learning rate.
            momentum: share of the previous direction.
            weight_decay: lambda of L2 regularisation.
            on: the machine; None is that of the model's modules.
            clip_norm: norm to which all gradients together are shortened; None clips nothing.
        """
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, on, clip_norm)

    @override
    def _rule(self, group: Mapping[str, Any]) -> optim.Optimiser:
        return optim.GradientDescent(float(group["momentum"]), float(group["weight_decay"]))


class AdaGrad(Optimiser):
    """Gradients divided by the root of the sum of their squares: `emu.optim.AdaGrad`."""

    def __init__(
        self, parameters: Parameters, lr: float = 1e-2, eps: float = 1e-8, weight_decay: float = 0.0, *,
        on: On | None = None, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        """Take parameters; see `Optimiser`.

        Args:
            parameters: a model, its named parameters, or groups of them.
            lr: learning rate.
            eps: added to the root.
            weight_decay: lambda of L2 regularisation.
            on: the machine; None is that of the model's modules.
            clip_norm: norm to which all gradients together are shortened; None clips nothing.
        """
        super().__init__(parameters, {"lr": lr, "eps": eps, "weight_decay": weight_decay}, on, clip_norm)

    @override
    def _rule(self, group: Mapping[str, Any]) -> optim.Optimiser:
        return optim.AdaGrad(float(group["eps"]), float(group["weight_decay"]))


class Adam(Optimiser):
    """Means of gradients and of their squares: `emu.optim.Adam`. Decay is apart from the gradient, as in AdamW."""

    def __init__(
        self, parameters: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, on: On | None = None, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        """Take parameters; see `Optimiser`.

        Args:
            parameters: a model, its named parameters, or groups of them.
            lr: learning rate.
            betas: shares of the previous mean, and of the previous mean of squares.
            eps: added to the root.
            weight_decay: lambda, times rate and parameter, apart from the gradient.
            on: the machine; None is that of the model's modules.
            clip_norm: norm to which all gradients together are shortened; None clips nothing.
        """
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, settings, on, clip_norm)

    @override
    def _rule(self, group: Mapping[str, Any]) -> optim.Optimiser:
        numbers = (*group["betas"], group["eps"], group["weight_decay"])
        return optim.Adam(*map(float, numbers))


class Muon(Optimiser):
    """Momentum made orthogonal for matrices, Adam for other parameters: `emu.optim.Muon`."""

    def __init__(
        self, parameters: Parameters, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0, *,
        iterations: int = 5, adam_layers: str | Sequence[str] = (), adam_lr: float = 3e-4, on: On | None = None,
        clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        """Take parameters; see `Optimiser`.

        Args:
            parameters: a model, its named parameters, or groups of them.
            lr: learning rate of matrices.
            momentum: share of the previous direction.
            weight_decay: lambda of matrices, times rate and parameter, apart from the gradient.
            iterations: how often a direction is multiplied.
            adam_layers: globs of layers whose matrices Adam moves; a string is one glob.
            adam_lr: rate of Adam; it changes in the ratio in which `lr` does, from the first one above 0.
            on: the machine; None is that of the model's modules.
            clip_norm: norm to which all gradients together are shortened; None clips nothing.

        Raises:
            ConfigError: there is no matrix to move, or no learning rate above 0 to begin with.
        """
        settings = {
            "lr": lr, "first_lr": lr, "momentum": momentum, "weight_decay": weight_decay, "iterations": iterations,
            "adam_layers": globs_of(adam_layers), "adam_lr": adam_lr,
        }  # fmt: skip
        super().__init__(parameters, settings, on, clip_norm)

    @override
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        # Adam's rate is `adam_lr * lr / first_lr`; a group that begins at rest has no such ratio, and takes that to the
        # default rate
        first_lr = param_group.get("lr") or self.defaults["lr"]
        if not first_lr:
            raise ConfigError(
                f"`lr` of Muon must begin above 0, because Adam's rate changes in its ratio, got {first_lr!r}; write "
                "one such as 0.02, and set the groups' `lr` to 0 afterwards"
            )
        super().add_param_group({"first_lr": first_lr, **param_group})

    @override
    def _rule(self, group: Mapping[str, Any]) -> optim.Optimiser:
        first, momentum, decay = (float(group[name]) for name in ("first_lr", "momentum", "weight_decay"))
        layers, adam_lr = group["adam_layers"], float(group["adam_lr"])
        return optim.Muon(first, momentum, decay, group["iterations"], layers, adam_lr)


# ---- the machine ------------------------------------------------------------------------------


def _machine_of(parameters: Parameters, on: On | None) -> Machine:
    """Return the machine of an optimiser: the given one, or that of all modules of a model.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if on is not None:
        return machine_of(on)
    modules = layers_of(parameters).values() if isinstance(parameters, torch.nn.Module) else ()
    # by identity: machines of equal devices have steps of their own
    machines = list({id(module.machine): module.machine for module in modules}.values())
    if len(machines) != 1:
        raise ConfigError(
            f"an optimiser must have one machine, got {len(machines)} from the parameters; call machine = "
            "emu.torch.place(model, device) and give the model, or on=machine"
        )
    return machines[0]
