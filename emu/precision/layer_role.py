"""A role of a layer: the unit that writes it, its random numbers, and where its counts go."""

from __future__ import annotations

from collections.abc import Callable

from emu.datapath import Cast, Mac, OutputStage, RequantiserKind, ScaleCounts
from emu.datapath.cast import Magnitudes
from emu.engine import Unit
from emu.engine.casts import stage_of_cast, write_cast
from emu.engine.description import EXACT, UnitDescription
from emu.engine.records import ProductRecord
from emu.engine.small import Repeated
from emu.formats import Format, ScaledValue, Value
from emu.formats.value import made_value
from emu.precision.counters import CounterTable
from emu.precision.policy import Policy

#: Stands for the result itself where intermediate results are known by their names.
RESULT = ""


class LayerRole:
    """A role of a layer: gives an operation the units that write its result and its intermediate results.

    Attributes:
        stage: the output stage of what is written.
        backend: backend that computes.
        step: training step, part of every random number's address.
        log: gets a record of each product on the way to the result; None keeps none.
        scales: gets the counts of blocks of what is cast; None counts none.
        magnitudes: what the scale of what is cast follows from; None is its own numbers.
        passes: passes of the host, one for each intermediate result; the runner sets it to 0 before each operation.
    """

    def __init__(
        self,
        policy: Policy,
        layer: str,
        role: str,
        backend: str,
        seed: int,
        stream_number: Callable[[str], int],
        counters: CounterTable | None,
        log: list[ProductRecord] | None,
        point: int = 0,
        counted_as: str | None = None,
    ) -> None:
        """Take what determines a result besides the operands.

        Args:
            policy: formats and units.
            layer: layer whose result is written.
            role: the result's role.
            backend: backend that computes.
            seed: key of every random number.
            stream_number: returns the random stream of an intermediate result by its name, and that of the result for
                `RESULT`. Each has a stream of its own, so that their stochastic roundings are independent.
            counters: table with the result's register and flags; None observes nothing.
            log: list for records of products; None keeps none.
            point: fraction bits of the result, if its format leaves them open.
            counted_as: name of its counts in the table, where counts are kept by tensor; None is the layer's name.
        """
        self.stage = policy.stage(layer, role, point)
        self.backend, self.log, self.step, self.passes = backend, log, 0, 0
        self._policy, self._layer, self._role = policy, layer, role
        self._counted_as = layer if counted_as is None else counted_as
        self._seed, self._stream_number, self._counters = seed, stream_number, counters
        self.scales: ScaleCounts | None = None
        self.magnitudes: Magnitudes | None = None
        self._units: dict[tuple[Format, ...], Unit] = {}
        self._host_units: dict[str, Unit] = {}
        self._repeated: dict[str, Repeated | None] = {}
        if counters is not None:
            counters.of(self._counted_as, role)  # so that the table lists the role even if nothing is ever written

    def unit(self, *factors: Format) -> Unit:
        """Return the unit that writes and observes the result.

        Args:
            *factors: formats of what it multiplies, which choose its Mac; none for an elementwise operation.
        """
        unit = self._units.get(factors)
        if unit is None:
            mac = self._policy.mac(self._layer, *factors, role=self._role) if factors else EXACT
            unit = self._units[factors] = self._new_unit(RESULT, self.stage, mac)
        # asked at every operation: another table, or a loaded one, may have replaced the counters
        counters = self._counters and self._counters.of(self._counted_as, self._role)
        # a unit is made once; a step changes its address alone
        description = unit.description.at_step(self.step)
        # a new unit has no register yet, and `CounterTable.load` replaces registers
        # compared by identity: the same register needs no new unit
        if counters is not None and description.register is not counters.register:
            description = description._replace(register=counters.register, flags=counters.flags)
        if description is not unit.description:
            unit = self._units[factors] = Unit.of(description)
        return unit

    def elementwise(self, operation: str, *operands: Value) -> Value:
        """Return an elementwise operation of values, written and observed as the result."""
        result = self._repeat(operation, operands)
        if result is None:
            result = self.unit().elementwise(operation, *operands)
            self._keep(operation, operands)
        return result

    def quantize(self, x: Value) -> Value:
        """Return a value, written and observed as the result."""
        result = self._repeat("quantize", (x,))
        if result is None:
            # wide raws need their format to be read; other carriers hold their numbers, whatever format they had
            result = self.unit().quantize(x if getattr(x.format, "carries_raws", False) else x.array)
            self._keep("quantize", (x,))
        return result

    def _repeat(self, operation: str, operands: tuple[Value, ...]) -> Value | None:
        """Return an operation as it was written before, with other numbers; None if something else has changed."""
        repeated = self._repeated.get(operation)
        if repeated is None:
            return None
        # asked at every operation, as in `unit`
        counters = self._counters and self._counters.of(self._counted_as, self._role)
        counted = (None, None) if counters is None else (counters.register, counters.flags)
        array = repeated.written(operands, self.step, *counted)
        if array is None:
            return None
        # a value keeps its format only as long as nobody writes to it
        array.flags.writeable = False
        return made_value(array, self.stage.format)

    def _keep(self, operation: str, operands: tuple[Value, ...]) -> None:
        """Keep how an operation is repeated. Called after a result, which fixes the positions of the register."""
        # what takes the usual way keeps to it: to ask again would cost as much as the arithmetic on a bias
        if operation not in self._repeated or self._repeated[operation] is not None:
            self._repeated[operation] = Repeated.of(self.unit().description, operation, operands)

    def on_host(self, name: str) -> Unit:
        """Return the unit that writes an intermediate result: in the `loss` role's format, not observed.

        Args:
            name: name of the intermediate result, unique within the operation: it has its own random bits.
        """
        self.passes += 1
        unit = self._host_units.get(name)
        if unit is None:
            # sums of the host are pairwise, whatever the layer's Mac
            unit = self._host_units[name] = self._new_unit(name, self.host_stage, self._policy.reduction(self._layer))
        description = unit.description.at_step(self.step)
        if description is not unit.description:
            unit = self._host_units[name] = Unit.of(description)
        return unit

    @property
    def requantiser(self) -> RequantiserKind | None:
        """How the device's integer units make elements of sums; None leaves it to the network."""
        return self._policy.requantiser

    @property
    def host_stage(self) -> OutputStage:
        """The output stage of intermediate results."""
        return self._policy.stage(self._layer, "loss")

    def reduced(self) -> Unit:
        """Return the unit that writes the result as a pairwise sum of intermediate results."""
        return Unit.of(self.unit().description._replace(mac=self._policy.reduction(self._layer)))

    def cast(self, x: Value, cast: Cast, axis: int) -> ScaledValue:
        """Return a stored tensor as an operand of the product that gives the result, its blocks along an axis."""
        # the result's stream: a cast is an operation of its own, so no other draws from it
        address = (self._seed, self._stream_number(RESULT), self.step)
        unit = UnitDescription.at(stage_of_cast(cast), address, self.backend)
        return write_cast(unit, cast, x, axis, self.scales, self.magnitudes)

    def _new_unit(self, name: str, stage: OutputStage, mac: Mac) -> Unit:
        address = (self._seed, self._stream_number(name), self.step)
        return Unit.of(UnitDescription.at(stage, address, self.backend, mac, self.log))

    def value(self, array: object) -> Value:
        """Return what the stage wrote as a value of its format."""
        return made_value(array, self.stage.format)
