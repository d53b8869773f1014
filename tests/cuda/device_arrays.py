"""Arrays that behave as a GPU's do on a machine without one: they never turn into NumPy's by themselves.

As CuPy's: `numpy.asarray` of one is refused, NumPy arrays beside one in an operation as well, and only `get` copies to
the host. Every copy is written down, so that a test can say that arrays stay where they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.testing.cuda_on_host import HostDevice

REFUSAL = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)
#: What an array has, beside operators.
DATA = {"shape", "dtype", "size", "ndim", "strides", "itemsize", "nbytes", "flags"}
METHODS = {
    "reshape", "ravel", "astype", "copy", "swapaxes", "transpose", "max", "min", "argmax", "any", "all", "sum", "view",
}  # fmt: skip
#: What the namespace has, under the same name and with the same meaning as in CuPy.
FUNCTIONS = {
    "empty", "empty_like", "zeros", "ones", "arange", "ascontiguousarray", "broadcast_to", "where", "take_along_axis",
    "isinf", "isnan", "isfinite", "ldexp", "stack",
}  # fmt: skip
OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "and", "or", "xor", "invert", "neg", "lt", "le", "gt", "ge", "eq",
    "ne",
)  # fmt: skip


class Copies:
    """Elements of each copy from the device to the host."""

    def __init__(self) -> None:
        self.sizes: list[int] = []


COPIES = Copies()


def _inside(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, (list, tuple)):
        return type(x)(_inside(part) for part in x)
    return x._memory if isinstance(x, DeviceArray) else x


def _outside(x: Any) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)  # an operation of a device gives arrays, those of no dimension as well
    return DeviceArray(x) if isinstance(x, np.ndarray) else x


class DeviceArray:
    """An array in the memory of a device that the host plays."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        if name in DATA:
            return getattr(self._memory, name)
        if name in METHODS:
            return lambda *args, **options: _outside(getattr(self._memory, name)(*map(_inside, args), **options))
        raise AttributeError(name)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(REFUSAL)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def get(self) -> np.ndarray:
        COPIES.sizes.append(self._memory.size)
        return self._memory.copy()

    def __getitem__(self, key: Any) -> Any:
        return _outside(self._memory[_inside(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._memory[_inside(key)] = _inside(value)

    def __len__(self) -> int:
        return len(self._memory)

    def __float__(self) -> float:
        return float(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())


def _operator(name: str) -> Any:
    def operation(self: DeviceArray, *others: Any) -> Any:
        return _outside(getattr(self._memory, name)(*map(_inside, others)))

    return operation


for operator in OPERATORS:
    setattr(DeviceArray, f"__{operator}__", _operator(f"__{operator}__"))


class Namespace:
    """What CuPy's module has of it."""

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(f"the stand-in for CuPy has no {name}")

        def function(*args: Any, **options: Any) -> Any:
            return _outside(getattr(np, name)(*map(_inside, args), **options))

        return function

    def asarray(self, x: Any, dtype: Any = None) -> DeviceArray:
        return DeviceArray(np.array(x._memory if isinstance(x, DeviceArray) else x, dtype, copy=None))


NAMESPACE = Namespace()
# found by the package of the class, as CuPy's is
DeviceArray.__module__ = "stand_in_for_cupy"
sys.modules[DeviceArray.__module__] = NAMESPACE  # type: ignore[assignment]


class StrictDevice(HostDevice):
    """A device that takes its own arrays alone."""

    xp: Any = NAMESPACE

    def launch(
        self,
        source: str,
        kernel: str,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        shared_bytes: int,
        words: int = 4,
    ) -> None:
        super().launch(source, kernel, blocks, threads, [_inside(x) for x in arguments], shared_bytes, words)

    def multiply(self, left: Any, right: Any, batches: int) -> Any:
        return _outside(super().multiply(_inside(left), _inside(right), batches))
