"""The size of mini-batches, chosen by measurement: several sizes are tried from one state, on the same examples.

    sizes      last * sqrt(2)**-2 .. last * sqrt(2)**2, rounded to multiples      128  192  256  384  512
    criterion  mean training loss over the trial's examples                       0.41 0.41 0.41 0.42 0.47
    kept       the largest within 1% of the smallest trial size's, the base       ───────────►

Source: CN106062786A; Seide et al., Interspeech 2014. That the base is the smallest trial size, and that trial sizes
begin at half the last size, is our choice: so sizes can fall again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from emu._config import Table
from emu.errors import ConfigError
from emu.formats.integers import as_integer

#: Trial sizes are the last size times the root of two to these powers.
HALF_OCTAVES = range(-2, 3)


def trial_sizes(last: int, *, multiple: int = 64, smallest: int = 1, largest: int | None = None) -> tuple[int, ...]:
    """Return sizes to try, ascending: steps of the root of two from half the last size to twice it.

    Args:
        last: size so far, a multiple of `multiple`.
        multiple: sizes are rounded to multiples of it, halves up.
        smallest: smallest of all sizes.
        largest: largest of all sizes; None is no limit.

    Raises:
        ConfigError: a size is not an integer from 1 on.

    Examples:
        >>> trial_sizes(256)
        (128, 192, 256, 384, 512)
        >>> trial_sizes(64)
        (64, 128)
    """
    last, multiple, smallest = (
        as_integer(name, size, 1, error=ConfigError)
        for name, size in (("last", last), ("multiple", multiple), ("smallest", smallest))
    )
    largest = None if largest is None else as_integer("largest", largest, 1, error=ConfigError)
    # last * sqrt(2)**k in integers: the root of last**2 * 2**k; no multiple and a half is a root of an odd power of two
    # four times the square, so that k = -2 does not shift to the right; `_rounded` halves the root
    sizes = {_rounded((last * last) << (2 + power), multiple) for power in HALF_OCTAVES}
    return tuple(size for size in sorted(sizes) if smallest <= size and (largest is None or size <= largest))


def _rounded(four_squares: int, multiple: int) -> int:
    """Return the multiple that is nearest to half the square root of a number."""
    # with x the number: floor(sqrt(x) / (2 * multiple) + 1/2), exact because flooring the root first changes no floor
    return (math.isqrt(four_squares) + multiple) // (2 * multiple) * multiple


def kept_size(criteria: Mapping[int, float], last: int, *, tolerance: float = 0.01) -> int:
    """Return the largest size whose criterion is at most (1 + tolerance) times that of the smallest, the base.

    Args:
        criteria: mean training loss of the trial, by size; a size whose loss is not finite is not kept.
        last: size that is kept if the base's criterion is not finite.
        tolerance: as a share of the base's criterion.

    Examples:
        >>> kept_size({128: 2.0, 256: 2.02, 512: 2.1}, 128)
        256
    """
    # the base is the smallest size that was tried, not the one with the smallest loss
    base = criteria[min(criteria)]
    if not math.isfinite(base):
        return last
    # `abs`: a loss may be negative, and the limit still lies above it
    limit = base + tolerance * abs(base)
    # never empty: the base itself is within its limit; NaN is not, so a size that diverged is left out
    return max(size for size, criterion in criteria.items() if criterion <= limit)


class BatchSizeTable(Table):
    """`[cluster.search]` of a recipe.

    Attributes:
        every: mini-batches between two searches; None leaves it to `every_epochs`.
        every_epochs: epochs between two searches; None leaves it to `every`.
        trial: mini-batches of the last size; each trial size is tried on their examples.
        tolerance: how far the criterion of a kept size may be above the base's, as a share of it.
        multiple: sizes are multiples of it.
        smallest: smallest of all sizes; None is `training.batch`.
        largest: largest of all sizes; None is as many as there are examples to train.
        rate: "per_sample" multiplies the learning rate by size / `training.batch`; "fixed" leaves it.
        parallelism: whether only so many nodes take part that computation and transfer are balanced.
        decay: share of the average of times that stays when a time is added.
    """

    every: int | None = Field(default=None, ge=1)
    every_epochs: int | None = Field(default=None, ge=1)
    trial: int = Field(default=16, ge=2)
    tolerance: float = Field(default=0.01, ge=0)
    multiple: int = Field(default=64, ge=1)
    smallest: int | None = Field(default=None, ge=1)
    largest: int | None = Field(default=None, ge=1)
    rate: Literal["per_sample", "fixed"] = "per_sample"
    parallelism: bool = False
    decay: float = Field(default=0.9, ge=0, lt=1)

    @model_validator(mode="after")
    def _searches(self) -> BatchSizeTable:
        if self.every is None and self.every_epochs is None and not self.parallelism:
            raise ConfigError(
                "[cluster.search] must have `every`, `every_epochs` or `parallelism = true`, got none of them; set one "
                "to say when sizes are tried"
            )
        return self

    def is_due(self, step: int, epoch: int, offset: int) -> bool:
        """Return whether sizes are tried before a step.

        Args:
            step: training step.
            epoch: epoch of the step.
            offset: examples of the epoch before the step.
        """
        # not before the first step or epoch: training begins with `training.batch`
        by_step = self.every is not None and step > 0 and step % self.every == 0
        by_epoch = self.every_epochs is not None and offset == 0 and epoch > 0 and epoch % self.every_epochs == 0
        return by_step or by_epoch

    def sizes(self, last: int, batch: int, examples: int) -> tuple[int, ...]:
        """Return the sizes to try.

        Args:
            last: size so far.
            batch: `training.batch`.
            examples: number of training examples.
        """
        most = examples if self.largest is None else self.largest
        return trial_sizes(last, multiple=self.multiple, smallest=self.smallest or batch, largest=most)

    def require_fit(self, batch: int, parts: int, examples: int) -> None:
        """Check that sizes can be divided among nodes, and that `training.batch` is within the bounds.

        Args:
            batch: `training.batch`.
            parts: parts of a mini-batch: nodes times processing units of a node.
            examples: number of training examples.

        Raises:
            ConfigError: a number does not fit the others.
        """
        if self.multiple % parts:
            raise ConfigError(
                f"`multiple` of [cluster.search] must be a multiple of the {parts} parts of a mini-batch, got "
                f"{self.multiple}; set it to {-(-self.multiple // parts) * parts}"
            )
        if batch % self.multiple:
            raise ConfigError(
                f"`training.batch` must be a multiple of {self.multiple}, `multiple` of [cluster.search], got {batch}; "
                "change one of them"
            )
        if self.smallest is not None and self.smallest > batch:
            raise ConfigError(
                f"`smallest` of [cluster.search] must be at most `training.batch`, {batch}, got {self.smallest}; "
                "lower it"
            )
        if self.largest is not None and not batch <= self.largest <= examples:
            raise ConfigError(
                f"`largest` of [cluster.search] must be `training.batch`..examples to train, {batch}..{examples}, got "
                f"{self.largest}; change it, or leave it out"
            )
