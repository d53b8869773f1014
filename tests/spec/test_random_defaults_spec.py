"""docs/concepts/random-bits.md: seed, stream and step are 0 unless told, and each changes what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emu
from emu import engine

X = np.full(64, 0.3, np.float32)
FIX = {"a_format": "fp32", "b_format": "fp32", "out_format": "fix8f0"}
ROWS, ONE = X[:, None], np.ones((1, 1), np.float32)
OPERATIONS: dict[str, Callable[..., Any]] = {
    "quantize": lambda **o: emu.quantize(X, "fix8f0", **o),
    "add": lambda **o: emu.add(X, 0.1, out_format="fix8f0", **o),
    "matmul": lambda **o: emu.matmul(ROWS, ONE, **FIX, **o),
    "conv2d": lambda **o: emu.conv2d(
        X.reshape(1, 1, 8, 8), ONE[None, None], x_format="fp32", w_format="fp32", out_format="fix8f0", **o
    ),
    "total": lambda **o: engine.total(ROWS, x_format="fp32", out_format="fix8f0", axis=1, **o),
    "average": lambda **o: engine.average(ROWS, x_format="fp32", out_format="fix8f0", axis=1, **o),
    "a tabled function": lambda **o: emu.tanh(X.astype(np.float16), x_format="fp16", out_format="fix8f0", **o),
    "a wide function": lambda **o: emu.tanh(X, x_format="fp32", out_format="fix8f0", **o),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_without_numbers_an_operation_draws_from_zero_and_each_number_changes_the_draw(name: str, backend: str):
    def call(**numbers: int) -> list[float]:
        return np.ravel(OPERATIONS[name](rounding="stochastic", backend=backend, **numbers)).tolist()

    plain = call()
    assert plain == call(seed=0, stream=0, step=0)
    assert set(plain) == {0.0, 1.0}
    for number in ("seed", "stream", "step"):
        assert call(**{number: 1}) != plain
    drawn = emu.quantize(
        X, "fix8f0", rounding="stochastic", random=emu.Philox(seed=3, stream=5, step=7), backend=backend
    )
    if name in ("quantize", "matmul", "total", "average"):
        assert call(seed=3, stream=5, step=7) == drawn.tolist()
