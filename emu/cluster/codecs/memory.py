"""What a codec remembers of the lines of one stripe, as checkpoints hold it. Codecs call a line a column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class Memory:
    """The memory of a codec for one node's part of a stripe, or for its owner's sum.

    Attributes:
        residual: dtype of the gradients, (columns, rows): what has not been sent yet.
        batches: mini-batches so far.
        means: dtype of the gradients, (columns,): means of the mini-batch before; None before the first.
        levels: float32, (columns, levels of a column): the levels in use, which may be smoothed; None before the first.
        computed: levels of the latest mini-batches that computed some, before smoothing, the newest last; as many as
            the codec's smoothing and lag still read.
    """

    residual: Array
    batches: int = 0
    means: Array | None = None
    levels: Array | None = None
    computed: list[Array] = field(default_factory=list[Array])

    @classmethod
    def empty(cls, columns: int, rows: int, dtype: type[np.floating[Any]] = np.float32) -> Memory:
        """Return the memory before the first mini-batch: residuals of 0."""
        return cls(np.zeros((columns, rows), dtype))

    def of_lines(self, indices: Any) -> Memory:
        """Return the memory of some lines, for a codec that remembers residuals alone."""
        return Memory(self.residual[indices], self.batches)

    def put_lines(self, indices: Any, of_lines: Memory) -> None:
        """Take back the memory that `of_lines` returned, after a message; other lines stay."""
        self.residual[indices] = of_lines.residual
        self.batches = of_lines.batches

    def rescale(self, ratio: float) -> None:
        """Multiply residuals, means and levels by the ratio by which the scale of gradients has changed."""
        factor = self.residual.dtype.type(ratio)
        self.residual = self.residual * factor
        self.means = None if self.means is None else self.means * factor
        self.levels = None if self.levels is None else self.levels * np.float32(ratio)
        self.computed = [levels * np.float32(ratio) for levels in self.computed]

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays that `load` takes back."""
        arrays = {"residual": self.residual, "batches": np.array(self.batches, np.int64)}
        if self.means is not None:
            arrays["means"] = self.means
        if self.levels is not None:
            arrays["levels"] = self.levels
        return arrays | {f"computed{i}": levels for i, levels in enumerate(self.computed)}

    def load(self, arrays: dict[str, Array]) -> None:
        """Take what `arrays` returned."""
        # a copy, since codecs write residuals in place; other arrays are replaced as a whole
        self.residual, self.batches = arrays["residual"].copy(), int(arrays["batches"])
        self.means, self.levels = arrays.get("means"), arrays.get("levels")
        count = sum(name.startswith("computed") for name in arrays)
        self.computed = [arrays[f"computed{i}"] for i in range(count)]
