"""Formats, rounding modes and output stages as constants of C."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from emu.datapath import OutputStage, Overflow, Tininess
from emu.datapath.format_facts import format_sentence, sign_words
from emu.formats import Fixed, Float, Format

#: Columns of a comment.
_COLUMNS = 116
# Symmetric saturation is the same rule with another limit; see `stage_constant`.
_FIXED_RULES = {
    Overflow.SATURATE: "SATURATE",
    Overflow.SATURATE_SYMMETRIC: "SATURATE",
    Overflow.SATURATE_ZERO: "ZERO",
    Overflow.WRAP: "WRAP",
}


class Options(NamedTuple):
    """Which fields structures have that only some units need.

    Attributes:
        random: whether a stage draws.
        flushes_operands: whether a format of operands is DAZ.
        flushes_results: whether a format of results is FTZ.
        tininess: whether a stage has the underflow of IEEE 754.
        sign_magnitude: whether a fixed-point format is a sign and a magnitude.
        hidden_one: whether a float format has a hidden bit that is always one.
    """

    random: bool
    flushes_operands: bool
    flushes_results: bool
    tininess: bool
    sign_magnitude: bool
    hidden_one: bool


def constant_name(fmt: Format) -> str:
    """Return the name of a format's constant.

    Examples:
        >>> from emu.formats import parse
        >>> [constant_name(parse(text)) for text in ("fp16", "fix8f-2", "e4m3 finite bias=-5")]
        ['FP16', 'FIX8FMINUS2', 'E4M3_FINITE_BIAS_MINUS5']
    """
    text = re.sub("(?<=[a-z])-(?=[a-z])", "_", str(fmt)).replace("-", "minus")
    return re.sub("[ =]", "_", text).upper()


def stored(fmt: Format) -> Format:
    """Return the format of a register inside a unit, without DAZ: a rule for operands, not for registers."""
    return replace(fmt, daz=False) if isinstance(fmt, Float) else fmt


def sentence_of(fmt: Format) -> str:
    """Return what a format's codes are, in ASCII.

    Examples:
        >>> from emu.formats import parse
        >>> sentence_of(parse("ufix8f-2")), sentence_of(parse("fix8f4"))
        ('ufix8f-2: 8 bits unsigned, in units of 2**2', "fix8f4: 8 bits in two's complement, in units of 2**-4")
    """
    if isinstance(fmt, Fixed):
        sign = f" in {sign_words(fmt)}" if fmt.signed else " unsigned"
        return f"{fmt}: {fmt.width_bits} bit{'s' * (fmt.width_bits > 1)}{sign}, in units of 2**{-fmt.frac_bits}"
    return f"{fmt}: {format_sentence(fmt)}{', subnormal operands are 0' if fmt.daz else ''}"


def format_constant(fmt: Format, options: Options) -> str:
    """Return the constant of a format."""
    if isinstance(fmt, Fixed):
        # Rows stand in the order of the fields of `struct fixed_format`; fields that only some units need come last.
        rows = [
            (f"{fmt.width_bits}", "bits of a code"),
            (_bool(fmt.signed), "signed" if fmt.signed else "unsigned"),
            (f"{-fmt.frac_bits}", "exponent of the last place"),
        ]
        if options.sign_magnitude:
            rows.append((_bool(fmt.sign_magnitude), "whether it is a sign and a magnitude"))
        return _constant("fixed_format", constant_name(fmt), rows, sentence_of(fmt))
    # Rows stand in the order of the fields of `struct float_format`.
    rows = [
        (f"{fmt.width_bits}", "bits of a code"),
        (_bool(fmt.signed), "signed" if fmt.signed else "unsigned"),
        (f"{fmt.fraction_bits}", "bits of the fraction"),
        (f"{fmt.emin - fmt.fraction_bits}", "exponent of the smallest step"),
        (f"{fmt.emax}", "exponent of the largest value"),
        (_code(fmt.lowest_index), "steps from zero to code 0"),
        (_code(fmt.max_index), "steps from zero to the largest value"),
        (_code(fmt.infinity_code), "infinity"),
        (_code(fmt.nan_code), "NaN"),
    ]
    if options.flushes_operands:
        rows.append((_bool(fmt.daz), "whether subnormal operands are 0"))
    if options.flushes_results:
        rows.append((_bool(fmt.ftz), "whether subnormal results become 0"))
    if options.hidden_one:
        rows.append((_bool(fmt.hidden_one), "whether the hidden bit is one at exponent field 0 too"))
    return _constant("float_format", constant_name(fmt), rows, sentence_of(fmt))


def stage_constant(
    name: str, stage: OutputStage, options: Options, words: str, tininess: Tininess | None = None
) -> str:
    """Return the constant of an output stage.

    Args:
        name: of the constant.
        stage: format, mode and rule.
        options: fields that structures have.
        words: what it is.
        tininess: when it calls a result tiny; None: its underflow counts results that became 0.
    """
    fmt, meaning = stage.format, stage.rounding.meaning
    rows = [
        (f"&{constant_name(fmt)}", str(fmt)),
        (_rounding(stage, options), ""),
    ]
    if isinstance(fmt, Fixed):
        # Limits are magnitudes: two's complement reaches one further below zero, unless the rule is symmetric. An
        # unsigned format has -min_raw = 0.
        low = fmt.max_raw if fmt.signed and stage.overflow is Overflow.SATURATE_SYMMETRIC else -fmt.min_raw
        limits = f"{{{_code(fmt.max_raw)}, {_code(low)}}}"
        rows += [(limits, "largest magnitudes, positive and negative"), (_FIXED_RULES[stage.overflow], "")]
        return _constant("fixed_stage", name, rows, words)
    above, below = meaning.stays
    rows += [
        (stage.overflow.value.upper(), ""),
        (f"{{{_bool(above)}, {_bool(below)}}}", "whether it stays at the largest value, positive and negative"),
    ]
    if options.tininess:
        # In the order of the structure's fields: `is_tiny_before`, `is_tiny_after`. Both are false without IEEE's
        # underflow.
        rows += [(_bool(tininess is moment), f"tiny {moment.value.replace('_', ' ')}") for moment in Tininess]
    return _constant("float_stage", name, rows, words)


def rounding_constant(name: str, stage: OutputStage, options: Options, words: str) -> str:
    """Return the constant of a rounding mode."""
    text = _rounding(stage, options)
    body = "\n".join(line.removeprefix("    ") for line in text.removeprefix("{").removesuffix("}").splitlines())
    return f"/* {words} */\nstatic const struct rounding {name} = {{\n{body.strip()}\n}};"


def _rounding(stage: OutputStage, options: Options) -> str:
    mode, table = stage.rounding, stage.rounding.meaning.steps_of(stage.format).table
    # The table's index is place + 4 * odd + 8 * negative, so groups of four are steps[negative][odd] of the C.
    groups = ["{" + ", ".join(f"{step:2d}" for step in table[i : i + 4]) + "}" for i in range(0, 16, 4)]
    random = f"\n        {stage.n_rbits if mode.draws else 0}" if options.random else ""
    return (
        f"{{   /* {mode.value}: steps of exact results, of those below half a last place, of half, above half */\n"
        f"        {{{{{groups[0]}, {groups[1]}}},   /* positive; even, odd */\n"
        f"         {{{groups[2]}, {groups[3]}}}}}{',' if random else ' '}  /* negative; even, odd */{random}\n"
        "    }"
    )


def _constant(kind: str, name: str, rows: Sequence[tuple[str, str]], words: str) -> str:
    values = [f"    {value}{',' * (i + 1 < len(rows))}" for i, (value, _) in enumerate(rows)]
    # Only lines with a comment are aligned; the table of a rounding mode has line breaks and comments of its own.
    width = max(len(text) for text, (_, comment) in zip(values, rows, strict=True) if comment)
    lines = [
        f"{text:{width}} /* {comment} */" if comment else text for text, (_, comment) in zip(values, rows, strict=True)
    ]
    return "\n".join([_comment(words), f"static const struct {kind} {name} = {{", *lines, "};"])


def _comment(words: str) -> str:
    return "\n * ".join(textwrap.wrap(f"/* {words} */", _COLUMNS))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _code(code: int | None) -> str:
    # Plain digits up to 9 fit every type of C; a larger code may need 64 bits, which UINT64_C gives it.
    return "NONE" if code is None else f"UINT64_C({code:#x})" if code > 9 else str(code)
