"""The package PyTorch, which emu uses only in `emu.torch`, and does not need otherwise."""

from __future__ import annotations

from typing import Any

from emu.errors import BackendUnavailable


def load_torch() -> Any:
    """Return the package torch; what is made of it has no types here, because it may be missing.

    Raises:
        BackendUnavailable: it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise BackendUnavailable(
            "emu.torch needs PyTorch, which is not installed; install it as https://pytorch.org says, or give networks "
            "to emu.onnx, which needs no PyTorch"
        ) from None
    return torch
