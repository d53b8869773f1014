"""A unit as every operation reads it: what it writes, how it rounds and sums, where its counts and random bits go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict, Unpack

from numpy.typing import NDArray

from emu.backends.interface import RandomCode, StageCode, encode_random, encode_stage
from emu.backends.kernels import Kernels
from emu.backends.modes import draws
from emu.backends.registry import load
from emu.datapath import (
    Flags,
    Mac,
    OutputStage,
    Overflow,
    Philox,
    RandomSource,
    Rounding,
    StatisticsRegister,
    Tininess,
)
from emu.datapath.stage import DEFAULT_RANDOM_BITS
from emu.engine.records import ProductRecord
from emu.engine.sources import encode_source, require_addressed, source_of
from emu.errors import FormatError, nearest_name
from emu.formats import Fixed, Float, Format

Array = NDArray[Any]
EXACT = Mac()
#: What a format may be given as; a run-time value, since callers may be wrong.
KNOWN_FORMATS: Any = (str, Fixed, Float)


class DescriptionOptions(TypedDict, total=False):
    """What describes a unit, beside its Mac and the format written.

    Attributes:
        rounding: mode of the output stage; None is the one that the text of the format written brings, as
            `ap_fixed<16,8>` does, and else nearest_even.
        overflow: rule of the output stage; None is the one that the text brings, and else the format family's default:
            `saturate` of fixed point, `ieee` of floats.
        n_rbits: random bits r of stochastic rounding, 1..32; 24.
        random: source of random bits: `emu.Philox`, `emu.RecordedBits` or `emu.LFSR`; None is `emu.Philox()`.
        register: observes every exact result before it is rounded.
        flags: counts what happened, per written element.
        backend: "auto", "reference", "numba" or "cuda".
    """

    rounding: str | Rounding | None
    overflow: str | Overflow | None
    n_rbits: int
    random: RandomSource | None
    register: StatisticsRegister | None
    flags: Flags | None
    backend: str


class UnitOptions(DescriptionOptions, total=False):
    """What describes a unit, beside the format written.

    Attributes:
        mac: product and accumulator formats, order, rounding of each add; exact sums.
    """

    mac: Mac


class Options(DescriptionOptions, total=False):
    """What every function of the engine takes beside its operands and their formats.

    It describes the unit by `rounding`, `overflow`, `n_rbits`, `random`, `register`, `flags` and `backend`, as
    `DescriptionOptions` says, and adds what concerns one call.

    Attributes:
        rbits: the random integers themselves, below 2**n_rbits, shape of the result; instead of `random`.
        seed: key of Philox, instead of `random`.
        stream: stream of Philox.
        step: step of Philox.
        out: where to write: carrier dtype of the format written, shape of the result.
        check: whether to check that operands hold values of their formats; a `Value` was checked when it was made.
    """

    rbits: Array | None
    seed: int
    stream: int
    step: int
    out: Array | None
    check: bool


class ProductOptions(Options, total=False):
    """The options of products.

    Attributes:
        mac: product and accumulator formats, order, rounding of each add; exact sums.
    """

    mac: Mac


UNIT_OPTIONS = frozenset(UnitOptions.__annotations__)
OPTIONS = frozenset(Options.__annotations__)
PRODUCT_OPTIONS = OPTIONS | {"mac"}
#: The options that choose where random bits come from.
SOURCES = frozenset({"random", "rbits", "seed", "stream", "step"})
#: What a kernel is given if none of them is.
UNSEEDED = RandomCode(0, 0, 0, 0, None)
#: Names of modes that can be keys of a cache, and classes of parts that need no check: the usual call is all of these.
_NAMES = (str, type(None))
_FLAGS, _REGISTERS = (type(None), Flags), (type(None), StatisticsRegister)


class UnitDescription(NamedTuple):
    """The description of a unit, as operations read it. `emu.Unit` adds the operations.

    Attributes:
        stage: format, rounding mode and overflow rule of what is written.
        code: the stage as kernels take it.
        mac: product and accumulator formats, order, rounding of each add.
        source: where random bits come from; None if `address` says it: then Philox draws them.
        address: seed, stream, step and draw of Philox, as kernels take them; None if the bits depend on the result's
            shape, as recorded bits and those of a shift register do.
        register: observes every exact result before it is rounded; None observes nothing.
        flags: counts what happened; None counts nothing.
        backend: who computes.
        kernels: of the backend.
        records: gets a record of each product; None keeps none.
    """

    stage: OutputStage
    code: StageCode
    mac: Mac
    source: RandomSource | None
    address: RandomCode | None
    register: StatisticsRegister | None
    flags: Flags | None
    backend: str
    kernels: Kernels
    records: list[ProductRecord] | None = None

    @classmethod
    def of(cls, out: str | Format, **options: Unpack[UnitOptions]) -> UnitDescription:
        """Return the unit that options describe; see `emu.Unit`.

        Raises:
            TypeError: no such option; names the nearest one.
            FormatError: an impossible format, mode, rule or source.
            BackendUnavailable: the backend cannot compute here.
        """
        return call_of("Unit", out, options, UNIT_OPTIONS)[0]

    @classmethod
    def at(
        cls,
        stage: OutputStage,
        address: tuple[int, int, int],
        backend: str,
        mac: Mac = EXACT,
        records: list[ProductRecord] | None = None,
    ) -> UnitDescription:
        """Return the unit of a stage whose random bits Philox draws at an address: seed, stream, step."""
        drawn = _philox(*address)
        return cls(stage, encode_stage(stage), mac, None, drawn, None, None, backend, load(backend), records)

    @property
    def random(self) -> RandomSource:
        """Where random bits come from."""
        if self.source is not None:
            return self.source
        assert self.address is not None
        return Philox(self.address.seed, self.address.stream, self.address.step)

    def at_step(self, step: int) -> UnitDescription:
        """Return the same unit with the random bits of a training step; this one if it has them.

        Only of a unit whose bits Philox draws. Its parts are named one by one: every operation of a step comes here,
        and `_replace` takes four times as long.
        """
        address = self.address
        assert address is not None
        if address.step == step:
            return self
        drawn = (self.source, address.at_step(step), self.register, self.flags)
        return UnitDescription(self.stage, self.code, self.mac, *drawn, self.backend, self.kernels, self.records)

    def writing(self, stage: OutputStage, flags: Flags | None = None) -> UnitDescription:
        """Return the unit that writes an intermediate result through `stage`; no register observes it.

        Args:
            stage: format, rounding mode and overflow rule of what is written.
            flags: count what happens; None counts nothing.
        """
        unit = self._replace(stage=stage, code=encode_stage(stage), register=None, flags=flags)
        # recorded bits are those of the result, in its shape and number of bits: what draws nothing needs none
        needs_bits = self.address is not None or stage.rounding.draws
        return unit if needs_bits else unit._replace(source=None, address=UNSEEDED)

    def drawn(self, shape: tuple[int, ...], inner: tuple[int, ...] | None = None) -> RandomCode:
        """Return the random numbers of a result as a kernel takes them.

        Args:
            shape: of the result, which recorded bits have.
            inner: shape in which the kernel computes it, the same elements in the same order; None is `shape`.

        Raises:
            FormatError: a recorded integer is not below 2**n_rbits.
            ShapeError: recorded bits of another shape.
        """
        if self.address is not None:
            return self.address
        assert self.source is not None
        code = encode_source(self.source, self.stage, shape)
        if code.recorded is None or inner is None:
            return code
        return code._replace(recorded=code.recorded.reshape(inner))


def _philox(seed: int, stream: int, step: int) -> RandomCode:
    # fields of 64, 32 and 32 bits, as kernels take them; a negative number is taken modulo 2**64 or 2**32
    return RandomCode(seed % 2**64, stream % 2**32, step % 2**32, 0, None)


def _source_and_address(source: RandomSource, mac: Mac) -> tuple[RandomSource, RandomCode | None]:
    """Return a source, and its numbers if they do not depend on the result's shape.

    Raises:
        FormatError: it has no bits for a Mac that rounds stochastically.
    """
    if mac.rounding.draws:
        require_addressed(source, mac)
    # Philox computes the bits of any element from its number; recorded bits and shift registers need the shape first
    return source, encode_random(source) if isinstance(source, Philox) else None


#: The options of one call of a function: the unit that they describe, where to write, whether operands are checked.
Call = tuple[UnitDescription, Array | None, bool]


def call_of(
    operation: str,
    out_format: str | Format,
    options: Mapping[str, Any],
    known: frozenset[str] = OPTIONS,
    records: list[ProductRecord] | None = None,
) -> Call:
    """Return the unit that a function's options describe, and the options of this call.

    Raises:
        TypeError: no such option; names the nearest one.
        FormatError: an impossible format, mode, rule or source.
    """
    # the usual call passes with a comparison of sets; the loop that names the wrong option runs only for the message
    if not options.keys() <= known:
        require_options(operation, options, known)
    get = options.get
    stage, code = stage_of(out_format, get("rounding"), get("overflow"), get("n_rbits", DEFAULT_RANDOM_BITS))
    mac, flags, backend = get("mac", EXACT), get("flags"), get("backend", "auto")
    register = get("register")
    # `type(...) in` is faster than `isinstance`, and a subclass only takes the slower question
    if type(mac) is not Mac or type(flags) not in _FLAGS or type(register) not in _REGISTERS:
        _require_parts(mac, flags, register)
    source: RandomSource | None = None
    # without options of a source nothing is allocated: seed 0, stream 0, step 0, which is `emu.Philox()`
    address: RandomCode | None = UNSEEDED
    if not options.keys().isdisjoint(SOURCES):
        given = get("random"), get("rbits"), get("seed", 0), get("stream", 0), get("step", 0)
        # plain integers are the usual seed; anything else, numpy integers too, is checked by the classes of sources
        if given[0] is None and given[1] is None and all(type(number) is int for number in given[2:]):
            address = _philox(*given[2:])
        else:
            source, address = _source_and_address(source_of(*given), mac)
    # without flags the stage counts as underflow what became 0: its integers say so as they are encoded
    if flags is not None:
        code = counting(code, flags.tininess)
    unit = UnitDescription(stage, code, mac, source, address, register, flags, backend, load(backend), records)
    return unit, get("out"), get("check", True)


def _require_parts(mac: object, flags: object, register: object) -> None:
    """Raise FormatError unless a Mac, flags and a register are of their classes."""
    for name, part, kind in (("mac", mac, Mac), ("flags", flags, Flags), ("register", register, StatisticsRegister)):
        if part is not None and not isinstance(part, kind):
            raise FormatError(f"`{name}` must be an emu.{kind.__name__}, got {part!r}; write emu.{kind.__name__}(...)")
    if mac is None:
        raise FormatError("`mac` must be an emu.Mac, got None; leave it out for exact sums")


def require_options(operation: str, options: Mapping[str, Any], known: Collection[str] = OPTIONS) -> None:
    """Raise TypeError, as Python does for a misspelt argument, unless every option is known."""
    for name in options:
        if name not in known:
            raise TypeError(f"{operation}() has no option {name!r}{nearest_name(name, known)}")


def stage_of(out_format: str | Format, rounding: Any, overflow: Any, n_rbits: int) -> tuple[OutputStage, StageCode]:
    """Return the stage that options name, and its integers."""
    # members of the enumerations are texts, too; anything else may be unhashable, and no key of the cache
    texts = isinstance(rounding, _NAMES) and isinstance(overflow, _NAMES)
    if type(n_rbits) is int and texts and isinstance(out_format, KNOWN_FORMATS):
        return _known_stage(out_format, rounding, overflow, n_rbits)
    stage = OutputStage.of(out_format, rounding, overflow, n_rbits)  # usually a mistake, which this names
    return stage, encode_stage(stage)


@lru_cache(maxsize=1024)
def _known_stage(out_format: str | Format, rounding: Any, overflow: Any, n_rbits: int) -> tuple[OutputStage, StageCode]:
    """Return a cached stage: training uses the same few, thousands of times."""
    stage = OutputStage.of(out_format, rounding, overflow, n_rbits)
    return stage, encode_stage(stage)


@lru_cache(maxsize=1024)
def counting(code: StageCode, tininess: Tininess | str | None) -> StageCode:
    """Return a stage that counts underflow as flags of that `tininess` do.

    IEEE 754 does not define stochastic rounding. There, a result is tiny if it is tiny before rounding.
    """
    if tininess is None or not code.format.is_float:
        return code
    drawn = draws(code)
    return code._replace(tininess=(Tininess.BEFORE_ROUNDING if drawn else Tininess(tininess)).number)
