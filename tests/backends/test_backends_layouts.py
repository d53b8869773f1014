"""Shapes, strides, blocks, threads and `out`: how an array lies in memory never changes a bit."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from agreement import OTHERS, assert_same
from kernel_inputs import reals

import emu
from emu import engine
from emu.backends.numba import compiling
from emu.backends.numba.compiling import BLOCK, GRAIN
from emu.testing import assert_bits_equal

SHAPES = [
    (),
    (1,),
    (0,),
    (3, 0, 2),
    (7, 11),
    (1, 1, 1, 5),
    (BLOCK - 1,),
    (BLOCK,),
    (BLOCK + 1,),
    (2, BLOCK),
    (3, 3, 57),
]
MODES = ("nearest_even", "stochastic")


def filled(shape: tuple[int, ...], seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.resize(reals("fix16f8", 64, seed, dtype), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_is_the_same(shape: tuple[int, ...]):
    x, y = filled(shape, 1), filled(shape, 2, np.float64)
    for rounding in MODES:
        for fmt in ("fix16f8", "fp16"):
            for n_rbits in (8, 24):
                random = {"rounding": rounding, "n_rbits": n_rbits}
                assert assert_same(lambda **where: emu.quantize(x, fmt, **random, **where), fmt).shape == shape
                assert assert_same(lambda **where: emu.add(x, y, out_format=fmt, **random, **where), fmt).shape == shape


def test_recorded_random_bits_are_used_in_every_shape():
    for shape in SHAPES:
        x = filled(shape, 3)
        bits = np.random.default_rng(4).integers(0, 2**24, shape).astype(np.uint32)
        for fmt in ("fix16f8", "bf16"):
            assert_same(lambda **where: emu.quantize(x, fmt, rounding="stochastic", rbits=bits, **where), fmt, shape)


@pytest.mark.parametrize("backend", ["reference", *OTHERS])
def test_a_view_gives_what_its_copy_gives(backend: str):
    x = filled((40, 61, 3), 5)
    views = [
        x[::2, ::-3],
        x.transpose(2, 0, 1),
        x[:, 5],
        np.asfortranarray(x),
        np.broadcast_to(x[0], (4, 61, 3)),
        x[::-1, :, 1:2],
    ]
    for view in views:
        for rounding in MODES:
            copy = np.array(view, order="C")
            assert_bits_equal(
                emu.quantize(view, "fix16f8", rounding=rounding, backend=backend),
                emu.quantize(copy, "fix16f8", rounding=rounding, backend=backend),
                "fix16f8",
            )
            assert_bits_equal(
                emu.multiply(view, copy, out_format="fp16", rounding=rounding, backend=backend),
                emu.multiply(copy, copy, out_format="fp16", rounding=rounding, backend=backend),
                "fp16",
            )


@pytest.mark.parametrize("backend", ["reference", *OTHERS])
def test_the_result_lands_in_out_whatever_its_strides(backend: str):
    x = filled((30, 21), 6)
    expected = emu.quantize(x, "fix16f8", backend=backend)
    room = np.full((60, 42), 99.0, np.float32)
    for out in (np.empty((30, 21), np.float32), np.empty((21, 30), np.float32).T, room[::2, 1::2], room[::-2, ::-2]):
        assert emu.quantize(x, "fix16f8", out=out, backend=backend) is out
        assert_bits_equal(out, expected, "fix16f8")
        assert emu.add(x, np.zeros(21), out_format="fix16f8", out=out, backend=backend) is out
        assert_bits_equal(out, expected, "fix16f8")


@pytest.mark.parametrize("backend", ["reference", *OTHERS])
def test_out_may_overlap_the_operands(backend: str):
    x = np.linspace(-100, 100, 3 * BLOCK).astype(np.float32)
    for source, target in (
        (slice(None), slice(None)),
        (slice(1), slice(-1, None)),
        (slice(-1), slice(1, None)),
        (slice(1, None), slice(-1)),
    ):
        for operate in (emu.quantize, lambda a, fmt, **options: emu.add(a, a, out_format=fmt, **options)):
            room = x.copy()
            expected = operate(x[source], "fix8f4", backend=backend)
            operate(room[source], "fix8f4", out=room[target], backend=backend)
            assert_bits_equal(room[target], expected, "fix8f4")


def test_an_out_that_cannot_receive_the_result_is_refused():
    x = np.zeros((2, 3), np.float32)
    message = r"`out` must be a float32 array of shape \(2, 3\), got {} of shape {}"
    for out, got in (
        (np.zeros((3, 2), np.float32), ("float32", r"\(3, 2\)")),
        (np.zeros((2, 3)), ("float64", r"\(2, 3\)")),
    ):
        with pytest.raises(emu.ShapeError, match=message.format(*got)):
            emu.quantize(x, "fix8f4", out=out)
        with pytest.raises(emu.ShapeError, match=message.format(*got)):
            emu.add(x, x, out_format="fix8f4", out=out)
        with pytest.raises(emu.ShapeError, match=message.format(*got)):
            emu.matmul(x, np.zeros((3, 3)), a_format="fix8f4", b_format="fix8f4", out_format="fix8f4", out=out)


def everything() -> str:
    """Hash of results large enough to be shared among threads, with their flags and registers."""
    digest = hashlib.sha256()
    register, flags = emu.StatisticsRegister(), emu.Flags()
    counts = {"backend": "numba", "register": register, "flags": flags}
    x = filled((3 * GRAIN + 1234,), 7)
    digest.update(emu.quantize(x, "fix16f8", rounding="stochastic", seed=3, **counts).tobytes())
    digest.update(emu.fma(x, x, x, out_format="fix16f8", **counts).tobytes())
    rng = np.random.default_rng(8)
    for fmt, mac in (
        ("fix16f8", emu.Mac()),
        ("fix16f8", emu.Mac(accumulator="fix26f16")),
        ("fp16", emu.Mac(accumulator="fp32")),
        ("fp16", emu.Mac(accumulator="fp16")),
    ):
        a, b = (emu.quantize(rng.standard_normal(shape) * 9, fmt) for shape in ((1, 130, 129), (1, 129, 131)))
        formats = {"a_format": fmt, "b_format": fmt, "out_format": fmt}
        digest.update(emu.matmul(a, b, mac=mac, **formats, **counts).tobytes())
        digest.update(emu.matmul(np.repeat(a, 3, 0), b, mac=mac, **formats, **counts).tobytes())
    digest.update(engine.relu(x, backend="numba").tobytes())
    for part in engine.max_pool(x[: 4 * (x.size // 4)].reshape(-1, 4), backend="numba"):
        digest.update(part.tobytes())
    digest.update(repr((register.to_dict(), flags.counts())).encode())
    return digest.hexdigest()


@pytest.mark.skipif("numba" not in OTHERS, reason="numba is not ready")
def test_the_number_of_threads_never_changes_a_bit(monkeypatch: pytest.MonkeyPatch):
    hashes = {}
    for threads in (1, 2, 3, 7):
        monkeypatch.setenv("EMU_THREADS", str(threads))
        compiling.thread_count.cache_clear()
        hashes[threads] = everything()
    monkeypatch.undo()
    compiling.thread_count.cache_clear()
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_emu_threads_never_changes_a_bit(threads: str):
    here = os.path.dirname(__file__)
    script = (
        "import test_backends_layouts as t, emu.backends.numba.compiling as c; print(c.thread_count(), t.everything())"
    )
    environment = os.environ | {"EMU_THREADS": threads, "PYTHONPATH": here}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [threads, everything()]
