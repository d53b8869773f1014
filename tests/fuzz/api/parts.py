"""More calls: units, formats, and the table of lines: registers, flags, sources of random bits, helpers of tests."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import emu

from .calls import FUNCTIONS, NO_AXES, NO_PAIRS, OPERATIONS, TOGETHER, Case, add_options
from .draw import INTEGERS_NO, JUNK, Pen, Text

#: What no integer argument of a description may be, beside `INTEGERS_NO`.
NUMBERS_NO = (*INTEGERS_NO, "2**70", "-2**70", "10**400", "np.array([1, 2])", "'x'", "b'1'", "{}", "object()")


def unit(pen: Pen) -> Case:
    """A method of a unit: the same as the function."""
    out, inputs = pen.format(), pen.format()
    built = [repr(out)]
    has_inputs = pen.now_and_then(0.8)
    built += [f"inputs={inputs!r}"] if has_inputs else []
    built += ["flags=emu.Flags()"] if pen.now_and_then(0.3) else []
    built += ["register=emu.StatisticsRegister()"] if pen.now_and_then(0.2) else []
    wrap = pen.pick(("{}", "{}", "{}", "copy.deepcopy({})", "pickled({})", "{}.replace(rounding='floor')"))
    case = Case("", setup={"unit": wrap.format(f"emu.Unit({', '.join(built)}, backend=BACKEND)")})
    method = pen.pick((*OPERATIONS, *FUNCTIONS, "matmul", "total", "average", "conv2d", "quantize", "function"))
    case.function, source = f"unit.{method}", inputs if has_inputs else None
    if method == "matmul":
        case.arguments = {"a": pen.operand(source, (2, 3)), "b": pen.operand(source, (3, 2))}
    elif method == "conv2d":
        case.arguments = {"x": pen.operand(source, (1, 1, 3, 3)), "w": pen.operand(source, (1, 1, 2, 2))}
        if pen.now_and_then(0.4):
            case.arguments["stride"] = Text(pen.pick(NO_PAIRS), True)
    elif method in ("total", "average"):
        case.arguments = {"x": pen.operand(source, (2, 3))}
        bad = pen.now_and_then(0.4)
        case.arguments["axis"] = Text(pen.pick(NO_AXES), True) if bad else Text(pen.pick(("0", "1", "-1", "(0, 1)")))
    elif method == "function":
        name = pen.pick(FUNCTIONS) if pen.now_and_then(0.6) else "bogus"
        case.arguments = {"name": Text(repr(name), name == "bogus"), "x": pen.operand(source)}
    elif method in OPERATIONS:
        shapes = (*pen.pick(TOGETHER), (1,))
        names = ("x",) if method == "sqrt" else "abc"[: OPERATIONS[method]]
        case.arguments = {n: pen.operand(source, s) for n, s in zip(names, shapes, strict=False)}
    else:
        case.arguments = {"x": pen.operand(None if method == "quantize" else source)}
    if has_inputs and pen.now_and_then(0.3):
        case.twist = "threads"
    return case


def unit_itself(pen: Pen) -> Case:
    out = pen.format()
    case = Case("emu.Unit", {"out": pen.written_format(out, bad=0.3)})
    add_options(pen, case, out, None, mac=True)
    if pen.now_and_then(0.3):
        case.arguments["inputs"] = pen.written_format(pen.format(), bad=0.5)
        if case.arguments["inputs"].text == "None":
            del case.arguments["inputs"]
    if pen.now_and_then(0.2):
        case.arguments = {}
        name, text = pen.pick((("rounding", "'bogus'"), ("bogus", "1"), ("out", "'bogus'"), ("mac", "None"),
                               ("flags", "1"), ("overflow", "'wrap'"), ("n_rbits", "99"), ("backend", "'x'"),
                               ("inputs", "3")))  # fmt: skip
        case.function, case.arguments = "emu.Unit('fp16').replace", {name: Text(text, True)}
    return case


# ---- formats ---------------------------------------------------------------------------------------------------------


def format_itself(pen: Pen) -> Case:
    kind = pen.pick(("parse", "Fixed", "Float", "DynamicFixed", "at", "ulp", "codes"))
    if kind == "parse":
        text = pen.written_format(pen.format(), bad=0.7)
        return Case("emu.parse", {"text": text._replace(bad=text.bad and text.text != "'fix16f?'")})
    if kind == "Fixed":
        given = {"width_bits": _number(pen, 1, 64), "frac_bits": _number(pen, -4096, 4096)}
        if pen.now_and_then(0.3):
            given["signed"] = Text(pen.pick(("1", "'no'", "None", "[]")), True)
        return Case("emu.Fixed", given)
    if kind == "Float":
        given = {"exponent_bits": _number(pen, 2, 8), "fraction_bits": _number(pen, 2, 23)}
        for name, texts in (
            ("bias", ("1.5", "'x'", "True", "10**30", "[1]")), ("infinities", ("'no'", "2", "None")),
            ("ftz", ("'x'", "3")),
            ("nans", ("'bogus'", "None", "3", "['ieee']", "{}")), ("signed", ("'x'", "None", "7")),
            ("zero", ("'x'", "None")),
        ):  # fmt: skip
            if pen.now_and_then(0.12):
                given[name] = Text(pen.pick(texts), True)
        return Case("emu.Float", given)
    if kind == "DynamicFixed":
        return Case("emu.DynamicFixed", {"width_bits": _number(pen, 1, 64), "signed": Text("True")})
    if kind == "at":
        return Case("emu.DynamicFixed(16).at", {"frac_bits": _number(pen, -4096, 4096)})
    name = pen.format()
    if kind == "codes":
        return Case(f"emu.parse({name!r}).codes", {})
    numbers = ("nan", "inf", "'x'", "None", "1j", "[1.0]", "object()")
    bad = pen.now_and_then(0.5) and isinstance(emu.parse(name), emu.Float)
    return Case(f"emu.parse({name!r}).ulp", {"value": Text(pen.pick(numbers), True) if bad else Text("1.5")})


def _number(pen: Pen, low: int, high: int) -> Text:
    if pen.now_and_then(0.2):
        return Text(pen.pick(NUMBERS_NO), True)
    return pen.integer(low, high, bad=0)


def coded(pen: Pen) -> Case:
    """encode, decode, from_raw, to_raw, contains."""
    name = pen.format(wide=0.35)
    fmt = emu.parse(name)
    is_fixed = isinstance(fmt, emu.Fixed)
    method = pen.pick(("encode", "decode", "contains", *(("from_raw", "to_raw") if is_fixed else ())))
    shape = pen.shape()
    if method in ("encode", "contains", "to_raw"):
        junk = 0.1
        return Case(f"emu.parse({name!r}).{method}", {"values": pen.operand(name, shape, junk=junk)}, method)
    count = math.prod(shape)
    low, high = (fmt.min_raw, fmt.max_raw) if method == "from_raw" else (0, fmt.n_codes - 1)  # type: ignore[union-attr]
    numbers = [pen.random.randint(low, high) for _ in range(count)]
    bad = bool(count) and pen.now_and_then(0.35)
    argument = "raw" if method == "from_raw" else "codes"
    if bad:
        where = pen.random.randrange(count)
        text = pen.array([*numbers[:where], pen.pick((low - 1, high + 1, high * 2 + 2)), *numbers[where + 1 :]], shape)
        if pen.now_and_then(0.5):
            odd = ("1.9", "0.5", "nan", "inf", "'1'", "None", "1j", "True", "Fraction(1, 2)", "-0.5", "2**70", "1e300")
            text = pen.pick((*JUNK[:12], *odd, *[f"[{o}]" for o in odd], "np.array([1.0])", "[0.0]", "np.ma.masked"))
            if "True" in text:
                bad = False
        return Case(f"emu.parse({name!r}).{method}", {argument: Text(text, bad)}, method)
    return Case(f"emu.parse({name!r}).{method}", {argument: Text(pen.array(numbers, shape))}, method)


# ---- registers, flags, sources, units' parts -------------------------------------------------------------------------


def _lines() -> list[tuple[str, dict[str, Text]]]:
    """The calls of `lines.txt`."""
    found: list[tuple[str, dict[str, Text]]] = []
    for row in Path(__file__).with_name("lines.txt").read_text(encoding="utf-8").splitlines()[1:]:
        function, *given = row.split(" | ")
        parts = [re.fullmatch(r"(\w+) =(!?) (.*)", part) for part in given]
        found.append((function, {part[1]: Text(part[3], bool(part[2])) for part in parts if part}))
    return found


LINES = _lines()


def line(pen: Pen) -> Case:
    """A line of the table."""
    function, given = pen.pick(LINES)
    return Case(function, dict(given))


def number(pen: Pen) -> Case:
    """`float` and `int` of a value."""
    held = pen.pick(("1.5", "[1.5]", "[[-2.0]]", "[1.5, 2.0]", "[]"))
    kind = pen.pick(("float", "int"))
    return Case(f"(lambda x: {kind}(x))", {"x": Text(f"emu.value({held}, 'fp16')", held in ("[1.5, 2.0]", "[]"))})


def equal_bits(pen: Pen) -> Case:
    name, shape = pen.format(), pen.shape()
    text = pen.operand(name, shape)
    given = {"actual": text, "expected": text if pen.now_and_then(0.7) else pen.operand(name, shape)}
    case = Case("emu.testing.assert_bits_equal", {n: t._replace(bad=False) for n, t in given.items()}, "equal_bits")
    if pen.now_and_then(0.8):
        case.arguments["fmt"] = pen.written_format(name)
        if case.arguments["fmt"].text == "None":
            del case.arguments["fmt"]
    return case


PART_BUILDERS: list[tuple[Callable[[Pen], Case], int]] = [
    (unit, 7), (unit_itself, 3), (format_itself, 5), (coded, 8), (line, 10), (number, 1), (equal_bits, 2),
]  # fmt: skip
