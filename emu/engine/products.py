"""Matrix products, through a multiply-accumulate unit and one output stage.

An operand passes these files in turn; `write_product` calls them:

    operands.py   the operand's carrier and format
    matrices.py   stacks of matrices, addend, the result's shape
    path.py       the fastest path that is proved to give the definition's bits (planner.py has the proofs)
    a kernel      of the unit's backend: emu/backends
    delivery.py   counts to register and flags, values to the caller
"""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.backends.interface import Write, encode_format, encode_mac
from emu.backends.product import Product
from emu.datapath.order import Promote
from emu.datapath.stage import require_placed
from emu.engine.advice import plan_of
from emu.engine.delivery import deliver, encode_write, require_out, written_to
from emu.engine.description import PRODUCT_OPTIONS, UNSEEDED, ProductOptions, UnitDescription, call_of
from emu.engine.elementwise import write_elementwise
from emu.engine.integer_products import carriers_of_sums, integer_sums, matrices_of_integers
from emu.engine.matrices import Matrices, require_fit
from emu.engine.operands import in_format, require_reachable
from emu.engine.path import accumulator_of, path_of
from emu.engine.planner import Plan
from emu.engine.promotion import write_promoted
from emu.engine.quantize import write_quantized
from emu.engine.records import ProductRecord
from emu.engine.scaled_products import BINARY32, FLOAT32, ScaledProduct, scaled_matrices
from emu.errors import FormatError
from emu.formats import Fixed, Format, ScaledValue, Value, parse

Array = NDArray[Any]
FormatName = str | Format


def matmul(
    a: Any,
    b: Any,
    *,
    out_format: FormatName,
    a_format: FormatName | None = None,
    b_format: FormatName | None = None,
    addend: Any = None,
    addend_format: FormatName | None = None,
    **options: Unpack[ProductOptions],
) -> Array:
    """Return the matrix product a @ b + addend as a multiply-accumulate unit and its output stage compute it.

    Args:
        a: values of `a_format`, shape `(*batch, M, K)` or `(K,)`; or an `emu.value`. Of a scaled format, blocks lie
            along k.
        b: values of `b_format`, shape `(*batch, K, N)` or `(K,)`; shapes as in numpy.matmul.
        out_format: format written.
        a_format: format of `a`; not needed of a value.
        b_format: format of `b`.
        addend: values of `addend_format` that broadcast to the result: bias, C matrix.
        addend_format: format of the addend.
        **options: see `emu.engine.ProductOptions`: `mac`, and those of every operation. The register observes the
            accumulator's final content, addend included; flags count per written element.

    Returns:
        Carrier array of `out_format`, shape `(*batch, M, N)`.

    Raises:
        FormatError: an operand holds a value outside its format; names the first one. A Mac that rounds stochastically
            has a source other than `Philox`.
        ShapeError: the shapes do not fit together.

    Examples:
        >>> formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
        >>> matmul([[0.5, -1.0]], [[0.25], [0.125]], **formats, backend="reference")
        array([[0.]], dtype=float32)

    Source: docs/concepts/flags.md and docs/concepts/products.md.
    """
    unit, out, check = call_of("matmul", out_format, options, PRODUCT_OPTIONS)
    if isinstance(a, ScaledValue) or isinstance(b, ScaledValue):
        third = as_addend_operand(addend, addend_format, "addend", check=check)
        product = scaled_matrices(unit.mac, a, b, third)
        require_out(out, product.matrices.shape, unit.stage.format)
        return written_to(out, write_scaled_matrices(unit, product))
    matrices = matrices_of((a, a_format), (b, b_format), (addend, addend_format), check=check)
    # asked first: a wrong `out` fails before anything is counted
    require_out(out, matrices.shape, unit.stage.format)
    values = write_product(unit, matrices)
    return written_to(out, values)


def matrices_of(
    a: tuple[Any, FormatName | None],
    b: tuple[Any, FormatName | None],
    addend: tuple[Any, FormatName | None] = (None, None),
    *,
    check: bool,
) -> Matrices:
    """Return what a product multiplies and adds, from arrays and their formats.

    Raises:
        FormatError: an operand holds a value outside its format, or has none.
        ShapeError: the shapes do not fit together.
    """
    left, fa = in_format(*a, "a", check=check)
    right, fb = in_format(*b, "b", check=check)
    third, fc = as_addend_operand(*addend, "addend", check=check)
    return Matrices.of(left, right, (fa, fb, fc), third)


def as_addend_operand(x: Any, fmt: FormatName | None, name: str, *, check: bool) -> tuple[Array | None, Format | None]:
    """Return an addend's carrier and format; None and None without one."""
    if x is None:
        return None, None
    if fmt is None and not isinstance(x, Value):
        raise FormatError(f"`{name}_format` must be given with `{name}`")
    return in_format(x, fmt, name, check=check)


def write_product(unit: UnitDescription, matrices: Matrices, divisor: int = 1) -> Array:
    """Write (left @ right + addend) / divisor through a unit, and round the quotient once.

    Args:
        unit: who computes and writes.
        matrices: what is multiplied and added.
        divisor: a positive integer. The register observes the accumulator's content, its binary point moved by
            floor(log2 divisor) bits: that is the quotient by a power of two, and less than twice any other quotient.

    Returns:
        Carriers, `matrices.shape`.

    Raises:
        ShapeError: the shapes do not fit together.
    """
    left, right, addend, formats, shape, alignment = matrices
    require_fit(left.shape, right.shape, None if addend is None else addend.shape)
    require_reachable(unit.kernels, left, right, addend)
    if isinstance(unit.mac.order, Promote):
        return write_promoted(unit, matrices, write_product, divisor)
    # the plan may prove that the Mac is exact, and that its addend is rounded first: `code` has what kernels compute
    plan, code, choice = path_of(unit, matrices, divisor)
    if addend is not None and plan.addend is not None:
        addend = rounded_addend(addend, formats[2], plan.addend, unit)
    # a divisor of n bits lies in 2**(n-1)..2**n - 1
    sizes, lowered = matrices.sizes, divisor.bit_length() - 1  # floor(log2 divisor)
    observed = None if unit.register is None else accumulator_of(*formats, sizes[2], unit.mac)
    # kernels number results (B, M, N): in C order the same elements as `shape`
    write = encode_write(unit, shape, observed, lowered, (sizes[0], sizes[1], sizes[3]))
    outcome = choice.compute(Product(code, left, right, addend, alignment), write)
    if unit.records is not None:
        unit.records.append(ProductRecord(sizes, formats, plan))
    return deliver(unit, outcome, lowered).reshape(shape)


def write_scaled_product(
    unit: UnitDescription, a: Any, b: Any, addend: tuple[Array | None, Format | None] = (None, None)
) -> Array:
    """Write a product of operands that share scales, each level of which enters where the unit's Mac says.

    Args:
        unit: who computes and writes.
        a: value (*batch, M, K), blocks along K.
        b: value (*batch, K, N), blocks along K.
        addend: carriers that broadcast to the result, and their format; or None and None.

    Raises:
        FormatError: an operand has no scales, blocks do not lie along k, or a level has no place in the Mac.
        ShapeError: the shapes do not fit together.

    Source: docs/concepts/scaled.md, "A product".
    """
    return write_scaled_matrices(unit, scaled_matrices(unit.mac, a, b, addend))


def write_scaled_matrices(unit: UnitDescription, product: ScaledProduct) -> Array:
    """Write a product of operands that share scales, as `scaled_matrices` or `scaled_patches` describes it.

    Args:
        unit: who computes and writes.
        product: what is multiplied and added, and what multiplies the sums.
    """

    def written(by: UnitDescription) -> Array:
        # scales of runs enter as each run is added to the outer accumulator; all other places are known to
        # `write_product`
        if product.at_promotion is None:
            return write_product(by, product.matrices)
        return write_promoted(by, product.matrices, write_product, scales=product.at_promotion)

    if product.at_result is None:
        return written(unit)
    # binary32 holds the sum, and what it is multiplied by: the stage of the result rounds once more
    wide = unit.writing(BINARY32)
    if product.integers is None:
        sums = written(wide)
    else:
        sums = write_quantized(wide, *carriers_of_sums(*integer_sums(unit, product.integers, write_product)))
    array, fmt = product.after
    # the addend joins after the multiplication: in units of the result, not of the sum
    if array is None:
        result = write_elementwise(wide, "multiply", [sums, product.at_result], (FLOAT32, FLOAT32))
    elif product.integers is None:  # epilogues of matrix units fuse both
        result = write_elementwise(wide, "fma", [sums, product.at_result, array], (FLOAT32, FLOAT32, fmt))
    else:  # operators of their own, each rounded
        multiplied = write_elementwise(wide, "multiply", [sums, product.at_result], (FLOAT32, FLOAT32))
        result = write_elementwise(wide, "add", [multiplied, array], (FLOAT32, fmt))
    return write_quantized(unit, result, FLOAT32)


def plan_of_scaled(unit: UnitDescription, product: ScaledProduct) -> Plan:
    """Return the plan of the sums of a product of operands that share scales, with advice."""
    if product.integers is not None:
        return plan_of(*matrices_of_integers(unit, product.integers))
    return plan_of(unit if product.at_result is None else unit.writing(BINARY32), product.matrices)


def rounded_addend(addend: Array, fmt: Format | None, rounded: Fixed, unit: UnitDescription) -> Array:
    """Return an addend rounded into `rounded`, as the fixed accumulator of a unit rounds it before the first product.

    The plan has proved that this neither overflows nor draws random bits: so nothing of it is counted, and no seed
    matters.
    """
    # the accumulator's own rounding mode and overflow rule, into a format that is as wide as the rounded addend needs
    stage = encode_mac(unit.mac).accumulator
    assert fmt is not None
    assert stage is not None
    stage = stage._replace(format=encode_format(rounded))
    return unit.kernels.quantize(addend, encode_format(fmt), Write(stage, UNSEEDED, None), None).values


def _plan_matmul(
    a: Any,
    b: Any,
    *,
    out_format: FormatName | None = None,
    a_format: FormatName | None = None,
    b_format: FormatName | None = None,
    addend: Any = None,
    addend_format: FormatName | None = None,
    **options: Unpack[ProductOptions],
) -> Plan:
    if isinstance(a, ScaledValue) or isinstance(b, ScaledValue):
        unit = call_of("matmul", "fp32" if out_format is None else out_format, options, PRODUCT_OPTIONS)[0]
        given = as_addend_operand(addend, addend_format, "addend", check=False)
        return plan_of_scaled(unit, scaled_matrices(unit.mac, a, b, given))
    matrices = matrices_of((on_host(a), a_format), (on_host(b), b_format), check=False)
    # the format alone: an addend's numbers change no plan
    third = addend.format if isinstance(addend, Value) else None if addend_format is None else parse(addend_format)
    formats = (*matrices.formats[:2], None if third is None else require_placed(third))
    # without `out_format` the plan is of a unit that writes the format of `a`
    written = formats[0] if out_format is None else out_format
    return plan_of(call_of("matmul", written, options, PRODUCT_OPTIONS)[0], matrices._replace(formats=formats))


setattr(matmul, "plan", _plan_matmul)  # noqa: B010 - read by explain
