"""The fast output stage on the device, for results of float32: when it writes what `elementwise` or `settle` would."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.cuda.launching import SHARED_BYTES, Launcher, counted_bytes
from emu.backends.interface import BECAME_ZERO, FormatCode, RegisterCode, StageCode, carrier_of
from emu.backends.modes import HAND_WRITTEN
from emu.backends.proofs import has_normals

#: Threads of a block, and results that one takes at once: as `narrow_loop.cuh` has them.
_THREADS, _QUAD = 256, 4


def writes(launcher: Launcher, stage: StageCode, register: RegisterCode | None) -> bool:
    """Return whether the fast stage writes these results and has room for what it counts."""
    # The kernels have code for the hand-written modes, and count emu's own underflow alone.
    return (
        # a launcher with wider integers is there to try the general kernels
        launcher.least_words == 1
        and carrier_of(stage.format) == np.float32
        and not (stage.format.is_float and _is_unusual(stage.format))
        and not stage.format.sign_magnitude
        and stage.tininess == BECAME_ZERO
        and stage.rounding < HAND_WRITTEN
        and counted_bytes(register, columns=True) <= SHARED_BYTES
    )


def launch(
    launcher: Launcher, source: str, kernel: str, n: int, arguments: tuple[Any, ...], register: RegisterCode | None
) -> None:
    """Run a kernel of the fast stage over `n` results; other arguments are those of `Launcher.launch`."""
    launcher.launch(
        *(source, kernel, n, arguments),
        shared_bytes=counted_bytes(register, columns=True),
        words=1,
        threads=_THREADS,
        per_block=_THREADS * _QUAD,
    )


def _is_unusual(fmt: FormatCode) -> bool:
    """Return whether a float format has no fraction bits, no zero, a hidden bit of one throughout, or no normals."""
    return fmt.precision == 1 or not fmt.has_zero or bool(fmt.hidden_one) or not has_normals(fmt)
