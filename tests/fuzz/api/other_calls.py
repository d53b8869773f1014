"""More calls: units, formats, registers and flags, sources of random bits, sparse matrices, tests' own helpers."""

from __future__ import annotations

import math
from collections.abc import Callable

import emu

from .calls import FUNCTIONS, NO_AXES, NO_PAIRS, OPERATIONS, TOGETHER, Case, add_options
from .draw import INTEGERS_NO, JUNK, NO_FORMATS, Pen, Text

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
        name, text = pen.pick((("rounding", "'bogus'"), ("bogus", "1"), ("out", "'bogus'"), ("mac", "None"), ("flags", "1"),
                               ("overflow", "'wrap'"), ("n_rbits", "99"), ("backend", "'x'"), ("inputs", "3")))  # fmt: skip
        case.function, case.arguments = "emu.Unit('fp16').replace", {name: Text(text, True)}
    return case


# ---- formats ---------------------------------------------------------------------------------------------------------


def format_itself(pen: Pen) -> Case:
    kind = pen.pick(("parse", "Fixed", "Float", "DynamicFixed", "at", "ulp", "codes"))
    if kind == "parse":
        return Case("emu.parse", {"text": pen.written_format(pen.format(), bad=0.7)})
    if kind == "Fixed":
        given = {"width_bits": _number(pen, 1, 64), "frac_bits": _number(pen, -4096, 4096)}
        if pen.now_and_then(0.3):
            given["signed"] = Text(pen.pick(("1", "'no'", "None", "[]")), True)
        return Case("emu.Fixed", given)
    if kind == "Float":
        given = {"exponent_bits": _number(pen, 2, 8), "fraction_bits": _number(pen, 2, 23)}
        for name, texts in (
            ("bias", ("1.5", "'x'", "True", "10**30", "[1]")), ("infinities", ("'no'", "2", "None")), ("ftz", ("'x'", "3")),
            ("nans", ("'bogus'", "None", "3", "['ieee']", "{}")), ("signed", ("'x'", "None", "7")), ("zero", ("'x'", "None")),
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

#: Lines whose arguments are wrong, or odd, and must be answered by a sentence; those marked `True` must be refused.
LINES: tuple[tuple[str, dict[str, tuple[str, bool]]], ...] = (
    ("emu.StatisticsRegister", {"lowest": ("1.5", True)}), ("emu.StatisticsRegister", {"bins": ("0", True)}),
    ("emu.StatisticsRegister", {"bins": ("2**40", True)}), ("emu.StatisticsRegister", {"bins": ("'x'", True)}),
    ("emu.StatisticsRegister", {"lowest": ("True", True)}), ("emu.StatisticsRegister", {"lowest": ("nan", True)}),
    ("emu.StatisticsRegister(0, 4).merge", {"other": ("emu.StatisticsRegister(1, 4)", True)}),
    ("emu.StatisticsRegister(0, 4).merge", {"other": ("None", True)}),
    ("emu.StatisticsRegister(0, 4).merge", {"other": ("{}", True)}),
    ("emu.StatisticsRegister(0, 4).merge", {"other": ("emu.Flags()", True)}),
    ("emu.StatisticsRegister(0, 4).merge", {"other": ("emu.StatisticsRegister(0, 4)", False)}),
    ("emu.StatisticsRegister().merge", {"other": ("emu.StatisticsRegister(0, 4)", False)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("1.5", True)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("-1", True)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("'x'", True)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("0", True)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("None", True)}),
    ("emu.StatisticsRegister(0, 4).saturated", {"counter_bits": ("8", False)}),
    ("emu.StatisticsRegister(0, 4).count_from", {"exponent": ("'x'", True)}),
    ("emu.StatisticsRegister(0, 4).count_from", {"exponent": ("None", True)}),
    ("emu.StatisticsRegister(0, 4).plot", {"fmt": ("'bogus'", True)}),
    ("emu.StatisticsRegister(0, 4).plot", {"fmt": ("3", True)}),
    *(("emu.StatisticsRegister.from_dict", {"data": (text, True)}) for text in (
        "{}", "None", "[]", "'x'", "{'lowest': 0}", "{**emu.StatisticsRegister(0, 4).to_dict(), 'positive': {'9': 1}}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'positive': {'x': 1}}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'positive': None}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'total': 'x'}", "{**emu.StatisticsRegister(0, 4).to_dict(), 'none': 1.5}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'bins': 0}", "{**emu.StatisticsRegister(0, 4).to_dict(), 'total': -1}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'max_exponent': 'x'}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'total': 2**70}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'positive': {'1': 'x'}}",
        "{**emu.StatisticsRegister(0, 4).to_dict(), 'positive': {'1': -3}}",
    )),
    ("emu.StatisticsRegister.from_dict", {"data": ("emu.StatisticsRegister(0, 4).to_dict()", False)}),
    ("emu.StatisticsRegister.from_dict", {"data": ("emu.StatisticsRegister().to_dict()", False)}),
    ("emu.Flags", {"tininess": ("'bogus'", True)}), ("emu.Flags", {"tininess": ("3", True)}),
    ("emu.Flags", {"tininess": ("['before_rounding']", True)}), ("emu.Flags", {"overflow": ("'x'", True)}),
    ("emu.Flags", {"overflow": ("-1", True)}), ("emu.Flags", {"overflow": ("1.5", True)}), ("emu.Flags", {"inexact": ("None", True)}),
    ("emu.Flags().merge", {"other": ("emu.Flags(tininess='before_rounding')", True)}),
    ("emu.Flags().merge", {"other": ("None", True)}), ("emu.Flags().merge", {"other": ("(1, 2)", True)}),
    ("emu.Flags().merge", {"other": ("emu.StatisticsRegister()", True)}), ("emu.Flags().add", {"counts": ("[1]", True)}),
    ("emu.Flags().add", {"counts": ("None", True)}), ("emu.Flags().add", {"counts": ("'abcdefg'", True)}),
    ("emu.Philox", {"seed": ("1.5", True)}), ("emu.Philox", {"seed": ("None", True)}), ("emu.Philox", {"draw": ("-1", True)}),
    ("emu.Philox", {"stream": ("'x'", True)}), ("emu.Philox", {"draw": ("2**40", True)}), ("emu.Philox", {"seed": ("2**70", False)}),
    ("emu.LFSR", {"polynomial": ("0b11001", False), "width": ("4.0", True), "seed": ("1", False)}),
    ("emu.LFSR", {"polynomial": ("0b11001", False), "width": ("4", False), "seed": ("0", True)}),
    ("emu.LFSR", {"polynomial": ("0b1001", False), "width": ("4", True), "seed": ("1", False)}),
    ("emu.LFSR", {"polynomial": ("'x'", True), "width": ("4", False), "seed": ("1", False)}),
    ("emu.LFSR", {"polynomial": ("0b11001", False), "width": ("4", False), "seed": ("1", False), "form": ("'x'", True)}),
    ("emu.LFSR", {"polynomial": ("0b11001", False), "width": ("4", False), "seed": ("1", False), "form": ("[]", True)}),
    ("emu.LFSR", {"polynomial": ("0b11001", False), "width": ("4", False), "seed": ("1", False), "shifts_per_element": ("0", True)}),
    ("emu.LFSR(0b11001, 4, seed=8).advanced", {"shifts": ("-1", True)}),
    ("emu.LFSR(0b11001, 4, seed=8).advanced", {"shifts": ("1.0", True)}),
    ("emu.quantize", {"x": ("[0.5]", False), "fmt": ("'fix8f1'", False), "random": ("emu.RecordedBits('x')", True)}),
    ("emu.quantize", {"x": ("[0.5]", False), "fmt": ("'fix8f0'", False), "rounding": ("'stochastic'", False), "random": ("emu.RecordedBits(None)", True)}),
    ("emu.quantize", {"x": ("[0.5]", False), "fmt": ("'fix8f0'", False), "rounding": ("'stochastic'", False), "random": ("emu.RecordedBits([1, 2])", True)}),
    ("emu.quantize", {"x": ("[]", False), "fmt": ("'fix8f0'", False), "rounding": ("'stochastic'", False), "rbits": ("np.zeros(0)", True)}),
    *(("emu.Mac", {name: (text, True)}) for name, text in (
        ("product", "3"), ("product", "None"), ("accumulator", "'bogus'"), ("accumulator", "[]"), ("order", "3"), ("order", "'lanes(0)'"),
        ("order", "'blocks(4)'"), ("order", "None"), ("rounding", "'x'"), ("rounding", "None"), ("overflow", "3"), ("overflow", "'bogus'"),
        ("accumulator", "'e8m0'"), ("accumulator", "'fix8f?'"), ("order", "'lanes(99999999999999)'"), ("order", "['pairwise']"),
        ("accumulator", "np.array(['fp32'])"), ("product", "np.array(['exact', 'fp32'])"), ("rounding", "['floor']"), ("overflow", "[]"),
    )),
    *(("emu.Mac.preset", {"gpu": (text, True)}) for text in ("'x'", "None", "3", "''", "['h100']", "b'h100'")),
    ("emu.Mac.preset", {"gpu": ("'h100'", False), "inputs": ("'fix8f0'", True)}),
    ("emu.Mac.preset", {"gpu": ("'h100'", False), "inputs": ("3", True)}),
    ("emu.Mac.preset", {"gpu": ("'v100'", False), "output": ("'fp64'", True)}),
    ("emu.Mac.preset", {"gpu": ("'h100'", False), "instruction": ("[]", True)}),
    *(("emu.OutputStage.of", {"fmt": ("'fix8f4'", False), name: (text, True)}) for name, text in (
        ("rounding", "3"), ("rounding", "''"), ("overflow", "'ieee'"), ("overflow", "3"), ("n_rbits", "0"), ("n_rbits", "nan"),
        ("rounding", "None"), ("rounding", "['floor']"), ("overflow", "[]"), ("rounding", "np.array(['floor'])"),
    )),
    ("emu.OutputStage", {"format": ("'fix8f4'", True)}), ("emu.OutputStage", {"format": ("None", True)}),
    ("emu.OutputStage", {"format": ("emu.Fixed(8, 4)", False), "rounding": ("'bogus'", True)}),
    ("emu.OutputStage", {"format": ("emu.Fixed(8, 4)", False), "overflow": ("'ieee'", True)}),
    ("emu.OutputStage", {"format": ("emu.Fixed(8, 4)", False), "n_rbits": ("0", True)}),
    ("emu.Value", {"array": ("np.zeros(2)", False), "format": ("'fix8f4'", True)}),
    ("float", {}), ("emu.device", {"name": ("'bogus'", True)}), ("emu.device", {"name": ("None", True)}), ("emu.device", {"name": ("3", True)}),
    ("emu.model", {"name": ("'bogus'", True)}), ("emu.model", {"name": ("3", True)}), ("emu.device", {"name": ("''", True)}),
    ("emu.explain", {"operation": ("emu.add", True)}), ("emu.explain", {"operation": ("None", True)}), ("emu.explain", {"operation": ("3", True)}),
    *(("emu.nn.initialise", {"name": ("'w'", False), "kind": (kind, bad), "shape": (shape, bad), "fan_in": ("2", False), "fan_out": ("2", False), "seed": ("1", False)})
      for kind, shape, bad in (("'he'", "(2,)", False), ("'bogus'", "(2,)", True), ("None", "(2,)", True), ("[]", "(2,)", True), ("'he'", "(2.5,)", True),
                               ("'he'", "'x'", True), ("'he'", "(-1,)", True), ("'he'", "None", True), ("'xavier'", "(0, 3)", False))),
    ("emu.nn.initialise", {"name": ("'w'", False), "kind": ("'he'", False), "shape": ("(2,)", False), "fan_in": ("0", True), "fan_out": ("0", False), "seed": ("1", False)}),
    ("emu.nn.initialise", {"name": ("'w'", False), "kind": ("'he'", False), "shape": ("(2,)", False), "fan_in": ("'x'", True), "fan_out": ("1", False), "seed": ("1", False)}),
    ("emu.nn.initialise", {"name": ("3", False), "kind": ("'he'", False), "shape": ("(2,)", False), "fan_in": ("2", False), "fan_out": ("1", False), "seed": ("1.5", True)}),
    ("emu.autodiff.Graph(emu.autodiff.PlainRunner()).apply", {"primitive": ("'bogus'", True), "layer": ("'l'", False)}),
    ("emu.autodiff.Graph(emu.autodiff.PlainRunner()).apply", {"primitive": ("None", True), "layer": ("'l'", False)}),
    ("emu.autodiff.Graph(emu.autodiff.PlainRunner()).backward", {"loss": ("emu.autodiff.Tensor(emu.Value(np.ones(1)))", True), "seed": ("emu.Value(np.ones(1))", False)}),
    *(("emu.testing.probe_order", {"product": (p, p != "np.dot"), "k": (k, p == "np.dot")}) for p, k in (
        ("None", "4"), ("np.dot", "0"), ("np.dot", "-1"), ("np.dot", "2.5"), ("np.dot", "'x'"), ("np.dot", "None"), ("3", "4"),
        ("lambda a, b: None", "4"), ("lambda a, b: 'x'", "4"), ("lambda a, b: nan", "4"), ("lambda a, b: 0.0", "4"), ("lambda a, b: [1, 2]", "4"),
        ("lambda a: a", "4"), ("np.dot", "True"), ("lambda a, b: 1j", "4"), ("lambda a, b: np.zeros(3)", "4"),
    )),
    ("emu.testing.probe_order", {"product": ("np.dot", False), "k": ("5", False)}),
    *(("emu.testing.probe_order", {"product": ("np.dot", False), "k": ("4", False), name: (text, True)}) for name, text in (
        ("a_format", "'bogus'"), ("a_format", "None"), ("accumulator", "'x'"), ("shape", "(1,)"), ("shape", "'x'"), ("shape", "(0, 1)"), ("a_format", "'fix1f0'"),
    )),
    *(("emu.testing.order_tree", {"order": (text, k == "4"), "k": (k, k != "4")}) for text, k in (
        ("None", "4"), ("emu.Mac()", "4"), ("'pairwise'", "0"), ("'pairwise'", "2.5"), ("'bogus'", "4"), ("'lanes(2)'", "'x'"), ("3", "-2"),
    )),
    *(("emu.testing.check_backend", {"implementation": (text, True)}) for text in ("None", "3", "'x'", "[]", "{}", "object()")),
)  # fmt: skip


def line(pen: Pen) -> Case:
    """A line of the table."""
    function, given = pen.pick(LINES)
    if function == "float":
        number = pen.pick(
            (
                "emu.value(1.5, 'fp16')",
                "emu.value([1.5], 'fp16')",
                "emu.value([1.5, 2.0], 'fp16')",
                "emu.value([], 'fp16')",
            )
        )
        return Case(
            f"(lambda x: {pen.pick(('float', 'int'))}(x))",
            {"x": Text(number, "[1.5, 2.0]" in number or "[]" in number)},
        )
    return Case(function, {name: Text(text, bad) for name, (text, bad) in given.items()})


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


# ---- sparse matrices -------------------------------------------------------------------------------------------------


def sparse(pen: Pen) -> Case:
    return pen.pick(
        (_of, _from_dense, _from_dense, _from_scipy, _chosen, _product, _product, _product, _compact, _update)
    )(pen)


def _entries(pen: Pen, name: str, rows: int, columns: int) -> tuple[str, str, str]:
    """data, indices and indptr of a sound matrix."""
    indices: list[int] = []
    starts = [0]
    for _ in range(rows):
        indices += sorted(pen.random.sample(range(columns), pen.random.randint(0, columns)))
        starts.append(len(indices))
    data = pen.array(pen.values(name, len(indices)), (len(indices),))
    dtype = pen.pick(("np.int32", "np.int64", "np.int64", "np.uint8", "'>i4'"))
    return data, f"np.array({indices}, {dtype})", f"np.array({starts}, {dtype})"


def _of(pen: Pen) -> Case:
    name, rows, columns = pen.format(), pen.pick((1, 2, 3)), pen.pick((1, 2, 4))
    data, indices, indptr = _entries(pen, name, rows, columns)
    texts = {
        "data": Text(data),
        "indices": Text(indices),
        "indptr": Text(indptr),
        "shape": Text(f"({rows}, {columns})"),
    }
    texts["fmt"] = pen.written_format(name)
    broken = pen.pick(("", "", "", "data", "indices", "indptr", "shape"))
    wrong = {
        "data": ("None", "'x'", "[None]", "[[1.0]]", "[1.0] * 99", "1.0", "[1j] * 2", "np.ma.masked"),
        "indices": ("None", "[0.5]", "[99]", "[-1]", "'x'", "[[0]]", "[2**40]", "[None]", "np.array([True])", "np.array([2**63], np.uint64)"),
        "indptr": ("None", "[0.0, 1.0]", "[]", "[0]", "[0, 99]", "[1, 0]", "[-1, 0]", "'x'", "[[0, 1]]", "[0, 2**63]", "[0, 2**70]"),
        "shape": ("None", "3", "(1,)", "(1, 2, 3)", "(-1, 2)", "(1.5, 2)", "('1', '2')", "(2**70, 1)", "'12'", "(True, True)", "(99, 99)"),
    }  # fmt: skip
    if broken:
        texts[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.CSR.of", texts, "csr", twist="" if broken else "mutate")


def _from_dense(pen: Pen) -> Case:
    name = pen.format(wide=0.3)
    shape = pen.pick(((2, 3), (3, 2), (1, 1), (0, 2), (2, 0), (3, 4))) if pen.now_and_then(0.85) else pen.shape()
    given = {"x": pen.operand(name, shape, junk=0.1), "fmt": pen.written_format(name)}
    return Case("emu.sparse.CSR.from_dense", given, "csr", twist="mutate" if pen.now_and_then(0.5) else "")


def _from_scipy(pen: Pen) -> Case:
    name = pen.pick(("fix8f0", "fix16f8", "fp16", "fp32", "fix60f4", "fix64f0", "fp64"))
    matrix = f"np.array({pen._nested([_small(pen) for _ in range(6)], (2, 3))}, {pen.pick(('np.float64', 'np.float32', 'np.int64', 'np.int8'))})"
    kind = pen.pick(
        (
            "csr_array",
            "csr_matrix",
            "coo_array",
            "csc_array",
            "csr_array",
            "lil_array",
            "bsr_array",
            "dok_array",
            "dia_array",
        )
    )
    text = f"sp.{kind}({matrix})"
    if pen.now_and_then(0.2):
        text = pen.pick(
            (
                f"{text} * 1j",
                "np.eye(2)",
                "None",
                "sp.coo_array(np.array([1, 0, 2]))",
                "emu.sparse.CSR.from_dense([[1.0]], 'fp16')",
                "[[1]]",
                f"{text}.astype(complex)",
            )
        )
        return Case("emu.sparse.CSR.from_scipy", {"x": Text(text, True), "fmt": Text(repr(name))}, "csr")
    given = {"x": Text(text), "fmt": pen.written_format(name)}
    return Case("emu.sparse.CSR.from_scipy", given, "csr", twist="mutate" if pen.now_and_then(0.7) else "")


def _small(pen: Pen) -> str:
    return pen.pick(("0", "0", "1", "2", "-3", "7"))


def _csr(pen: Pen, name: str, rows: int, columns: int) -> str:
    data, indices, indptr = _entries(pen, name, rows, columns)
    wrap = pen.pick(("{}", "{}", "{}", "copy.deepcopy({})", "pickled({})", "copy.copy({})"))
    return wrap.format(f"emu.sparse.CSR.of({data}, {indices}, {indptr}, ({rows}, {columns}), {name!r})")


def _chosen(pen: Pen) -> Case:
    x = _csr(pen, "fix8f0", 3, 4)
    sound = (
        "[0]",
        "[2, 0, 2]",
        "slice(1)",
        "slice(None, None, -1)",
        "[-1]",
        "np.array([True, False, True])",
        "[]",
        "slice(5, 9)",
        "np.array([], int)",
    )
    bad = (
        "3",
        "[3]",
        "[-4]",
        "'x'",
        "None",
        "[0.5]",
        "np.array([1.0])",
        "[[0]]",
        "(0, 1)",
        "[True]",
        "1.5",
        "...",
        "[2**70]",
        "{}",
        "object()",
    )
    is_bad = pen.now_and_then(0.5)
    return Case(f"{x}.__getitem__", {"chosen": Text(pen.pick(bad if is_bad else sound), is_bad)}, free=True)


def _product(pen: Pen) -> Case:
    kind = pen.pick(("matmul", "matmul", "transposed_matmul", "compact_matmul"))
    rows, columns, wide = pen.pick((1, 2, 3)), pen.pick((1, 2, 4)), pen.pick((1, 2, 3))
    name, dense, out = pen.format(), pen.format(), pen.format()
    text = _csr(pen, name, rows, columns)
    x = Text(pen.pick(JUNK[:20]), True) if pen.now_and_then(0.05) else Text(text)
    if x.text.startswith("emu.sparse"):
        x = Text(text)
    argument, height = ("dy", rows) if kind == "transposed_matmul" else ("w", columns)
    shape = (height, wide) if pen.now_and_then(0.9) else pen.shape()
    case = Case(f"emu.sparse.{kind}", {"x": x, argument: pen.operand(dense, shape)}, "sparse")
    case.arguments |= {f"{argument}_format": pen.written_format(dense), "out_format": pen.written_format(out)}
    add_options(pen, case, out, (rows, wide) if kind == "matmul" else None, mac=True)
    if pen.now_and_then(0.06):
        case.twist = "threads" if "out" not in case.arguments and "rbits" not in case.arguments else ""
    return case


def _compact(pen: Pen) -> Case:
    sound = {"rows": "[0, 2]", "values": "np.ones((2, 3), np.float32)", "height": "4", "format": "emu.Fixed(8, 4)"}
    given = {name: Text(text) for name, text in sound.items()}
    wrong = {
        "rows": ("[0, 9]", "[0, 0]", "[1, 0]", "[0.5, 1]", "None", "'x'", "[[0, 1]]", "[0]", "[-1, 2]", "[True, False]", "np.array([0, 2**63], np.uint64)"),
        "values": ("None", "[[1.0, 2.0], [1.0, 2.0]]", "np.ones(2)", "'x'", "np.ones((3, 3))", "np.array([['a'], ['b']])", "np.ones((2, 3), complex)"),
        "height": ("2.5", "None", "'4'", "-1", "0", "nan", "True", "[4]"), "format": ("'fix8f4'", "None", "3", "'bogus'"),
    }  # fmt: skip
    broken = pen.pick(("", *wrong))
    if broken:
        given[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.Compact", given, twist="" if broken else "mutate")


def _update(pen: Pen) -> Case:
    gradient = "emu.sparse.Compact(np.array([0, 2]), np.ones((2, 3), np.float32), 4, emu.Fixed(8, 4))"
    given = {
        "w": Text(pen.pick(("np.ones((4, 3), np.float32)", "np.asfortranarray(np.ones((4, 3), np.float32))", "np.ones((4, 6), np.float32)[:, ::2]"))),
        "gradient": Text(gradient), "rate": Text(pen.pick(("0.5", "1", "np.float32(0.25)"))), "w_format": Text("'fix16f8'"), "update_format": Text("'fix16f8'"),
    }  # fmt: skip
    wrong = {
        "w": ("None", "[[1.0]]", "np.ones((3, 3), np.float32)", "frozen(np.ones((4, 3), np.float32))", "np.ones((4, 3), '>f4')", "np.ones((4, 3), complex)",
              "np.ones((4, 3), object)", "np.full((4, 3), 0.3)", "np.ones((4, 3), np.int64)", "np.ma.array(np.ones((4, 3), np.float32), mask=True)"),
        "gradient": ("None", "np.ones((4, 3))", "'x'", "3"), "rate": ("'x'", "None", "1j", "[0.5]", "nan", "object()", "inf"),
        "w_format": NO_FORMATS[:12], "update_format": NO_FORMATS[:12],
    }  # fmt: skip
    if pen.now_and_then(0.6):
        broken = pen.pick(tuple(wrong))
        given[broken] = Text(pen.pick(wrong[broken]), True)
    return Case("emu.sparse.update_rows", given, "update")


OTHER_BUILDERS: list[tuple[Callable[[Pen], Case], int]] = [
    (unit, 7), (unit_itself, 3), (format_itself, 5), (coded, 8), (line, 10), (equal_bits, 2), (sparse, 12),
]  # fmt: skip
