"""Linear-feedback shift registers as random bits: sequences, periods, the bits an element takes, what is refused."""

from __future__ import annotations

import pickle
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.datapath import LFSR
from emu.engine import average, total
from emu.testing import assert_bits_equal

#: Exponents of primitive polynomials beside 0. Xilinx XAPP 052 lists the longer ones as the taps of its registers.
MAXIMAL = {
    2: (2, 1), 3: (3, 2), 4: (4, 3), 5: (5, 3), 6: (6, 5), 7: (7, 6), 8: (8, 6, 5, 4), 9: (9, 5), 10: (10, 7),
    11: (11, 9), 12: (12, 6, 4, 1), 13: (13, 4, 3, 1), 14: (14, 5, 3, 1), 15: (15, 14), 16: (16, 15, 13, 4),
    17: (17, 14), 18: (18, 11), 19: (19, 6, 2, 1), 20: (20, 17),
    24: (24, 23, 22, 17), 31: (31, 28), 32: (32, 22, 2, 1), 48: (48, 47, 21, 20), 64: (64, 63, 61, 60),
}  # fmt: skip
#: Prime factors of 2**width - 1.
PRIMES = {
    24: (3, 5, 7, 13, 17, 241), 31: (2147483647,), 32: (3, 5, 17, 257, 65537),
    48: (3, 5, 7, 13, 17, 97, 241, 257, 673), 64: (3, 5, 17, 257, 641, 65537, 6700417),
}  # fmt: skip
FORMS = ("fibonacci", "galois")


def polynomial_of(exponents: tuple[int, ...]) -> int:
    return 1 + sum(2**k for k in exponents)


class FlipFlops:
    """The register as a list of flip-flops: stages[k-1] is stage k of the drawing."""

    def __init__(self, polynomial: int, width: int, seed: int, form: str) -> None:
        self.taps = [k for k in range(1, width + 1) if polynomial & 2**k]
        self.stages = [seed // 2**i % 2 for i in range(width)]
        self.form = form

    def clock(self) -> int:
        if self.form == "fibonacci":
            fed_back = sum(self.stages[k - 1] for k in self.taps) % 2
            leaves = self.stages.pop()
            self.stages.insert(0, fed_back)
            return leaves
        leaves = self.stages.pop(0)
        self.stages.append(0)
        for k in self.taps:
            self.stages[k - 1] = (self.stages[k - 1] + leaves) % 2
        return leaves

    @property
    def content(self) -> int:
        return sum(bit * 2**i for i, bit in enumerate(self.stages))

    def bits(self):
        while True:
            yield self.clock()


def drawn(lfsr: LFSR, n: int, r: int) -> list[int]:
    """u of elements 0..n-1, bit by bit."""
    shifts = lfsr.shifts_per_element or r
    bits = list(islice(FlipFlops(lfsr.polynomial, lfsr.width, lfsr.seed, lfsr.form).bits(), n * shifts + r))
    return [int("".join(map(str, bits[i * shifts : i * shifts + r])), 2) for i in range(n)]


@st.composite
def registers(draw: st.DrawFn) -> LFSR:
    width = draw(st.integers(2, 64))
    polynomial = 2**width + 1 + 2 * draw(st.integers(0, 2 ** (width - 1) - 1))
    shifts = draw(st.none() | st.integers(1, 40))
    return LFSR(polynomial, width, draw(st.integers(1, 2**width - 1)), draw(st.sampled_from(FORMS)), shifts)


def test_the_sequence_worked_by_hand_comes_out():
    """x**4 + x**3 + 1 from q = 1000: stages 4 and 3 are XORed; the sequence repeats after 15 bits."""
    left = [1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1]
    assert list(islice(FlipFlops(0b11001, 4, 0b1000, "fibonacci").bits(), 30)) == left * 2
    u = np.arange(31) / 32  # with one random bit, x goes up iff the bit is 1 and x >= 1/2
    halves = np.full(30, 0.5)
    options = {"rounding": "stochastic", "n_rbits": 1, "random": LFSR(0b11001, 4, 0b1000), "backend": "reference"}
    assert emu.quantize(halves, "ufix8f0", **options).tolist() == left * 2
    assert emu.quantize(u, "ufix8f0", **options).tolist() == [b * (x >= 0.5) for b, x in zip(left * 3, u, strict=False)]


def test_the_galois_sequence_worked_by_hand_comes_out():
    """x**3 + x**2 + 1 from q = 001: 1 leaves, taps 110 are added: 110, 011, 111, 101, 100, 010, and 001 again."""
    contents, register = [], FlipFlops(0b1101, 3, 0b001, "galois")
    for _ in range(7):
        contents.append(register.content)
        register.clock()
    assert contents == [0b001, 0b110, 0b011, 0b111, 0b101, 0b100, 0b010]
    assert [LFSR(0b1101, 3, 1, "galois").advanced(n).seed for n in range(8)] == [*contents, 1]


@given(lfsr=registers(), r=st.integers(1, 32), n=st.integers(1, 40))
def test_element_i_takes_the_bits_that_leave_after_its_shifts_first_bit_highest(lfsr: LFSR, r: int, n: int):
    # a random integer u shows itself: x = 1 - u/2**r, of all multiples of 2**-r, is the smallest that goes up
    u = np.array(drawn(lfsr, n, r), np.float64)
    options = {"rounding": "stochastic", "n_rbits": r, "random": lfsr, "backend": "reference"}
    just, below = 1 - u / 2**r, 1 - (u + 1) / 2**r
    assert (emu.quantize(just, "ufix8f0", **options) == 1).all()
    assert (emu.quantize(below, "ufix8f0", **options) == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shifts", [None, 1, 100])
def test_long_draws_are_those_of_the_flip_flops(form: str, shifts: int | None, backend: str):
    lfsr = LFSR(polynomial_of(MAXIMAL[24]), 24, 0xACE1, form, shifts)
    x = np.random.default_rng(0).normal(size=(3, 1001))
    rbits = np.array(drawn(lfsr, x.size, 7), np.uint32).reshape(x.shape)
    options = {"rounding": "stochastic", "n_rbits": 7, "backend": backend}
    for fmt in ("fix8f4", "e4m3"):
        assert_bits_equal(
            emu.quantize(x, fmt, random=lfsr, **options), emu.quantize(x, fmt, rbits=rbits, **options), fmt
        )


@given(lfsr=registers(), shifts=st.integers(0, 200))
def test_an_advanced_register_is_the_register_after_its_shifts(lfsr: LFSR, shifts: int):
    register = FlipFlops(lfsr.polynomial, lfsr.width, lfsr.seed, lfsr.form)
    for _ in range(shifts):
        register.clock()
    assert lfsr.advanced(shifts) == LFSR(
        lfsr.polynomial, lfsr.width, register.content, lfsr.form, lfsr.shifts_per_element
    )


def test_two_calls_with_an_advanced_register_draw_what_one_call_draws(backend: str):
    lfsr = LFSR(polynomial_of(MAXIMAL[32]), 32, 2463534242)
    x = np.random.default_rng(1).normal(size=1000)
    options = {"rounding": "stochastic", "n_rbits": 11, "backend": backend}
    whole = emu.quantize(x, "fix8f4", random=lfsr, **options)
    first = emu.quantize(x[:333], "fix8f4", random=lfsr, **options)
    second = emu.quantize(x[333:], "fix8f4", random=lfsr.advanced(333 * 11), **options)
    assert_bits_equal(np.concatenate([first, second]), whole, "fix8f4")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [w for w in MAXIMAL if w <= 16])
def test_a_primitive_polynomial_walks_through_every_state_but_zero(width: int, form: str):
    register = FlipFlops(polynomial_of(MAXIMAL[width]), width, 1, form)
    seen = set()
    for _ in range(2**width - 1):
        seen.add(register.content)
        register.clock()
    assert register.content == 1
    assert len(seen) == 2**width - 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", PRIMES)
def test_the_period_of_a_long_primitive_polynomial_is_all_states_but_zero(width: int, form: str):
    period, lfsr = 2**width - 1, LFSR(polynomial_of(MAXIMAL[width]), width, 1, form)
    rest = period
    for prime in PRIMES[width]:
        assert rest % prime == 0
        while rest % prime == 0:
            rest //= prime
        assert lfsr.advanced(period // prime) != lfsr
    assert rest == 1
    assert lfsr.advanced(period) == lfsr


@pytest.mark.parametrize("width", [17, 18, 19, 20])
def test_the_period_of_a_primitive_polynomial_is_no_shorter(width: int):
    register = LFSR(polynomial_of(MAXIMAL[width]), width, 1)
    period = 2**width - 1
    assert register.advanced(period) == register
    assert all(register.advanced(n) != register for n in range(1, period) if period % n == 0)


def test_every_operation_takes_a_source(backend: str):
    lfsr = LFSR(polynomial_of(MAXIMAL[16]), 16, 0xACE1)
    rng = np.random.default_rng(2)
    a, b, c = (emu.quantize(rng.normal(size=(4, 6)), "fix8f4") for _ in range(3))
    images, kernels = (emu.quantize(rng.normal(size=s), "fix8f4") for s in ((2, 3, 5, 5), (4, 3, 3, 3)))
    formats = {"a_format": "fix8f4", "b_format": "fix8f4"}
    pooled = {"x_format": "fix8f4", "axis": (0, 3)}
    calls = [
        lambda **o: emu.quantize(a / 3, **o),
        lambda **o: emu.add(a, b, **o),
        lambda **o: emu.subtract(a, b, **o),
        lambda **o: emu.multiply(a, b, **o),
        lambda **o: emu.divide(a, np.abs(b) + 1, **o),
        lambda **o: emu.fma(a, b, c, **o),
        lambda **o: emu.sqrt(np.abs(a), **o),
        lambda **o: emu.tanh(a, x_format="fix8f4", **o),
        lambda **o: emu.exp(a / 3, x_format="fp64", **o),
        lambda **o: emu.matmul(a, b.T, **formats, **o),
        lambda **o: emu.matmul(np.stack([a, b]), b.T, **formats, **o),
        lambda **o: emu.matmul(a, b[0], **formats, **o),
        lambda **o: emu.conv2d(images, kernels, x_format="fix8f4", w_format="fix8f4", **o),
        lambda **o: total(images, **pooled, **o),
        lambda **o: average(images, **pooled, **o),
    ]
    for number, call in enumerate(calls):
        options = {"rounding": "stochastic", "n_rbits": 5, "backend": backend}
        named = {"fmt": "fix8f1"} if number == 0 else {"out_format": "fix8f1"}
        got = call(random=lfsr, **named, **options)
        rbits = np.array(drawn(lfsr, got.size, 5), np.uint32).reshape(got.shape)
        assert_bits_equal(got, call(rbits=rbits, **named, **options), "fix8f1")
        assert_bits_equal(got, call(random=emu.RecordedBits(rbits), **named, **options), "fix8f1")
        zero = call(rbits=np.zeros_like(rbits), **named, **options)
        assert number == 1 or number == 2 or not np.array_equal(got, zero), number  # sums on the grid never move
        addressed = call(seed=5, stream=6, step=7, **named, **options)
        assert_bits_equal(addressed, call(random=emu.Philox(5, 6, 7), **named, **options), "fix8f1")


def test_without_stochastic_rounding_a_register_is_not_asked(backend: str):
    lfsr = LFSR(polynomial_of(MAXIMAL[16]), 16, 1)
    x = np.linspace(-2, 2, 17)
    assert_bits_equal(
        emu.quantize(x, "fix8f2", random=lfsr, backend=backend), emu.quantize(x, "fix8f2", backend=backend), "fix8f2"
    )


def test_no_elements_draw_nothing(backend: str):
    lfsr = LFSR(polynomial_of(MAXIMAL[16]), 16, 1)
    y = emu.quantize(np.zeros((0, 3)), "fix8f2", rounding="stochastic", random=lfsr, backend=backend)
    assert y.shape == (0, 3)


def test_a_mac_that_rounds_stochastically_takes_philox_alone(backend: str):
    mac = emu.Mac(accumulator="fp16", rounding="stochastic")
    a = np.ones((2, 2))
    options = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "mac": mac, "backend": backend}
    lfsr = LFSR(polynomial_of(MAXIMAL[16]), 16, 1)
    for source, name in (({"random": lfsr}, "LFSR"), ({"rbits": np.zeros((2, 2), np.uint32)}, "RecordedBits")):
        with pytest.raises(
            emu.FormatError, match=f"must be an emu.Philox, got {name}, which has bits only for the output"
        ):
            emu.matmul(a, a, **source, **options)
    by_seed = emu.matmul(a, a, seed=3, **options)
    assert_bits_equal(emu.matmul(a, a, random=emu.Philox(3), **options), by_seed, "fp16")


def test_the_draw_of_a_philox_is_the_one_that_a_mac_names():
    x = np.full(64, 0.5)
    options = {"rounding": "stochastic", "n_rbits": 8, "backend": "reference"}
    first, second = (emu.quantize(x, "fix8f0", random=emu.Philox(1, draw=d), **options) for d in (0, 2))
    assert not np.array_equal(first, second)
    assert_bits_equal(first, emu.quantize(x, "fix8f0", seed=1, **options), "fix8f0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0b11001, 4, 0), r"^`seed` must not be 0, the state an LFSR never leaves, got 0; choose a larger one$"),
        ((0b11001, 4, 16), "`seed` must be in 0..15, got 16"),
        ((0b11001, 4, -1), "`seed` must be in 0..15, got -1"),
        ((0b11001, 4, 1.0), "`seed` must be an integer, got 1.0"),
        ((0b11001, 5, 1), r"`polynomial` must have the terms x\*\*5 \(the width\) and x\*\*0, got 0x19"),
        ((0b11001, 3, 1), r"`polynomial` must have the terms x\*\*3 \(the width\) and x\*\*0, got 0x19"),
        ((0b11000, 4, 1), r"`polynomial` must have the terms x\*\*4 \(the width\) and x\*\*0, got 0x18"),
        ((0b11, 1, 1), "`width` must be in 2..64, got 1"),
        ((2**65 + 1, 65, 1), "`width` must be in 2..64, got 65"),
        (
            (0b11001, 4, 1, "galoi"),
            r"^`form` must say how the register feeds back, got 'galoi'; did you mean 'galois'\?$",
        ),
        ((0b11001, 4, 1, "galois", 0), "`shifts_per_element` must be in 1..4294967296, got 0"),
    ],
)
def test_an_impossible_register_is_refused(arguments: tuple, message: str):
    with pytest.raises(emu.FormatError, match=message):
        LFSR(*arguments)


def test_two_sources_at_once_are_refused():
    lfsr = LFSR(0b11001, 4, 1)
    for other in ({"rbits": np.zeros(2, np.uint32)}, {"seed": 1}, {"stream": 1}, {"step": 1}):
        with pytest.raises(emu.FormatError, match=f"only source of random bits, got `{next(iter(other))}` beside it"):
            emu.quantize([1.0, 2.0], "fix8f4", rounding="stochastic", random=lfsr, **other)
    with pytest.raises(emu.FormatError, match="got `seed` and `step` beside it; leave one of them out"):
        emu.add(1.0, 2.0, out_format="fp16", random=lfsr, seed=1, step=2)


def test_what_is_no_source_is_refused():
    with pytest.raises(emu.FormatError, match=r"`random` must be an emu.Philox, emu.RecordedBits or emu.LFSR, got 7"):
        emu.quantize([1.0], "fix8f4", random=7)
    with pytest.raises(emu.FormatError, match=r"`seed` must be an integer, got 1\.5"):
        emu.Philox(1.5)
    with pytest.raises(emu.FormatError, match=r"`draw` must be in 0\.\.4294967295, got -1"):
        emu.Philox(draw=-1)
    with pytest.raises(emu.ShapeError, match="`rbits` must have the shape of the result"):
        emu.quantize([1.0], "fix8f4", random=emu.RecordedBits(np.zeros(2, np.uint32)))


def test_registers_are_equal_by_content_and_survive_a_pickle():
    lfsr = LFSR(np.int64(0b11001), 4, np.uint8(9))
    assert lfsr == LFSR(25, 4, 9)
    assert hash(lfsr) == hash(LFSR(25, 4, 9))
    assert pickle.loads(pickle.dumps(lfsr)) == lfsr
    assert eval(repr(lfsr)) == lfsr
