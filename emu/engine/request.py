"""What every engine call shares: reading options, placing the register, running a kernel, adding up its counts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, namespace, on_host
from emu.backends.interface import (
    FormatCode,
    Kernels,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
    encode_format,
    encode_register,
    encode_stage,
)
from emu.backends.modes import draws
from emu.backends.registry import load
from emu.datapath import Flags, OutputStage, Overflow, RandomSource, Rounding, StatisticsRegister, Tininess
from emu.datapath.owed import Lowered, lowered_exponent
from emu.engine.sources import encode_source, source_of
from emu.errors import FormatError
from emu.formats import PRESETS, Fixed, Float, Format, parse

Array = NDArray[Any]
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


#: What a format may be given as; a run-time value, since callers may be wrong.
KNOWN_FORMATS: Any = (str, Fixed, Float)


def _stage_of(out_format: str | Format, rounding: Any, overflow: Any, n_rbits: int) -> tuple[OutputStage, StageCode]:
    """Return the stage that a call's options name, and its integers."""
    texts = isinstance(rounding, (str, Rounding)) and isinstance(overflow, (str, Overflow, type(None)))
    if type(n_rbits) is int and texts and isinstance(out_format, KNOWN_FORMATS):
        return _known_stage(out_format, rounding, overflow, n_rbits)
    stage = OutputStage.of(out_format, rounding, overflow, n_rbits)  # as a rule, a mistake
    return stage, encode_stage(stage)


@lru_cache(maxsize=1024)
def _known_stage(
    out_format: str | Format, rounding: str | Rounding, overflow: Any, n_rbits: int
) -> tuple[OutputStage, StageCode]:
    """Return a stage once more: training asks for the same few, thousands of times."""
    stage = OutputStage.of(out_format, rounding, overflow, n_rbits)
    return stage, encode_stage(stage)


def counting(code: StageCode, tininess: Tininess | str | None) -> StageCode:
    """Return a stage that counts the underflow which flags of that `tininess` ask for.

    Stochastic rounding has no result after rounding that IEEE 754 would know: tiny is what is so before it.
    """
    if tininess is None or not code.format.is_float:
        return code
    drawn = draws(code)
    return code._replace(tininess=(Tininess.BEFORE_ROUNDING if drawn else Tininess(tininess)).number)


class Request(NamedTuple):
    """How an operation writes its result: stage, random bits, register, flags, backend.

    A public function makes one of its options; who runs the same operation again and again keeps it (`at`).
    """

    stage: OutputStage
    stage_code: StageCode
    random: RandomCode
    kernels: Kernels
    register: StatisticsRegister | None
    flags: Flags | None

    @classmethod
    def of(
        cls,
        out_format: str | Format,
        rounding: Any,
        overflow: Any,
        n_rbits: int,
        rbits: Array | None,
        seed: int,
        stream: int,
        step: int,
        register: StatisticsRegister | None,
        flags: Flags | None,
        backend: str,
        shape: tuple[int, ...],
        random: RandomSource | None = None,
    ) -> Request:
        """Return the request of a public call, its options checked."""
        stage, code = _stage_of(out_format, rounding, overflow, n_rbits)
        if random is None and rbits is None and type(seed) is type(stream) is type(step) is int:
            source = RandomCode(seed % 2**64, stream % 2**32, step % 2**32, 0, None)
        else:
            source = encode_source(source_of(random, rbits, seed, stream, step), stage, shape)
        code = counting(code, None if flags is None else flags.tininess)
        return cls(stage, code, source, load(backend), register, flags)

    @classmethod
    def at(
        cls,
        stage: OutputStage,
        address: tuple[int, int, int],
        backend: str,
        register: StatisticsRegister | None = None,
        flags: Flags | None = None,
    ) -> Request:
        """Return the request of a stage whose random bits Philox draws at an address: seed, stream, step."""
        seed, stream, step = address
        random = RandomCode(seed % 2**64, stream % 2**32, step % 2**32, 0, None)
        code = counting(encode_stage(stage), None if flags is None else flags.tininess)
        return cls(stage, code, random, load(backend), register, flags)

    def in_step(self, step: int) -> Request:
        """Return the same request for another step's random bits."""
        random = self.random._replace(step=step % 2**32)
        return Request(self.stage, self.stage_code, random, self.kernels, self.register, self.flags)

    def place(self, accumulator: Fixed | None, lowered: int = 0) -> RegisterCode | None:
        """Fix the register's open positions for results of `accumulator` and return where a kernel counts them.

        Args:
            accumulator: that the kernel observes; None for a float one.
            lowered: bits by which results lie below what is observed; see `account`.
        """
        if self.register is None:
            return None
        if self.register.lowest is None or self.register.bins is None:
            results = accumulator and Fixed(
                accumulator.width_bits, accumulator.frac_bits + lowered, signed=accumulator.signed
            )
            self.register.place(results, None if results is None else results.width_bits, self.stage.format)
        code = encode_register(self.register, None if accumulator is None else -accumulator.frac_bits)
        return code._replace(lowest=code.lowest + lowered) if lowered else code

    def account(self, outcome: Outcome, lowered: int = 0) -> Array:
        """Add a kernel's counts to register and flags, now or when they are read; return what it wrote.

        Args:
            outcome: the kernel's.
            lowered: what the register was placed with: its exponents are by so much lower than those observed.
        """
        if outcome.owed is not None:
            if self.register is not None:
                self.register.owe(Lowered(outcome.owed, lowered) if lowered else outcome.owed)
            if self.flags is not None:
                self.flags.owe(outcome.owed)
            return outcome.values
        if self.register is not None:
            self.register.add_counts(outcome.register, lowered_exponent(outcome.max_exponent, lowered))
        if self.flags is not None:
            self.flags.add(outcome.flags.tolist())
        return outcome.values


def as_carrier(x: Any, name: str = "x") -> tuple[Array, Fixed | None]:
    """Return any real array as float32, float64, or int64/uint64 with the integer format that says so.

    Every integer dtype, and bool, is the same 64-bit integer (unsigned for uint64): registers and flags never depend
    on how narrow an array the caller used.

    Raises:
        FormatError: the array holds neither integers nor floats.
    """
    array = as_array(x)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype in _FLOATS:
        return array, None
    if array.dtype.kind in "iub":
        unsigned = array.dtype == np.uint64
        return array.astype(np.uint64 if unsigned else np.int64), Fixed(64, 0, signed=not unsigned)
    raise FormatError(f"`{name}` must be an array of real numbers, got dtype {array.dtype}")


def as_operand(x: Any, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Array, Format | None]:
    """Return an operand's carrier and format; with a format, its values are checked to belong to it.

    Raises:
        FormatError: a value does not belong to the format; names the operand, the first offender and the remedy.
    """
    if fmt is None:
        return as_carrier(x, name)
    is_array = type(x) is np.ndarray or is_on_device(x)
    if is_array and not check and isinstance(fmt, (Fixed, Float)) and x.dtype == fmt.carrier:
        return x, fmt
    parsed = parse(fmt)
    if is_on_device(x):
        return _on_device(x, parsed, name, check=check), parsed
    array = np.asarray(x)
    if check:
        inside = parsed.contains(array)
        if not inside.all():
            try:
                parsed.encode(array)
            except FormatError as error:
                raise FormatError(f"`{name}`: {error}") from None
    carrier = np.asarray(array, dtype=parsed.carrier)
    if check and carrier.dtype.kind == "f" and not (isinstance(parsed, Float) and parsed.has_negative_zero):
        carrier = carrier + 0.0  # -0.0 counts as 0 where the format has no -0
    return carrier, parsed


def _on_device(x: Any, fmt: Format, name: str, *, check: bool) -> Array:
    """Return an operand's carrier where it is; its values are checked on the host."""
    if not check:
        return x if x.dtype == fmt.carrier else _converted(x, fmt.carrier)
    checked = as_operand(on_host(x), fmt, name, check=True)[0]
    return namespace(x).asarray(checked)


def _converted(x: Any, carrier: np.dtype[Any]) -> Array:
    """Return a device's array in another carrier; floats by kernels, since CuPy takes float32 subnormals for 0."""
    if x.dtype not in _FLOATS or carrier not in _FLOATS:
        return x.astype(carrier)
    stage = encode_stage(OutputStage(PRESETS["fp64" if carrier == np.float64 else "fp32"], overflow=Overflow.IEEE))
    return load("cuda").quantize(x, None, stage, RandomCode(0, 0, 0, 0, None), None, None).values


def as_array(x: Any) -> Array:
    """Return an array of the host or of a device as it is, anything else as NumPy's."""
    return x if is_on_device(x) else np.asarray(x)


@lru_cache(maxsize=1024)
def codes_of(formats: tuple[Format | None, ...]) -> tuple[FormatCode | None, ...]:
    """Return the integers of several formats."""
    return tuple(code_of(fmt) for fmt in formats)


def code_of(fmt: Format | None) -> FormatCode | None:
    """Return the integers of a format, None for a plain float array."""
    return None if fmt is None else encode_format(fmt)
