"""Random sparse matrices, and the units they are multiplied by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from emu import Mac
from emu.formats import Fixed, parse
from emu.sparse import CSR

#: The matrix of SYSTEMS, section E: 4 x 6.
ENTRIES = {0: {1: 2, 4: 5}, 2: {0: 1, 1: 3}, 3: {4: 4, 5: 7}}
DY = [[1, -1], [2, 0.5], [0.5, 1], [-1, 2]]


def small_matrix(fmt: str = "fp32") -> CSR:
    dense = np.zeros((4, 6))
    for row, columns in ENTRIES.items():
        for column, value in columns.items():
            dense[row, column] = value
    return CSR.from_dense(dense, fmt)


class UnitCase(NamedTuple):
    """A Mac, the formats of operands, results and addend."""

    mac: Mac
    x: str
    dense: str
    out: str
    addend: str
    options: dict[str, Any]


FLOAT32 = Mac(product="fp32", accumulator="fp32")
HALVES = Mac(product="fp16", accumulator="fp16", order="pairwise")
LANES = Mac(product="fp32", accumulator="fp32", order="lanes(4)")
HALF_LANES = Mac(accumulator="fp16", order="lanes(2)")
DRAWING = Mac(accumulator="fp16", rounding="stochastic")
DRAWN = {"rounding": "stochastic", "seed": 3}
UNITS = {
    "exact-narrow": UnitCase(Mac(), "fix4f1", "fix5f2", "fix8f2", "fix6f2", {}),
    "exact-16-bit": UnitCase(Mac(), "fix16f8", "fix16f8", "fix16f6", "fix16f8", {}),
    "exact-wide": UnitCase(Mac(), "fix32f9", "fix32f9", "fix32f2", "fix20f4", {"rounding": "floor"}),
    "exact-floats": UnitCase(Mac(), "fp16", "bf16", "fp16", "fp32", {}),
    "float32-in-order": UnitCase(Mac(product="fp32", accumulator="fp32"), "fp32", "fp32", "fp32", "fp32", {}),
    "float32-exact-products": UnitCase(Mac(accumulator="fp32"), "fp16", "fp16", "bf16", "fp32", {"rounding": "to_odd"}),
    "float32-products-beyond-float32": UnitCase(Mac(accumulator="fp32"), "bf16", "bf16", "fp32", "fp32", {}),
    "saturating-40-bits": UnitCase(Mac(accumulator="fix40f20"), "fix16f10", "fix16f10", "fix16f8", "fix16f8", {}),
    "saturating-often": UnitCase(Mac(accumulator="fix12f6"), "fix8f3", "fix8f3", "fix8f2", "fix8f5", {}),
    "wrapping": UnitCase(Mac(accumulator="fix9f6", overflow="wrap"), "fix8f3", "fix8f3", "fix8f2", "fix8f5", {}),
    "coarse-accumulator": UnitCase(Mac(accumulator="fix16f4"), "fix8f3", "fix8f3", "fix8f2", "fix8f2", {}),
    "half-pairwise": UnitCase(HALVES, "fp16", "fp16", "fp16", "fp16", {}),
    "float32-lanes": UnitCase(LANES, "fp32", "fp32", "fp16", "fp32", {}),
    "stochastic-results": UnitCase(FLOAT32, "fp32", "fp32", "fp16", "fp32", DRAWN),
    "stochastic-gathered": UnitCase(HALF_LANES, "fp16", "fp16", "fix8f2", "fp16", DRAWN),
    "stochastic-inside": UnitCase(DRAWING, "fp16", "fp16", "fp16", "fp16", {"seed": 5}),
    "flushing": UnitCase(Mac(accumulator="fp16"), "fp16 daz", "fp16 daz", "fp16 ftz", "fp16 daz", {}),
}  # fmt: skip


def values(rng: np.random.Generator, shape: tuple[int, ...], fmt: str, *, special: bool = False) -> np.ndarray:
    """Return carriers of a format: zeros among them, and where asked infinities and NaN."""
    parsed = parse(fmt)
    if isinstance(parsed, Fixed):
        raws = rng.integers(parsed.min_raw, parsed.max_raw + 1, shape)
        found = np.ldexp(raws.astype(np.float64), -parsed.frac_bits)
    else:
        found = rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))
        found = np.float64(np.float16(found)) if parsed.fraction_bits >= 10 else np.round(found)
        found = parsed.decode(parsed.encode(np.clip(np.round(found), -64, 64))) if parsed.fraction_bits < 10 else found
        if special:
            where = rng.random(shape)
            found = np.where(
                where < 0.03, np.nan, np.where(where < 0.06, np.inf, np.where(where < 0.09, -np.inf, found))
            )
    found = np.where(rng.random(shape) < 0.1, 0.0, found)
    return found.astype(parsed.carrier)


def random_matrix(rng: np.random.Generator, rows: int, columns: int, fmt: str, most: int, *, special: bool) -> CSR:
    """Return rows of 0..`most` entries: unsorted, columns twice, zeros stored; now and then one column used by all."""
    lengths = rng.integers(0, most + 1, rows) * (rng.random(rows) < 0.8)
    if columns == 0:
        lengths[:] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)])
    indices = rng.integers(0, max(columns, 1), int(starts[-1]))
    if rng.random() < 0.2:
        indices[:] = columns // 2
    return CSR.of(
        values(rng, (int(starts[-1]),), fmt, special=special), indices.astype(np.int32), starts, (rows, columns), fmt
    )


cases = st.tuples(
    st.sampled_from(sorted(UNITS)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([(0, 0), (1, 1), (3, 5), (9, 4), (17, 12)]),
    st.sampled_from([1, 2, 17, 40]),
    st.booleans(),
    st.booleans(),
)
