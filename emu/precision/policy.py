"""The static policy: formats come from the device's precision table, for each step, whatever a run measures."""

from __future__ import annotations

from functools import lru_cache

from emu.datapath import Cast, Mac, OutputStage, RequantiserKind, StatisticsRegister
from emu.formats import DynamicFixed, Fixed, Float, Format, Scaled
from emu.hardware import PrecisionTable
from emu.hardware.operand_tables import PRODUCT_OF
from emu.hardware.precision_table import LayerTables

#: Roles without a table of their own, and the role whose format they have: the slope of an activation function has that
#: of an activation; momentum with its decay, and gradients after loss scaling or clipping, that of the master weights;
#: moments of adaptive optimisers, and norms, that of the host's arithmetic.
DERIVED_ROLES = {
    "slope": "activation",
    "unscaled": "master",
    "clipped": "master",
    "momentum": "master",
    "moment": "loss",
    "norm": "loss",
}
#: Roles of the results of the backward pass, whose products may have units of their own.
BACKWARD_ROLES = ("error", "gradient")


class Policy:
    """Gives every role of every layer its output stage, unit and register.

    Attributes:
        table: the precision table it reads.
    """

    def __init__(self, table: PrecisionTable) -> None:
        self.table = table
        self._at: dict[tuple[LayerTables, ...], Policy] = {}  # by the tables that are valid at a step
        # caches of this object: formats are asked for at every operation, and a policy never changes
        self._stage = lru_cache(maxsize=None)(self._find_stage)
        self._word = lru_cache(maxsize=None)(self._find_word)
        self._mac = lru_cache(maxsize=None)(table.mac_of)
        self._open = lru_cache(maxsize=None)(table.has_open_accumulator)
        self._cast_mac = lru_cache(maxsize=None)(table.mac_of_casts)
        self._casts = lru_cache(maxsize=None)(self._find_casts)
        self._reduction = lru_cache(maxsize=None)(self._find_reduction)

    def at(self, step: int) -> Policy:
        """Return the policy of a training step: the same object for all steps with equal formats."""
        table = self.table.at(step)
        if table is self.table:
            return self
        if table.layers not in self._at:
            # one object for all steps with these tables: runners cache their units by the policy
            self._at[table.layers] = Policy(table)
        return self._at[table.layers]

    def every(self) -> list[Policy]:
        """Return the policies of all steps, each once."""
        # formats change at these steps alone
        steps = {0} | {edge for tables in self.table.layers for edge in (tables.from_step, tables.until_step) if edge}
        return list(dict.fromkeys(self.at(step) for step in sorted(steps)))

    def stage(self, layer: str, role: str, point: int = 0) -> OutputStage:
        """Return the output stage that writes `role` of `layer`; `point` is its fraction bits if they are dynamic."""
        return self._stage(layer, role, point)

    def _find_stage(self, layer: str, role: str, point: int) -> OutputStage:
        # a role without a table of its own is looked up under the role whose format it has
        return self.table.stage(layer, DERIVED_ROLES.get(role, role), point)

    def word(self, layer: str, role: str) -> DynamicFixed | None:
        """Return the word of a role whose point is dynamic; None if its format is another one."""
        return self._word(layer, role)

    def _find_word(self, layer: str, role: str) -> DynamicFixed | None:
        return self.table.word(layer, DERIVED_ROLES.get(role, role))

    def mac(self, layer: str, *operands: Format | Scaled, role: str = "activation") -> Mac:
        """Return the multiply-accumulate unit that computes products of `layer`.

        Args:
            layer: the layer's name.
            *operands: their formats; an accumulator whose point is open takes the point of their products.
            role: role of the result: errors and gradients may have a unit of their own.
        """
        # only the backward pass has units of its own; all other roles use the forward unit
        own = role if role in BACKWARD_ROLES else "activation"
        if any(isinstance(fmt, Scaled) for fmt in operands):
            return self._cast_mac(layer, own)
        if not self._open(layer, own):
            return self._mac(layer, own)
        # the fraction bits of a product are those of its factors together
        return self._mac(layer, own, sum(f.frac_bits for f in operands if isinstance(f, Fixed)))

    @property
    def requantiser(self) -> RequantiserKind | None:
        """How integer units make elements of sums; None leaves it to the network."""
        return None if self.table.requantiser is None else RequantiserKind(self.table.requantiser)

    def casts(self, layer: str, role: str) -> tuple[Cast, Cast] | None:
        """Return how the factors of a layer's product are cast; None if it reads stored tensors.

        Args:
            layer: the layer's name.
            role: role of the result.
        """
        return self._casts(layer, role)

    def _find_casts(self, layer: str, role: str) -> tuple[Cast, Cast] | None:
        return self.table.casts(layer, PRODUCT_OF[role]) if role in PRODUCT_OF else None

    def reduction(self, layer: str) -> Mac:
        """Return the unit of reductions in the `loss` role: pairwise, in its format (docs/concepts/roles.md)."""
        return self._reduction(layer)

    def _find_reduction(self, layer: str) -> Mac:
        fmt = self.stage(layer, "loss").format
        # in fixed point a product beside a sum is exact: the accumulator alone rounds
        product = fmt if isinstance(fmt, Float) else "exact"
        return Mac(product=product, accumulator=fmt, order="pairwise")

    def register(self) -> StatisticsRegister:
        """Return an empty register with the device's positions."""
        return StatisticsRegister(self.table.register.lowest, self.table.register.bins)
