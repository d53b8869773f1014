"""The unit that writes a tensor: its stage, its Mac, its random numbers and where its counts go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Value
from emu.datapath import Mac, OutputStage
from emu.engine.elementwise import write_elementwise
from emu.engine.request import Request, as_operand
from emu.engine.work import WorkRecord
from emu.formats import PRESETS, Format
from emu.precision.counters import CounterTable
from emu.precision.policy import Policy

Array = NDArray[Any]
FP32 = PRESETS["fp32"]
#: The step that writes the result itself.
RESULT = ""


class Unit:
    """The unit that writes a role of a layer: its stage, its Mac, and where its counts and random bits go.

    Attributes:
        stage: the output stage of what is written.
        backend: who computes.
        step: training step, part of every random number's address.
        log: gets a record of each product on the way to the result; None keeps none.
        passes: steps that the host ran since this was set to 0.
    """

    def __init__(
        self,
        policy: Policy,
        layer: str,
        role: str,
        backend: str,
        seed: int,
        stream_of: Callable[[str], int],
        counters: CounterTable | None,
        log: list[WorkRecord] | None,
        point: int = 0,
        counted_as: str | None = None,
    ) -> None:
        """Take the place of a result.

        Args:
            policy: formats and units.
            layer: whose result is written.
            role: the result's role.
            backend: who computes.
            seed: key of every random number.
            stream_of: the random stream of the result (of no step), or of a named step on the way to it.
            counters: where the result's register and flags are; None observes nothing.
            log: see above.
            point: fraction bits of the result, where its format leaves them open.
            counted_as: name of its counts; None is the layer's.
        """
        self.stage = policy.stage(layer, role, point)
        self.backend, self.log, self.step, self.passes = backend, log, 0, 0
        self._policy, self._layer, self._role = policy, layer, role
        self._counted_as = layer if counted_as is None else counted_as
        self._seed, self._stream_of, self._counters = seed, stream_of, counters
        self._requests: dict[str, Request] = {}
        if counters is not None:
            counters.of(self._counted_as, role)  # listed even if nothing is ever written

    def request(self) -> Request:
        """Return how the result is written and observed."""
        request = self._at(RESULT, self.stage)
        if self._counters is None:
            return request
        counters = self._counters.of(self._counted_as, self._role)
        if request.register is not counters.register:  # the first one, or counters were loaded
            request = request._replace(register=counters.register, flags=counters.flags)
            self._requests[RESULT] = request
        return request

    def mac(self, *operands: Format) -> Mac:
        """Return the layer's multiply-accumulate unit, for operands of these formats."""
        return self._policy.mac(self._layer, *operands, role=self._role)

    def on_host(self, step: str) -> Request:
        """Return how an intermediate result is written: in the `loss` role's format, not observed."""
        self.passes += 1
        return self._at(step, self.host_stage)

    @property
    def host_stage(self) -> OutputStage:
        """The stage of intermediate results."""
        return self._policy.stage(self._layer, "loss")

    @property
    def reduction(self) -> Mac:
        """The unit of sums among intermediate results."""
        return self._policy.reduction(self._layer)

    def _at(self, step: str, stage: OutputStage) -> Request:
        known = self._requests.get(step)
        if known is None:
            address = (self._seed, self._stream_of(step), self.step)
            known = self._requests[step] = Request.at(stage, address, self.backend)
        elif known.random.step != self.step:
            known = self._requests[step] = known.in_step(self.step)
        return known

    def value(self, array: Array) -> Value:
        """Return what the stage wrote."""
        return Value(array, self.stage.format)


def carrier(x: Value) -> Array:
    """Return an operand as kernels take it."""
    return as_operand(x.array, x.format, "x", check=False)[0]


def elementwise(name: str) -> Callable[..., Value]:
    """Return the operation that writes an elementwise one of its operands through the unit's stage."""

    def operation(unit: Unit, *operands: Value) -> Value:
        arrays, formats = [carrier(value) for value in operands], tuple([value.format for value in operands])
        return unit.value(write_elementwise(name, arrays, formats, unit.request()))

    return operation


def number(x: float) -> Value:
    """Return a number as an operand: as float32 where that holds it, else as float64."""
    single = np.array(x, np.float32)
    return Value(single, FP32) if single == x else Value(np.array(x, np.float64), PRESETS["fp64"])
