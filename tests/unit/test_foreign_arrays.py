"""Arrays of other packages: tensors of PyTorch as they come out of a network, and values given to others by DLPack."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import emu


class _Tensor:
    """What emu asks of a tensor of PyTorch, which tests do without; `numpy` refuses what PyTorch's refuses."""

    def __init__(self, array: np.ndarray, dtype: str, *, needs_gradient: bool = False, device: str = "cpu") -> None:
        self.array, self.dtype, self.needs_gradient, self.device = array, dtype, needs_gradient, device

    def _like(self, **changes: Any) -> _Tensor:
        return _Tensor(**{"array": self.array, **{k: v for k, v in vars(self).items() if k != "array"}, **changes})

    def detach(self) -> _Tensor:
        return self._like(needs_gradient=False)

    def cpu(self) -> _Tensor:
        return self._like(device="cpu")

    def float(self) -> _Tensor:
        return self._like(dtype="torch.float32")

    def resolve_conj(self) -> _Tensor:
        return self

    def resolve_neg(self) -> _Tensor:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.needs_gradient or self.device != "cpu":
            raise RuntimeError("Can't call numpy() on this tensor")
        if self.dtype not in ("torch.float32", "torch.float64"):
            raise TypeError(f"Got unsupported ScalarType {self.dtype}")
        return self.array


_Tensor.__module__ = ModuleType("torch.of_tests").__name__
NUMBERS = np.float32([0.1, -2.0, 3.5])


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "torch.float32"},
        {"dtype": "torch.float32", "needs_gradient": True},
        {"dtype": "torch.float32", "device": "cuda"},
        {"dtype": "torch.bfloat16", "needs_gradient": True},
        {"dtype": "torch.float8_e4m3fn"},
    ],
    ids=str,
)
def test_a_tensor_is_its_numbers(options: dict[str, Any]):
    x = _Tensor(NUMBERS, **options)
    assert np.array_equal(emu.quantize(x, "fp16"), emu.quantize(NUMBERS, "fp16"))
    product = emu.matmul(_Tensor(NUMBERS[None] * 0 + 2, **options), NUMBERS[:, None] * 0 + 1, a_format="fp16",
                         b_format="fp16", out_format="fp32")  # fmt: skip
    assert product.tolist() == [[6.0]]


def test_a_tensor_may_hold_numbers_beyond_the_integers_of_float64():
    x = _Tensor(np.float32([1e20, -(2.0**60)]), dtype="torch.bfloat16", needs_gradient=True)
    assert emu.quantize(x, "fp32").tolist() == [float(np.float32(1e20)), -(2.0**60)]


def test_a_value_is_given_to_others_by_dlpack():
    value = emu.value(np.float32([0.5, -1.0]), "fp16")
    taken = np.from_dlpack(value)
    assert taken.dtype == np.float32
    assert taken.tolist() == [0.5, -1.0]
    raws = emu.Value(np.int64([1, 2]), emu.parse("fix64f3"))
    assert np.from_dlpack(raws).tolist() == [1, 2]


def test_a_read_only_value_stays_as_it_is_whatever_its_consumer_writes():
    array = np.float32([0.5, -1.0])
    array.flags.writeable = False
    value = emu.Value(array, emu.parse("fp16"))
    taken = np.from_dlpack(value)
    assert not np.shares_memory(taken, array)
    assert value.tolist() == [0.5, -1.0]
