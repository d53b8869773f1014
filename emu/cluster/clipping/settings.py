"""`[clipping]`: gradients of each worker clipped layer by layer, before the worker sends them.

[clipping]           trigger, on: when and where a layer is clipped, which changes time and no bit
[[clipping.rules]]   rule, and its numbers: each rule works on the result of the one before it
"""

from __future__ import annotations

from pydantic import Field

from emu._config import Items, Table
from emu.cluster.clipping.rules import MomentumThresholds, ParameterNorm, Rule
from emu.cluster.clipping.schedule import Processor, Trigger


class ClippingTable(Table):
    """`[clipping]` of a recipe.

    Attributes:
        rules: in the order in which they are applied.
        trigger: when a layer is clipped and sent: "next", "own", "after_all", "serial" (see `schedule`).
        on: which processor clips: a "separate" one during backpropagation, or the "worker", which then waits.
    """

    rules: Items[Rule] = Field(min_length=1)
    trigger: Trigger = "next"
    on: Processor = "separate"

    @property
    def reads_masters(self) -> bool:
        """Whether a rule reads parameters."""
        return any(isinstance(rule, ParameterNorm) for rule in self.rules)

    @property
    def reads_momentum(self) -> bool:
        """Whether a rule reads the optimiser's momentum."""
        return any(isinstance(rule, MomentumThresholds) for rule in self.rules)
