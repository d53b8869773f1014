"""Draws arguments as Python text: numbers, what holds them, formats, options. The same seed draws the same text.

A `Text` says whether it must be refused wherever it is used. What is drawn of a format is as a rule a value of it; then
every way of holding it must be taken. The judge reads what an object holds itself, so no draw has to be right.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import emu


class Text(NamedTuple):
    """A piece of Python.

    Attributes:
        text: an expression.
        bad: whether every call must refuse it.
    """

    text: str
    bad: bool = False


FORMATS = (
    "fix8f4", "fix16f8", "ufix8f0", "fix8f0", "ufix16f16", "fix4f8", "fix8f-3", "fix1f0", "ufix1f0", "fix24f12",
    "fix32f16", "fp16", "bf16", "tf32", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2", "e4m3fnuz", "p3109_k8p3", "e5m10 ftz",
    "e5m10 daz", "fp32 no-subnormals", "e2m1 finite nans=none", "ue4m3", "e8m0", "e2m0 finite nans=none bias=0",
    "e4m3 bias=-20", "e0m7 finite nans=none", "e11m3", "e3m20",
)  # fmt: skip
WIDE = (
    "fix54f0", "fix55f0", "fix60f4", "fix64f0", "fix64f32", "ufix53f0", "ufix54f0", "ufix60f8", "ufix64f0", "ufix64f64",
    "fix64f-8", "fix48f200", "fix30f-120", "fix62f4000",
)  # fmt: skip
NO_FORMATS = (
    "'fix8f'", "'fix0f0'", "'fix65f0'", "'fix8f99999'", "'e12m3'", "'e5m53'", "''", "' '", "'fp17'", "'bogus'",
    "8", "8.5", "True", "[]", "['fp16']", "b'fp16'", "object()", "float", "np.float32(1)", "'fix8f4 daz'", "'fix16f?'",
    "'e1m0'", "'e5m10 bias=99999'", "'e5m10 nans=bogus'", "'fix-8f4'", "'\\x00'", "'é'", "'f' * 5000",
    "('fix', 8, 4)", "{'width_bits': 8}", "emu.Fixed", "'fix' + '9' * 5000 + 'f0'", "np.array('fp16')",
)  # fmt: skip
#: What no operand may be.
JUNK = (
    "None", "'abc'", "'1.0'", "b'abc'", "[[1, 2], [3]]", "[1, [2, 3]]", "(i for i in range(3))", "{1, 2}", "{'a': 1}",
    "1 + 2j", "np.array([1 + 2j])", "np.array([1 + 0j])", "np.array(['2020'], 'datetime64[D]')",
    "np.array([1], 'timedelta64[s]')", "object()", "np.zeros(2, [('a', 'f4')])", "float", "emu.Fixed(8, 4)",
    "['1.0', '2.0']", "[None, 1.0]", "[1.0, 'x']", "np.array([1, None], object)", "lambda x: x", "np.ma.masked",
    "np.ma.array([1.0, 2.0], mask=[False, True])", "np.ma.array([1.0, 0.5], mask=True)", "emu", "...", "endless()",
    "np.array(['1', '2'])", "np.array([b'1'])", "np.zeros(2, 'V3')", "iter([1.0])", "map(float, [1])", "slice(3)",
    "np.array([[1.0], None], object)", "np.array([Decimal(1), 'x'], object)", "type", "emu.Flags()", "emu.Mac()",
    "sp.csr_array(np.eye(2))", "[[None]]", "[1.0, 2.0 + 1j]", "ArrayLike(['a'])", "np.array([1j], np.complex64)",
    "np.array([object()])", "np.array([0.5, 1j], object)", "emu.sparse.CSR.from_dense([[1.0]], 'fp16')", "{}",
)  # fmt: skip
INTEGERS_NO = ("1.0", "2.5", "'1'", "None", "True", "[1]", "np.float64(1)", "1j", "nan", "Fraction(1)", "np.bool_(1)")
#: dtypes of arrays, tried in a random order until the numbers fit.
DTYPES = (
    "np.float16", "np.float32", "np.float64", "np.longdouble", "np.int8", "np.uint8", "np.int16", "np.uint16",
    "np.int32", "np.uint32", "np.int64", "np.uint64", "bool", "object", "'>f4'", "'>f8'", "'>i4'", "'>u8'", "'<f2'",
)  # fmt: skip
ML_DTYPES = (
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e4m3fnuz", "float8_e8m0fnu", "int4", "uint4",
    "int2", "float4_e2m1fn", "float6_e2m3fn",
)  # fmt: skip
LAYOUTS = (
    "{}", "{}", "{}", "{}[::-1]", "{}[..., ::-1]", "np.asfortranarray({})", "frozen({})", "misaligned({})",
    "spaced({})", "np.asarray({}).T", "ArrayLike({})", "np.ma.array({})",
    "np.array({}, ndmin=2)", "np.broadcast_to({}, np.shape({}))", "list({})", "tuple({})", "copy.deepcopy({})",
    "{}.view(np.recarray)",
)  # fmt: skip
SHAPES = ((), (1,), (3,), (4,), (0,), (2, 3), (3, 2), (2, 0), (0, 2), (2, 1, 3), (1, 1), (2, 2), (5,), (1, 2, 2, 2))
MODES = (
    "nearest_even", "nearest_even", "nearest_even", "floor", "ceil", "toward_zero", "nearest_away", "to_odd",
    "stochastic", "jamming", "nearest_up", "stochastic_nearest_even",
)  # fmt: skip


class Pen:
    """Writes arguments, the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def now_and_then(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    # ---- formats -----------------------------------------------------------------------------------------------------

    def format(self, *, wide: float = 0.2) -> str:
        """The text of a format that is one."""
        return self.pick(WIDE if self.now_and_then(wide) else FORMATS)

    def written_format(self, name: str, *, bad: float = 0.03) -> Text:
        """A format as an argument."""
        if self.now_and_then(bad):
            return Text(self.pick(NO_FORMATS), True)
        return Text(repr(name) if self.now_and_then(0.8) else f"emu.parse({name!r})")

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def values(self, name: str | None, count: int) -> list[Fraction | float]:
        """Numbers of a format: small ones, limits, one beside limits, special ones."""
        if name is None:
            return [self._any_number() for _ in range(count)]
        fmt = emu.parse(name)
        return [self._fixed_value(fmt) if isinstance(fmt, emu.Fixed) else self._float_value(fmt) for _ in range(count)]

    def _any_number(self) -> Fraction | float:
        small = [Fraction(n, 8) for n in range(-40, 41)]
        edges = [
            *(Fraction(2) ** n + d for n in (24, 53, 63) for d in (-1, 0, 1)), -(Fraction(2) ** 63),
            Fraction(2) ** -149,
            Fraction(2) ** -1074, Fraction(2) ** 1023, math.inf, -math.inf, math.nan, -0.0, Fraction(70000),
            Fraction(0.1), Fraction(2) ** 64 - 1,
        ]  # fmt: skip
        return self.pick(edges if self.now_and_then(0.15) else small)

    def _fixed_value(self, fmt: Any) -> Fraction | float:
        low, high = fmt.min_raw, fmt.max_raw
        if self.now_and_then(0.25):
            raw = self.pick([low, high, min(low + 1, high), max(high - 1, low)])
        elif self.now_and_then(0.2):
            raw = self.random.randint(low, high)
        else:
            raw = self.random.randint(max(low, -60), min(high, 60))
            scale = max(min(fmt.frac_bits, (fmt.width_bits - 8)), 0)
            if scale and self.now_and_then(0.6) and low <= raw << scale <= high:
                raw <<= scale
        return Fraction(raw) / Fraction(2) ** fmt.frac_bits

    def _float_value(self, fmt: Any) -> Fraction | float:
        if self.now_and_then(0.12):
            specials: list[float] = [math.nan] * (fmt.nans != "none") + [-0.0] * fmt.signed
            specials += [math.inf, -math.inf][: fmt.infinities * (1 + fmt.signed)]
            if specials:
                return self.pick(specials)
        top = fmt.max_code
        near_one = min(max((fmt.bias << fmt.fraction_bits) - 3 + self.random.randrange(9), 0), top)
        code = self.pick([0, 1, top, max(top - 1, 0), near_one, near_one, near_one, self.random.randint(0, top)])
        index = code + fmt.lowest_index
        field, fraction = divmod(index, 1 << fmt.fraction_bits)
        significand = fraction + (1 << fmt.fraction_bits) * (field > 0)
        value = Fraction(significand) * Fraction(2) ** (max(field, 1) + fmt.emin - 1 - fmt.fraction_bits)
        return -value if fmt.signed and value and self.now_and_then(0.5) else value

    def number(self, value: Fraction | float) -> str:
        """A number as Python writes it, in one of its ways."""
        if isinstance(value, float):
            return repr(value)
        ways: list[str] = []
        if value.denominator == 1:
            ways += [str(value.numerator)] if abs(value.numerator) < 10**40 else [f"int({float_text(value)})"]
        if is_float(value):
            ways.append(repr(float(value)))
            ways.append(repr(float(value)))
        if not ways or self.now_and_then(0.04):
            n, d = value.numerator, value.denominator
            exact = f"Fraction({n}, {d})" if d < 10**30 else f"Fraction({n}, 2**{d.bit_length() - 1})"
            ways = [exact]
        return self.pick(ways)

    # ---- arrays ------------------------------------------------------------------------------------------------------

    def shape(self, ndim: int | None = None) -> tuple[int, ...]:
        if ndim is not None:
            return tuple(self.pick((1, 2, 2, 3, 3, 4, 0) if self.now_and_then(0.3) else (1, 2, 3)) for _ in range(ndim))
        return self.pick(SHAPES)

    def operand(self, name: str | None, shape: tuple[int, ...] | None = None, *, junk: float = 0.06) -> Text:
        """What a call takes as an operand: values of a format, somehow held; now and then something else."""
        if self.now_and_then(junk):
            return Text(self.pick(JUNK), True)
        shape = self.shape() if shape is None else shape
        source = name if not self.now_and_then(0.05) else self.format()  # now and then another format's values
        text = self.array(self.values(source, math.prod(shape)), shape)
        if name is not None and source == name and self.now_and_then(0.12):
            text = f"emu.value({text}, {name!r})"
            wrap = self.pick(("{}", "{}", "copy.deepcopy({})", "pickled({})", "copy.copy({})"))
            text = wrap.format(text)
        return Text(text)

    def array(self, values: list[Fraction | float], shape: tuple[int, ...]) -> str:
        """An expression whose object holds these numbers, or nearly: NumPy may round them before emu sees them."""
        nested = self._nested([self.number(v) for v in values], shape)
        way = self.random.random()
        if (way < 0.25 and math.prod(shape)) or way < 0.1:
            return nested
        if way < 0.32 and (fitting := [m for m in ML_DTYPES if all(_ml_holds(m, v) for v in values)]):
            text = f"np.array({nested}, ml_dtypes.{self.pick(fitting)})"
        else:
            dtypes = [d for d in DTYPES if all(_holds(d, v) for v in values)] or ["object"]
            typed = [d for d in dtypes if d != "object"]
            dtype = self.pick(DTYPES) if self.now_and_then(0.03) and not _odd(values) else self.pick(typed or dtypes)
            if dtype == "np.longdouble" or "f" not in dtype:  # NumPy reads integers from text of floats badly
                nested = self._nested([_whole(v) for v in values], shape)
            text = f"np.array({nested}, {dtype})"
        if not math.prod(shape):
            text += f".reshape({shape})"
        layout = self.pick(LAYOUTS)
        if not shape and layout in ("{}[::-1]", "list({})", "tuple({})", "{}[..., ::-1]"):
            layout = "{}"
        return layout.format(*[text] * layout.count("{}"))

    def _nested(self, texts: list[str], shape: tuple[int, ...]) -> str:
        if not shape:
            return texts[0]
        if len(shape) == 1:
            return f"[{', '.join(texts)}]"
        step = len(texts) // shape[0] if shape[0] else 0
        return (
            "[" + ", ".join(self._nested(texts[i * step : i * step + step], shape[1:]) for i in range(shape[0])) + "]"
        )

    def integer(self, low: int, high: int, *, bad: float = 0.1) -> Text:
        """An integer in a range, or what is none."""
        if self.now_and_then(bad):
            return Text(self.pick(INTEGERS_NO), True)
        n = self.random.randint(low, high)
        return Text(str(n) if self.now_and_then(0.8) else f"np.int64({n})")


def is_float(value: Fraction) -> bool:
    """Whether a rational is a float64."""
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def float_text(value: Fraction) -> str:
    return f"2**{value.numerator.bit_length() - 1}"


def _whole(value: Fraction | float) -> str:
    if isinstance(value, float):
        return repr(value)
    if value.denominator == 1:
        return str(value.numerator)
    return repr(float(value)) if is_float(value) else f"Fraction({value.numerator}, {value.denominator})"


def _odd(values: list[Fraction | float]) -> bool:
    """Whether NumPy would refuse to convert some of the numbers."""
    return any(isinstance(v, float) or not is_float(v) or abs(v) > 100 or v < 0 or v.denominator > 1 for v in values)


def _holds(dtype: str, value: Fraction | float) -> bool:
    """Whether a dtype of NumPy holds a number exactly."""
    kind = np.dtype(eval(dtype, {"np": np}))
    if kind.kind == "O":
        return True
    if isinstance(value, float):
        return kind.kind == "f"
    if kind.kind in "iu":
        return value.denominator == 1 and np.iinfo(kind).min <= value <= np.iinfo(kind).max
    if kind.kind == "b":
        return value in (0, 1)
    if not is_float(value):
        return False
    with np.errstate(all="ignore"):
        near = kind.type(float(value))
        return bool(np.isfinite(near)) and Fraction(*near.as_integer_ratio()) == value


def _ml_holds(name: str, value: Fraction | float) -> bool:
    """Whether a dtype of ml_dtypes holds a number exactly."""
    import ml_dtypes

    if isinstance(value, float):
        return name == "bfloat16"
    if not is_float(value) or (name.startswith(("int", "uint")) and value.denominator > 1):
        return False
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1)}.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        return False
    with np.errstate(all="ignore"):
        near = float(np.array(float(value)).astype(getattr(ml_dtypes, name)))
        return math.isfinite(near) and Fraction(near) == value
