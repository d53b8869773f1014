"""The header of a unit: what it writes in words, an example, its function, and the line that imports it by DPI-C."""

from __future__ import annotations

import textwrap

import numpy as np

from emu.datapath import Mac, Rounding, Tininess
from emu.datapath.overflow import OVERFLOW_WORDS
from emu.export.c.constants import sentence_of
from emu.export.c.template import fragment
from emu.formats import Fixed, Float, Format
from emu.testing.hard import Places, hard_codes
from emu.testing.vectors import Description
from emu.testing.vectors.conventions import has_payloads, invalid_code
from emu.testing.vectors.definition import answered, is_to_integer
from emu.testing.vectors.description import TESTFLOAT_FLAGS

#: Columns of a comment.
_COLUMNS = 110
#: Vectors among which the example is chosen.
_DRAWN = 256
_NAMES = ("a", "b", "c")
#: What an operation computes of its operands.
_MEANINGS = {
    "quantize": "a, rounded into another format",
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "minimum": "the smaller of a and b, of zeros -0, NaN if one of them is",
    "maximum": "the larger of a and b, of zeros +0, NaN if one of them is",
    "minimum_number": "the smaller of a and b, of zeros -0, of a number and NaN the number",
    "maximum_number": "the larger of a and b, of zeros +0, of a number and NaN the number",
    "divide": "a / b",
    "fma": "a * b + c, rounded once",
    "sqrt": "the square root of a",
    "remainder": "the remainder of IEEE 754, a - b * n, n the integer nearest to a / b, of two the even one",
    "round_to_integral": "a, rounded to an integer",
    "matmul": "the sum of a[i] * b[i], 0 <= i < k",
}
# In the order of the flags' bits, the lowest first.
_FLAG_WORDS = (
    ("inexact", "the value written differs from the exact result; every overflow raises it, too"),
    ("underflow", ""),
    ("overflow", "the overflow rule was applied"),
    ("divided by zero", "a quotient of a finite number other than 0 by zero"),
    ("invalid", "the result is NaN and no operand is, or NaN was written into a format without NaN, as 0"),
    ("accumulator overflow", "on the way a sum reached a limit, or a sum or product became infinite"),
)
#: What is written for NaN, by the description's rule; a code follows.
_NAN_WORDS = {
    "canonical": "NaN is written as",
    "first": "The first NaN of the operands is passed on, quiet; a NaN that none of them is is",
    "signalling_first": "The first signalling NaN of the operands, else the first, is passed on, quiet; a NaN that "
    "none of them is is",
}
_UNDERFLOW = {
    None: "the result is not 0, but 0 was written, or the smallest value if there is no 0",
    Tininess.BEFORE_ROUNDING: "the result is inexact, and was below the smallest normal number before it was rounded",
    Tininess.AFTER_ROUNDING: "the result is inexact, and below the smallest normal number if it is rounded as though "
    "exponents had no end",
}


def title_of(description: Description) -> str:
    """Return what a unit computes, in one line."""
    meaning = _MEANINGS[description.operation]
    addend = " plus addend" if _has_addend(description) else ""
    return f"{meaning}{addend}: {' and '.join(description.formats)} to {description.out_format}"


def parameters_of(description: Description) -> str:
    """Return the parameters of the unit's function."""
    if description.operation == "matmul":
        parameters = ["const uint64_t *a", "const uint64_t *b", "size_t k"]
        parameters += ["uint64_t addend"] * _has_addend(description)
    else:
        parameters = [f"uint64_t {name}" for name in _NAMES[: len(description.formats)]]
    parameters += ["uint32_t rbits"] * description.is_stochastic
    return ", ".join([*parameters, "uint32_t *flags"])


def header_text(description: Description, name: str) -> str:
    """Return the header."""
    d = description
    lines = [line for text in _sentences(d) for line in _wrapped(text)]
    texts = {
        "title": title_of(d),
        "words": "\n".join(f" * {line}".rstrip() for line in [*lines, "", *_example(d, name)]),
        "guard": name.upper(),
        "import": "\n".join(f" *     {line}" for line in _dpi_lines(d, name)),
        "name": name,
        "parameters": parameters_of(d),
    }
    return fragment("header.h", (), texts) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, subsequent_indent="    " if text.startswith("  ") else "") if text else [""]


def _has_addend(description: Description) -> bool:
    return description.operation == "matmul" and len(description.formats) > 2


def _sentences(d: Description) -> list[str]:
    # `zip` ends with the shorter one: units have one to three operands.
    names = (*_NAMES[:2], "addend" if d.operation == "matmul" else "c")
    operands = [f"  {name}: {sentence_of(fmt)}." for name, fmt in zip(names, d.operand_formats, strict=False)]
    stage = d.stage
    rows = [
        "Operands and results are codes: the bits of a register, right-aligned. Higher bits of an operand are ignored.",
        "",
        *operands,
        f"  result: {sentence_of(stage.format)}.",
        "",
        *(_unit_sentences(d.mac.mac()) if d.operation == "matmul" else []),
        _rounding_sentence("The exact result is", stage.rounding, stage.n_rbits),
        f"Overflow rule {stage.overflow.value}: {OVERFLOW_WORDS[stage.overflow]}.",
        *_conventions(d),
        "",
        "*flags is set to the flags of this result, unless `flags` is a null pointer:",
    ]
    words = dict(_FLAG_WORDS) | {"underflow": _UNDERFLOW[d.underflow]}
    if d.flag_rule == "ieee":
        words |= _ieee_words(d)
    # The order of the dictionary is that of the bits in *flags.
    flags = list(enumerate(words))
    return rows + [f"  {1 << bit:2d} {flag}: {words[flag]}." for bit, flag in flags if _may_rise(d, flag)]


def _ieee_words(d: Description) -> dict[str, str]:
    """Return, in words, when the flags rise for which IEEE 754 has another rule than emu."""
    if is_to_integer(d):
        return {
            "inexact": "the integer differs from the operand, and the operand rounds to one within the range",
            "invalid": "the operand is NaN, infinite, or rounds to an integer beyond the range",
        }
    words = dict(_FLAG_WORDS)["invalid"]
    if any(map(has_payloads, d.operand_formats)):
        words = f"an operand is a signalling NaN, or {words}"
    if d.operation == "fma":
        words += "; infinity times zero, whatever is added"
    return {"invalid": words}


def _may_rise(d: Description, flag: str) -> bool:
    if flag == "invalid" and not _has_nan(d):
        return False
    if d.flag_rule == "ieee" and is_to_integer(d) and flag not in ("inexact", "invalid"):
        return False
    if flag == "accumulator overflow":
        return d.operation == "matmul" and not d.mac.mac().is_exact
    return flag != "divided by zero" or d.operation == "divide"


def _has_nan(d: Description) -> bool:
    """Return whether a result may be NaN, or a code that is written instead of NaN."""
    mac = d.mac.mac()
    formats = [*d.operand_formats, d.stage.format, mac.product, mac.accumulator]
    # These make NaN of numbers even in fixed point: 0 / 0, the root of a negative number, a remainder by zero.
    return d.operation in ("divide", "sqrt", "remainder") or any(isinstance(fmt, Float) for fmt in formats)


def _rounding_sentence(what: str, mode: Rounding, n_rbits: int) -> str:
    text = f"{what} rounded once, {mode.value}: {mode.meaning.words}."
    if mode.draws:
        text += f" The low {n_rbits} bits of rbits decide, uniform random numbers of your source."
    return text


def _conventions(d: Description) -> list[str]:
    """Return sentences about the stages that results pass, and about what is written if arithmetic leaves it open."""
    rows = [f"Before that, it passes a stage: {row.stage}." for row in d.stages]
    fmt = d.stage.format
    if d.invalid != "zero":
        code = _hex(invalid_code(d.invalid, fmt), fmt.width_bits) if isinstance(fmt, Fixed) else ""
        beyond = " and for results beyond the range" if d.invalid == "indefinite" else ""
        rows.append(f"{code} is written for NaN{beyond}.")
    elif d.nan != "canonical" or d.nan_code is not None:
        made = _hex(d.made_nan, fmt.width_bits)
        rows.append(f"{_NAN_WORDS[d.nan]} {made}.")
    elif _has_nan(d):
        rows.append(_nan_sentence(d))
    if d.zero_sign == "ieee":
        rows.append(
            "A sum that is 0 has the sign of its terms if they are zeros of one sign, else that of the rounding."
        )
    return rows


def _nan_sentence(d: Description) -> str:
    fmt = d.stage.format
    if isinstance(fmt, Fixed):
        return "NaN is written as 0."
    if fmt.nan_code is None:
        return "NaN is written as code 0."
    return f"NaN is written as {_hex(fmt.nan_code, fmt.width_bits)}; payloads do not propagate."


def _unit_sentences(mac: Mac) -> list[str]:
    if mac.is_exact:
        return ["Products and sums are exact, whatever their order."]
    rows: list[str] = []
    rule = "" if mac.overflow is None else f", overflow {mac.overflow.value}"
    if mac.product == "exact":
        rows.append("Products are exact.")
    else:
        rows.append(f"Each product is rounded into {mac.product}, {mac.rounding.value}{rule}.")
    if mac.accumulator == "exact":
        rows.append("Sums are exact, whatever their order.")
    else:
        rows.append(
            f"Each sum is rounded into the accumulator, {mac.accumulator}, {mac.rounding.value}{rule}; "
            f"order {mac.order}."
        )
    return rows


def _hex(code: int, width: int) -> str:
    return f"0x{code:0{-(-width // 4)}x}"


def _example(d: Description, name: str) -> list[str]:
    """Return a worked example, an inexact result if there is one."""
    # At least two terms show a sum, and at most four fit a line of the comment.
    depth = min(max(d.depth, 2), 4) if d.operation == "matmul" else 1
    drawn = d.model_copy(update={"count": _DRAWN, "depth": depth})
    operands = tuple(hard_codes(fmt, Places.of(i, drawn.shape_of(i))) for i, fmt in enumerate(drawn.operand_formats))
    # The seed is the number behind those of the operands, so random bits and operands are independent. The high bits of
    # the noise are kept: n_rbits of them.
    rbits = Places.of(len(operands), (_DRAWN,)).noise(0) >> np.uint64(64 - d.n_rbits) if d.is_stochastic else None
    written = answered(drawn, operands, rbits)
    # Equal, not merely set: the example shows rounding and nothing else.
    inexact = (written.flags == 1 << TESTFLOAT_FLAGS.index("inexact")).nonzero()[0]
    index = int(inexact[0]) if inexact.size else 0
    widths = [fmt.width_bits for fmt in d.operand_formats]
    codes = [x[index].reshape(-1).tolist() for x in operands]
    texts = [[_hex(int(code), width) for code in row] for row, width in zip(codes, widths, strict=True)]
    result = _hex(int(written.results[index]), d.stage.format.width_bits)
    values = [_values(fmt, row) for fmt, row in zip(d.operand_formats, codes, strict=True)]
    lines = ["Example:", ""]
    if d.operation == "matmul":
        for variable, row in zip("ab", texts, strict=False):
            lines.append(f"    const uint64_t {variable}[{len(row)}] = {{{', '.join(row)}}};")
        arguments = ["a", "b", str(len(texts[0])), *(row[0] for row in texts[2:])]
    else:
        arguments = [row[0] for row in texts]
    if rbits is not None:
        arguments.append(f"{int(rbits[index]):#x}")
    lines.append(f"    {name}({', '.join(arguments)}, &flags) == {result}, flags {int(written.flags[index])}")
    shown = "; ".join(
        f"{variable} = {text}"
        for variable, text in zip(("a", "b", "addend" if d.operation == "matmul" else "c"), values, strict=False)
    )
    return [
        *lines,
        "",
        *_wrapped(f"in numbers: {shown}; result {_values(d.stage.format, [int(written.results[index])])}."),
    ]


def _values(fmt: Format, codes: list[int]) -> str:
    values: list[object] = fmt.decode(np.array(codes, np.uint64)).tolist()
    # A format whose carrier is an integer array decodes to raws, integers in units of the last place.
    unit = f" * 2**{-fmt.frac_bits}" if isinstance(fmt, Fixed) and fmt.carries_raws else ""
    return ", ".join(f"{value}{unit}" for value in values)


def _dpi_lines(d: Description, name: str) -> list[str]:
    """Return the import of the function; of a product, arrays have as many elements as the unit has terms."""
    if d.operation == "matmul":
        arguments = [f"input longint unsigned {variable}[{d.depth}]" for variable in "ab"]
        arguments += ["input longint unsigned k"]
        arguments += ["input longint unsigned addend"] * _has_addend(d)
    else:
        arguments = [f"input longint unsigned {variable}" for variable in _NAMES[: len(d.formats)]]
    arguments += ["input int unsigned rbits"] * d.is_stochastic
    arguments += ["output int unsigned flags"]
    # Open arrays would need the simulator's own C types; arrays of a fixed size are plain pointers.
    start = f'import "DPI-C" function longint unsigned {name}('
    return [start, *(f"    {argument}{',' * (i + 1 < len(arguments))}" for i, argument in enumerate(arguments)), ");"]
