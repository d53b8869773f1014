"""What a codec remembers of the columns of one stripe: what goes into checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class Memory:
    """Of one node's part in one stripe, or of the owner's.

    Attributes:
        residual: dtype of the gradients, (columns, rows): what has not been sent yet.
        batches: mini-batches so far.
        means: dtype of the gradients, (columns,): of the mini-batch before; None before the first.
        levels: float32, (columns, levels of a column): those in use, smoothed; None before the first.
        computed: levels as they were computed, the newest last; as many as smoothing and lag look back.
    """

    residual: Array
    batches: int = 0
    means: Array | None = None
    levels: Array | None = None
    computed: list[Array] = field(default_factory=list[Array])

    @classmethod
    def empty(cls, columns: int, rows: int, dtype: type[np.floating[Any]] = np.float32) -> Memory:
        """Return what is remembered at the beginning: residuals of 0."""
        return cls(np.zeros((columns, rows), dtype))

    def of_lines(self, places: Any) -> Memory:
        """Return the residuals of some columns, of a codec that remembers nothing else."""
        return Memory(self.residual[places], self.batches)

    def put_lines(self, places: Any, some: Memory) -> None:
        """Take back what `of_lines` returned, after a message; other columns stay."""
        self.residual[places] = some.residual
        self.batches = some.batches

    def rescale(self, ratio: float) -> None:
        """Multiply everything that is as large as gradients, whose scale has changed by that."""
        held = self.residual.dtype.type(ratio)
        self.residual = self.residual * held
        self.means = None if self.means is None else self.means * held
        self.levels = None if self.levels is None else self.levels * np.float32(ratio)
        self.computed = [levels * np.float32(ratio) for levels in self.computed]

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays that `load` takes back."""
        found = {"residual": self.residual, "batches": np.array(self.batches, np.int64)}
        if self.means is not None:
            found["means"] = self.means
        if self.levels is not None:
            found["levels"] = self.levels
        return found | {f"computed{i}": levels for i, levels in enumerate(self.computed)}

    def load(self, arrays: dict[str, Array]) -> None:
        """Take what `arrays` returned."""
        self.residual, self.batches = arrays["residual"].copy(), int(arrays["batches"])
        self.means, self.levels = arrays.get("means"), arrays.get("levels")
        count = sum(name.startswith("computed") for name in arrays)
        self.computed = [arrays[f"computed{i}"] for i in range(count)]
