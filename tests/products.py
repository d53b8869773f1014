"""A product with what no public function takes: a divisor, and a record of the work."""

from __future__ import annotations

from typing import Any

from emu.engine.delivery import written_to
from emu.engine.description import PRODUCT_OPTIONS, call_of
from emu.engine.products import matrices_of, write_product
from emu.engine.records import ProductRecord


def product(
    a: Any,
    b: Any,
    *,
    a_format: Any,
    b_format: Any,
    out_format: Any,
    addend: Any = None,
    addend_format: Any = None,
    divisor: int = 1,
    log: list[ProductRecord] | None = None,
    **options: Any,
) -> Any:
    """Return (a @ b + addend) / divisor, the quotient rounded once; options as of `emu.matmul`."""
    unit, out, check = call_of("matmul", out_format, options, PRODUCT_OPTIONS, log)
    given = (a, a_format), (b, b_format), (addend, addend_format)
    return written_to(out, write_product(unit, matrices_of(*given, check=check), divisor))
