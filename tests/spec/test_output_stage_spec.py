"""docs/concepts/formats.md and docs/concepts/flags.md: flushing, and the flags that are no overflow."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal

TINY = 2.0**-24  # smallest subnormal of binary16
NORMAL = 2.0**-14


def flags_of(x, fmt, backend, **options):
    flags = emu.Flags()
    value = emu.quantize([x], fmt, flags=flags, backend=backend, **options)
    return value, {name for name, count in vars(flags).items() if count}


@pytest.mark.parametrize(
    ("x", "fmt", "want", "raised"),
    [
        (1.0, "fp16", 1.0, set()),
        (1 + 2.0**-12, "fp16", 1.0, {"inexact"}),
        (TINY, "fp16", TINY, {"subnormal"}),
        (1.25 * TINY, "fp16", TINY, {"subnormal", "inexact"}),
        (0.5 * TINY, "fp16", 0.0, {"underflow", "inexact"}),
        (-0.5 * TINY, "fp16", -0.0, {"underflow", "inexact"}),
        (NORMAL - TINY / 4, "fp16", NORMAL, {"inexact"}),
        (0.0, "fp16", 0.0, set()),
        (-0.0, "fp16", -0.0, set()),
        (-0.0, "e4m3fnuz", 0.0, set()),
        (-1e-9, "e4m3fnuz", 0.0, {"underflow", "inexact"}),
        (0.03, "fix8f4", 0.0, {"underflow", "inexact"}),
        (-0.03, "fix8f4", 0.0, {"underflow", "inexact"}),
        (-0.03, "ufix8f4", 0.0, {"underflow", "inexact"}),
        (-0.0, "fix8f4", 0.0, set()),
    ],
)
def test_flags_say_what_happened_to_the_element(x, fmt, want, raised, backend):
    value, flags = flags_of(x, fmt, backend)
    assert_bits_equal(value, [want], fmt)
    assert flags == raised


@pytest.mark.parametrize(
    ("x", "mode", "want", "raised"),
    [
        (3 * TINY, "nearest_even", 0.0, {"underflow", "inexact"}),
        (-3 * TINY, "nearest_even", -0.0, {"underflow", "inexact"}),
        (NORMAL - TINY / 4, "nearest_even", NORMAL, {"inexact"}),
        (NORMAL - TINY / 4, "toward_zero", 0.0, {"underflow", "inexact"}),
        (NORMAL - TINY, "ceil", 0.0, {"underflow", "inexact"}),
        (TINY / 4, "ceil", 0.0, {"underflow", "inexact"}),
        (NORMAL, "nearest_even", NORMAL, set()),
    ],
)
def test_ftz_flushes_after_rounding_on_the_subnormal_grid(x, mode, want, raised, backend):
    value, flags = flags_of(x, "fp16 ftz", backend, rounding=mode)
    assert_bits_equal(value, [want], "fp16")
    assert flags == raised


def test_daz_alone_still_writes_subnormals_and_reads_them_as_zero_of_their_sign(backend):
    fmt = emu.parse("fp16 daz")
    assert_bits_equal(emu.quantize([TINY, -TINY], fmt, backend=backend), [TINY, -TINY], "fp16")
    read = emu.quantize([TINY, -TINY, NORMAL], "fp32", x_format=fmt, backend=backend)
    assert_bits_equal(read, [0.0, -0.0, NORMAL], "fp32")


def test_flags_are_sticky_counts_over_calls(backend):
    flags = emu.Flags()
    emu.quantize([1e9, 0.03, 0.3], "fix8f4", flags=flags, backend=backend)
    emu.quantize([[1e9, np.nan], [1.0, -1e9]], "fix8f4", flags=flags, backend=backend)
    assert flags == emu.Flags(overflow=3, underflow=1, inexact=5, invalid=1)
    flags.reset()
    assert flags == emu.Flags()


def test_signalling_nans_pass_without_a_warning(backend):
    x = np.array([0x7F800001, 0xFFBFFFFF], np.uint32).view(np.float32)
    assert np.isnan(emu.quantize(x, "fp16", backend=backend)).all()


def test_stochastic_rounding_takes_24_random_bits_unless_told():
    x = np.linspace(0.1, 0.2, 4000)
    drawn = {"out_format": "fp32", "rounding": "stochastic", "backend": "reference"}
    operations = {
        "quantize": lambda **n: emu.quantize(x, "fp32", rounding="stochastic", backend="reference", **n),
        "matmul": lambda **n: emu.matmul(x[:, None], x[None, :1], a_format="fp64", b_format="fp64", **drawn, **n),
        "add": lambda **n: emu.add(x, x / 3, **drawn, **n),
        "exp": lambda **n: emu.exp(x, **drawn, **n),
        "unit": lambda **n: emu.Unit("fp32", rounding="stochastic", backend="reference", **n).quantize(x).array,
    }
    for operation in operations.values():
        assert_bits_equal(operation(), operation(n_rbits=24))
        assert (operation() != operation(n_rbits=2)).any()


def test_a_product_drops_more_than_63_bits_at_once(backend: str):
    """Raws of 64 bits: 2**62 and 2**62 - 1 in units of 2**-60 multiply to 16 and a little less."""
    raws = np.array([1 << 62, (1 << 62) - 1])
    formats = {"a_format": "fix64f60", "b_format": "fix64f60", "out_format": "fix8f2"}
    flags = emu.Flags()
    product = emu.multiply(raws, raws, **formats, rounding="toward_zero", flags=flags, backend=backend)
    assert product.tolist() == [16.0, 15.75]
    assert flags.inexact == 1
