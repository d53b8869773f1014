"""The public calls that are drawn: each is a line of Python, its arguments by name.

A builder draws the arguments of a call. `Case.bad` says that an argument must be refused whatever the others are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import emu

from .draw import MODES, Pen, Text

#: Operands of the elementwise operations.
OPERATIONS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "remainder": 2}
FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "erf", "gelu", "rsqrt")
#: Shapes that broadcast together.
TOGETHER = (
    ((3,), (3,)), ((2, 3), (3,)), ((2, 3), ()), ((), ()), ((1,), (4,)), ((2, 1), (1, 3)), ((0,), (1,)), ((0, 3), (3,)),
    ((2, 2), (2, 2)), ((5,), ()), ((2, 3), (2, 3)),
)  # fmt: skip


@dataclass
class Case:
    """A call.

    Attributes:
        function: what is called.
        arguments: by name.
        judge: who knows what must come out; "" nobody.
        setup: assignments before the call.
        twist: what is done beside it: "", "threads", "mutate".
        free: whether Python's own errors are allowed, as of `x[...]`.
    """

    function: str
    arguments: dict[str, Text] = field(default_factory=dict[str, Text])
    judge: str = ""
    setup: dict[str, str] = field(default_factory=dict[str, str])
    twist: str = ""
    free: bool = False

    @property
    def bad(self) -> bool:
        return any(text.bad for text in self.arguments.values())

    @property
    def line(self) -> str:
        """The call, to be pasted."""
        setup = "".join(f"{name} = {text}; " for name, text in self.setup.items())
        return f"{setup}{self.function}({', '.join(f'{name}={text.text}' for name, text in self.arguments.items())})"


# ---- options ---------------------------------------------------------------------------------------------------------

BAD_OPTIONS = {
    "rounding": ("'nearest'", "0", "['floor']", "b'floor'", "'FLOOR '", "np.float64(1)", "''", "{}"),
    "overflow": ("'bogus'", "0", "['wrap']", "True", "''", "np.array(['wrap'])", "emu.Flags()"),
    "n_rbits": ("0", "33", "-1", "8.0", "'8'", "None", "True", "[8]", "2**70"),
    "random": ("0", "'philox'", "np.random.default_rng(1)", "[]", "emu.Philox"),
    "register": ("0", "emu.StatisticsRegister", "[]", "{}", "emu.Flags()"),
    "flags": ("0", "emu.Flags", "[]", "True", "emu.StatisticsRegister()"),
    "seed": ("1.5", "'1'", "None", "[1]", "np.float64(2)", "1j"),
    "stream": ("0.5", "'a'", "None"),
    "step": ("0.5", "'a'", "None", "nan"),
    "backend": ("'bogus'", "None", "0", "['numba']", "''", "'NUMBA'"),
    "roundin": ("'floor'",),
}
SOUND_OPTIONS = {
    "n_rbits": ("8", "1", "32", "np.int64(8)"),
    "random": ("emu.Philox(3)", "emu.LFSR(0b11001, 4, seed=8)", "None"),
    "register": ("emu.StatisticsRegister()", "emu.StatisticsRegister(-4, 8)", "copy.copy(emu.StatisticsRegister())"),
    "flags": ("emu.Flags()", "emu.Flags(tininess='before_rounding')", "pickled(emu.Flags())"),
    "seed": ("1", "-1", "2**64", "np.int64(3)", "np.uint64(2**63)"),
    "stream": ("1", "2**32"),
    "step": ("7",),
}  # fmt: skip


def add_options(pen: Pen, case: Case, out_format: str, shape: tuple[int, ...] | None, *, mac: bool = False) -> None:
    """Now and then options, sound or not."""
    given = case.arguments
    is_fixed = isinstance(emu.parse(out_format), emu.Fixed)
    if pen.now_and_then(0.45):
        given["rounding"] = Text(repr(pen.pick(MODES)))
    if pen.now_and_then(0.2):
        rules = ("saturate", "wrap", "saturate_zero", "saturate_symmetric") if is_fixed else ("ieee", "satfinite")
        given["overflow"] = Text(repr(pen.pick(rules)))
    for name in ("register", "flags"):
        if pen.now_and_then(0.3):
            given[name] = Text(pen.pick(SOUND_OPTIONS[name]))
    if pen.now_and_then(0.1):
        name = pen.pick(("n_rbits", "random", "seed", "stream", "step"))
        given[name] = Text(pen.pick(SOUND_OPTIONS[name]))
    if pen.now_and_then(0.05):
        name = pen.pick(tuple(BAD_OPTIONS))
        given[name] = Text(pen.pick(BAD_OPTIONS[name]), True)
    if mac and pen.now_and_then(0.15):
        given["mac"] = _mac(pen)
    if shape is not None and pen.now_and_then(0.1):
        given["out"] = out_array(pen, out_format, shape)
    if shape is not None and pen.now_and_then(0.06) and not {"random", "seed", "stream", "step"} & given.keys():
        given["rbits"] = _rbits(pen, shape)


def out_array(pen: Pen, out_format: str, shape: tuple[int, ...]) -> Text:
    """Where to write: as it should be, or not."""
    dtype = f"np.{emu.parse(out_format).carrier.name}"
    sound = (
        f"np.zeros({shape}, {dtype})", f"np.zeros({shape}, {dtype}, order='F')",
        f"misaligned(np.zeros({shape}, {dtype}))",
        f"spaced(np.zeros({shape}, {dtype}))",
        f"np.zeros({shape}, {dtype})[::-1]" if shape else f"np.zeros((), {dtype})",
    )  # fmt: skip
    wrong = (
        f"np.zeros({(*shape, 2)}, {dtype})", f"np.zeros({shape}, np.complex64)", f"frozen(np.zeros({shape}, {dtype}))",
        f"np.zeros({shape}, {dtype}).tolist()", f"np.zeros({shape}, {dtype}).astype(np.dtype({dtype}).newbyteorder())",
        f"np.zeros({shape}, object)", "'x'", "0.0", "np.float32(0)" if shape else "np.zeros(1)",
        f"emu.value(np.zeros({shape}), 'fix8f4')", f"np.ma.array(np.zeros({shape}, {dtype}), mask=True)",
        f"np.broadcast_to(np.zeros((), {dtype}), {shape})" if math.prod(shape) > 1 else "np.zeros((7, 7))",
    )  # fmt: skip
    return Text(pen.pick(sound)) if pen.now_and_then(0.6) else Text(pen.pick(wrong), True)


def _rbits(pen: Pen, shape: tuple[int, ...]) -> Text:
    if pen.now_and_then(0.5):
        return Text(
            f"np.full({shape}, {pen.random.randrange(2**20)}, {pen.pick(('np.uint32', 'np.int64', 'np.uint64'))})"
        )
    wrong = (
        f"np.full({shape}, 0.5)", f"np.full({(*shape, 2)}, 1)",
        f"np.full({shape}, 2**33)" if math.prod(shape) else "[1, 2, 3, 4, 5, 6, 7]",
        "'x'", "object()", f"np.full({shape}, None)", f"np.zeros({shape}, complex)",
        f"np.full({shape}, -1)" if math.prod(shape) else "1.5",
    )  # fmt: skip
    return Text(pen.pick(wrong), math.prod(shape) > 0)


def _mac(pen: Pen) -> Text:
    bad = ("None", "'fp32'", "emu.Mac", "0", "{}", "('fp32',)")
    sound = (
        "emu.Mac()", "emu.Mac(accumulator='fp32')", "emu.Mac(accumulator='fix48f16')", "emu.Mac('fp32', 'fp32')",
        "emu.Mac(accumulator='fp32', order='pairwise')", "emu.Mac(accumulator='fix64f8', overflow='wrap')",
        "copy.deepcopy(emu.Mac(accumulator='fp16'))", "pickled(emu.Mac(accumulator='fp32', order='lanes(2)'))",
    )  # fmt: skip
    return Text(pen.pick(bad), True) if pen.now_and_then(0.2) else Text(pen.pick(sound))


# ---- values and elementwise arithmetic -------------------------------------------------------------------------------


def value(pen: Pen) -> Case:
    name = pen.format(wide=0.35)
    given = {"array": pen.operand(name, junk=0.1), "fmt": pen.written_format(name)}
    return Case("emu.value", given, "value", twist="mutate" if pen.now_and_then(0.3) else "")


def quantize(pen: Pen) -> Case:
    name, source = pen.format(), pen.format() if pen.now_and_then(0.3) else None
    shape = pen.shape()
    case = Case("emu.quantize", {"x": pen.operand(source, shape), "fmt": pen.written_format(name)}, "quantize")
    if source is not None:
        case.arguments["x_format"] = pen.written_format(source)
    add_options(pen, case, name, shape)
    if pen.now_and_then(0.05):
        dtype = pen.pick(
            ("np.int8", "np.int16", "np.int32", "np.int64", "np.uint8", "np.uint16", "np.uint64", "np.uint32")
        )
        case.arguments["out"] = Text(f"np.zeros({shape}, {dtype})")
    return _twisted(pen, case)


def elementwise(pen: Pen) -> Case:
    operation, out = pen.pick(tuple(OPERATIONS)), pen.format()
    count, shapes = OPERATIONS[operation], list(pen.pick(TOGETHER))
    if pen.now_and_then(0.05):
        shapes = [pen.shape(), pen.shape()]
    case = Case(f"emu.{operation}", judge="elementwise")
    shapes = [*shapes, shapes[0]][:count]
    for name, shape in zip("abc", shapes, strict=False):
        source = pen.format() if pen.now_and_then(0.6) else None
        case.arguments[name] = pen.operand(source, shape)
        if source is not None:
            case.arguments[f"{name}_format"] = pen.written_format(source)
    case.arguments["out_format"] = pen.written_format(out)
    add_options(pen, case, out, _together(shapes))
    return _twisted(pen, case)


def round_to_integral(pen: Pen) -> Case:
    source, out, shape = pen.format(), pen.format(), pen.shape()
    given = {"a": pen.operand(source, shape), "a_format": pen.written_format(source)}
    case = Case("emu.round_to_integral", {**given, "out_format": pen.written_format(out)})
    add_options(pen, case, out, shape)
    return _twisted(pen, case)


def compare(pen: Pen) -> Case:
    case = Case("emu.compare", judge="compare")
    for name, shape in zip("ab", pen.pick(TOGETHER), strict=True):
        source = pen.format() if pen.now_and_then(0.6) else None
        case.arguments[name] = pen.operand(source, shape)
        if source is not None:
            case.arguments[f"{name}_format"] = pen.written_format(source)
    return case


def overlapping(pen: Pen) -> Case:
    """A result written over its own operand."""
    view = pen.pick(("m[:4]", "m[1:5]", "m[3::-1]", "m[4:0:-1]", "m[:8:2]", "m[1:9:2]"))
    case = Case("emu.add", setup={"m": "np.arange(9, dtype=np.float32)"}, judge="elementwise")
    texts = {"a": "m[:4]", "b": "m[2:6]", "out_format": repr(pen.pick(("fix8f2", "fp16", "fp32"))), "out": view}
    case.arguments = {name: Text(text) for name, text in texts.items()}
    if pen.now_and_then(0.5):
        case.function = "emu.quantize"
        case.judge = "quantize"
        texts = {"x": "m[:4]", "fmt": texts["out_format"], "out": view}
        case.arguments = {name: Text(text) for name, text in texts.items()}
    return case


def _together(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _twisted(pen: Pen, case: Case) -> Case:
    if pen.now_and_then(0.06) and not {"out", "rbits"} & case.arguments.keys():
        case.twist = "threads"
    if pen.now_and_then(0.02):
        case.arguments["check"] = Text("False")
    return case


# ---- products and sums -----------------------------------------------------------------------------------------------


def matmul(pen: Pen) -> Case:
    formats = [pen.format(), pen.format()]
    m, k, n = (pen.pick((1, 2, 3, 4, 0) if pen.now_and_then(0.2) else (1, 2, 3)) for _ in range(3))
    shapes = pen.pick((((m, k), (k, n)), ((m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((k,), (k,)),
                       ((2, m, k), (k, n)),
                       ((2, m, k), (2, k, n)), ((2, 1, m, k), (3, k, n))))  # fmt: skip
    if pen.now_and_then(0.06):
        shapes = (pen.shape(), pen.shape())
    out = pen.format()
    case = Case("emu.matmul", judge="matmul")
    for name, fmt, shape in zip("ab", formats, shapes, strict=True):
        case.arguments[name] = pen.operand(fmt, shape)
        case.arguments[f"{name}_format"] = pen.written_format(fmt)
    case.arguments["out_format"] = pen.written_format(out)
    if pen.now_and_then(0.2):
        fmt = pen.format()
        case.arguments["addend"] = pen.operand(fmt, pen.pick(((), (n,), (m, n), (1, n), (m, 1), (n + 1,))))
        if case.arguments["addend"].text == "None":
            case.arguments["addend"] = Text("[]", False)
        case.arguments["addend_format"] = pen.written_format(fmt)
    try:
        shape = np.matmul(np.zeros(shapes[0]), np.zeros(shapes[1])).shape
    except ValueError:
        shape = None
    add_options(pen, case, out, shape, mac=True)
    return _twisted(pen, case)


PAIRS = ("(1, 1)", "(2, 1)", "(1, 2)", "[1, 1]", "np.array([2, 2])", "(np.int64(1), 2)")
PADDINGS = ("(0, 0)", "(1, 0)", "(1, 2)", "[0, 1]", "(np.int32(1), 1)")
NO_PAIRS = (
    "(1.0, 1.0)", "1.5", "(1, 1, 1)", "(0.5, 1)", "('1', '1')", "None", "(True, True)", "(-1, 1)", "{}", "(1j, 1)",
    "((1, 1), 1)",
    "(None, 1)", "(nan, 1)", "'11'", "(2**70, -2**70)", "np.array([1.0, 1.0])", "[[1, 1]]", "(np.float32(1), 1)",
)  # fmt: skip


def conv2d(pen: Pen) -> Case:
    formats = [pen.format(wide=0.1), pen.format(wide=0.1), pen.format(wide=0.1)]
    n, c, h, w, o = (pen.pick((1, 2)), pen.pick((1, 2)), pen.pick((2, 3, 4)), pen.pick((2, 3)), pen.pick((1, 2)))
    kernel = (o, c, pen.pick((1, 2)), pen.pick((1, 2)))
    if pen.now_and_then(0.06):
        kernel = pen.pick(((o, c + 1, 1, 1), (o, c, 9, 1), (o, c), (0, c, 1, 1), (o, c, 0, 1)))
    out = pen.format()
    case = Case("emu.conv2d", judge="conv2d")
    for name, fmt, shape in zip("xw", formats, ((n, c, h, w), kernel), strict=False):
        case.arguments[name] = pen.operand(fmt, shape)
        case.arguments[f"{name}_format"] = pen.written_format(fmt)
    case.arguments["out_format"] = pen.written_format(out)
    for name, sound in (("stride", PAIRS), ("padding", PADDINGS)):
        if pen.now_and_then(0.4):
            case.arguments[name] = Text(pen.pick(NO_PAIRS), True) if pen.now_and_then(0.3) else Text(pen.pick(sound))
    if pen.now_and_then(0.15):
        case.arguments["bias"] = pen.operand(formats[2], (kernel[0],), junk=0)
        case.arguments["bias_format"] = pen.written_format(formats[2])
    add_options(pen, case, out, None, mac=True)
    return _twisted(pen, case)


NO_AXES = (
    "0.0", "'0'", "True", "0.7", "[0.5]", "(0, 0)", "7", "-9", "(0, 7)", "1j", "np.array([0.5])", "2**70",
    "(True,)", "np.float64(0)", "('0',)", "object()", "slice(1)", "nan",
)  # fmt: skip


def total(pen: Pen) -> Case:
    operation = pen.pick(("total", "average"))
    fmt, out = pen.format(), pen.format()
    shape = pen.pick(((3,), (2, 3), (2, 1, 3), (4,), (0, 2), (2, 0), (1,), (2, 2, 2), ()))
    case = Case(f"emu.engine.{operation}", {"x": pen.operand(fmt, shape), "x_format": pen.written_format(fmt)}, "total")
    case.arguments["out_format"] = pen.written_format(out)
    if pen.now_and_then(0.25):
        case.arguments["axis"] = Text(pen.pick(NO_AXES), True)
    elif operation == "average" or pen.now_and_then(0.7):
        axes = [str(a) for a in range(-len(shape), len(shape))] + [f"np.int64({len(shape) - 1})"] * bool(shape)
        axes += ["(0, 1)", "(-1, 0)"] * (len(shape) > 1) + ["()"]
        case.arguments["axis"] = Text(pen.pick(axes))
    add_options(pen, case, out, None, mac=True)
    return _twisted(pen, case)


# ---- functions and selections ----------------------------------------------------------------------------------------


def function(pen: Pen) -> Case:
    fmt, out, shape = pen.format(wide=0.05), pen.format(wide=0.05), pen.shape()
    given = {"x": pen.operand(fmt, shape), "x_format": pen.written_format(fmt), "out_format": pen.written_format(out)}
    case = Case(f"emu.{pen.pick(FUNCTIONS)}", given, "function")
    if pen.now_and_then(0.3):
        del case.arguments["x_format"]
    if pen.now_and_then(0.2):
        case.function = "emu.engine.function"
        name = (
            repr(pen.pick(FUNCTIONS))
            if pen.now_and_then(0.7)
            else pen.pick(("'sin'", "None", "3", "['exp']", "''", "b'exp'"))
        )
        case.arguments = {"name": Text(name, name[1:-1] not in FUNCTIONS), **case.arguments}
    add_options(pen, case, out, shape)
    return _twisted(pen, case)


def selection(pen: Pen) -> Case:
    name = pen.pick(("relu", "relu", "relu_gradient", "max_pool", "max_pool", "unpool"))
    shape = pen.pick(((3,), (2, 3), (2, 2, 2), (0,), (2, 0), (1,), (3, 4)))
    first = pen.operand(None, shape)
    if name == "relu":
        return Case("emu.relu", {"x": first}, "relu")
    if name == "relu_gradient":
        second = pen.operand(None, shape if pen.now_and_then(0.85) else pen.shape())
        return Case("emu.engine.relu_gradient", {"g": first, "x": second})
    if name == "max_pool":
        return Case("emu.engine.max_pool", {"windows": first}, "max_pool")
    index = pen.pick(("[0, 1]", "[3, 3]", "np.array([0, 2], np.uint8)", "[4, 0]", "[-1, 0]", "[0.5, 1]", "[2**40, 0]",
                      "[0]",
                      "['0', '1']", "None", "[True, False]", "[0.0, 1.0]", "np.array([0, 2], np.uint64)"))  # fmt: skip
    index_is_bad = index not in (
        "[0, 1]",
        "[3, 3]",
        "np.array([0, 2], np.uint8)",
        "np.array([0, 2], np.uint64)",
        "[True, False]",
    )
    windows = "emu.engine.sliding.windows_of(np.zeros((1, 1, 2, 4)), 2, 2)"
    values = pen.operand(None, (1, 2) if pen.now_and_then(0.8) else pen.shape())
    text = index if index in ("None",) else f"[{index}]" if index.startswith("[") else f"{index}[None]"
    return Case("emu.engine.unpool", {"values": values, "index": Text(text, index_is_bad), "windows": Text(windows)})


BUILDERS: list[tuple[Callable[[Pen], Case], int]] = [
    (value, 12), (quantize, 14), (elementwise, 16), (round_to_integral, 2), (compare, 3), (overlapping, 1),
    (matmul, 10),
    (conv2d, 4), (total, 7), (function, 4), (selection, 4),
]  # fmt: skip
