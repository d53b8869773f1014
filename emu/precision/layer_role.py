"""A role of a layer: the unit that writes it, its random numbers, and where its counts go."""

from __future__ import annotations

from collections.abc import Callable

from emu.datapath import Mac, OutputStage
from emu.engine import Unit
from emu.engine.description import EXACT, UnitDescription
from emu.engine.records import ProductRecord
from emu.formats import Format, Value
from emu.precision.counters import CounterTable
from emu.precision.policy import Policy

#: The step that writes the result itself.
RESULT = ""


class LayerRole:
    """A role of a layer, in one place of the network: from here an operation gets the unit that writes its result.

    Attributes:
        stage: the output stage of what is written.
        backend: backend that computes.
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
        log: list[ProductRecord] | None,
        point: int = 0,
        counted_as: str | None = None,
    ) -> None:
        """Take the place of a result.

        Args:
            policy: formats and units.
            layer: layer whose result is written.
            role: the result's role.
            backend: backend that computes.
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
        self._results: dict[tuple[Format, ...], Unit] = {}
        self._steps: dict[str, Unit] = {}
        if counters is not None:
            counters.of(self._counted_as, role)  # listed even if nothing is ever written

    def unit(self, *factors: Format) -> Unit:
        """Return the unit that writes and observes the result.

        Args:
            *factors: formats of what it multiplies, which choose its Mac; none of an elementwise operation.
        """
        unit = self._results.get(factors)
        if unit is None:
            mac = self._policy.mac(self._layer, *factors, role=self._role) if factors else EXACT
            unit = self._results[factors] = self._made(RESULT, self.stage, mac)
        counters = self._counters and self._counters.of(self._counted_as, self._role)
        found = _in_step(unit.description, self.step)
        if counters is not None and found.register is not counters.register:  # the first one, or counters were loaded
            found = found._replace(register=counters.register, flags=counters.flags)
        if found is not unit.description:
            unit = self._results[factors] = Unit.of(found)
        return unit

    def on_host(self, step: str) -> Unit:
        """Return the unit that writes an intermediate result: in the `loss` role's format, not observed."""
        self.passes += 1
        unit = self._steps.get(step)
        if unit is None:
            unit = self._steps[step] = self._made(step, self.host_stage, self._policy.reduction(self._layer))
        found = _in_step(unit.description, self.step)
        if found is not unit.description:
            unit = self._steps[step] = Unit.of(found)
        return unit

    @property
    def host_stage(self) -> OutputStage:
        """The stage of intermediate results."""
        return self._policy.stage(self._layer, "loss")

    def reduced(self) -> Unit:
        """Return the unit that writes the result as a sum of intermediate results."""
        return Unit.of(self.unit().description._replace(mac=self._policy.reduction(self._layer)))

    def _made(self, step: str, stage: OutputStage, mac: Mac) -> Unit:
        address = (self._seed, self._stream_of(step), self.step)
        return Unit.of(UnitDescription.at(stage, address, self.backend, mac, self.log))

    def value(self, array: object) -> Value:
        """Return what the stage wrote."""
        return Value(array, self.stage.format)


def _in_step(unit: UnitDescription, step: int) -> UnitDescription:
    """Return the same unit with another step's random bits."""
    assert unit.address is not None
    if unit.address.step == step:
        return unit
    return unit._replace(address=unit.address._replace(step=step % 2**32))
