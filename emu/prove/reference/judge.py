"""The module that judges a unit: the operation's result and flags, and whether those of a unit differ.

module emu_judge(input a, b, c, rbits, given, given_flags, output bad, result, flags);
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.formats import Fixed, Float
from emu.prove.reference.conventions import through_stages, with_conventions
from emu.prove.reference.exact import WIDEST_EXACT, add, multiply, negated
from emu.prove.reference.fixed import write_fixed
from emu.prove.reference.floating import write_float
from emu.prove.reference.text import Bits, Module, constant
from emu.prove.reference.unpack import Exact, unpack
from emu.testing.vectors.conventions import has_payloads
from emu.testing.vectors.definition import is_to_integer
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS, Description

#: Operations that have a reference here.
OFFERED = ("quantize", "add", "subtract", "multiply", "fma")
#: Name of the module, and how many flags it has, in the order of `TESTFLOAT_FLAGS`.
MODULE, N_FLAGS = "emu_judge", len(TESTFLOAT_FLAGS)


@dataclass(frozen=True)
class Judging:
    """How results are compared.

    Attributes:
        any_nan: whether one NaN is as good as another.
        flags: which are compared, a bit for each of `TESTFLOAT_FLAGS`.
    """

    any_nan: bool = False
    flags: int = 0


def judge_of(description: Description, judging: Judging, widest: int = WIDEST_EXACT) -> str:
    """Return the module as text; `description.operation` is one of `OFFERED`."""
    d, m = description, Module()
    codes = [Bits(name, fmt.width_bits) for name, fmt in zip(NAMES, d.operand_formats, strict=False)]
    operands = [unpack(m, code, fmt) for code, fmt in zip(codes, d.operand_formats, strict=True)]
    exact, staged = through_stages(m, d, _exact(m, d, operands, widest))
    stage, fmt = d.stage, d.stage.format
    random = Bits("rbits", d.n_rbits) if d.is_stochastic else None
    if isinstance(fmt, Fixed):
        written = write_fixed(m, exact, stage, random)
    else:
        written = write_float(m, exact, stage, random, d.underflow)
    flags = [
        " | ".join(str(getattr(each, name)) for each in (*staged, written)) if name else "1'b0"
        # the order of TESTFLOAT_FLAGS; no operation here divides, so `infinite` is 0
        for name in ("inexact", "underflow", "overflow", "", "invalid")
    ]
    code = with_conventions(m, d, written, codes, operands)
    if d.flag_rule == "ieee":
        flags = _ieee_flags(m, d, codes, operands, flags)
    ports = [f"input [{code.width - 1}:0] {code}" for code in codes]
    if random is not None:
        ports.append(f"input [{random.width - 1}:0] {random}")
    given = Bits("given", fmt.width_bits)
    ports += [f"input [{given.width - 1}:0] {given}", f"input [{N_FLAGS - 1}:0] given_flags", "output bad"]
    ports += [f"output [{given.width - 1}:0] result", f"output [{N_FLAGS - 1}:0] flags"]
    same = f"({given} == {code})"
    if judging.any_nan and isinstance(fmt, Float) and fmt.nan_code is not None:
        nans = [unpack(m, m.wire("looked_at", each.width, each.name), fmt).nan for each in (given, code)]
        same = f"({same} | ({nans[0]} & {nans[1]}))"
    lines = [
        f"module {MODULE}({', '.join(ports)});",
        *m.lines,
        f"  assign result = {code};",
        # a concatenation lists the highest bit first
        f"  assign flags = {{{', '.join(reversed(flags))}}};",
        f"  assign bad = ~{same} | (|((flags ^ given_flags) & {constant(judging.flags, N_FLAGS)}));",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _exact(m: Module, d: Description, operands: list[Exact], widest: int) -> Exact:
    match d.operation:
        case "add":
            return add(m, operands[0], operands[1], d.stage, widest)
        case "subtract":
            return add(m, operands[0], negated(m, operands[1]), d.stage, widest)
        case "multiply":
            return multiply(m, operands[0], operands[1])
        case "fma":
            return _fma(m, operands, d, widest)
        case _:
            assert d.operation == "quantize", d.operation
            return operands[0]


def _fma(m: Module, operands: list[Exact], d: Description, widest: int) -> Exact:
    a, b, c = operands
    return add(m, multiply(m, a, b), c, d.stage, widest)


def _ieee_flags(m: Module, d: Description, codes: list[Bits], operands: list[Exact], flags: list[str]) -> list[str]:
    """Return IEEE 754's flags: signalling NaN are invalid, and conversions to integers have one flag at a time.

    Infinity times zero is invalid even if a quiet NaN is added; a conversion that is out of range is invalid alone.

    Source: IEEE 754-2019 section 7.2; Berkeley SoftFloat where it leaves a choice.
    """
    inexact, underflow, overflow, infinite, invalid = flags
    more = list[str]()
    for code, operand, fmt in zip(codes, operands, d.operand_formats, strict=True):
        if has_payloads(fmt):
            # signalling: the highest fraction bit is 0 (IEEE 754-2019 6.2.1)
            more.append(f"({operand.nan} & ~{code[fmt.fraction_bits - 1]})")
    if d.operation == "fma":
        a, b = operands[:2]
        zeros = [f"({x.significand} == {constant(0, x.significand.width)} & ~{x.is_special})" for x in (a, b)]
        more += [f"({a.infinite} & {zeros[1]})", f"({b.infinite} & {zeros[0]})"]
    if is_to_integer(d):
        beyond = m.bit("out_of_range", f"{overflow} | {invalid}")
        # emu's overflow flag becomes IEEE's invalid here
        inexact, underflow, overflow = f"({inexact} & ~{beyond})", "1'b0", "1'b0"
        more.append(beyond.name)
    return [inexact, underflow, overflow, infinite, m.bit("ieee_invalid", " | ".join([invalid, *more])).name]
