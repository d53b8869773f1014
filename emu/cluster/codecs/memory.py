"""What a codec remembers of the lines of one stripe, as checkpoints hold it. Codecs call a line a column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class Memory:
    """What a codec remembers of one node's part of a stripe, or at the stripe's owner of the sum.

    Attributes:
        residual: dtype of the gradients, (columns, rows): what the next mini-batch adds to its gradients.
        batches: mini-batches so far.
        means: dtype of the gradients, (columns,): means of the mini-batch before; None before the first.
        levels: float32, (columns, levels of a column): the levels in use, which may be smoothed; None before the first.
        computed: levels of the latest mini-batches that computed some, before smoothing, the newest last: as many as
            the codec's lag and its window together; the lag and one without a window.
        older_means: means of the mini-batches before that of `means`, the newest last; as many as the codec's
            threshold still reads.
        waiting: residuals that later mini-batches add, the newest last; none if each adds that of the one before it.
    """

    residual: Array
    batches: int = 0
    means: Array | None = None
    levels: Array | None = None
    computed: list[Array] = field(default_factory=list[Array])
    older_means: list[Array] = field(default_factory=list[Array])
    waiting: list[Array] = field(default_factory=list[Array])

    @classmethod
    def empty(cls, columns: int, rows: int, dtype: type[np.floating[Any]] = np.float32) -> Memory:
        """Return the memory before the first mini-batch: residuals of 0."""
        return cls(np.zeros((columns, rows), dtype))

    @property
    def unsent(self) -> Array:
        """What has not been sent yet: the sum of all residuals."""
        return sum(self.waiting, self.residual)

    @property
    def newest_residual(self) -> Array:
        """What the latest message did not express."""
        return self.waiting[-1] if self.waiting else self.residual

    def put_residual_away(self, lag: int) -> None:
        """Keep the residual of the mini-batch just encoded until `lag` mini-batches later."""
        if lag == 1:
            return
        # lag - 1 residuals wait between two mini-batches: each is added `lag` mini-batches after its own
        self.waiting.append(self.residual)
        self.residual = self.waiting.pop(0) if len(self.waiting) == lag else np.zeros_like(self.residual)

    def drop_residuals(self) -> None:
        """Lose what has not been sent yet."""
        self.residual = np.zeros_like(self.residual)
        self.waiting.clear()

    def means_before(self, lag: int) -> Array | None:
        """Return the means of `lag` mini-batches before the one to come; None if there is none."""
        if lag == 1:
            return self.means
        # the newest is `means`, one mini-batch back; lag k is k - 1 places from the end of the older ones
        return self.older_means[1 - lag] if len(self.older_means) >= lag - 1 else None

    def note_means(self, means: Array, lag: int) -> None:
        """Keep the means of the mini-batch just encoded, and those that a threshold of this lag still reads."""
        if lag > 1 and self.means is not None:
            self.older_means = [*self.older_means, self.means][1 - lag :]
        self.means = means

    def of_lines(self, indices: Any) -> Memory:
        """Return the memory of some lines, for a codec that remembers residuals alone."""
        # indexing by an array copies: `put_lines` writes the result back
        return Memory(self.residual[indices], self.batches)

    def put_lines(self, indices: Any, of_lines: Memory) -> None:
        """Take back the memory that `of_lines` returned, after a message; other lines stay."""
        self.residual[indices] = of_lines.residual
        self.batches = of_lines.batches

    def rescale(self, ratio: float) -> None:
        """Multiply residuals, means and levels by the ratio by which the scale of gradients has changed."""
        factor = self.residual.dtype.type(ratio)
        self.residual = self.residual * factor
        self.waiting = [residual * factor for residual in self.waiting]
        self.older_means = [means * factor for means in self.older_means]
        self.means = None if self.means is None else self.means * factor
        # levels are float32, whatever the dtype of gradients
        self.levels = None if self.levels is None else self.levels * np.float32(ratio)
        self.computed = [levels * np.float32(ratio) for levels in self.computed]

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays that `load` takes back."""
        arrays = {"residual": self.residual, "batches": np.array(self.batches, np.int64)}
        if self.means is not None:
            arrays["means"] = self.means
        if self.levels is not None:
            arrays["levels"] = self.levels
        lists = {"computed": self.computed, "older_means": self.older_means, "waiting": self.waiting}
        return arrays | {f"{name}{i}": array for name, kept in lists.items() for i, array in enumerate(kept)}

    def load(self, arrays: dict[str, Array]) -> None:
        """Take what `arrays` returned."""
        # a copy, since codecs write residuals in place; other arrays are replaced as a whole
        self.residual, self.batches = arrays["residual"].copy(), int(arrays["batches"])
        self.waiting = [residual.copy() for residual in _numbered(arrays, "waiting")]
        self.means, self.levels = arrays.get("means"), arrays.get("levels")
        self.computed, self.older_means = _numbered(arrays, "computed"), _numbered(arrays, "older_means")


def _numbered(arrays: dict[str, Array], name: str) -> list[Array]:
    """Return the arrays of a list, in its order."""
    count = sum(key.startswith(name) for key in arrays)
    return [arrays[f"{name}{i}"] for i in range(count)]
