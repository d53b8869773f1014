"""Linear-feedback shift registers: random bits as small hardware generates them.

    fibonacci   q <= {q[width-2:0], ^(q & polynomial[width:1])}       shifts left,  the bit that leaves is q[width-1]

        ┌──────── XOR of the stages k whose x**k is in the polynomial ◄─┐
        └──► stage 1 ──► stage 2 ──► ... ──► stage width ──► out       q[k-1] is stage k

    galois      q <= (q >> 1) ^ (q[0] ? polynomial[width:1] : 0)      shifts right, the bit that leaves is q[0]

One shift is a linear map of bits, so a jump over n shifts is the n-th power of its matrix: about 2 * log2(n) products
of matrices instead of n shifts. A matrix is the tuple of its columns: column i is the next register if only bit i is 1.

Source: Golomb, "Shift Register Sequences", 1967; Alfke, Xilinx XAPP 052, 1996 (stages and taps).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from emu.errors import FormatError, nearest_name
from emu.formats.integers import as_integer

MAX_WIDTH = 64
MAX_SHIFTS = 2**32

Form: TypeAlias = Literal["fibonacci", "galois"]
Matrix: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class LFSR:
    """A linear-feedback shift register with its state before the first draw.

    Element i, in C order of the result, takes the n_rbits bits that leave the register after i * shifts_per_element
    shifts, the first one most significant. The description is frozen: every call with it draws the same bits;
    `advanced` returns the register after some shifts.

    Attributes:
        polynomial: bit k is the coefficient of x**k, 0..width; those of x**width and x**0 are 1.
        width: stages of the register, 2..64.
        seed: content of the register, q, 1..2**width-1; 0 would stay 0 forever.
        form: "fibonacci" (the XOR of the taps enters at stage 1) or "galois" (the bit that leaves is XORed into the
            taps).
        shifts_per_element: shifts between the first bits of two elements, 1..2**32; None: n_rbits, so that no bit is
            used twice. Hardware that shifts once per element and reads n_rbits stages has 1.

    Raises:
        FormatError: the polynomial has another degree or no x**0, the seed is 0, or a number is out of range.

    Examples:
        >>> LFSR(0b11001, 4, seed=0b1000)  # x**4 + x**3 + 1: 1000 1001 1010 111 leave it, then again
        LFSR(polynomial=0x19, width=4, seed=0x8, form='fibonacci', shifts_per_element=None)
    """

    polynomial: int
    width: int
    seed: int
    form: Form = "fibonacci"
    shifts_per_element: int | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "width", as_integer("width", self.width, 2, MAX_WIDTH))
        set_field(self, "polynomial", as_integer("polynomial", self.polynomial, 0, 2 ** (MAX_WIDTH + 1) - 1))
        set_field(self, "seed", as_integer("seed", self.seed, 0, 2**self.width - 1))
        if self.shifts_per_element is not None:
            shifts = as_integer("shifts_per_element", self.shifts_per_element, 1, MAX_SHIFTS)
            set_field(self, "shifts_per_element", shifts)
        # the shift tests both: the coefficient of x**width is 1, and all higher ones are 0
        if self.polynomial >> self.width != 1 or not self.polynomial & 1:
            raise FormatError(
                f"`polynomial` must have the terms x**{self.width} (the width) and x**0, got {self.polynomial:#x}; "
                "bit k is the coefficient of x**k"
            )
        if self.seed == 0:
            raise FormatError("`seed` must not be 0, the state an LFSR never leaves, got 0; choose a larger one")
        if self.form not in get_args(Form):
            remedy = nearest_name(str(self.form), get_args(Form))
            raise FormatError(f"`form` must say how the register feeds back, got {self.form!r}{remedy}")

    def __repr__(self) -> str:
        return (
            f"LFSR(polynomial={self.polynomial:#x}, width={self.width}, seed={self.seed:#x}, form={self.form!r}, "
            f"shifts_per_element={self.shifts_per_element})"
        )

    def advanced(self, shifts: int) -> LFSR:
        """Return this register after a number of shifts, at least 0.

        Examples:
            >>> LFSR(0b11001, 4, seed=0b1000).advanced(4).seed
            9
        """
        shifts = as_integer("shifts", shifts, 0, 2**MAX_WIDTH - 1)
        return replace(self, seed=mapped(jump_matrix(self.polynomial, self.width, self.form, shifts), self.seed))


def shifted(polynomial: int, width: int, form: Form, state: int) -> tuple[int, int]:
    """Return the register after one shift, and the bit that left it."""
    taps = polynomial >> 1  # polynomial[width:1]: bit k-1 stands for stage k, and x**0 for the feedback itself
    if form == "galois":
        return state >> 1 ^ (taps if state & 1 else 0), state & 1
    # The parity of the taps enters at stage 1, which is bit 0; the mask drops the bit that leaves, returned beside it.
    return (state << 1 | (state & taps).bit_count() & 1) & (1 << width) - 1, state >> width - 1


def mapped(matrix: Matrix, state: int) -> int:
    """Return a matrix times a register: the sum (XOR) of the columns that its bits choose."""
    result = 0
    # arithmetic of the field of two elements: a product is AND, a sum is XOR
    for i, column in enumerate(matrix):
        result ^= column if state >> i & 1 else 0
    return result


def composed(after: Matrix, first: Matrix) -> Matrix:
    """Return the matrix of `first`, then `after`."""
    # a column says where a single bit goes; `after` maps it on
    return tuple(mapped(after, column) for column in first)


@lru_cache(maxsize=64)
def jump_matrix(polynomial: int, width: int, form: Form, shifts: int) -> Matrix:
    """Return the matrix of a number of shifts."""
    result = tuple(1 << i for i in range(width))  # the identity: no shift
    # column i says where one shift takes bit i
    power = tuple(shifted(polynomial, width, form, column)[0] for column in result)
    while shifts:
        result = composed(power, result) if shifts & 1 else result
        power, shifts = composed(power, power), shifts >> 1  # binary exponentiation: shifts of 1, 2, 4, ...
    return result


@lru_cache(maxsize=64)
def draw_matrix(polynomial: int, width: int, form: Form, n_rbits: int) -> Matrix:
    """Return the matrix that takes a register to the next `n_rbits` bits that leave it, the first most significant."""
    # the bits that leave a register are the XOR of those that leave each of its 1s alone
    columns: list[int] = []
    for i in range(width):
        state, drawn = 1 << i, 0
        for _ in range(n_rbits):
            state, bit = shifted(polynomial, width, form, state)
            drawn = drawn << 1 | bit
        columns.append(drawn)
    return tuple(columns)
