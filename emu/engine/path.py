"""Which path a product takes on a backend, with the proof, and which of the backend's ways computes it.

    formats ──► plan (planner.py) ──► settled, or no maximum can help ──────────────────────────► way of the backend
                                  └─► largest magnitudes of the operands ──► plan by these ──────┘

Dense and sparse products share it. They differ in the number of terms of a result, and in the backend's ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from emu.backends.gathered import Gathered
from emu.backends.interface import EXACT_PATHS, StageCode, encode_format, encode_mac
from emu.backends.kernels import Kernels
from emu.backends.product import Choice, ProductCode, choose
from emu.backends.product import Formats as Codes
from emu.datapath import Mac
from emu.engine.description import UnitDescription
from emu.engine.matrices import Matrices
from emu.engine.planner import Plan, may_gain_from_maxima, plan_product
from emu.errors import FormatError
from emu.formats import Fixed, Format
from emu.formats.fixed import MAX_WIDTH_BITS

#: The reference's path: no shortcut, however it is proved, so that all others can be compared with it.
DEFINITION = "definition"
#: Paths that no measured maximum can make faster.
SETTLED = (DEFINITION, *EXACT_PATHS)
Formats = tuple[Format, Format, Format | None]


class Terms(NamedTuple):
    """The terms that are summed up in each result of a product.

    Attributes:
        formats: of the left operand, the right operand and the addend; None without an addend.
        depth: the most products that a result has.
        divisor: positive integer by which the sum is divided.
        is_sparse: whether a result's terms are the stored entries of a sparse matrix.
        is_aligned: whether operands share scales, so that exponents are given beside them.
    """

    formats: Formats
    depth: int
    divisor: int = 1
    is_sparse: bool = False
    is_aligned: bool = False


class Path(NamedTuple):
    """The path of a product on a backend.

    Attributes:
        plan: the path, its proof, and why the reference computes it if it must.
        code: the product as kernels take it; its addend's format is the one that the plan rounds it to.
        choice: how the backend computes it.
    """

    plan: Plan
    code: ProductCode
    choice: Choice


def path_of(unit: UnitDescription, matrices: Matrices, divisor: int = 1) -> Path:
    """Return the path that a product of matrices takes on the unit's backend; see `path_of_terms`.

    Of a unit that promotes sums it is the path of each run of products.
    """
    return path_of_terms(*terms_of(unit, matrices, divisor))


def terms_of(
    unit: UnitDescription, matrices: Matrices, divisor: int = 1
) -> tuple[UnitDescription, Terms, Callable[[], tuple[float, float]]]:
    """Return the arguments of `path_of_terms` for a product of matrices."""

    def maxima() -> tuple[float, float]:
        # of gathered operands the memory that their offsets name: it may hold more numbers than are read, which only
        # widens the bound
        elements = [x.data if isinstance(x, Gathered) else x for x in (matrices.left, matrices.right)]
        a, b = unit.kernels.largest_magnitudes(elements)
        return a, b

    is_aligned = matrices.alignment is not None
    # one depth for all results: K of dense operands
    terms = Terms(matrices.formats, matrices.left.shape[-1], divisor, is_aligned=is_aligned)
    # a unit that promotes sums multiplies each run by its inner unit: that is the plan's subject
    inner = unit.mac.inner
    return unit if inner is unit.mac else unit._replace(mac=inner), terms, maxima


def path_of_terms(unit: UnitDescription, terms: Terms, maxima: Callable[[], tuple[float, float]]) -> Path:
    """Return the path of a product on the unit's backend, and the reason if the reference must compute it.

    Args:
        unit: who computes.
        terms: what is summed up.
        maxima: measures the largest magnitudes of both operands; called only if the formats alone prove no exact path
            and measured numbers could.

    Raises:
        FormatError: a unit of blocks, which aligns exponents, was given fixed-point operands; or a unit that promotes
            sums, or sums groups, was given other operands than matrices, or such that share scales.
    """
    path = _path_by_formats(unit.kernels, unit.code, terms, unit.mac)  # cached: layers repeat the same formats
    if path.plan.path in SETTLED or not may_gain_from_maxima(*terms.formats, unit.mac):
        return path
    # not cached: it depends on the numbers of this call
    measured = plan_product(*terms.formats, terms.depth, unit.mac, maxima, dots=_has_dots(unit.kernels, terms))
    return _as_computed(measured, unit.kernels, unit.code, terms)


@lru_cache(maxsize=1024)
def _path_by_formats(kernels: Kernels, stage: StageCode, terms: Terms, mac: Mac) -> Path:
    mac.require_operands(*terms.formats[:2])
    mac.require_order(is_aligned=terms.is_aligned)
    if kernels.name == "reference":
        plan = Plan(DEFINITION, "the reference runs the definition", mac)
    else:
        plan = plan_product(*terms.formats, terms.depth, mac, dots=_has_dots(kernels, terms))
    return _as_computed(plan, kernels, stage, terms)


def _has_dots(kernels: Kernels, terms: Terms) -> bool:
    # the kernels of dot-product instructions neither divide nor gather entries
    return terms.divisor == 1 and not terms.is_sparse and kernels.dots(codes_of_terms(terms.formats))


def _as_computed(plan: Plan, kernels: Kernels, stage: StageCode, terms: Terms) -> Path:
    """Return the path with the way by which the backend computes it, or why the reference must."""
    formats = terms.formats if plan.addend is None else (*terms.formats[:2], plan.addend)
    code = ProductCode(
        codes_of_terms(formats), encode_mac(plan.mac), plan.path, terms.depth, terms.divisor, terms.is_aligned
    )
    choice = choose(kernels.sparse_ways if terms.is_sparse else kernels.ways, code, stage)
    proof = f"{plan.proof}; {choice.proof}" if choice.proof else plan.proof
    return Path(replace(plan, fallback=choice.fallback, proof=proof), code, choice)


@lru_cache(maxsize=1024)
def codes_of_terms(formats: Formats) -> Codes:
    """Return the integers of both operands' formats, and of the addend's."""
    fa, fb, fc = formats
    return encode_format(fa), encode_format(fb), None if fc is None else encode_format(fc)


@lru_cache(maxsize=1024)
def accumulator_of(a: Format, b: Format, addend: Format | None, depth: int, mac: Mac) -> Fixed | None:
    """Return the fixed-point accumulator that a statistics register observes, None if the result is a float.

    An exact accumulator is as wide as the worst case needs, at most 64 bits; unsigned if all operands are.
    """
    if mac.accumulator != "exact":
        return mac.accumulator if isinstance(mac.accumulator, Fixed) else None
    if mac.product != "exact":
        term = mac.product
    elif isinstance(a, Fixed) and isinstance(b, Fixed):
        term = Fixed(min(a.width_bits + b.width_bits, MAX_WIDTH_BITS), a.frac_bits + b.frac_bits, a.signed or b.signed)
    else:
        return None
    if not isinstance(term, Fixed) or not isinstance(addend, (Fixed, type(None))):
        return None
    signed = term.signed or (addend is not None and addend.signed)
    widened = signed and not term.signed  # a sign beside all bits of an unsigned term
    # depth < 2**bit_length: so many terms of at most 2**n have a sum below 2**(n + bit_length)
    integer_bits = term.width_bits - term.frac_bits + max(depth, 1).bit_length() + widened
    frac_bits = term.frac_bits
    if addend is not None:
        # the sum of two numbers has at most a bit more than the larger one
        integer_bits = max(integer_bits, addend.width_bits - addend.frac_bits + (signed and not addend.signed)) + 1
        frac_bits = max(frac_bits, addend.frac_bits)
    return Fixed(max(min(integer_bits + frac_bits, MAX_WIDTH_BITS), 1), frac_bits, signed)


def explain(operation: Callable[..., Any], *args: Any, **options: Any) -> Plan:
    """Return the plan that a call of `operation` with these arguments would follow.

    Args:
        operation: `emu.matmul`, `emu.conv2d`, a product of `emu.sparse`, or `matmul` or `conv2d` of an `emu.Unit`.
        *args: arguments of the call.
        **options: options of the call.

    Raises:
        FormatError: the operation has no plan.
        ShapeError: the operands do not fit together.

    Examples:
        >>> import numpy as np
        >>> from emu.engine import matmul
        >>> a = np.zeros((2, 100)), np.zeros((100, 2))
        >>> plan = explain(matmul, *a, a_format="fix20f4", b_format="fix20f4", out_format="fix8f4")
        >>> print(plan)  # doctest: +NORMALIZE_WHITESPACE
        float64_blas: K*max|a|*max|b| + max|addend| <= 2**45 units of 2**-8 by the formats,
        exact in float64 in any order

    Source: docs/concepts/fast-paths.md.
    """
    planner: Callable[..., Plan] | None = getattr(operation, "plan", None)  # set by the operation's module
    if planner is None:
        name = getattr(operation, "__name__", operation)
        raise FormatError(
            f"`explain` must be given emu.matmul or emu.conv2d, got {name}; only products have plans, so leave it out"
        )
    unit = getattr(operation, "__self__", None)
    return planner(*([] if unit is None else [unit]), *args, **options)
