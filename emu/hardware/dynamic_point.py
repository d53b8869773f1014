"""`[dynamic_point]`: how a device with integer units chooses the binary points of its words.

It is for devices whose formats leave points open (`fix16f?`); a recipe's table is laid over the device's.

    rule        leading_bits: the point of the smallest range that holds all but r_max of the results
                courbariaux: the point moves at most one bit toward such a range
    schedule    how pre-training runs:
                always_redo: each operation twice
                conditional_redo: an operation again if its point was off by more than `threshold`
                float_pretraining: in float32; the points follow from the leading bits of its results
                Main training is the same for all: after `interval` mini-batches all points are set again, no redo.

Source: US 11,593,620 and US 2020/0134434; Courbariaux et al., "Training deep neural networks with low precision
multiplications", ICLR 2015. What they leave open is our choice, and a key here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from emu._config import Table
from emu.errors import ConfigError


class DynamicPoint(Table):
    """Rule, schedule and their parameters.

    Attributes:
        rule: how a point follows from a register.
        schedule: how pre-training runs.
        threshold: bits by which a point may be off without a redo; 0 redoes at any change.
        r_max: share of results that may be outside the range; 0 for none.
        pretraining_steps: steps of pre-training.
        interval: mini-batches of main training between two settings of the points.
        step_limit: bits by which a point moves at most at a time; None for no limit.
        lowest_point: fewest fraction bits; negative if the last bit may weigh more than 1.
        highest_point: most fraction bits.
        decided_on: processor that turns registers into points; it changes time alone.
    """

    rule: Literal["leading_bits", "courbariaux"] = "leading_bits"
    schedule: Literal["float_pretraining", "always_redo", "conditional_redo"] = "conditional_redo"
    threshold: int = Field(default=1, ge=0)
    r_max: float = Field(default=1e-4, ge=0, le=1)
    pretraining_steps: int = Field(default=50, ge=0)
    interval: int = Field(default=10, ge=1)
    step_limit: int | None = Field(default=None, ge=1)
    lowest_point: int = Field(default=-32, ge=-64)
    highest_point: int = Field(default=48, le=64)
    decided_on: Literal["host", "accelerator"] = "host"

    @model_validator(mode="after")
    def _points_in_order(self) -> DynamicPoint:
        if self.lowest_point > self.highest_point:
            raise ConfigError(
                "`lowest_point` of [dynamic_point] must be at most `highest_point`, got "
                f"{self.lowest_point} and {self.highest_point}; exchange them"
            )
        return self

    def over(self, below: DynamicPoint | None) -> DynamicPoint:
        """Return this table laid over another one, key by key."""
        # keys that were written, not defaults: those of the upper table would hide what the lower one says
        given = below.model_dump(exclude_unset=True) if below is not None else {}
        return DynamicPoint(**given | self.model_dump(exclude_unset=True))
