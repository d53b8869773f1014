"""A unit of a datapath: described once, used for many operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np

from emu._drawn import Drawn
from emu.backends.arrays import on_host
from emu.datapath import (
    Flags,
    Mac,
    OutputStage,
    Overflow,
    RandomSource,
    Requantiser,
    Rounding,
    StatisticsRegister,
)
from emu.datapath.stage import require_placed
from emu.engine.advice import plan_of
from emu.engine.convolution import patches_and_kernels
from emu.engine.description import EXACT, UNIT_OPTIONS, UnitDescription, UnitOptions
from emu.engine.elementwise import require_operands, write_elementwise
from emu.engine.functions import carrier_of_function, write_function
from emu.engine.integer_products import matrices_of_integers
from emu.engine.operands import as_operand, in_format
from emu.engine.planner import Plan
from emu.engine.products import (
    as_addend_operand,
    matrices_of,
    plan_of_scaled,
    write_product,
    write_scaled_matrices,
    write_scaled_product,
)
from emu.engine.quantize import write_quantized
from emu.engine.reductions import write_total
from emu.engine.scaled import scaled_or, unit_of_elements
from emu.engine.scaled_output import WRAPPING, ScaledOutput, integer_product, scaled_output
from emu.engine.scaled_products import integer_patches, scaled_matrices, scaled_patches
from emu.engine.sliding import Padding, Slides, Sliding
from emu.errors import FormatError, nearest_name
from emu.formats import Format, Scaled, ScaledValue, Value, parse, parse_number
from emu.formats.notations import NO_MODES
from emu.formats.parse import modes_of
from emu.formats.value import made_value

#: A unit is frozen; its constructors set attributes past its own `__setattr__`.
_put = object.__setattr__
#: What a unit is described by, as `emu.Unit` takes it.
DESCRIPTION = {"out", "inputs", "axis", "requantise", "scale", "zero", *UNIT_OPTIONS}


class Unit(Drawn):
    """A unit of a datapath, described once. All its operations write through the same output stage.

    Every operation takes values (`emu.value`) or plain arrays, and returns a value in the format written, of a scaled
    format a `ScaledValue`. A plain array is in the format `inputs`; without that, elementwise operations take floats
    and integers at their exact values. A unit is frozen; `replace` returns another one.

    Args:
        out: format written.
        inputs: format of operands that are plain arrays.
        axis: of scaled formats: the axis along which blocks lie in every result; None is the last.
        requantise: of integers with a scale: how sums of their products become elements, as `emu.Requantiser` names it;
            or such a requantiser.
        scale: of the results of a unit that requantises.
        zero: their zero point; None is 0.
        **options: `mac`, `rounding`, `overflow`, `n_rbits`, `random`, `register`, `flags`, `backend`, as
            `emu.engine.UnitOptions` says. Every operation draws random bits from the source's beginning; for other bits
            give another stream or step.

    Raises:
        TypeError: no such option; names the nearest one.
        FormatError: an impossible format, mode, rule, source, Mac, register or flags.
        BackendUnavailable: the backend cannot compute here.

    Examples:
        >>> import emu
        >>> unit = emu.Unit("fix8f4", inputs="fix8f4", flags=emu.Flags())
        >>> unit.matmul([[0.5, -1.0]], [[0.25], [7.0]])
        Value([[-6.875]], 'fix8f4')
        >>> unit.add(7.0, 7.0).item(), unit.flags.overflow
        (7.9375, 1)

    Source: docs/concepts/units.md, "A unit".
    """

    __slots__ = ("_description", "_operating", "_output", "inputs")

    inputs: Format | None
    _description: UnitDescription
    #: The description by which operations compute; of a scaled format they write binary32, which becomes blocks.
    _operating: UnitDescription
    _output: ScaledOutput | None

    def __init__(
        self,
        out: str | Format | Scaled,
        *,
        inputs: str | Format | None = None,
        axis: int | None = None,
        requantise: str | Requantiser | None = None,
        scale: Any = None,
        zero: Any = None,
        **options: Unpack[UnitOptions],
    ) -> None:
        _put(self, "inputs", None if inputs is None else require_placed(parse_number(inputs)))
        out = scaled_or(out)
        if isinstance(out, Scaled):
            output = scaled_output(out, axis, requantise, scale, zero)
            if output.requantiser is not None:
                options = _of_requantiser(options)
            # this one writes elements, and has the caller's register and flags; the other one computes
            description = unit_of_elements(out, options, "Unit", UNIT_OPTIONS)[0]
            self._set(description, output.of_operations(description), output)
            return
        given = {"axis": axis, "requantise": requantise, "scale": scale, "zero": zero}
        if names := [name for name, part in given.items() if part is not None]:
            raise FormatError(
                f"`{names[0]}` must be left out for a format whose elements share no scales, got {out}; name a scaled "
                "format, as mxfp8_e4m3 or uint8_affine"
            )
        description = UnitDescription.of(out, **options)
        self._set(description, description, None)

    def _set(self, description: UnitDescription, operating: UnitDescription, output: ScaledOutput | None) -> None:
        _put(self, "_description", description)
        _put(self, "_operating", operating)
        _put(self, "_output", output)

    @property
    def _requantiser(self) -> Requantiser | None:
        """What makes elements of integer sums, of a unit that requantises."""
        return None if self._output is None else self._output.requantiser

    @property
    def _written(self) -> Format | Scaled:
        """The format of results."""
        return self.stage.format if self._output is None else self._output.format

    @classmethod
    def of(cls, description: UnitDescription, inputs: Format | None = None) -> Self:
        """Return the unit of a description."""
        # past the constructor: the description is complete, and nothing is to be parsed again
        unit = object.__new__(cls)
        unit._set(description, description, None)
        _put(unit, "inputs", inputs)
        return unit

    @property
    def description(self) -> UnitDescription:
        """The unit's description, as operations read it."""
        return self._description

    @property
    def stage(self) -> OutputStage:
        """Format, rounding mode and overflow rule of what is written."""
        return self._description.stage

    @property
    def mac(self) -> Mac:
        """Product and accumulator formats, order, rounding of each add."""
        return self._description.mac

    @property
    def random(self) -> RandomSource:
        """Where random bits come from."""
        return self._description.random

    @property
    def register(self) -> StatisticsRegister | None:
        """The register that observes every exact result before it is rounded."""
        return self._description.register

    @property
    def flags(self) -> Flags | None:
        """The flags that count the events of every written element."""
        return self._description.flags

    @property
    def backend(self) -> str:
        """The backend that computes."""
        return self._description.backend

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"a unit is frozen, so `{name}` stays; make another one with unit.replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def replace(self, **changes: Any) -> Self:
        """Return the unit with another part of its description: `unit.replace(rounding="floor")`.

        A text as `out` that implies modes, as `ap_fixed<16,8>`, brings them in place of the unit's.

        Raises:
            TypeError: a unit has no such part; names the nearest one.
        """
        for name in changes:
            if name not in DESCRIPTION:
                raise TypeError(f"a unit has no {name!r}{nearest_name(name, DESCRIPTION)}")
        known = self._parts()
        by = self._requantiser
        # a rounding mode belongs to some kinds only: another kind begins with its own
        if by is not None and isinstance(changes.get("requantise"), str):
            changes["requantise"] = replace(by, kind=changes["requantise"], rounding=None)
        # a unit that requantises takes no axis; an exact Mac, the default of other units, makes way for one that wraps
        if changes.get("requantise") is not None:
            known.pop("axis", None)
            if by is None and self.mac == EXACT:
                del known["mac"]
        # parts that only a scaled format has, or whose meaning comes from it
        if self._output is not None and "out" in changes and not isinstance(scaled_or(changes["out"]), Scaled):
            for name in ("axis", "requantise", "overflow", *(["mac"] if by is not None else [])):
                known.pop(name, None)
        # such a text says how to round and what to do at overflow: the unit's own would contradict it
        if "out" in changes and modes_of(changes["out"]) != NO_MODES:
            del known["rounding"], known["overflow"]
        elif "out" in changes and not isinstance(parse(changes["out"]), type(self.stage.format)):
            known.pop("overflow", None)  # rules of fixed point and of floats differ: the new family's default serves
        return type(self)(**{**known, **changes})

    def _parts(self) -> dict[str, Any]:
        """Return the parts of the description, as the constructor takes them."""
        stage = self.stage
        known: dict[str, Any] = {name: getattr(self, name) for name in ("inputs", "mac", "random", "register", "flags")}
        if self._output is not None:
            axis = self._output.axis if self._requantiser is None else None
            known |= {"requantise": self._requantiser, "axis": axis}
        known |= {"out": self._written, "rounding": stage.rounding, "overflow": stage.overflow}
        return known | {"n_rbits": stage.n_rbits, "backend": self.backend}

    def __reduce__(self) -> tuple[Any, ...]:
        return _described, (type(self), self._parts())

    def __eq__(self, other: object) -> bool:
        """Return whether two units are described alike, with the same register and the same flags."""
        if not isinstance(other, Unit):
            return NotImplemented
        mine, theirs = self._parts(), other._parts()
        counters = ("register", "flags")  # equal counts do not make two of them one
        # a unit that writes a scaled format has parts that others lack
        return mine.keys() == theirs.keys() and all(
            mine[name] is theirs[name] if name in counters else mine[name] == theirs[name] for name in mine
        )

    def __hash__(self) -> int:
        # without register, flags and source: equal units have equal hashes, more is not needed
        return hash((self.stage, self.mac, self.inputs, self.backend))

    def __repr__(self) -> str:
        stage, default = self.stage, OutputStage.of(self.stage.format)
        parts = [repr(str(self._written))]
        if self._output is not None:
            by = self._requantiser
            parts += [f"axis={self._output.axis}"] if by is None else [f"requantise={by!r}"]
        parts += [f"inputs={str(self.inputs)!r}"] if self.inputs is not None else []
        parts += [f"mac={self.mac}"] if self.mac != EXACT else []
        # what is the default is left out: the text is the shortest call that makes the unit
        parts += [f"rounding={stage.rounding.value!r}"] if stage.rounding is not Rounding.NEAREST_EVEN else []
        parts += [f"overflow={stage.overflow.value!r}"] if stage.overflow != default.overflow else []
        parts += [f"n_rbits={stage.n_rbits}"] if stage.n_rbits != default.n_rbits else []
        parts += [f"random={self.random!r}"] if stage.rounding.draws else []
        parts += [f"{name}=..." for name in ("register", "flags") if getattr(self, name) is not None]
        parts += [f"backend={self.backend!r}"] if self.backend != "auto" else []
        return f"Unit({', '.join(parts)})"

    # ---- products ---------------------------------------------------------------------------------------------------

    def matmul(self, a: Any, b: Any, addend: Any = None) -> Value:
        """Return a @ b + addend, summed as the unit's Mac sums, rounded once into the format written.

        Args:
            a: shape `(*batch, M, K)` or `(K,)`; values of scaled formats have their blocks along K.
            b: shape `(*batch, K, N)` or `(K,)`; shapes as in numpy.matmul.
            addend: what broadcasts to the result: bias, C matrix.

        Returns:
            Value of shape `(*batch, M, N)`.

        Raises:
            FormatError: an operand has no format, or holds a value outside it.
            ShapeError: the shapes do not fit together.

        Source: docs/concepts/products.md.
        """
        # integer sums: the description, whose Mac is the accumulator; nothing passes binary32
        if self._output is not None and self._requantiser is not None:
            return _untyped(self._output.matmul(self._description, a, b, _bias_of(addend)))
        if isinstance(a, ScaledValue) or isinstance(b, ScaledValue):
            third = as_addend_operand(*self._of_unit(addend), "addend", check=True)
            return self._value(write_scaled_product(self._operating, a, b, third))
        given = self._of_unit(a), self._of_unit(b), self._of_unit(addend)
        return self._value(write_product(self._operating, matrices_of(*given, check=True)))

    def conv2d(
        self,
        x: Any,
        w: Any,
        bias: Any = None,
        *,
        stride: tuple[int, int] = (1, 1),
        padding: Padding = (0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> Value:
        """Return the two-dimensional convolution (cross-correlation) of images with kernels, plus a bias per channel.

        Args:
            x: images, `(N, C, H, W)`.
            w: kernels, `(O, C / groups, KH, KW)`.
            bias: one value per output channel, `(O,)`.
            stride: steps down and right.
            padding: zeros around the image: for rows and columns, or ((above, below), (left, right)).
            dilation: distance of a kernel's rows, and of its columns.
            groups: parts of the channels; the kernels of a part meet its channels alone.

        Returns:
            Value of shape `(N, O, OH, OW)`.

        Raises:
            FormatError: an operand has no format, or holds a value outside it.
            ShapeError: channels differ, or the kernel is larger than the padded image.

        Source: docs/concepts/products.md.
        """
        slide = Sliding.of(stride, padding, dilation, groups)
        if self._output is not None and self._requantiser is not None:
            return _untyped(self._output.conv2d(self._description, x, w, _bias_of(bias), slide))
        if isinstance(x, ScaledValue) or isinstance(w, ScaledValue):
            third = as_addend_operand(*self._of_unit(bias), "bias", check=True)
            product = scaled_patches(self._operating.mac, x, w, third, slide)
            return self._value(write_scaled_matrices(self._operating, product))
        given = self._of_unit(x), self._of_unit(w), self._of_unit(bias)
        return self._value(write_product(self._operating, patches_and_kernels(*given, slide, check=True)))

    def total(self, x: Any, axis: int | tuple[int, ...] | None = None) -> Value:
        """Return the sum of `x` over `axis` (None: over all), a product with ones in C order of the summed axes."""
        return self._value(write_total(self._by("total"), *self._summed(x), axis))

    def average(self, x: Any, axis: int | tuple[int, ...]) -> Value:
        """Return the mean of `x` over `axis`: the unit's sum divided by the count, rounded once."""
        return self._value(write_total(self._by("average"), *self._summed(x), axis, averaged=True))

    # ---- plans, which `emu.explain` reads ---------------------------------------------------------------------------

    def _plan_matmul(self, a: Any, b: Any, addend: Any = None) -> Plan:
        if self._requantiser is not None:
            return plan_of(*matrices_of_integers(self.description, integer_product(a, b, _bias_of(addend))))
        if isinstance(a, ScaledValue) or isinstance(b, ScaledValue):
            third = as_addend_operand(*self.of_host(addend), "addend", check=False)
            return plan_of_scaled(self._operating, scaled_matrices(self._operating.mac, a, b, third))
        given = self.of_host(a), self.of_host(b), self.of_host(addend)
        return plan_of(self._operating, matrices_of(*given, check=False))

    def _plan_conv2d(
        self,
        x: Any,
        w: Any,
        bias: Any = None,
        **slide: Unpack[Slides],
    ) -> Plan:
        sliding = Sliding.of(**slide)
        if self._requantiser is not None:
            return plan_of(*matrices_of_integers(self.description, integer_patches(x, w, _bias_of(bias), sliding)))
        if isinstance(x, ScaledValue) or isinstance(w, ScaledValue):
            third = as_addend_operand(*self.of_host(bias), "bias", check=False)
            return plan_of_scaled(self._operating, scaled_patches(self._operating.mac, x, w, third, sliding))
        given = self.of_host(x), self.of_host(w), self.of_host(bias)
        return plan_of(self._operating, patches_and_kernels(*given, sliding, check=False))

    setattr(matmul, "plan", _plan_matmul)  # noqa: B010
    setattr(conv2d, "plan", _plan_conv2d)  # noqa: B010

    # ---- elementwise ------------------------------------------------------------------------------------------------

    def quantize(self, x: Any) -> Value:
        """Return `x`, any real numbers or a value, rounded once into the format written; see `emu.quantize`."""
        array, source = as_operand(x, None, "x", check=False)
        # numbers become blocks at once: there is no result of binary32 to observe first
        if self._output is not None:
            return _untyped(self._output.written(self._description, array, source))
        return self._value(write_quantized(self._description, array, source))

    def add(self, a: Any, b: Any) -> Value:
        """Return a + b, rounded once. Operands broadcast. Source: docs/concepts/elementwise.md."""
        return self.elementwise("add", a, b)

    def subtract(self, a: Any, b: Any) -> Value:
        """Return a - b, rounded once. Operands broadcast. Source: docs/concepts/elementwise.md."""
        return self.elementwise("subtract", a, b)

    def multiply(self, a: Any, b: Any) -> Value:
        """Return a * b, rounded once. Operands broadcast. Source: docs/concepts/elementwise.md."""
        return self.elementwise("multiply", a, b)

    def divide(self, a: Any, b: Any) -> Value:
        """Return a / b, rounded once; x/0 is an infinity, 0/0 NaN and invalid. Source: docs/concepts/elementwise.md."""
        return self.elementwise("divide", a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Value:
        """Return a * b + c, rounded once (fused). Operands broadcast. Source: docs/concepts/elementwise.md."""
        return self.elementwise("fma", a, b, c)

    def sqrt(self, x: Any) -> Value:
        """Return the square root, rounded once; of a negative number NaN and invalid."""
        return self.elementwise("sqrt", x)

    def remainder(self, a: Any, b: Any) -> Value:
        """Return a - b*n, n the integer nearest to a/b, rounded once.

        Source: docs/concepts/elementwise.md, "Remainder".
        """
        return self.elementwise("remainder", a, b)

    def round_to_integral(self, x: Any) -> Value:
        """Return `x` rounded to an integer in the unit's mode.

        Source: docs/concepts/elementwise.md, "Rounding to an integer".
        """
        return self.elementwise("round_to_integral", x)

    def function(self, name: str, x: Any) -> Value:
        """Return an elementary function of `x` by its name: exp, log, tanh, sigmoid, erf, gelu or rsqrt.

        A plain array without `inputs` is fp32 if it is float32 or float16, else fp64.

        Raises:
            FormatError: no such function.

        Source: docs/concepts/functions.md.
        """
        unit = self._by(name)
        array, fmt = carrier_of_function(name, *self._of_unit(x), check=True)
        return self._value(write_function(unit, name, array, fmt))

    def exp(self, x: Any) -> Value:
        """Return e to the power x. Source: docs/concepts/functions.md."""
        return self.function("exp", x)

    def log(self, x: Any) -> Value:
        """Return the natural logarithm; of 0 -inf, of less NaN. Source: docs/concepts/functions.md."""
        return self.function("log", x)

    def tanh(self, x: Any) -> Value:
        """Return the hyperbolic tangent. Source: docs/concepts/functions.md."""
        return self.function("tanh", x)

    def sigmoid(self, x: Any) -> Value:
        """Return 1 / (1 + exp(-x)). Source: docs/concepts/functions.md."""
        return self.function("sigmoid", x)

    def erf(self, x: Any) -> Value:
        """Return the error function. Source: docs/concepts/functions.md."""
        return self.function("erf", x)

    def gelu(self, x: Any) -> Value:
        """Return x * Phi(x), Phi the normal distribution function. Source: docs/concepts/functions.md."""
        return self.function("gelu", x)

    def rsqrt(self, x: Any) -> Value:
        """Return 1 / sqrt(x); of a negative number NaN. Source: docs/concepts/functions.md."""
        return self.function("rsqrt", x)

    # ---- operands and results ---------------------------------------------------------------------------------------

    def _of_unit(self, x: Any) -> tuple[Any, Any]:
        """Return an operand and the format to read it in: `inputs`, or None for a value, which has a format."""
        return x, None if isinstance(x, Value) else self.inputs

    def of_host(self, x: Any) -> tuple[Any, Any]:
        """Return an operand, moved to the host, and the format to read it in: what plans are made from."""
        array, fmt = self._of_unit(x)
        return (x.with_array(on_host(x.array)) if isinstance(x, Value) else on_host(array)), fmt

    def elementwise(self, operation: str, *operands: Any) -> Value:
        """Return an elementwise operation by its name: `add`, ... `round_to_integral`.

        Raises:
            FormatError: no such operation, or another number of operands than it has.
        """
        require_operands(operation, len(operands), "operand")
        unit = self._by(operation)
        taken = [as_operand(*self._of_unit(x), name, check=True) for x, name in zip(operands, "abc", strict=False)]
        arrays, formats = [array for array, _ in taken], tuple([fmt for _, fmt in taken])
        return self._value(write_elementwise(unit, operation, arrays, formats))

    def _keep_events(self) -> None:
        """Count what happened before results of binary32 became blocks: overflow of sums, division by zero."""
        flags, events = self._description.flags, self._operating.flags
        if flags is not None and events is not None:
            kept = Flags(accumulator_overflow=events.accumulator_overflow, division_by_zero=events.division_by_zero)
            flags.add(kept.counts())
            # counted once: the operating description keeps these flags for all operations of the unit
            events.reset()

    def _by(self, operation: str) -> UnitDescription:
        """Return who computes an operation that is neither a product of matrices nor a convolution.

        Raises:
            FormatError: the unit requantises.
        """
        if self._output is not None:
            self._output.refuse(operation)
        return self._operating

    def _summed(self, x: Any) -> tuple[Any, Any]:
        return in_format(*self._of_unit(x), "x", check=True)

    def _value(self, array: Any) -> Any:
        if self._output is not None:
            self._keep_events()
            # observed already, before it was rounded to binary32
            return self._output.written(self._description._replace(register=None), array)
        if isinstance(array, np.ndarray):
            # a value keeps its format only as long as nobody writes to it; a device's array has no such flag
            array.flags.writeable = False
        return made_value(array, self.stage.format)


def _of_requantiser(options: UnitOptions) -> Any:
    """Return the options of a unit that requantises: its elements saturate, and sums wrap unless a Mac is given.

    Raises:
        FormatError: a rounding mode or an overflow rule, which are the requantiser's.
    """
    # the usual modes are allowed: `replace` passes them on with all other parts
    for name, usual in (("rounding", Rounding.NEAREST_EVEN), ("overflow", Overflow.SATURATE)):
        if options.get(name) not in (None, usual):
            raise FormatError(
                f"`{name}` of a unit that requantises must be its requantiser's, got {options.get(name)}; give "
                "emu.Requantiser(..., rounding=, lowest=, highest=)"
            )
    return {
        **options,
        "rounding": Rounding.NEAREST_EVEN,
        "overflow": Overflow.SATURATE,
        "mac": options.get("mac", WRAPPING),
    }


def _untyped(value: ScaledValue) -> Any:
    """Return a value of a unit that writes a scaled format; of all others results are `Value`s."""
    return value


def _bias_of(x: Any) -> tuple[Any, Any]:
    """Return a bias of integer sums, and its format: integers without one have the accumulator's."""
    if x is None:
        return None, None
    return as_operand(x, None, "addend", check=True)


def _described(kind: type[Unit], parts: dict[str, Any]) -> Unit:
    return kind(**parts)  # pickle calls with positions, the constructor takes names
