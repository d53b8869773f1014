"""Arguments of the wrong kind are FormatErrors that name them; NumPy's integers are integers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.datapath import Lanes
from emu.formats import DynamicFixed


@pytest.mark.parametrize("value", [2.5, "8", None, True])
def test_n_rbits_must_be_an_integer(value: object):
    with pytest.raises(emu.FormatError, match="`n_rbits` must be an integer"):
        emu.quantize(1.0, "fix8f4", rounding="stochastic", n_rbits=value)


def test_n_rbits_may_be_an_integer_of_numpy():
    assert emu.OutputStage.of("fix8f4", n_rbits=np.int64(8)).n_rbits == 8


@pytest.mark.parametrize("value", ["no", 1, None])
def test_signed_must_be_a_bool(value: object):
    with pytest.raises(emu.FormatError, match="`signed` must be True or False"):
        emu.Fixed(8, 4, signed=value)
    with pytest.raises(emu.FormatError, match="`signed` must be True or False"):
        DynamicFixed(8, value)


def test_fixed_takes_the_integers_of_numpy():
    fmt = emu.Fixed(np.int64(8), np.int8(4), signed=np.bool_(False))
    assert fmt == emu.Fixed(8, 4, signed=False)
    assert [type(v) for v in (fmt.width_bits, fmt.frac_bits, fmt.signed)] == [int, int, bool]
    assert str(DynamicFixed(np.uint8(16))) == "fix16f?"


@pytest.mark.parametrize("value", [8.0, "8", True, np.bool_(True), np.array([8, 8])])
def test_a_width_must_be_an_integer(value: object):
    with pytest.raises(emu.FormatError, match="`width_bits` must be an integer"):
        emu.Fixed(value, 4)


@pytest.mark.parametrize(("name", "value"), [("lowest", "a"), ("lowest", 1.5), ("bins", "a"), ("bins", 2.5)])
def test_positions_of_a_register_must_be_integers(name: str, value: object):
    with pytest.raises(emu.FormatError, match=f"`{name}` must be an integer"):
        emu.StatisticsRegister(**{name: value})


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (10**5000, "an int of 16610 bits"),  # Python writes no integer of more than 4300 digits
        (Fraction(1, 10**5000), "a Fraction of 16610 bits"),
        (10**50, "an int of 51 characters"),
        (10**30, "1000000000000000000000000000000"),
    ],
    ids=("int", "fraction", "51 digits", "31 digits"),
)
def test_a_number_of_many_digits_is_refused_by_its_length(number: object, said: str):
    with pytest.raises(emu.FormatError, match=f"every value must belong to fix16f8, got {said} at index"):
        emu.value([number], "fix16f8")


@pytest.mark.parametrize("scale", [10**400, 1e300, -1.0, "no"])
def test_the_scale_of_a_requantiser_must_be_a_number_of_binary32(scale: object):
    with pytest.raises(emu.FormatError, match="`scale` must be positive, finite and normal"):
        emu.Requantiser("exact", scale)


def test_a_misspelt_rule_of_an_exact_mac_is_named():
    with pytest.raises(emu.FormatError, match="`overflow` must be an overflow rule, got 'bogus'"):
        emu.Mac(overflow="bogus")
    assert emu.Mac(overflow="wrap") == emu.Mac()


def test_an_order_of_the_wrong_kind_is_named():
    with pytest.raises(emu.FormatError, match="`order` must be"):
        emu.Mac(order=4)
    with pytest.raises(emu.FormatError, match="`count` must be an integer"):
        Lanes(2.5)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "erf", "gelu", "rsqrt"])
def test_a_misspelt_option_of_a_function_names_the_function(name: str):
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no option 'roundin'; did you mean 'rounding'\?$"):
        getattr(emu, name)(1.0, out_format="fp16", roundin="floor")


def test_a_misspelt_option_of_a_run_is_named_before_a_folder_is_made(tmp_path: Path):
    with pytest.raises(TypeError, match=r"^train\(\) has no option 'bakend'; did you mean 'backend'\?$"):
        emu.train(emu.model("mlp"), emu.device("float32"), out=tmp_path / "run", bakend="numba")
    with pytest.raises(TypeError, match=r"^resume\(\) has no option 'progres'; did you mean 'progress'\?$"):
        emu.resume(tmp_path / "run", progres=None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_an_out_that_may_not_be_written_to_is_refused_and_stays_as_it_was(backend: str):
    x = np.ones((2, 2), np.float32)
    out = np.zeros((2, 2), np.float32)
    out.flags.writeable = False
    formats = {"a_format": "fix8f2", "b_format": "fix8f2", "out_format": "fix8f2", "backend": backend}
    for call in (
        lambda: emu.quantize(x, "fix8f2", out=out, backend=backend),
        lambda: emu.add(x, x, out=out, **formats),
        lambda: emu.matmul(x, x, out=out, **formats),
    ):
        with pytest.raises(emu.ShapeError, match=r"`out` must be writable.*read-only"):
            call()
    assert not out.any()
    with pytest.raises(emu.ShapeError, match=r"`out` must be writable.*byte order"):
        emu.quantize(x, "fix16f2", out=np.empty((2, 2), ">i2"), backend=backend)


def test_an_out_must_be_an_array_and_a_rule_a_name():
    x = np.ones((2, 2))
    formats = {"a_format": "fix8f2", "b_format": "fix8f2", "out_format": "fix8f2"}
    for call in (
        lambda: emu.quantize(x, "fix8f2", out=[0.0] * 4),
        lambda: emu.add(x, x, out=[0.0] * 4, **formats),
        lambda: emu.matmul(x, x, out=[0.0] * 4, **formats),
    ):
        with pytest.raises(emu.ShapeError, match="`out` must be an array, got list"):
            call()
    with pytest.raises(emu.FormatError, match="overflow"):
        emu.quantize(x, "fix8f2", overflow=["saturate"])


def test_misspelt_options_of_sums_and_convolutions_are_named_with_the_nearest():
    x, w = np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))
    for name, call in (
        ("conv2d", lambda: emu.conv2d(x, w, x_format="fp16", w_format="fp16", out_format="fp16", ronding="floor")),
        ("total", lambda: emu.engine.total(x, x_format="fp16", out_format="fp16", ronding="floor")),
        ("average", lambda: emu.engine.average(x, x_format="fp16", out_format="fp16", axis=0, ronding="floor")),
    ):
        with pytest.raises(TypeError, match=f"{name}\\(\\) has no option 'ronding'.*rounding"):
            call()


def test_an_impossible_convolution_is_not_explained():
    x, w = np.ones((1, 1, 3, 3)), np.ones((1, 1, 4, 4))
    with pytest.raises(emu.ShapeError, match="the kernel must fit"):
        emu.explain(emu.conv2d, x, w, x_format="fp16", w_format="fp16", out_format="fp16")
