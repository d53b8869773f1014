"""docs/concepts/random-bits.md: Philox4x32-10, and which of its bits an element uses."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import emu
from emu.backends.reference.philox import philox4x32
from emu.datapath import stream_of

#: Random123, kat_vectors: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def philox(counter: list[int], key: list[int]) -> list[int]:
    """The ten rounds in Python integers."""
    c, k, mask = list(counter), list(key), 2**32 - 1
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & mask, first >> 32 ^ c[3] ^ k[1], first & mask]
        k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
    return c


def drawn(index: int, r: int, *, seed: int, stream: int, step: int, draw: int = 0) -> int:
    """u of an element, as docs/concepts/random-bits.md words it."""
    n = 4 if r >= 17 else 8 if r >= 9 else 16
    output = philox([index // n, draw, stream, step % 2**32], [seed % 2**32, seed // 2**32])
    block = sum(word << 32 * place for place, word in enumerate(output))
    field = block >> (index % n) * (128 // n) & (2 ** (128 // n) - 1)
    return field >> (128 // n - r)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_the_known_answers_of_random123_come_out(counter, key, answer):
    assert philox(words(counter), words(key)) == words(answer)
    ours = philox4x32(np.array(words(counter), np.uint32)[:, None], np.array(words(key), np.uint32))
    assert ours[:, 0].tolist() == words(answer)


def test_philox_of_many_counters_is_philox_of_each():
    rng = np.random.default_rng(0)
    counters, key = rng.integers(0, 2**32, (4, 50), dtype=np.uint32), rng.integers(0, 2**32, 2, dtype=np.uint32)
    each = [philox(column.tolist(), key.tolist()) for column in counters.T]
    assert philox4x32(counters, key).T.tolist() == each


@pytest.mark.parametrize("r", [1, 7, 8, 9, 16, 17, 24, 32])
def test_stochastic_rounding_uses_the_bits_the_page_names(r, backend):
    where = {"seed": 0x0123456789ABCDEF, "stream": 0x89ABCDEF, "step": 2**32 + 77}
    x = np.linspace(-1.9, 1.9, 3 * 37).reshape(3, 37)
    u = np.array([drawn(i, r, **where) for i in range(x.size)], np.uint32).reshape(x.shape)
    options = {"rounding": "stochastic", "n_rbits": r, "backend": backend}
    for fmt in ("fix8f2", "e4m3"):
        addressed = emu.quantize(x, fmt, **options, **where)
        assert (addressed == emu.quantize(x, fmt, rbits=u, **options)).all()


@pytest.mark.parametrize("bits", [[-1, 3], [0, 4], [4, -4]])
def test_recorded_bits_outside_their_range_are_refused(bits: list[int], backend):
    with pytest.raises(emu.FormatError, match=r"`rbits` must be integers below 2\*\*2"):
        emu.quantize([0.3, 0.4], "fix8f0", rounding="stochastic", n_rbits=2, rbits=np.array(bits), backend=backend)


def test_the_bits_of_an_element_do_not_depend_on_the_array_around_it(backend):
    options = {"rounding": "stochastic", "seed": 5, "stream": 6, "step": 7, "backend": backend}
    x = np.random.default_rng(1).normal(size=1000)
    whole = emu.quantize(x, "fix8f4", **options)
    assert (emu.quantize(x[:333], "fix8f4", **options) == whole[:333]).all()
    assert (emu.quantize(x.reshape(10, 100), "fix8f4", **options) == whole.reshape(10, 100)).all()
    assert (emu.quantize(x.reshape(10, 100).T.copy().T, "fix8f4", **options) == whole.reshape(10, 100)).all()


def test_a_stream_is_named_by_the_hash_of_layer_role_and_node():
    digest = hashlib.sha256(b"fc1/gradient@3").digest()
    assert stream_of("fc1", "gradient", 3) == int.from_bytes(digest[:4], "little")


@pytest.mark.parametrize("r", [8, 24, 32])
def test_far_below_the_last_place_stochastic_rounding_still_looks_at_the_first_r_bits(r, backend):
    """x = 1.625 * 2**-k moves to 1 iff u >= 2**r - floor(x * 2**r), x * 2**r in Python's integers."""
    for k in range(1, r + 3):
        x = np.full(2, 1.625 * 2.0**-k)
        threshold = 2**r - 13 * 2**r // (8 * 2**k)
        u = np.array([min(threshold, 2**r - 1), threshold - 1])
        written = emu.quantize(x, "fix8f0", rounding="stochastic", n_rbits=r, rbits=u, backend=backend)
        assert written.tolist() == [float(threshold < 2**r), 0.0]
