"""Products through a table of kernels, without the engine and its plans."""

from __future__ import annotations

from typing import Any

from emu.backends.interface import MacCode, Outcome, StageCode, Write
from emu.backends.kernels import Kernels
from emu.backends.product import Formats, Product, ProductCode, choose


def written(
    kernels: Kernels, operands: tuple[Any, Any, Any], formats: Formats, mac: MacCode, path: str, write: Write, divisor=1
) -> Outcome:
    """Write (a @ b + addend) / divisor in the way that a backend chooses."""
    code = ProductCode(formats, mac, path, operands[0].shape[2], divisor)
    return choose(kernels.ways, code, write.stage).compute(Product(code, *operands), write)


def fallback(
    kernels: Kernels, formats: Formats, mac: MacCode, path: str, stage: StageCode, depth: int = 8, divisor: int = 1
) -> str:
    """Return why the definition computes a product; "" if another way does."""
    return choose(kernels.ways, ProductCode(formats, mac, path, depth, divisor), stage).fallback
