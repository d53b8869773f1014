"""The examples of each mini-batch: a seeded permutation per epoch, cut into mini-batches.

    epoch e    | size | size |  larger  |  larger  | rest left out |
    step         0      1       2          3           4 is in epoch e + 1

The size may change at any step. The examples of a step depend only on the seed, the step, and the sizes of the steps
before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.philox import random_integers
from emu.datapath import stream_of
from emu.errors import ConfigError
from emu.training.data.dataset import Dataset, load_dataset
from emu.training.data_tables import Inputs, Labels
from emu.training.recipe import Recipe

Array = NDArray[Any]
#: What an example is called in messages, by kind of data.
EXAMPLES = {"images": "images", "text": "sequences", "frames": "frames", "svmlight": "examples", "ngrams": "examples"}


class Span(NamedTuple):
    """Consecutive steps with mini-batches of one size.

    Attributes:
        step: the first of these steps.
        epoch: epoch of that step.
        offset: examples of the epoch that come before that step.
        size: examples of each mini-batch.
    """

    step: int
    epoch: int
    offset: int
    size: int


class Batches:
    """The mini-batches of a run.

    Attributes:
        data: examples.
        planned: examples of a mini-batch in the recipe.
        per_epoch: mini-batches of that size in an epoch.
        workers: how many of a cluster's nodes, the first ones, share a mini-batch; None for all of them.
    """

    def __init__(self, data: Dataset, size: int, seed: int) -> None:
        """Begin at the first epoch.

        Args:
            data: examples.
            size: size of a mini-batch.
            seed: seed of their order.
        """
        self.data, self.planned, self._seed = data, size, seed
        self.per_epoch = self.examples // size
        self.workers: int | None = None
        # ascending by step; the last span has no end
        self._spans = [Span(0, 0, 0, size)]
        #: The latest epoch that was asked for, and the order of its examples; -1 before the first.
        self._order: tuple[int, Array] = (-1, np.empty(0, np.int64))

    @classmethod
    def of(cls, recipe: Recipe, size: int | None = None, data: Dataset | None = None) -> Batches:
        """Return the mini-batches of a recipe.

        Args:
            recipe: names the data, and the seed of their order.
            size: size of a mini-batch; None is the recipe's.
            data: examples; None reads those that the recipe names.

        Raises:
            ConfigError: the data cannot be used, or are fewer than a mini-batch has.
        """
        size = recipe.training.batch if size is None else size
        data = data or load_dataset(recipe.data, recipe.network.input, recipe.network.classes)
        if size > len(data.train_inputs):
            examples = f"{len(data.train_inputs)} training {EXAMPLES[recipe.data.kind]}"
            raise ConfigError(
                f"`training.batch` must be at most the {examples}, "
                f"got {size}; choose a smaller batch, or keep fewer for the test"
            )
        return cls(data, size, recipe.training.seed)

    @property
    def examples(self) -> int:
        """Number of training examples."""
        return len(self.data.train_inputs)

    @property
    def planned_elements(self) -> int:
        """Numbers in a mini-batch of the planned size; for sparse examples, its share of all entries."""
        return self.data.train_inputs.size * self.planned // self.examples

    @property
    def size(self) -> int:
        """Examples of the next mini-batch, and of all later ones."""
        return self._spans[-1].size

    def size_at(self, step: int) -> int:
        """Return the number of examples in the mini-batch of a step."""
        return self._span(step).size

    def outputs(self, steps: range) -> int:
        """Return the number of outputs of some steps: examples, times the outputs of each."""
        # the labels of one example: a single label of an image, a label for each token of a sequence
        return sum(self.size_at(step) for step in steps) * self.data.train_labels[:1].size

    def _span(self, step: int) -> Span:
        # the last span that begins at this step or before it
        return self._spans[bisect_right(self._spans, step, key=lambda span: span.step) - 1]

    def position(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step, and how many examples of the epoch come before the step."""
        span = self._span(step)
        # mini-batches of the span that still fit into the epoch in which it begins; the rest of that epoch is left out
        done, in_epoch = step - span.step, (self.examples - span.offset) // span.size
        if done < in_epoch:
            return span.epoch, span.offset + done * span.size
        # all later epochs of the span begin at their first example
        epochs, in_last = divmod(done - in_epoch, self.examples // span.size)
        return span.epoch + 1 + epochs, in_last * span.size

    def progress(self, step: int) -> float:
        """Return how many steps of the planned size are equivalent to `step` steps: `step`, if no size has changed."""
        epoch, offset = self.position(step)
        # smaller mini-batches also use examples that those of the planned size leave out at the end of an epoch
        return epoch * self.per_epoch + min(offset / self.planned, self.per_epoch)

    def steps(self, epochs: int) -> int:
        """Return the number of steps in the first `epochs` epochs if mini-batches keep their size from now on."""
        last = self._spans[-1]
        in_epoch, whole = (self.examples - last.offset) // last.size, self.examples // last.size
        return last.step + in_epoch + (epochs - last.epoch - 1) * whole

    def batch(self, step: int) -> tuple[Inputs, Labels]:
        """Return inputs and labels of a step."""
        return self.together(range(step, step + 1))

    def together(self, steps: range) -> tuple[Inputs, Labels]:
        """Return inputs and labels of some steps, concatenated."""
        chosen = np.concatenate([self._chosen(step) for step in steps])
        return self.data.train_inputs[chosen], self.data.train_labels[chosen]

    def _chosen(self, step: int) -> Array:
        """Return the indices of a step's examples."""
        epoch, offset = self.position(step)
        # only one epoch's order is kept: steps ask for epochs in turn, and any epoch can be
        # drawn again from seed and number
        if self._order[0] != epoch:
            keys = random_integers(
                self.examples, 32, seed=self._seed, stream=stream_of("data", "order"), step=epoch, draw=0
            )
            # stable: equal keys keep the order of examples, with every version of NumPy
            self._order = (epoch, np.argsort(keys, kind="stable"))
        return self._order[1][offset : offset + self.size_at(step)]

    def resize(self, step: int, size: int) -> None:
        """Set the size of the mini-batches of a step and of all later steps."""
        if size != self.size_at(step):
            # position before the spans change; a span that begins at this very step is replaced
            epoch, offset = self.position(step)
            self._spans = [*(span for span in self._spans if span.step < step), Span(step, epoch, offset, size)]

    # ---- checkpoints ----

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        return {"spans": self._spans, "workers": self.workers}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        # JSON has turned each span into a list
        spans: Sequence[Sequence[int]] = data["spans"]
        self._spans, self.workers = [Span(*span) for span in spans], data["workers"]
