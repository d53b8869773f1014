"""What a user types: a product of plain arrays whose values are checked, into a new array, beside its kernel.

The other side is the same product of `products.py`: unchecked, into an array that is there, counted by register and
flags. A ratio of 1 says that checking and allocating cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measuring.row import Prepared, ProductWork, Row, Side
from benchmarks.rows.products import IN_ORDER, exact, product
from emu.datapath import Flags, Mac, StatisticsRegister
from emu.engine import matmul


def called(kernel: Callable[[bool], Prepared], *, counted: bool) -> Callable[[bool], Prepared]:
    """Return what prepares the call of a product beside its kernel.

    Args:
        kernel: prepares the product.
        counted: whether the call has a register and flags.
    """

    def prepare(quick: bool) -> Prepared:
        row = kernel(quick)
        work = row.task
        assert isinstance(work, ProductWork)
        formats: dict[str, Any] = {"a_format": work.a_format, "b_format": work.b_format, "out_format": work.out_format}
        register, flags = (StatisticsRegister(), Flags()) if counted else (None, None)

        def run() -> None:
            matmul(work.a, work.b, **formats, mac=work.mac, register=register, flags=flags)

        limit = Side("emu, unchecked, in place, counted", row.ours.run, work.macs)
        return Prepared(None, Side("emu", run, work.macs), limit, row.path)

    return prepare


def rows() -> list[Row]:
    """Return the rows, `call/operands` and, with register and flags, `call/operands-counted`."""
    half, byte = ("fp16", 16), ("fp8_e4m3", 8)
    blocks = Mac.preset("h100", inputs="fp8_e4m3", instruction="wgmma")
    kernels = {
        "int8": ("int8, exact, 2048^3", exact(8, 8, 2048)),
        "int16": ("int16, exact, 1024^3, full-range data", exact(16, 16, 1024)),
        "fp16-in-order": (
            "binary16, float32 accumulator in order, 1024^3",
            product(half, half, "fp32", 1024, mac=IN_ORDER),
        ),
        "fp8-blocks": ("fp8_e4m3, blocks of an H100, 1024^3", product(byte, byte, "fp32", 1024, mac=blocks)),
    }
    return [
        Row(
            f"call/{name}{'-counted' if counted else ''}",
            f"emu.matmul of plain arrays: {title}{', register and flags' if counted else ''}",
            "GMAC/s",
            called(kernel, counted=counted),
            0.9,
            0.95,
        )
        for name, (title, kernel) in kernels.items()
        for counted in (False, True)
    ]
