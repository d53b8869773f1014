"""What a port of a unit carries: operands, results, flags, a mode, random bits, a constant, the ends of a sum.

    ports = {"a": In("fp16"), "b": In("fp16"), "rm": Mode({"nearest_even": 0, "floor": 2}),
             "y": Out("fp16"), "fflags": Flags(("inexact", "underflow", "overflow", "infinite", "invalid"))}

The order of the inputs is that of the operands. A flag's number is its bit in the port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from emu.datapath import Rounding
from emu.datapath.flags import FLAG_NAMES
from emu.errors import ConfigError, nearest_name
from emu.formats import Format, parse_number
from emu.formats.integers import as_integer
from emu.testing.vectors.description import TESTFLOAT_FLAGS

#: Flags by their bit in the words that testbenches write: those of golden vectors, and `subnormal` above them.
FLAG_BITS = (*TESTFLOAT_FLAGS, "accumulator_overflow", "subnormal")
#: Bits of those words.
FLAGS_WIDTH = 8
#: Most bits of a number, which is one word of the files that testbenches read.
MOST_BITS = 64
#: TestFloat's word for a flag of `emu.Flags`.
INFINITE = "infinite"


@dataclass(frozen=True)
class In:
    """An operand.

    Attributes:
        format: of each number.
        terms: how many numbers the port holds side by side, as the operands of a dot product in one word.
        first_is_low: whether the first of several numbers has the lowest bits.

    Raises:
        FormatError: there is no such format.
        ConfigError: fewer than one term.
    """

    format: Format
    terms: int
    first_is_low: bool

    def __init__(self, fmt: str | Format, terms: int = 1, *, first_is_low: bool = True) -> None:
        if type(terms) is not int or terms < 1:
            raise ConfigError(f"`terms` must be at least 1, got {terms!r}; give how many numbers the port holds")
        object.__setattr__(self, "format", parse_number(fmt))
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "first_is_low", first_is_low)

    @property
    def width_bits(self) -> int:
        """Bits of the port."""
        return self.format.width_bits * self.terms


@dataclass(frozen=True)
class Out:
    """A result.

    Attributes:
        format: of the number.

    Raises:
        FormatError: there is no such format.
    """

    format: Format

    def __init__(self, fmt: str | Format) -> None:
        object.__setattr__(self, "format", parse_number(fmt))

    @property
    def width_bits(self) -> int:
        """Bits of the port."""
        return self.format.width_bits


@dataclass(frozen=True)
class Flags:
    """Flags of a result, a bit each.

    Attributes:
        bits: bit in the port by flag: inexact, underflow, overflow, infinite (or `division_by_zero`), invalid,
            accumulator_overflow, subnormal.
        width_bits: bits of the port; without: as many as the bits named need.

    Raises:
        ConfigError: no flag is named, one is unknown or named twice, or a bit lies outside the port.
    """

    bits: Mapping[str, int]
    width_bits: int

    def __init__(self, bits: Mapping[str, int] | Sequence[str], width_bits: int | None = None) -> None:
        width_bits = None if width_bits is None else as_integer("width_bits", width_bits, 1, error=ConfigError)
        pairs = list(bits.items()) if isinstance(bits, Mapping) else [(name, bit) for bit, name in enumerate(bits)]
        given = dict(pairs)
        # both names of the flag are taken: emu's own and TestFloat's
        known = [*FLAG_BITS, "division_by_zero"]
        for name, bit in given.items():
            if name not in known:
                raise ConfigError(f"a flag must be one of {', '.join(known)}, got {name!r}{nearest_name(name, known)}")
            if type(bit) is not int or bit < 0 or (width_bits is not None and bit >= width_bits):
                raise ConfigError(f"the bit of flag {name} must lie in its port, got {bit!r}; count from 0")
        if not given:
            raise ConfigError("`bits` must name a flag, got none; give {'inexact': 0, ...}, or names from bit 0 on")
        renamed = {INFINITE if name == "division_by_zero" else name: bit for name, bit in given.items()}
        # a flag has one bit: of two the testbenches would read the last one
        if len(renamed) < len(pairs):
            raise ConfigError(
                f"`bits` must name each flag once, got {', '.join(name for name, _ in pairs)}; leave one out"
            )
        object.__setattr__(self, "bits", renamed)
        # the field is assigned in a frozen class, so past its own __setattr__
        object.__setattr__(self, "width_bits", max(given.values()) + 1 if width_bits is None else width_bits)


@dataclass(frozen=True)
class Mode:
    """An input that chooses the rounding mode. It is constant during a call.

    Attributes:
        codes: the port's code by rounding mode.
        width_bits: bits of the port; without: as many as the codes need.

    Raises:
        FormatError: there is no such mode.
        ConfigError: no mode is named, or a code does not fit the port.
    """

    codes: Mapping[Rounding, int]
    width_bits: int

    def __init__(self, codes: Mapping[str, int] | Mapping[Rounding, int], width_bits: int | None = None) -> None:
        given = {Rounding.parse(mode): code for mode, code in codes.items()}
        parsed = {
            mode: as_integer(f"codes[{mode.value!r}]", code, 0, error=ConfigError) for mode, code in given.items()
        }
        needed = max([1, *(code.bit_length() for code in parsed.values())])
        width = needed if width_bits is None else as_integer("width_bits", width_bits, 1, error=ConfigError)
        for mode, code in parsed.items():
            if code >> width:
                raise ConfigError(f"the code of {mode.value} must fit {width} bits, got {code!r}; give `width_bits`")
        if not parsed:
            raise ConfigError("`codes` must name a rounding mode, got none; give {'nearest_even': 0, ...}")
        object.__setattr__(self, "codes", parsed)
        object.__setattr__(self, "width_bits", width)


@dataclass(frozen=True)
class RandomBits:
    """An input for the random bits of stochastic rounding, new ones for each result.

    Attributes:
        width_bits: how many, 1..64.

    Raises:
        ConfigError: another number of bits.
    """

    width_bits: int

    def __post_init__(self) -> None:
        width_bits = as_integer("width_bits", self.width_bits, 1, MOST_BITS, error=ConfigError)
        object.__setattr__(self, "width_bits", width_bits)


@dataclass(frozen=True)
class Constant:
    """An input that never changes, such as an enable.

    Attributes:
        code: its bits.
        width_bits: bits of the port.

    Raises:
        ConfigError: the code does not fit the port.
    """

    code: int
    width_bits: int = 1

    def __post_init__(self) -> None:
        # the fields are assigned in a frozen class, so past its own __setattr__
        object.__setattr__(self, "code", as_integer("code", self.code, 0, error=ConfigError))
        object.__setattr__(self, "width_bits", as_integer("width_bits", self.width_bits, 1, error=ConfigError))
        if self.code >> self.width_bits:
            raise ConfigError(f"`code` must fit {self.width_bits} bits, got {self.code}; give `width_bits`")


@dataclass(frozen=True)
class End:
    """A bit that is 1 with the first or the last term of a sum, whose terms come one after the other.

    Attributes:
        of: "first" or "last".

    Raises:
        ConfigError: another word.
    """

    of: Literal["first", "last"]
    width_bits: int = 1

    def __post_init__(self) -> None:
        if self.of not in ("first", "last"):
            raise ConfigError(f"`of` must be 'first' or 'last', got {self.of!r}; name the term at which the bit is 1")


Port = In | Out | Flags | Mode | RandomBits | Constant | End
# every flag that emu counts has a bit in the words of testbenches
assert set(FLAG_BITS) == ({*FLAG_NAMES} - {"division_by_zero"}) | {INFINITE}
