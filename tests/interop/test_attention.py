"""Attention, against its definition in float64, and against the steps that exporters write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from tests.interop.onnx_files import node, saved

RNG = np.random.default_rng(0)
N, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 6, 3


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def computed(
    path: Path, arrays: list[np.ndarray], constants: dict[int, Any] | None = None, outputs: int = 1, **attributes: Any
) -> Any:  # fmt: skip
    """Compute a graph of one node, whose operands are these arrays, and constants at their places."""
    constants = constants or {}
    names = [f"a{place}" for place in range(max([len(arrays) - 1, *constants]) + 1)]
    inputs = {name: ("n", *array.shape[1:]) for name, array in zip(names, arrays, strict=False) if array.size}
    operands = [name if name in inputs or place in constants else "" for place, name in enumerate(names)]
    results = ["y", "key", "value", "scores"][:outputs]
    saved(
        path, [node("Attention", operands, results, **attributes)],
        {names[place]: array for place, array in constants.items()}, inputs=inputs, outputs=results, opset=23,
    )  # fmt: skip
    return emu.onnx.load(path)(*[array for array in arrays if array.size])


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0, scale: float | None = None, cap: float = 0.0
) -> np.ndarray:
    """Softmax(q k^T scale + bias) v."""
    scores = (q.astype(float) @ k.astype(float).swapaxes(-1, -2)) * (
        1 / np.sqrt(q.shape[-1]) if scale is None else scale
    )
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ v.astype(float)


@pytest.fixture
def operands() -> list[np.ndarray]:
    return [drawn(N, HEADS, QUERIES, SIZE), drawn(N, HEADS, KEYS, SIZE), drawn(N, HEADS, KEYS, SIZE + 1)]


def near(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() <= 2e-6)


@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"softcap": 0.7}])
def test_attention_is_its_definition(tmp_path: Path, operands: list[np.ndarray], options: dict[str, float]):
    [y] = computed(tmp_path / "a.onnx", operands, **options)
    assert near(y, attended(*operands, scale=options.get("scale"), cap=options.get("softcap", 0.0)))


def hidden(*, causal: bool = False, left: int = -1, right: int = -1, before: int = 0) -> np.ndarray:
    """Minus infinity where a query must not see a key, one by one."""
    bias = np.zeros((QUERIES, KEYS))
    for i in range(QUERIES):
        for j in range(KEYS):
            at = i + before
            if (causal and j > at) or (left >= 0 and j < at - left) or (right >= 0 and j > at + right):
                bias[i, j] = -np.inf
    return bias


@pytest.mark.parametrize(
    ("options", "bias"),
    [
        ({"is_causal": 1}, hidden(causal=True)),
        ({"left_window_size": 2}, hidden(left=2)),
        ({"right_window_size": 1}, hidden(right=1)),
        ({"left_window_size": 0, "right_window_size": 0}, hidden(left=0, right=0)),
        ({"is_causal": 1, "left_window_size": 1}, hidden(causal=True, left=1)),
    ],
)
def test_keys_that_a_query_must_not_see(
    tmp_path: Path, operands: list[np.ndarray], options: dict[str, int], bias: np.ndarray
):
    [y] = computed(tmp_path / "a.onnx", operands, **options)
    assert near(y, attended(*operands, bias))


@pytest.mark.parametrize("form", ["floats", "booleans", "short", "computed"])
@pytest.mark.parametrize("causal", [0, 1])
def test_masks_are_added(tmp_path: Path, operands: list[np.ndarray], form: str, causal: int):
    also = hidden(causal=bool(causal))
    if form == "computed":
        mask = drawn(N, 1, QUERIES, KEYS)
        [y] = computed(tmp_path / "a.onnx", [*operands, mask], is_causal=causal)
        assert near(y, attended(*operands, mask + also))
        return
    mask = {
        "floats": drawn(QUERIES, KEYS),
        "booleans": np.arange(KEYS) % 3 != 1,
        "short": drawn(QUERIES, KEYS - 2),
    }[form]
    [y] = computed(tmp_path / "a.onnx", operands, {3: mask}, is_causal=causal)
    bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(float)
    bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, KEYS - bias.shape[-1])], constant_values=-np.inf)
    assert near(y, attended(*operands, bias + also))


def test_lengths_hide_keys_behind_them(tmp_path: Path, operands: list[np.ndarray]):
    lengths = np.int64([6, 5])
    for causal in (0, 1):
        [y] = computed(tmp_path / "a.onnx", operands, {6: lengths}, is_causal=causal)
        bias = np.zeros((N, 1, QUERIES, KEYS))
        for n, length in enumerate(lengths):
            bias[n, 0, :, length:] = -np.inf
            if causal:
                bias[n, 0] += hidden(causal=True, before=int(length) - QUERIES)
        assert near(y, attended(*operands, bias))


def test_heads_of_keys_serve_several_of_queries(tmp_path: Path, operands: list[np.ndarray]):
    q, k, v = operands[0], operands[1][:, :2].copy(), operands[2][:, :2].copy()
    [y] = computed(tmp_path / "a.onnx", [q, k, v])
    assert near(y, attended(q, k.repeat(2, axis=1), v.repeat(2, axis=1)))


def test_flat_operands_hold_heads_side_by_side(tmp_path: Path, operands: list[np.ndarray]):
    flat = [x.swapaxes(1, 2).reshape(N, x.shape[2], -1).copy() for x in operands]
    [y] = computed(tmp_path / "a.onnx", flat, q_num_heads=HEADS, kv_num_heads=HEADS)
    assert near(y, attended(*operands).swapaxes(1, 2).reshape(N, QUERIES, -1))


def test_keys_and_values_of_earlier_passes_stand_before(tmp_path: Path, operands: list[np.ndarray]):
    q, k, v = operands
    past = [drawn(N, HEADS, 2, SIZE), drawn(N, HEADS, 2, SIZE + 1)]
    none = np.zeros(0, np.float32)
    results = computed(tmp_path / "a.onnx", [q, k, v, none, *past], outputs=4, is_causal=1, qk_matmul_output_mode=3)
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    later = np.arange(KEYS + 2) > np.arange(QUERIES)[:, None] + 2
    bias = np.where(later, -np.inf, 0)
    assert near(results[0], attended(q, keys, values, bias))
    assert np.array_equal(results[1], keys)
    assert np.array_equal(results[2], values)
    assert np.all((results[3] == 0) == np.broadcast_to(later, results[3].shape))


@pytest.mark.parametrize(("mode", "bias", "cap"), [(0, 0.0, 0.0), (1, 0.0, 0.7), (2, 1.0, 0.7)])
def test_scores_are_told_as_the_mode_says(
    tmp_path: Path, operands: list[np.ndarray], mode: int, bias: float, cap: float
):
    q, k, v = operands
    mask = np.full((QUERIES, KEYS), bias, np.float32)
    results = computed(
        tmp_path / "a.onnx", [q, k, v], {3: mask}, outputs=4, softcap=0.7, qk_matmul_output_mode=mode
    )  # fmt: skip
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / np.sqrt(SIZE)
    assert near(results[3], (cap * np.tanh(scores / cap) if cap else scores) + bias)


@pytest.mark.parametrize(
    ("constants", "rule"),
    [
        ({3: np.zeros((QUERIES, KEYS), bool)}, "must let every query see a key, got a row of the mask that hides all"),
        ({6: np.int64([0, 6])}, "must let every query see a key"),
    ],
)
def test_a_query_that_sees_nothing_is_refused(
    tmp_path: Path, operands: list[np.ndarray], constants: dict[int, Any], rule: str
):
    with pytest.raises(emu.ConfigError) as refused:
        computed(tmp_path / "a.onnx", operands, constants)
    assert rule in str(refused.value)


def test_a_computed_mask_has_every_key(tmp_path: Path, operands: list[np.ndarray]):
    with pytest.raises(emu.ConfigError, match=r"must have a mask of 6 keys, got \(2, 1, 5, 4\)"):
        computed(tmp_path / "a.onnx", [*operands, drawn(N, 1, QUERIES, 4)])
