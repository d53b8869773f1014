"""Products with the transpose of a sparse matrix, the columns' index built anew each time, beside SciPy's `A.T @ B`.

And steps of a network whose first layer is sparse, beside the same network with a dense one.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measuring.arrays import aligned, integers
from benchmarks.measuring.row import Array, Prepared, Row, Side, SparseWork
from benchmarks.rows.step import restarting
from emu.datapath import Flags, Mac, StatisticsRegister
from emu.engine import explain
from emu.formats import Fixed, Format, parse
from emu.hardware import load_device
from emu.sparse import CSR, transposed_matmul
from emu.training import load_recipe
from emu.training.loop import Loop
from emu.training.workbench import Workbench

#: Rows and columns of the sparse matrix, columns of the dense one; for a quick look.
SIZE, WIDTH, QUICK_SIZE = 4096, 256, 128
SEED = 7
#: Columns of a step for a quick look; seconds of steps in a row.
QUICK_COLUMNS, STEP_SAMPLE_S = 512, 0.2
FLOATS, FLOAT_MAC = parse("fp32"), Mac(product="fp32", accumulator="fp32")
WORDS, WORDS_OUT = Fixed(16, 8), Fixed(16, -4)


def _sparse_places(size: int, density: float) -> tuple[Array, Array]:
    """Return columns and row starts of a matrix whose entries lie anywhere, ascending in each row."""
    rng = np.random.default_rng(SEED)
    places = np.flatnonzero(rng.random(size * size, dtype=np.float32) < density)
    starts = np.searchsorted(places, np.arange(size + 1) * size)
    return (places % size).astype(np.int32), starts.astype(np.int64)


def _work(quick: bool, density: float, fmt: Format) -> SparseWork:
    size = QUICK_SIZE if quick else SIZE
    columns, starts = _sparse_places(size, density)
    dense = aligned((size, WIDTH), fmt.carrier)
    if isinstance(fmt, Fixed):
        data, dense[:] = integers((1, columns.size), fmt, 16, 1)[0], integers(dense.shape, fmt, 16, 2)
    else:
        draw = np.random.default_rng(SEED).standard_normal
        data, dense[:] = draw(columns.size, dtype=np.float32), draw(dense.shape, dtype=np.float32)
    return SparseWork(data, columns, starts, dense, fmt, FLOATS if fmt == FLOATS else WORDS_OUT)


def _side(name: str, work: SparseWork, mac: Mac) -> tuple[Side, str]:
    formats: dict[str, Any] = {"dy_format": work.format, "out_format": work.out_format, "mac": mac}
    size = work.starts.size - 1

    def matrix() -> CSR:
        return CSR.of(work.data, work.columns, work.starts, (size, size), work.format, check=False)

    def run() -> None:
        counted: dict[str, Any] = {"register": StatisticsRegister(), "flags": Flags()}
        transposed_matmul(matrix(), work.dense, **formats, **counted, check=False)

    return Side(name, run, work.macs), str(explain(transposed_matmul, matrix(), work.dense, **formats, check=False))


def beside_scipy(density: float) -> Callable[[bool], Prepared]:
    """Return what prepares float32 in order beside SciPy's product of the same matrices."""

    def prepare(quick: bool) -> Prepared:
        work = _work(quick, density, FLOATS)
        ours, path = _side("emu", work, FLOAT_MAC)
        limit = None
        if importlib.util.find_spec("scipy") is not None:
            container: Any = importlib.import_module("scipy.sparse")
            size = work.starts.size - 1
            matrix = container.csr_array((work.data, work.columns, work.starts.astype(np.int32)), shape=(size, size))
            limit = Side("scipy A.T @ B", lambda: matrix.T @ work.dense, work.macs)
        return Prepared(work, ours, limit, path)

    return prepare


def beside_float32(density: float) -> Callable[[bool], Prepared]:
    """Return what prepares an exact product of 16-bit words beside our own float32."""

    def prepare(quick: bool) -> Prepared:
        work = _work(quick, density, WORDS)
        ours, path = _side("emu", work, Mac())
        limit = _side("emu float32", _work(quick, density, FLOATS), FLOAT_MAC)[0]
        return Prepared(work, ours, limit, path)

    return prepare


def beside_dense(device: str) -> Callable[[bool], Prepared]:
    """Return what prepares a training step of `text_sparse` beside one whose first layer gets the zeros as well."""

    def prepare(quick: bool) -> Prepared:
        settings = {"network.input": [QUICK_COLUMNS], "data.stride": 20} if quick else {}
        sides: list[Side] = []
        for name, kind in (("emu", "sparse_linear"), ("emu, a dense layer", "linear")):
            recipe = load_recipe("text_sparse").with_settings({**settings, "network.layers.words.type": kind})
            sides.append(Side(name, restarting(Loop(Workbench.of(recipe, load_device(device), "auto"))), 1))
        ours, limit = sides
        return Prepared(None, ours, limit)

    return prepare


def rows() -> list[Row]:
    """Return the rows of sparse products, of a tenth and of a hundredth of the places, and of whole steps."""
    found: list[Row] = []
    for percent in (10, 1):
        title = f"x^T dy, 4096^2 at {percent} % times 256, no transpose"
        density = percent / 100
        found += [
            Row(
                f"sparse/float32-{percent}",
                f"{title}, float32 in order",
                "GMAC/s",
                beside_scipy(density),
                1.5,
                3.0,
                needs="scipy",
            ),
            Row(
                f"sparse/int16-{percent}",
                f"{title}, int16 exact, beside float32",
                "GMAC/s",
                beside_float32(density),
                0.67,
                1.0,
            ),
        ]
    for device in ("float32", "fixed16"):
        title = f"step of text_sparse, 65536 columns, {device}, beside a dense first layer"
        found.append(Row(f"sparse/step-{device}", title, "step/s", beside_dense(device), 1.0, sample_s=STEP_SAMPLE_S))
    return found
