"""Exact sums by the vendor's library: the planner has proved that no sum rounds, so the order does not matter.

Operands are packed as int8 (sums in int32), float32 or float64.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from emu.backends.bounds import bounded
from emu.backends.cuda import layout
from emu.backends.cuda.ways.on_device import OnDevice, packed
from emu.backends.cuda.ways.settling import PACKED_DTYPES, PACKED_F32, PACKED_F64, PACKED_I8, Settled, Sums
from emu.backends.product import ProductCode

_NAMES = {PACKED_F32: "float32", PACKED_F64: "float64", PACKED_I8: "int8, sums in int32"}
#: Terms of a sum of products of 8-bit integers.
MOST_INT8_TERMS = bounded(
    (2**31 - 1) // 2**14, 1, (2**31 - 1) // 2**14, "products are at most 2**14, their sum is an int32"
)
#: Lines of int8 products must have a multiple of this many bytes.
_INT8_LINE = 16


class VendorSums(Settled):
    """Exact paths of the planner."""

    @override
    def _takes(self, product: ProductCode) -> bool:
        return product.is_exact and product.mac.accumulator is None and product.mac.product is None

    @override
    def proof(self, product: ProductCode) -> str:
        """Return in which dtype the library takes operands."""
        return f"by cuBLAS in {_NAMES[_packing(product)]}"

    @override
    def _sums(self, product: OnDevice) -> Sums:
        batches, rows, depth, columns = product.sizes
        packing = _packing(product.code)
        height, width = columns, depth
        if packing == PACKED_I8:
            # zeros fill the lines; sums of the columns beyond are never read
            height, width = (-(-n // _INT8_LINE) * _INT8_LINE for n in (columns, depth))
        dtype: Any = PACKED_DTYPES[packing]
        left = packed(self._launcher, product, 0, packing, dtype, (rows, width))
        right = packed(self._launcher, product, 1, packing, dtype, (height, width))
        sums = self._launcher.device.multiply(left, right, batches)
        # sums of floats are the values themselves, so that their last place does not matter
        if packing != PACKED_I8:
            return Sums.of(sums, packing, 0, exact=True)
        quantum = product.formats[0].quantum + product.formats[1].quantum
        return Sums.of(sums, layout.STORED_I32, quantum, exact=True)


def _packing(product: ProductCode) -> int:
    """Return how the operands of an exact path are packed for the library."""
    # longer sums are exact in float64: the planner has bounded them
    if product.path == "integer_dot" and product.depth <= MOST_INT8_TERMS:
        return PACKED_I8
    return PACKED_F32 if product.path == "float32_blas" else PACKED_F64
