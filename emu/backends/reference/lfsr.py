"""The random integers of a linear-feedback shift register, many at once: jumps by powers of its matrix.

The registers of elements k..2k-1 are those of elements 0..k-1, jumped over k elements: doubling, not stepping. A matrix
is applied byte by byte: 256 sums of eight columns, looked up.

Source: docs/concepts/random-bits.md, "Other sources"; Haramoto, Matsumoto, Nishimura, Panneton, L'Ecuyer, "Efficient
jump ahead for F2-linear random number generators", INFORMS Journal on Computing 20(3), 2008 (a jump is a power of the
matrix).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.datapath import LFSR
from emu.datapath.lfsr import Matrix, composed, draw_matrix, jump_matrix

Words = NDArray[np.uint64]
_BYTE = np.uint64(0xFF)


def lfsr_integers(lfsr: LFSR, n: int, n_rbits: int) -> NDArray[np.uint32]:
    """Return the random integers of elements 0..n-1, each below 2**n_rbits."""
    register = (lfsr.polynomial, lfsr.width, lfsr.form)
    states = np.full(n, lfsr.seed, np.uint64)
    # how many elements have a state; `jump` leads over as many
    jump, known = jump_matrix(*register, lfsr.shifts_per_element or n_rbits), 1
    while known < n:
        more = min(known, n - known)
        states[known : known + more] = _apply(jump, states[:more])
        # A jump over `known` elements, applied twice, jumps over twice as many.
        jump, known = composed(jump, jump), known + more
    return _apply(draw_matrix(*register, n_rbits), states).astype(np.uint32)


def _apply(matrix: Matrix, states: Words) -> Words:
    """Return a matrix times each register: sums over the field of two elements, so XORs."""
    result = np.zeros_like(states)
    for low in range(0, len(matrix), 8):
        # One look-up for each byte of the register, in place of eight columns.
        result ^= _sums(matrix[low : low + 8])[states >> np.uint64(low) & _BYTE]
    return result


def _sums(columns: Matrix) -> Words:
    """Return the sums of all subsets of up to eight columns; bit i of the index takes column i."""
    # sums[i | 1 << j] is sums[i] ^ column j
    sums = np.zeros(1, np.uint64)
    for column in columns:
        sums = np.concatenate([sums, sums ^ np.uint64(column)])
    return sums
