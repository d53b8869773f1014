"""What the lines of a case may name, and what a line's objects hold exactly, read without emu."""

from __future__ import annotations

import array
import copy
import math
import pickle
import sys
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import scipy.sparse as sp

import emu
import emu.autodiff
import emu.engine
import emu.nn
import emu.optim
import emu.sparse
import emu.testing

sys.path.append(str(Path(__file__).parents[2] / "oracle"))
from rational_model import INFINITE, NAN, Real


class ArrayLike:
    """What other libraries' arrays and tables look like to NumPy."""

    def __init__(self, x: Any) -> None:
        self.x = np.asarray(x)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.x, dtype=dtype, copy=copy)


def misaligned(x: Any) -> Any:
    """A copy whose first element begins at an odd address."""
    x = np.asarray(x)
    room = np.zeros(x.nbytes + 1, np.uint8)
    view = room[1:].view(x.dtype).reshape(x.shape) if x.size else x.copy()
    view[...] = x
    return view


def spaced(x: Any) -> Any:
    """The same elements, every second one of an array's last axis."""
    return np.repeat(np.asarray(x), 2, axis=-1)[..., ::2] if np.ndim(x) else np.asarray(x)


def frozen(x: Any) -> Any:
    x = np.array(x)
    x.flags.writeable = False
    return x


def endless() -> list[Any]:
    """A list that holds itself."""
    x: list[Any] = [1.0]
    x.append(x)
    return x


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


#: The names a line may use.
NAMES: dict[str, Any] = {
    "np": np, "emu": emu, "sp": sp, "ml_dtypes": ml_dtypes, "array": array, "copy": copy, "pickled": pickled,
    "Fraction": Fraction, "Decimal": Decimal, "ArrayLike": ArrayLike, "misaligned": misaligned, "spaced": spaced,
    "frozen": frozen, "endless": endless, "inf": math.inf, "nan": math.nan,
}  # fmt: skip


class NoNumbers(Exception):  # noqa: N818 - says what is the case
    """An object that does not hold real numbers."""


class Contents(NamedTuple):
    """What an object holds.

    Attributes:
        shape: of the array it stands for.
        reals: its elements in C order.
        kind: "integers" or "floats" by the dtype, "objects" of Python's numbers and what else has none.
        plain: whether the container is a usual one: numbers, lists, arrays.
    """

    shape: tuple[int, ...]
    reals: list[Real]
    kind: str
    plain: bool = True

    @property
    def grid(self) -> Any:
        """The elements as an array of objects."""
        grid = np.empty(len(self.reals), object)
        for i, real in enumerate(self.reals):
            grid[i] = real
        return grid.reshape(self.shape)


def real_of(x: Any) -> Real:
    """A number, exactly."""
    if isinstance(x, (bool, np.bool_, int, np.integer)):
        return Real(int(x) < 0, Fraction(abs(int(x))))
    if isinstance(x, Fraction):
        return Real(x < 0, abs(x))
    if isinstance(x, Decimal):
        if x.is_nan():
            return Real(False, NAN)
        return Real(x.is_signed(), INFINITE if x.is_infinite() else abs(Fraction(x)))
    if type(x).__module__.startswith("ml_dtypes") or type(x).__name__ in ML_NAMES:
        x = float(x)
    if isinstance(x, (float, np.floating)):
        if np.isnan(x):
            return Real(False, NAN)
        return Real(bool(np.signbit(x)), INFINITE if np.isinf(x) else abs(Fraction(*x.as_integer_ratio())))
    raise NoNumbers(f"{type(x).__name__} is no real number")


ML_NAMES = frozenset((
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int2", "int4", "uint2",
    "uint4",
))  # fmt: skip


def contents(x: Any) -> Contents:
    """What an object holds.

    Raises:
        NoNumbers: an element, or the whole, is no real number.
    """
    if isinstance(x, emu.Value):
        return _of_value(x)
    if isinstance(x, np.ma.MaskedArray):
        if np.ma.getmaskarray(x).any():
            raise NoNumbers("masked elements")
        return contents(np.asarray(x.data))
    if isinstance(x, (np.ndarray, np.generic)):
        return _of_array(np.asarray(x))
    if isinstance(x, (list, tuple, range)):
        return _of_sequence(x)
    if isinstance(x, (array.array, memoryview)):
        return _of_array(np.asarray(x))._replace(plain=False)
    if hasattr(x, "__array__"):
        return contents(x.__array__())._replace(plain=False)
    return Contents((), [real_of(x)], "floats" if isinstance(x, float) else "objects")


def _of_value(x: emu.Value) -> Contents:
    held = contents(x.array)
    fmt = x.format
    if fmt is None or not fmt.carries_raws:
        return held._replace(kind="floats")
    scale = Fraction(2) ** -fmt.frac_bits
    return held._replace(reals=[Real(r.negative, r.magnitude * scale) for r in held.reals], kind="floats")  # type: ignore[operator]


def _of_array(x: Any) -> Contents:
    if x.dtype.kind in "fiubO" or x.dtype.name in ML_NAMES:
        kind = {"f": "floats", "i": "integers", "u": "integers"}.get(x.dtype.kind, "objects")
        elements = x.ravel() if x.dtype.kind != "O" else list(x.ravel())
        return Contents(x.shape, [real_of(e) for e in elements], kind)
    raise NoNumbers(f"dtype {x.dtype}")


def _of_sequence(x: Any, depth: int = 0) -> Contents:
    if depth > 60:
        raise NoNumbers("a list without an end")
    parts = [_of_sequence(e, depth + 1) if isinstance(e, (list, tuple)) else contents(e) for e in x]
    if len({part.shape for part in parts}) > 1:
        raise NoNumbers("a ragged list")
    kinds = {part.kind for part in parts} or {"floats"}
    whole = all(isinstance(e, int) and not isinstance(e, bool) for e in x) and bool(parts)
    whole = whole and all(abs(r.signed) < 2**63 for part in parts for r in part.reals)  # beyond, they are values
    kind = "integers" if whole else kinds.pop() if len(kinds) == 1 else "objects"
    shape = (len(parts), *(parts[0].shape if parts else ()))
    return Contents(shape, [r for part in parts for r in part.reals], kind)


def arrays_in(x: Any) -> Iterable[Any]:
    """The arrays an argument holds."""
    if isinstance(x, (np.ndarray, np.generic)):
        yield np.asarray(x)
    elif isinstance(x, emu.Value):
        yield from arrays_in(x.array)
    elif isinstance(x, emu.sparse.CSR) or sp.issparse(x):
        yield from (
            a for name in ("data", "indices", "indptr", "row", "col") for a in arrays_in(getattr(x, name, None))
        )
    elif isinstance(x, ArrayLike):
        yield x.x
    elif isinstance(x, (list, tuple)) and len(x) < 50:
        yield from (a for e in x if e is not x for a in arrays_in(e))
