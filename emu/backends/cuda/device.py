"""The device on which kernels run: a GPU through CuPy, or a host that emulates one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from emu.backends.kernels import Result


class Device(Protocol):
    """Memory for arrays, and launches of kernels on them. Not the device that is emulated (`emu.hardware.Device`).

    Attributes:
        xp: the array namespace: `cupy`, or `numpy` if the host emulates the device.
    """

    xp: Any

    @property
    def queue(self) -> int:
        """The queue that takes launches now: the address of CUDA's current stream.

        In emu a stream is one of random bits. Work of one queue is done in order.
        """
        ...

    def launch(
        self,
        source: str,
        kernel: str,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        shared_bytes: int,
        words: int = 4,
    ) -> None:
        """Run a kernel over a grid of one dimension.

        Args:
            source: name of the file in `kernels/`, without `.cu`.
            kernel: its entry point.
            blocks: of the grid.
            threads: of a block.
            arguments: arrays of `xp`, None for a null pointer, NumPy scalars of the parameters' widths, `void` for a
                struct by value.
            shared_bytes: dynamic shared memory of a block.
            words: 64-bit words of the wide integers that the source is compiled with.
        """
        ...

    def finish(self) -> None:
        """Wait until everything that was launched is done."""
        ...

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run independent tasks, which launch kernels, and return their results.

        Their kernels may overlap; kernels launched afterwards find all of them done.
        """
        ...

    def multiply(self, left: Any, right: Any, batches: int) -> Any:
        """Return products by the vendor's library.

        The caller has proved of the operands that no partial sum rounds: any order gives the exact products.

        Args:
            left: (B or 1, M, K), contiguous: float32, float64, or int8 with K a multiple of 16.
            right: (B or 1, N, K), of the same dtype, transposed; N a multiple of 16 if int8.
            batches: B.

        Returns:
            (B, M, N): float32, float64, or int32.
        """
        ...
