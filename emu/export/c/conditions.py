"""The conditions of `text/`: which lines of C a unit needs. Each key is a word that stands behind an `@if` there."""

from __future__ import annotations

from emu.datapath.order import Blocks, Lanes, Pairwise, Sequential
from emu.datapath.overflow import Overflow
from emu.export.c.stages import Unit, has_nan
from emu.formats import Fixed, Float
from emu.testing.vectors.definition import is_to_integer


def conditions_of(unit: Unit) -> set[str]:
    """Return the conditions that hold for a unit."""
    d, formats, result = unit.description, unit.description.operand_formats, unit.output.format
    conditions = {
        "random": unit.options.random,
        "tininess": unit.options.tininess,
        "flushes_operands": unit.options.flushes_operands,
        "flushes_results": unit.options.flushes_results,
        "sign_magnitude": unit.options.sign_magnitude,
        "sign_magnitude_result": isinstance(result, Fixed) and result.sign_magnitude,
        "hidden_one": unit.options.hidden_one,
        "zeroless_result": isinstance(result, Float) and not result.zero,
        "wide_products": unit.widths.wide_products,
        "float_factors": any(isinstance(fmt, Float) for fmt in formats[:2]),
        # Without infinities and NaN the C has no branches for them.
        "specials": unit.has_specials,
        "float_result": isinstance(result, Float),
        "fixed_result": isinstance(result, Fixed),
        "moves_exact": d.stage.rounding.moves_exact,
        "staged": bool(unit.passed),
        # Fixed-point results of NaN that are not 0, as RISC-V and x86 have them.
        "writes_invalid": d.invalid != "zero",
        # The output stage writes the canonical NaN of the format; only another one is laid over it.
        "writes_nan": d.nan != "canonical" or d.nan_code is not None,
        "passes_nan": d.nan != "canonical",
        "signed_zeros": d.zero_sign == "ieee",
        "to_integer": d.flag_rule == "ieee" and is_to_integer(d),
        # The definition raises `invalid` for it whatever is added; the exact result alone is NaN of an operand if a NaN
        # is added.
        "infinity_times_zero": d.flag_rule == "ieee" and d.operation == "fma" and unit.has_specials,
        "signalling": bool(unit.signalling),
        # Operands 0 and 1 of a product are the factors, which are arrays; 2 is the addend, which is a single code.
        "signalling_factors": d.operation == "matmul" and min(unit.signalling, default=2) < 2,
    }
    if d.operation == "matmul":
        conditions |= _of_products(unit)
    return {name for name, holds in conditions.items() if holds}


def _of_products(unit: Unit) -> dict[str, bool]:
    formats, order = unit.description.operand_formats, unit.mac.order
    conditions = {
        "addend": unit.has_addend,
        "rounds_products": unit.product is not None,
        # Only such a product raises the accumulator's flag: one that saturates stays a number.
        "product_becomes_infinite": unit.product is not None and unit.product.overflow is Overflow.IEEE,
        # Sums are integers of WORDS words, without an order.
        "exact_sum": unit.accumulator is None,
        # An exact unit keeps NOT_A_NUMBER and MADE_NAN apart by itself. A product or sum that is rounded becomes a
        # code, and a code does not tell them apart: so operands are searched once more, for the flag `invalid`.
        "searches_nan": not unit.mac.is_exact and unit.has_specials,
        "nan_operands": any(map(has_nan, formats)),
        "nan_factors": any(map(has_nan, formats[:2])),
    }
    if unit.accumulator is None:
        return conditions
    content, rule = unit.accumulator.format, unit.accumulator.overflow
    return conditions | {
        "searches_nan": has_nan(content),
        "rounds_sums": True,
        "sum_becomes_infinite": rule is Overflow.IEEE,
        # The fixed-point rules that write a limit or 0, and the float rules that write the largest value: each raises
        # the accumulator's flag whenever it is applied.
        "sum_saturates": rule not in (Overflow.IEEE, Overflow.WRAP),
        "sum_has_infinity": isinstance(content, Float) and content.infinities,
        "sum_has_negative_zero": isinstance(content, Float) and content.has_negative_zero,
        "sequential": isinstance(order, Sequential),
        "pairwise": isinstance(order, Pairwise),
        "lanes": isinstance(order, Lanes),
        "blocks": isinstance(order, Blocks),
        "alternating": isinstance(order, Blocks) and order.index_order == "alternating_pairs",
        "adds_after": unit.adder is not None,
        "min_exponent": isinstance(order, Blocks) and order.min_exponent is not None,
    }
