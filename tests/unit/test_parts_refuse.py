"""The parts of a datapath refuse what is none, in a sentence with thing, rule, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import emu
import emu.sparse
from emu.testing import probe_order

REGISTER = emu.StatisticsRegister(0, 4).to_dict()
HALF = emu.Float(5, 10)


def updated(**changes: Any) -> None:
    gradient = emu.sparse.Compact(np.array([0, 2]), np.ones((2, 3), np.float32), 4, emu.Fixed(8, 4))
    given = {"w": np.ones((4, 3), np.float32), "gradient": gradient, "rate": 0.5, **changes}
    emu.sparse.update_rows(**given, w_format="fix16f8", update_format="fix16f8")


def with_part(**parts: Any) -> Callable[[], Any]:
    return lambda: emu.StatisticsRegister.from_dict({**REGISTER, **parts})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: emu.Flags(overflow="x"), "`overflow` must be a count, got 'x'; leave it out for 0"),
        (lambda: emu.Flags(inexact=-1), "`inexact` must be a count, got -1; leave"),
        (lambda: emu.Flags(subnormal=1.0), "`subnormal` must be a count, got 1.0; leave"),
        (lambda: emu.Flags(invalid=True), "`invalid` must be a count, got True; leave"),
        (lambda: emu.Flags().merge(None), "`other` must be emu.Flags, got None; give"),
        (lambda: emu.Flags().add([1]), "`counts` must be 7 integers, those of overflow, underflow"),
        (lambda: emu.Flags().add("abcdefg"), "`counts` must be 7 integers"),
        (lambda: emu.Flags().add(None), "`counts` must be 7 integers"),
        (lambda: emu.Flags().add([0.5] * 7), "`counts` must be 7 integers"),
        (lambda: emu.StatisticsRegister(0, 4).merge({}), "`other` must be an emu.StatisticsRegister, got {}; give"),
        (
            lambda: emu.StatisticsRegister.from_dict(None),
            "`data` must be a dictionary that a register's `to_dict` made",
        ),
        (
            lambda: emu.StatisticsRegister.from_dict({"lowest": 0}),
            "got none of bins, none, below, above, nonfinite, tot",
        ),
        (with_part(total=-1), "`total` must be in 0..9223372036854775807, got -1; choose"),
        (with_part(total=2**70), "`total` must be in 0..9223372036854775807, got 1180591620717411303424; choose"),
        (with_part(none=1.5), "`none` must be an integer, got 1.5; write"),
        (with_part(max_exponent="x"), "`max_exponent` must be an integer, got 'x'; write"),
        (with_part(positive=None), "`positive` must be a dictionary that a register's `to_dict` made, got None; save"),
        (with_part(positive={"x": 1}), "`positive` must have integers as exponents, got 'x'; save"),
        (with_part(negative={"1": -3}), "`negative` must be in 0..9223372036854775807, got -3; choose"),
        (
            with_part(lowest=None, total=5),
            "positions are open must have counted nothing, got counts with lowest=None, bins=4; save",
        ),
        (
            with_part(bins=None, max_exponent=3),
            "positions are open must have counted nothing, got counts with lowe",
        ),
        (with_part(negative={"9": 3}), "got `negative` at exponent 9 with lowest=0, bins=4; save"),
        (lambda: emu.OutputStage("fix8f4"), "`format` of a stage must be a format, got 'fix8f4'; OutputStage.of takes"),
        (lambda: emu.OutputStage(HALF, overflow="saturate"), "`overflow` of fp16 must be one of ieee, "),
        (lambda: emu.OutputStage(emu.Fixed(8, 4), "bogus"), "`rounding` must be a rounding mode, got 'bogus'"),
        (lambda: emu.OutputStage(emu.Fixed(8, 4), n_rbits=0), "`n_rbits` must be in 1..32, got 0"),
        (lambda: emu.Value(np.ones(1), "fp16"), "`format` of a value must be a format, got 'fp16'; emu.value"),
        (
            lambda: emu.Mac(order=None),
            "`order` must be sequential, pairwise, lanes(n), blocks(n, fraction_bits, ...) or promote(n, order,",
        ),
        (lambda: emu.Mac(np.array(["exact", "fp32"])), "a format must be text, a format or a dtype, got array("),
        (lambda: emu.Mac.preset(["h100"]), "`gpu` must be one whose matrix unit is known, got ['h100']; known"),
        (
            lambda: emu.engine.function(["exp"], 1.0, out_format="fp16"),
            "a function must be one of the known ones, got ['e",
        ),
        (lambda: probe_order(None, 4), "`product` must be a function of two arrays, got None; give one"),
        (lambda: probe_order(lambda a, b: "x", 4), "`product(a, b)` must hold real numbers, got dtype <U1; convert"),
        (lambda: probe_order(lambda a, b: 1j, 4), "`product(a, b)` must hold real numbers, got dtype complex128; take"),
        (lambda: emu.Float(5, 10, signed="x"), "`signed` must be True or False, got 'x'"),
        (lambda: emu.Float(5, 10, ftz=3), "`ftz` must be True or False, got 3"),
        (lambda: HALF.ulp("x"), "the ulp is defined at finite values, got 'x'; choose"),
        (
            lambda: emu.sparse.Compact([0], np.ones((1, 1)), 2, "fp16"),
            "`format` must be a format, got 'fp16'; emu.parse",
        ),
        (
            lambda: emu.sparse.Compact([0], np.ones((1, 1), complex), 2, HALF),
            "`values` must be float32, the carrier of fp16, got dtype complex128; write",
        ),
        (
            lambda: emu.sparse.Compact([0], np.ones((1, 1)), 2, emu.Fixed(8, 4)),
            "`values` must be float32, the carrier of fix8f4, got dtype float64; write",
        ),
        (
            lambda: updated(gradient=np.ones((4, 3))),
            "`gradient` must be an emu.sparse.Compact, got ndarray; transposed",
        ),
        (lambda: updated(w=None), "`w` must be an array, got NoneType; its rows are written in place"),
        (lambda: updated(w=np.ma.zeros((4, 3), np.float32)), "`w` must be an array without a mask, got a masked array"),
        (lambda: updated(rate=np.nan), "`rate` must be one finite number of float32, got nan; choose"),
        (lambda: updated(rate=1e39), "`rate` must be one finite number of float32, got 1e+39; choose"),
        (lambda: updated(rate=10**400), "`rate` must be one finite number of float32, got 1000000"),
        (lambda: updated(rate=[0.5]), "`rate` must be one finite number of float32, got [0.5]; choose"),
        (lambda: updated(rate="x"), "`rate` must hold real numbers, got dtype <U1; convert"),
        (lambda: emu.explain(emu.add, 1.0), "`explain` must be given emu.matmul or emu.conv2d, got add; only products"),
    ],
)
def test_what_is_no_part_is_refused(call: Callable[[], Any], message: str):
    with pytest.raises((emu.FormatError, emu.ShapeError), match=re.escape(message)):
        call()


def test_zeros_of_every_kind_of_number_keep_their_sign():
    for x in (np.longdouble([-0.0, 1]), [Decimal("-0"), 1], np.array([-0.0, 1], object), np.array([-0.0, 1], ">f2")):
        assert np.signbit(emu.value(x, "fp16").array).tolist() == [True, False]


@pytest.mark.parametrize("x", [np.array(29.0, ">f4"), np.longdouble(29), 29, np.float16(29), [[29]]])
def test_a_value_of_one_number_is_an_array_that_cannot_be_written(x: Any):
    for fmt in ("ufix53f0", "fix60f4", "fp16", "fix8f0"):
        carrier = emu.value(x, fmt).array
        assert type(carrier) is np.ndarray
        assert not carrier.flags.writeable


def test_fractions_among_numbers_belong_where_they_are_exact():
    x = np.array([Fraction(13256819402374289351, 2**64), 0.15625, -0.5, Fraction(1, 3), 10**400, -(10**400)], object)
    assert emu.parse("fp32").contains(x).tolist() == [False, True, True, False, False, False]
    assert emu.parse("fix8f6").contains(x).tolist() == [False, True, True, False, False, False]


def test_an_open_point_of_an_operand_is_named():
    with pytest.raises(emu.FormatError, match="must have its binary point in place, got fix16f\\?"):
        emu.quantize([1.0], "fix8f4", x_format="fix16f?")


@pytest.mark.parametrize("name", [None, 3, ["numba"], {}, np.array(["numba"]), b"numba"])
def test_a_backend_that_is_no_name_is_answered_with_the_names(name: Any):
    for call in (
        lambda: emu.quantize(1.0, "fp16", backend=name),
        lambda: emu.relu(1.0, backend=name),
        lambda: emu.Unit("fp16", backend=name),
    ):
        with pytest.raises(
            emu.BackendUnavailable, match=r"`backend` must be auto or a backend, got .*; known: cuda, numba"
        ):
            call()


@pytest.mark.parametrize("name", [3, None, [], b"x"])
def test_a_device_or_model_that_is_no_name_is_refused(name: Any):
    for load in (emu.device, emu.model):
        with pytest.raises(emu.EmuError):
            load(name)


def test_registers_are_read_back_and_flags_take_the_integers_of_numpy():
    register, flags = emu.StatisticsRegister(), emu.Flags(underflow=2)
    assert emu.StatisticsRegister.from_dict(register.to_dict()) == register
    emu.quantize([1.5, -3.0, 0.0, 70000.0], "fp16", register=register, flags=flags)
    assert emu.StatisticsRegister.from_dict(register.to_dict()) == register
    flags.add(np.arange(7))
    assert flags.counts() == (1, 3, 3, 3, 4, 5, 6)
    with pytest.raises(emu.FormatError):
        flags.add([1, 2, 3, 4, 5, 6, "x"])
    assert flags.counts() == (1, 3, 3, 3, 4, 5, 6)


def test_a_function_of_one_number_is_an_array(backend: str):
    for fmt in ("fp16", "fp32", "fix8f4", "fp64"):
        given = emu.exp(1.0, x_format=fmt, out_format="fp16", backend=backend)
        assert type(given) is np.ndarray
        assert given.shape == ()
