"""docs/concepts/: what descriptions of a datapath say about themselves, and their defaults."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import Mac
from emu.datapath import Lanes, Pairwise, Promote, Sequential
from emu.datapath.random import Philox


@pytest.mark.parametrize(
    ("rule", "want"), [(None, 127), ("saturate", 127), ("wrap", -56), ("saturate_symmetric", 127), ("saturate_zero", 0)]
)
@pytest.mark.parametrize("place", ["product", "accumulator"])
def test_a_mac_overflows_as_its_rule_says(place: str, rule: str | None, want: int, backend: str):
    """20 * 10 = 200 is 127, 200 - 256 = -56 or 0 in eight bits."""
    mac = Mac(**{place: "fix8f0"}, overflow=rule)
    assert mac.overflow == rule
    assert repr(mac).endswith(f"overflow={rule!r})") == (rule is not None)
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix16f0"}
    assert emu.matmul([[20.0]], [[10.0]], mac=mac, backend=backend, **formats).item() == want


@pytest.mark.parametrize(
    ("product", "accumulator", "exact"),
    [("exact", "exact", True), ("fp16", "exact", False), ("exact", "fp16", False), ("fp16", "fp32", False)],
)
def test_a_mac_is_exact_if_neither_product_nor_accumulator_rounds(product: str, accumulator: str, exact: bool):
    assert Mac(product, accumulator).is_exact is exact


def test_orders_are_named_with_or_without_spaces():
    named = {"sequential": Sequential(), "pairwise": Pairwise(), "lanes(4)": Lanes(4), " lanes( 16 ) ": Lanes(16)}
    for text, order in named.items():
        assert Mac(order=text).order == order
        assert Mac(order=str(order)).order == order


def test_the_format_inside_a_promotion_may_have_options():
    """Spaces part its words: e8m13ftz is no format."""
    order = Promote(128, Sequential(), "e8m13 ftz", "toward_zero")
    assert str(order) == "promote(128, sequential, e8m13 ftz, toward_zero)"
    for text in (str(order), "promote( 128,sequential , e8m13 ftz,toward_zero )"):
        assert Mac(accumulator="fp32", order=text).order == order
    assert str(Mac(accumulator="fp32", order=order).inner.accumulator) == "e8m13 ftz"


@pytest.mark.parametrize("text", ["lanes", "lanes(", "lanes()", "lanes(x)", "lanes(4", "4)", "4", "lanes(-1)", "tree"])
def test_what_names_no_order_is_refused(text: str):
    with pytest.raises(emu.FormatError, match="`order` must be "):
        Mac(order=text)


@pytest.mark.parametrize("count", [0, -1, -(2**20)])
def test_fewer_than_one_lane_are_refused(count: int):
    with pytest.raises(emu.FormatError, match=f"`lanes` must have at least 1 lane, got {count}"):
        Lanes(count)


def test_stochastic_rounding_takes_24_random_bits_unless_told():
    """0.5 needs u >= 2**(r-1): with 24 bits, 2**23 moves it and 2**23 - 1 does not; 2**24 is no 24-bit integer."""
    x, u = np.array([0.5, 0.5]), np.array([2**23, 2**23 - 1])
    assert emu.quantize(x, "fix8f0", rounding="stochastic", rbits=u).tolist() == [1.0, 0.0]
    with pytest.raises(emu.FormatError, match=r"`rbits` must be integers below 2\*\*24"):
        emu.quantize(x, "fix8f0", rounding="stochastic", rbits=u + 2**23)
    assert emu.OutputStage.of("fp16").n_rbits == emu.OutputStage(emu.parse("fp16")).n_rbits == 24


def test_a_philox_starts_at_zero_everywhere():
    assert Philox() == Philox(seed=0, stream=0, step=0, draw=0)


def test_count_from_an_exponent_includes_it_and_everything_above_the_register():
    """1, 2, 3, -5, 100 and 1000 lead at 0, 1, 1, 2, 6 and 9; five positions from -1 end at 3."""
    register = emu.StatisticsRegister(lowest=-1, bins=5)
    emu.quantize([1.0, 2.0, 3.0, -5.0, 100.0, 1000.0], "fp32", register=register)
    assert register.above == 2
    assert [register.count_from(e) for e in (-1, 0, 1, 2, 3)] == [6, 6, 5, 3, 2]


def test_count_from_an_exponent_outside_the_positions_takes_all_above_them_and_none_below():
    register = emu.StatisticsRegister(lowest=0, bins=4)
    emu.quantize([0.25, 1.0, 32.0], "fp32", register=register)
    assert [register.count_from(e) for e in (-5, -1, 0, 4, 10)] == [2, 2, 2, 1, 1]
