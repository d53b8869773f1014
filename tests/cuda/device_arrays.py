"""Arrays that behave as a GPU's do on a machine without one: they never turn into NumPy's by themselves.

As CuPy's: `numpy.asarray` of one is refused, NumPy arrays beside one in an operation as well, and only `get` copies to
the host. Every copy is written down, so that a test can say that arrays stay where they are, and every launch.

As CuPy's as well: its own arithmetic, comparisons and conversions of float32 take subnormals for 0, and write none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cuda.cuda_on_host import HostDevice

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
    "isinf", "isnan", "isfinite", "ldexp", "stack", "concatenate",
}  # fmt: skip
OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "and", "or", "xor", "invert", "neg", "lt", "le", "gt", "ge", "eq",
    "ne",
)  # fmt: skip


#: Those that look at values, or compute: of float32, with subnormals as 0. Others move values, or read their bits.
FLUSHING = {"astype", "max", "min", "argmax", "any", "all", "sum", "ldexp"}
#: Those that launch nothing.
FREE = {"reshape", "ravel", "swapaxes", "transpose", "view", "empty", "empty_like", "broadcast_to", "ascontiguousarray"}


@dataclass
class Work:
    """What was done since the last `clear`.

    Attributes:
        sizes: elements of each copy from the device to the host.
        uploads: elements of each copy from the host to the device.
        launches: emu's own kernels, each by its name.
        operations: what the namespace itself launched: each by its name.
    """

    sizes: list[int] = field(default_factory=list[int])
    uploads: list[int] = field(default_factory=list[int])
    launches: Counter[str] = field(default_factory=Counter[str])
    operations: Counter[str] = field(default_factory=Counter[str])

    def clear(self) -> None:
        for part in (self.sizes, self.uploads, self.launches, self.operations):
            part.clear()


WORK = Work()


def _flushed(x: Any) -> Any:
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(np.float32(0), x), x)


def _computed(name: str, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return what a device's own operation writes."""
    inputs = [_inside(x) for x in args]
    if name not in FREE:
        WORK.operations[name] += 1
    if name in FLUSHING or name in OPERATORS:
        return _outside(_flushed(function(*map(_flushed, inputs), **options)))
    return _outside(function(*inputs, **options))


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

            def method(*args: Any, **options: Any) -> Any:
                same = name == "astype" and np.dtype(args[0]) == self._memory.dtype and not options.get("copy", True)
                if same:
                    return self
                return _computed(
                    name, lambda x, *rest, **named: getattr(x, name)(*rest, **named), (self, *args), options
                )

            return method
        raise AttributeError(name)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(REFUSAL)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def get(self) -> np.ndarray:
        WORK.sizes.append(self._memory.size)
        return self._memory.copy()

    def __getitem__(self, key: Any) -> Any:
        return _outside(self._memory[_inside(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        WORK.operations["setitem"] += 1
        self._memory[_inside(key)] = _inside(value)

    def __len__(self) -> int:
        return len(self._memory)

    def __float__(self) -> float:
        return float(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())


def _operator(name: str) -> Any:
    def operation(self: DeviceArray, *others: Any) -> Any:
        symbol = name.removeprefix("__").removesuffix("__")
        return _computed(symbol, lambda x, *rest: getattr(np.asarray(x), name)(*rest), (self, *others), {})

    return operation


for operator in OPERATORS:
    setattr(DeviceArray, f"__{operator}__", _operator(f"__{operator}__"))


class Namespace:
    """What CuPy's module has of it."""

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(f"the stand-in for CuPy has no {name}")

        def function(*args: Any, **options: Any) -> Any:
            return _computed(name, getattr(np, name), args, options)

        return function

    def asarray(self, x: Any, dtype: Any = None) -> DeviceArray:
        if isinstance(x, DeviceArray):
            return x if dtype is None else x.astype(dtype, copy=False)
        WORK.uploads.append(np.asarray(x).size)
        return DeviceArray(np.array(x, dtype))


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
        WORK.launches[kernel] += 1
        super().launch(source, kernel, blocks, threads, [_inside(x) for x in arguments], shared_bytes, words)

    def multiply(self, left: Any, right: Any, batches: int) -> Any:
        WORK.launches["multiply"] += 1
        return _outside(super().multiply(_inside(left), _inside(right), batches))
