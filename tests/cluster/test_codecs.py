"""Gradient codecs: what a code stands for, what is sent, what is kept, and for how long levels stand."""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.backends.reference.codecs import packed, unpacked
from emu.cluster.codecs import Address, Codec, Float32, Memory, Message, Quantiser, codec_of
from emu.cluster.codecs.sums import LANES, column_means, column_sums
from emu.errors import ConfigError, ShapeError

G1 = np.array([[0.5, -0.25, 1.5, -0.75]], np.float32)
G2 = np.array([[-0.25, -0.5, 0.25, 0.5]], np.float32)


def random_columns(columns: int, rows: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((columns, rows)) * 2.0 ** rng.integers(-6, 6, (columns, 1))).astype(np.float32)


def codes_of(codec: Quantiser, message: Message, rows: int) -> list[list[int]]:
    return unpacked(message.words, rows, codec.bits).tolist()


def encoded(codec: Codec, *batches: np.ndarray, memory: Memory | None = None) -> tuple[list[Message], Memory]:
    """Messages of mini-batches, and what is remembered behind them."""
    memory = memory or Memory.empty(*batches[0].shape)
    return [codec.encode(batch, memory, Address(step=i)) for i, batch in enumerate(batches)], memory


def test_one_bit_gives_the_published_codes_levels_and_residuals_c1_c2_c3():
    codec, memory = Quantiser(), Memory.empty(1, 4)
    first = codec.encode(G1, memory, Address())
    assert codes_of(codec, first, 4) == [[1, 0, 1, 0]]
    assert first.levels.tolist() == [[-0.5, 1.0]]
    assert codec.decode(first, 4).tolist() == [[1.0, -0.5, 1.0, -0.5]]
    assert memory.residual.tolist() == [[-0.5, 0.25, 0.5, -0.25]]
    second = codec.encode(G2, memory, Address(step=1))
    assert codes_of(codec, second, 4) == [[0, 0, 1, 1]]
    assert second.levels.tolist() == [[-0.5, 0.5]]
    assert memory.residual.tolist() == [[-0.25, 0.25, 0.25, -0.25]]


@pytest.mark.parametrize("bits", [1, 2, 8, 9, 16, 32])
def test_what_is_sent_and_what_is_kept_are_all_there_was_c1(bits: int):
    """In float64 to 1e-12 of the sum."""
    codec = codec_of(bits)
    memory, true, sent = Memory.empty(4, 300, np.float64), np.zeros((4, 300)), np.zeros((4, 300))
    for step in range(50):
        gradients = random_columns(4, 300, step).astype(np.float64) / 3
        true += gradients
        sent += codec.decode(codec.encode(gradients, memory, Address(step=step)), 300)
    assert np.abs(sent + memory.residual - true).max() <= 1e-12 * np.abs(true).max()


def test_both_zeros_are_above_the_threshold_zero_and_nan_is_below_c2():
    codec = Quantiser()
    (message,), _ = encoded(codec, np.array([[-0.0, 0.0, np.nan, -1e-45]], np.float32))
    assert codes_of(codec, message, 4) == [[1, 1, 0, 0]]


def test_an_empty_side_stands_for_zero_c3():
    codec = Quantiser()
    (message,), _ = encoded(codec, np.ones((1, 5), np.float32))
    assert message.levels.tolist() == [[0.0, 1.0]]


def test_residuals_are_what_was_lost_whatever_the_codec_c1():
    for options in ({}, {"threshold": "mean"}, {"steps": 4}, {"steps": 3, "levels": "means"}, {"levels": "ends"}):
        codec, gradients = Quantiser(**options), random_columns(5, 130)
        memory = Memory.empty(5, 130)
        for step in range(4):
            held = memory.residual.copy()
            message = codec.encode(gradients, memory, Address(step=step))
            np.testing.assert_array_equal(memory.residual, gradients + held - codec.decode(message, 130))


@pytest.mark.parametrize("threshold", ["zero", "mean", "previous_mean"])
def test_thresholds_are_zero_or_a_mean_of_this_or_the_mini_batch_before_c2(threshold: Any):
    codec = Quantiser(threshold=threshold)
    first, second = np.array([[0.0, 4.0]], np.float32), np.array([[1.0, 1.5]], np.float32)
    messages, memory = encoded(codec, first, second)
    assert codes_of(codec, messages[0], 2) == [[1, 1]] if threshold == "zero" else [[0, 1]]
    values = np.array([[1.0, 1.5]]) + (first - codec.decode(messages[0], 2))  # V of the second mini-batch
    limit = {"zero": 0.0, "mean": values.mean(), "previous_mean": 2.0}[threshold]
    assert codes_of(codec, messages[1], 2) == (values >= limit).astype(int).tolist()
    assert memory.means is not None
    assert memory.means.tolist() == [values.mean()]


@pytest.mark.parametrize("lag", [1, 2, 3, 5])
def test_the_threshold_is_the_mean_of_so_many_mini_batches_before_c2(lag: int, backend: str):
    codec, memory = Quantiser(threshold="previous_mean", threshold_lag=lag, backend=backend), Memory.empty(1, 70)
    means = list[float]()
    for step in range(9):
        memory.residual[:] = 0
        # 35 pairs around a centre, so that sums and means are exact
        centre, spread = 8.0 * (step % 4), np.arange(1, 36, dtype=np.float32) / 4
        values = np.concatenate([centre - spread, centre + spread])[None]
        message = codec.encode(values, memory, Address(step=step))
        means.append(centre)
        threshold = means[-1 - lag] if step >= lag else centre
        assert codes_of(codec, message, 70) == (values >= threshold).astype(int).tolist()
    assert len(memory.older_means) == lag - 1


@pytest.mark.parametrize("options", [{}, {"steps": 5}, {"threshold": "previous_mean", "threshold_lag": 2}], ids=str)
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_a_gradient_gets_the_residual_of_so_many_mini_batches_before_c1_c3(lag: int, options: Any):
    codec, memory = Quantiser(**options, residual_lag=lag), Memory.empty(3, 70)
    left = list[np.ndarray]()
    for step in range(8):
        gradients = random_columns(3, 70, step)
        message = codec.encode(gradients, memory, Address(step=step))
        values = gradients + left[-lag] if step >= lag else gradients
        left.append(values - codec.decode(message, 70))
        np.testing.assert_array_equal(memory.newest_residual, left[-1])
        np.testing.assert_array_equal(memory.unsent, sum(left[-lag:][1:], left[-lag:][0]))
    assert len(memory.waiting) == lag - 1


@pytest.mark.parametrize("lag", [2, 4])
def test_what_is_sent_and_all_residuals_that_wait_are_all_there_was_c1(lag: int):
    """In float64 to 1e-12 of the sum."""
    codec = Quantiser(residual_lag=lag)
    memory, true, sent = Memory.empty(4, 300, np.float64), np.zeros((4, 300)), np.zeros((4, 300))
    for step in range(50):
        gradients = random_columns(4, 300, step).astype(np.float64) / 3
        true += gradients
        sent += codec.decode(codec.encode(gradients, memory, Address(step=step)), 300)
        assert np.abs(sent + memory.unsent - true).max() <= 1e-12 * np.abs(true).max()


def test_all_that_is_remembered_is_rescaled():
    codec = Quantiser(threshold="previous_mean", threshold_lag=2, residual_lag=3, lag=1)
    memory = encoded(codec, *(random_columns(2, 70, seed) for seed in range(6)))[1]
    before = {name: array.copy() for name, array in memory.arrays().items()}
    memory.rescale(0.25)
    after = memory.arrays()
    assert {"residual", "waiting0", "waiting1", "means", "older_means0", "levels", "computed0"} < after.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, before[name] if name == "batches" else before[name] / 4, err_msg=name)


def test_levels_of_two_steps_can_be_least_and_largest_value_c3():
    codec = Quantiser(levels="ends")
    (message,), memory = encoded(codec, G1)
    assert message.levels.tolist() == [[-0.75, 1.5]]
    assert memory.residual.tolist() == [[-1.0, 0.5, 0.0, 0.0]]


@pytest.mark.parametrize("steps", [3, 4, 5, 16, 100, 256, 257, 1000, 65536])
def test_equal_steps_reach_four_deviations_to_both_sides_of_the_mean_c2(steps: int):
    codec, column = Quantiser(steps), random_columns(1, 64 * 9)
    (message,), _ = encoded(codec, column)
    deviation = float(np.std(column.astype(np.float64)))
    low, high = message.levels[0].tolist()
    assert (low, high) == pytest.approx((column.mean() - 4 * deviation, column.mean() + 4 * deviation), rel=1e-5)
    width = Fraction(high - low) / steps
    places = [min(max((Fraction(float(v)) - Fraction(low)) // width, 0), steps - 1) for v in column[0]]
    differ = [a != b for a, b in zip(codes_of(codec, message, column.size)[0], places, strict=True)]
    # values within a rounding error of a limit between two steps
    assert sum(differ) <= 1 + column.size * steps * 2.0**-20
    decoded = codec.decode(message, column.size)[0]
    assert np.abs(decoded - column[0]).max() <= float(width) * 0.51 + 2.0**-20 * np.abs(column).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", ["middles", "means"])
def test_equal_steps_of_a_range_are_those_of_exact_numbers_c2_c3(levels: Any, dtype: Any, backend: str):
    """Five steps of 1/4 from -1/4 to 1: values and limits are short binary fractions, so that nothing rounds."""
    codec = Quantiser(5, levels=levels, range=(-0.25, 1.0), backend=backend)
    column = [-7.0, -0.25, -0.125, 0.0, 0.125, 0.25, 0.4375, 0.5, 0.75, 0.875, 1.0, 20.0]
    codes = [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 4, 4]  # floor((v + 1/4) * 4), within 0..4
    if levels == "middles":
        expected = [Fraction(2 * code + 1, 8) - Fraction(1, 4) for code in codes]
    else:
        members = {code: [Fraction(v) for v, of in zip(column, codes, strict=True) if of == code] for code in codes}
        expected = [sum(members[code], Fraction(0)) / len(members[code]) for code in codes]
    memory = Memory.empty(1, len(column), dtype)
    message = codec.encode(np.array([column], dtype), memory, Address())
    assert codes_of(codec, message, len(column)) == [codes]
    decoded = codec.decode(message, len(column))[0].tolist()
    assert decoded == [float(np.float32(float(level))) for level in expected]
    assert memory.residual[0].tolist() == [
        float(dtype(v) - dtype(level)) for v, level in zip(column, decoded, strict=True)
    ]
    if levels == "middles":
        assert message.levels.tolist() == [[-0.25, 1.0]]


@pytest.mark.parametrize("bits", range(9, 17))
def test_codes_of_9_to_16_bits_are_those_of_exact_numbers_c2_c4(bits: int, backend: str):
    """Steps of the range 0 .. 1 are powers of two."""
    codec = codec_of(bits, range=(0.0, 1.0), backend=backend)
    places = np.random.default_rng(bits).integers(0, 1 << bits, 301)
    column = ((places + 0.25) / (1 << bits)).astype(np.float32)
    message = codec.encode(column[None], memory := Memory.empty(1, 301), Address())
    number = sum(word << 32 * i for i, word in enumerate(message.words[0].tolist()))
    assert number == sum(place << bits * i for i, place in enumerate(places.tolist()))
    assert len(message.to_bytes()) == 4 * (2 + math.ceil(301 * bits / 32)) == codec.message_bytes(1, 301)
    np.testing.assert_array_equal(codec.decode(message, 301)[0], (places + 0.5) / (1 << bits))
    np.testing.assert_array_equal(memory.residual[0], np.full(301, -0.25 / (1 << bits)))
    total = np.ones((1, 301), np.float64)
    codec.decode_and_add(message, total)
    np.testing.assert_array_equal(total[0], 1 + (places + 0.5) / (1 << bits))


def test_values_beyond_the_range_take_the_outer_steps_c2():
    codec = Quantiser(4, deviations=1.0)
    column = np.array([[-100.0, -1.0, 1.0, 100.0] + [0.5, -0.5] * 50], np.float32)
    (message,), _ = encoded(codec, column)
    assert codes_of(codec, message, column.size)[0][:4] == [0, 1, 2, 3]


def test_a_column_of_one_value_loses_nothing():
    for codec in (Quantiser(), Quantiser(4), Quantiser(3, levels="means"), Quantiser(2, "mean", "ends")):
        (message,), memory = encoded(codec, np.full((1, 70), 0.375, np.float32))
        assert codec.decode(message, 70).tolist() == [[0.375] * 70]
        assert not memory.residual.any()


@pytest.mark.parametrize("steps", [3, 4, 7, 256])
def test_a_level_for_each_code_is_the_mean_of_its_values_c3(steps: int):
    codec, column = Quantiser(steps, levels="means"), random_columns(1, 500)
    (message,), _ = encoded(codec, column)
    codes = np.array(codes_of(codec, message, 500)[0])
    for code in range(1 << codec.bits):
        members = column[0].astype(np.float64)[codes == code]
        expected = members.mean() if members.size else 0.0
        assert message.levels[0, code] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_levels_of_an_earlier_mini_batch_are_used_where_there_is_one_c3():
    codec = Quantiser(lag=2)
    batches = [np.array([[-a, a]], np.float32) for a in (1.0, 2.0, 4.0, 8.0)]
    memory = Memory.empty(1, 2)
    levels: list[float] = []
    for step, batch in enumerate(batches):
        memory.residual = np.zeros((1, 2), np.float32)
        levels.append(float(codec.encode(batch, memory, Address(step=step)).levels[0, 1]))
    assert levels == [1.0, 2.0, 1.0, 2.0]  # none two before; none; the first one's; the second one's


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"smoothing": "exponential", "decay": 0.75}, [8.0, 6.5, 5.0, 3.875]),
        ({"smoothing": "window", "window": 2}, [8.0, 5.0, 1.25, 0.5]),
        ({"interval": 2}, [8.0, 8.0, 0.5, 0.5]),
        ({"interval": 3}, [8.0, 8.0, 8.0, 0.5]),
    ],
)
def test_levels_are_smoothed_or_stand_for_several_mini_batches_c3(options: Any, expected: list[float]):
    codec, memory = Quantiser(**options), Memory.empty(1, 2)
    levels: list[float] = []
    for step, a in enumerate((8.0, 2.0, 0.5, 0.5)):
        memory.residual = np.zeros((1, 2), np.float32)
        levels.append(float(codec.encode(np.array([[-a, a]], np.float32), memory, Address(step=step)).levels[0, 1]))
    assert levels == expected


def single(x: float) -> float:
    """The float32 next to a float64: one operation on float32 numbers, rounded twice, is rounded right."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def levels_in_use(sizes: list[float], lag: int, smoothing: str, window: int, interval: int) -> list[float]:
    """What each mini-batch uses, by the sentences of the documentation: positions counted from the first one."""
    computed: list[float] = []
    used: list[float] = []
    for place, size in enumerate(sizes):
        if place % interval:
            used.append(used[-1])
            continue
        computed.append(size)
        newest = len(computed) - 1 - lag
        seen = [computed[k] for k in range(newest + 1) if k > newest - window] or [size]  # where none is so old yet
        level = seen[-1]
        if smoothing == "window":
            level = seen[0]
            for more in seen[1:]:
                level = single(level + more)
            level = single(level / len(seen))
        if smoothing == "exponential" and used:
            decay = single(0.7)
            level = single(single(decay * used[-1]) + single(single(1 - decay) * seen[-1]))
        used.append(level)
    return used


@pytest.mark.parametrize("interval", range(1, 5))
@pytest.mark.parametrize(
    ("smoothing", "window"), [("none", 1), ("exponential", 1), *(("window", w) for w in range(1, 6))]
)
@pytest.mark.parametrize("lag", range(7))
def test_lag_smoothing_window_and_interval_go_together_c3(
    lag: int, smoothing: Any, window: int, interval: int, backend: str
):
    codec = Quantiser(lag=lag, smoothing=smoothing, decay=0.7, window=window, interval=interval, backend=backend)
    sizes = [single(1 + place + place * place / 7) for place in range(13 * interval)]
    memory, levels = Memory.empty(1, 2), list[float]()
    for step, size in enumerate(sizes):
        memory.residual = np.zeros((1, 2), np.float32)
        message = codec.encode(np.array([[-size, size]], np.float32), memory, Address(step=step))
        low, high = message.levels[0].tolist()
        assert low == -high
        levels.append(high)
    assert levels == levels_in_use(sizes, lag, smoothing, window, interval)


def test_mini_batches_are_counted_c1():
    memory = encoded(Quantiser(interval=3), *[G1] * 5)[1]
    assert memory.batches == 5


def test_random_intervals_renew_levels_one_time_in_so_many_and_by_the_seed_c3():
    codec = Quantiser(interval=4, at_random=True)

    def renewals(seed: int) -> list[bool]:
        memory, found, last = Memory.empty(1, 2), list[bool](), -1.0
        for step in range(2000):
            memory.residual = np.zeros((1, 2), np.float32)
            sent = codec.encode(np.array([[-1.0, 1.0 + step]], np.float32), memory, Address(seed, 3, step)).levels[0, 1]
            found.append(bool(sent != last))
            last = sent
        return found

    first = renewals(7)
    assert first == renewals(7)
    assert first != renewals(8)
    assert 400 < sum(first) < 600


def test_outliers_decide_no_level_and_are_still_sent_c3():
    column = np.array([[1.0] * 50 + [-1.0] * 50 + [1000.0]], np.float32)
    codec = Quantiser(outliers=3.0)
    (message,), memory = encoded(codec, column)
    assert message.levels.tolist() == [[-1.0, 1.0]]
    assert memory.residual[0, -1] == 999.0
    (plain,), _ = encoded(Quantiser(), column)
    assert plain.levels[0, 1] > 20


def test_random_elements_decide_no_level_c3():
    column = random_columns(1, 4096)
    column[0, ::2] = np.abs(column[0, ::2])
    codec = Quantiser(left_out=0.5)
    memories = [Memory.empty(1, 4096) for _ in range(3)]
    first, again, other = (
        codec.encode(column, memory, Address(1, 2, step)) for memory, step in zip(memories, (0, 0, 1), strict=True)
    )
    assert first.levels.tobytes() == again.levels.tobytes()
    assert first.levels.tobytes() != other.levels.tobytes()
    assert first.words.tobytes() == other.words.tobytes()
    (plain,), _ = encoded(Quantiser(), column)
    assert first.levels == pytest.approx(plain.levels, rel=0.2)


@pytest.mark.parametrize(
    "options", [{}, {"threshold": "mean"}, {"steps": 4}, {"steps": 3, "levels": "means"}, {"levels": "ends"}], ids=str
)
def test_infinity_and_nan_stay_in_their_column(options: Any):
    codec, gradients = Quantiser(**options), random_columns(3, 70)
    gradients[1, 5], gradients[1, 9], gradients[2, 3] = np.inf, np.nan, -np.inf
    (message,), memory = encoded(codec, gradients)
    alone = Memory.empty(1, 70)
    first = codec.encode(gradients[:1], alone, Address())
    assert message.levels[0].tobytes() == first.levels[0].tobytes()
    assert memory.residual[0].tobytes() == alone.residual[0].tobytes()
    assert not np.isfinite(memory.residual[1:]).all()


# ---- the wire ----


def test_one_bit_of_2048_rows_is_31_times_less_than_float32_c4():
    codec = Quantiser()
    assert codec.message_bytes(1, 2048) * 8 == 2048 + 64
    assert Float32().message_bytes(1, 2048) / codec.message_bytes(1, 2048) == pytest.approx(31.03, abs=0.005)


def test_one_bit_takes_less_than_float32_from_four_rows_on_c4():
    for rows in range(1, 20):
        assert (Quantiser().message_bytes(1, rows) < Float32().message_bytes(1, rows)) == (rows >= 4)


@pytest.mark.parametrize(
    ("steps", "levels", "sent"), [(4, "middles", 2), (4, "means", 4), (5, "means", 8), (2, "ends", 2)]
)
def test_equal_steps_send_two_limits_and_a_level_for_each_code_otherwise_c4(steps: int, levels: Any, sent: int):
    codec = Quantiser(steps, levels=levels)
    words = math.ceil(100 * codec.bits / 32)
    assert codec.message_bytes(3, 100) == 3 * 4 * (sent + words)


@pytest.mark.parametrize("bits", [*range(1, 17), 32])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 100])
def test_messages_come_back_from_their_bytes_c4(bits: int, rows: int):
    codec, gradients = codec_of(bits), random_columns(3, rows)
    (message,), _ = encoded(codec, gradients)
    data = message.to_bytes()
    assert type(data) is bytes
    assert len(data) == codec.message_bytes(3, rows)
    back = codec.message_of(data, 3, rows)
    assert back.to_bytes() == data
    assert codec.decode(back, rows).tobytes() == codec.decode(message, rows).tobytes()


def test_float32_is_sent_as_it_is():
    gradients = np.array([[np.nan, -0.0, np.inf, 1e-45]], np.float32)
    (message,), memory = encoded(codec_of(32), gradients)
    assert message.to_bytes() == gradients.astype("<f4").tobytes()
    assert codec_of(32).decode(message, 4).tobytes() == gradients.tobytes()
    assert not memory.residual.any()


@given(st.integers(1, 16), st.integers(0, 140), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_codes_of_any_width_come_back_from_words_lowest_bit_first(bits: int, rows: int, seed: int):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (2, rows), dtype=np.uint8 if bits <= 8 else np.uint16)
    words = packed(codes, bits)
    assert words.shape == (2, -(-rows * bits // 32))
    for column, held in zip(words.tolist(), codes.tolist(), strict=True):
        number = sum(word << 32 * i for i, word in enumerate(column))
        assert number == sum(code << bits * i for i, code in enumerate(held))
    np.testing.assert_array_equal(unpacked(words, rows, bits), codes)


def test_a_message_of_another_length_is_refused():
    with pytest.raises(
        ShapeError, match="a message of 3 columns must have 36 bytes, got 35; sender and receiver must have"
    ):
        codec_of(1).message_of(bytes(35), 3, 7)


# ---- sums and memory ----


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 128, 1000])
def test_sums_of_columns_are_those_of_64_lanes(rows: int):
    """The engine adds in the order `lanes(64)`: the same bits."""
    values = random_columns(4, rows)
    mac = emu.Mac(accumulator="fp32", order=f"lanes({LANES})")
    ones = np.ones((rows, 1), np.float32)
    formats = {"a_format": "fp32", "b_format": "fp32", "out_format": "fp32"}
    expected = emu.matmul(values, ones, mac=mac, backend="reference", **formats)[:, 0]
    np.testing.assert_array_equal(column_sums(values).view(np.uint32), expected.view(np.uint32))


def test_means_of_nothing_are_zero():
    assert column_means(np.ones((2, 3), np.float32), np.zeros((2, 3), bool)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": "previous_mean", "lag": 2, "smoothing": "window", "window": 3},
        {"threshold": "previous_mean", "threshold_lag": 3, "residual_lag": 3},
        {"threshold": "previous_mean", "threshold_lag": 6, "residual_lag": 7},
        {"steps": 1000, "residual_lag": 2},
        {"steps": 5, "levels": "means", "range": (-1.0, 1.0), "smoothing": "exponential"},
        {"steps": 16, "smoothing": "exponential", "interval": 3},
        {"steps": 5, "levels": "means", "interval": 2, "at_random": True, "left_out": 0.25, "outliers": 2.0},
    ],
    ids=str,
)
def test_what_is_remembered_goes_through_a_checkpoint_to_the_same_bits_c1(options: Any):
    codec, batches = Quantiser(**options), [random_columns(3, 90, seed) for seed in range(8)]
    messages, memory = encoded(codec, *batches)
    half = Memory.empty(3, 90)
    for step, batch in enumerate(batches):
        if step == 4:
            resumed = Memory.empty(3, 90)
            resumed.load({name: array.copy() for name, array in half.arrays().items()})
            half = resumed
        assert codec.encode(batch, half, Address(step=step)).to_bytes() == messages[step].to_bytes()
    for name, array in memory.arrays().items():
        assert array.tobytes() == half.arrays()[name].tobytes(), name


# ---- bad input ----


@pytest.mark.parametrize("bits", [0, 17, 33, -1, True, 1.0, "1"])
def test_other_numbers_of_bits_are_refused(bits: Any):
    with pytest.raises(ConfigError, match=r"`bits` must be 1..16, or 32 for gradients as they are, got "):
        codec_of(bits)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": 1}, r"`steps` of a gradient codec must be 2\.\.65536, got 1"),
        ({"steps": 65537}, r"`steps` of a gradient codec must be 2\.\.65536, got 65537"),
        (
            {"steps": 257, "levels": "means"},
            "`levels` of a gradient codec of 257 steps must be middles, got 'means'",
        ),
        ({"threshold_lag": 0}, "`threshold_lag` of a gradient codec must be a whole number from 1 on, got 0"),
        (
            {"threshold_lag": 2, "threshold": "mean"},
            "`threshold_lag` of a gradient codec must be left out if `threshold` is 'mean', got 2; remove it, or "
            "choose `threshold` 'previous_mean'",
        ),
        ({"residual_lag": 0}, "`residual_lag` of a gradient codec must be a whole number from 1 on, got 0"),
        ({"residual_lag": 1.0}, "`residual_lag` of a gradient codec must be a whole number from 1 on, got 1.0"),
        *(
            (
                {"steps": 4, "range": ends},
                "`range` of a gradient codec must be two numbers, the first below the second, their difference in "
                f"float32, got {re.escape(repr(ends))}",
            )
            for ends in ((1.0, 0.0), (0.5, 0.5), (0.0, 1e39), (-3e38, 3e38), (1.0, 1.0 + 1e-9), (0.0, math.nan))
        ),
        (
            {"range": (0.0, 1.0)},
            r"`range` of a gradient codec of 2 steps must be left out, got \(0.0, 1.0\); remove it, or choose more",
        ),
        (
            {"steps": 4, "range": (0.0, 1.0), "deviations": 2.0},
            "`deviations` of a gradient codec must be left out if `range` says where the middles lie, got 2.0",
        ),
        (
            {"steps": 4, "range": (0.0, 1.0), "smoothing": "window"},
            "`smoothing` of a gradient codec must be left out if `range` says where the middles lie, got 'window'",
        ),
        (
            {"threshold": "means"},
            "must be zero or mean or previous_mean, got 'means'",
        ),
        (
            {"steps": 4, "levels": "ends"},
            "of a gradient codec of 4 steps must be means or middles, got 'ends'",
        ),
        ({"levels": "middles"}, "`levels` of a gradient codec of 2 steps must be means or ends, got 'middles'"),
        ({"deviations": 0.0}, "`deviations` of a gradient codec must be above 0, got 0.0"),
        ({"interval": 0}, "`interval` of a gradient codec must be a whole number from 1 on, got 0"),
        ({"window": 0}, "`window` of a gradient codec must be a whole number from 1 on, got 0"),
        ({"lag": -1}, "`lag` of a gradient codec must be a whole number from 0 on, got -1"),
        ({"decay": 1.5}, r"`decay` of a gradient codec must be 0\.\.1, got 1.5"),
        ({"left_out": 1.0}, "`left_out` of a gradient codec must be 0 or more, below 1, got 1.0"),
        ({"left_out": 1 - 2**-17}, r"`left_out` of a gradient codec must be at most 1 - 2\*\*-16, got 0.99999"),
        (
            {"interval": 65537, "at_random": True},
            r"`interval` of a gradient codec must be 1\.\.65536 if `at_random` is true, got 65537",
        ),
        ({"outliers": -1.0}, "`outliers` of a gradient codec must be above 0, got -1.0"),
        ({"outliers": -0.5}, "`outliers` of a gradient codec must be above 0, got -0.5"),
        ({"outliers": 0.0}, "`outliers` of a gradient codec must be above 0, got 0.0"),
        ({"left_out": -0.5}, "`left_out` of a gradient codec must be 0 or more, below 1, got -0.5"),
        ({"decay": -0.5}, r"`decay` of a gradient codec must be 0\.\.1, got -0.5"),
        ({"interval": True}, "`interval` of a gradient codec must be a whole number from 1 on, got True"),
        ({"deviations": 1e39}, r"`deviations` of a gradient codec must be at most 3.40282e\+38, the largest float32"),
        (
            {"outliers": float("inf")},
            r"`outliers` of a gradient codec must be at most 3.40282e\+38, the largest float32",
        ),
        ({"deviations": float("nan")}, "`deviations` of a gradient codec must be above 0, got nan"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        Quantiser(**options)


def test_the_longest_interval_and_the_largest_share_that_can_be_drawn_are_taken():
    assert Quantiser(interval=65536, at_random=True).interval == 65536
    assert Quantiser(interval=65537).interval == 65537, "no probability: every so many mini-batches"
    codec, column = Quantiser(left_out=1 - 2**-16, backend="reference"), random_columns(1, 1 << 18)
    levels = codec.encode(column, Memory.empty(1, 1 << 18), Address(1, 2, 0)).levels
    assert levels.any(), "4 of 2**18 values are left to decide"


def test_options_of_gradients_as_they_are_are_refused():
    with pytest.raises(ConfigError, match="gradients of 32 bits are sent as they are, got threshold; remove them"):
        codec_of(32, threshold="mean")


# ---- arrays that do not fit ----


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (12,), (1, 2, 2)])
def test_gradients_that_memory_is_not_of_are_refused_before_anything_is_written(shape: tuple[int, ...], backend: str):
    memory = Memory.empty(1, 4)
    with pytest.raises(ShapeError) as found:
        codec_of(1, backend=backend).encode(np.ones(shape, np.float32), memory, Address())
    assert str(found.value) == (
        f"gradients must have the shape (columns, rows) and memory residuals of the same, got {shape} and (1, 4); "
        "begin with Memory.empty(columns, rows)"
    )
    assert not memory.residual.any()


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_message_is_decoded_with_the_sizes_it_was_made_with_alone(backend: str):
    codec = codec_of(1, backend=backend)
    message = codec.encode(np.ones((2, 4), np.float32), Memory.empty(2, 4), Address())
    text = (
        "a message of 2 columns of 64 rows must have levels (2, 2) and words (2, 2), got (2, 2) and (2, 1); decode it "
        "with the codec and the sizes that it was made with"
    )
    with pytest.raises(ShapeError) as found:
        codec.decode(message, 64)
    assert str(found.value) == text
    with pytest.raises(ShapeError) as found:
        codec.decode_and_add(message, np.zeros((2, 64), np.float32))
    assert str(found.value) == text
    with pytest.raises(ShapeError, match=r"a message of 3 columns of 4 rows must have levels \(3, 2\)"):
        codec.decode_and_add(message, np.zeros((3, 4), np.float32))
    with pytest.raises(ShapeError, match=r"`total` must have the shape \(columns, rows\), got \(8,\)"):
        codec.decode_and_add(message, np.zeros(8, np.float32))


def test_memory_of_another_stripe_is_refused():
    codec, gradients = codec_of(1, lag=1), np.ones((2, 4), np.float32)
    memory = Memory.empty(2, 4)
    codec.encode(gradients, memory, Address())
    memory.computed = [np.ones((3, 2), np.float32)]
    with pytest.raises(ShapeError, match="levels in a codec's memory must be of 2 columns, got 3"):
        codec.encode(gradients, memory, Address())
    memory = Memory.empty(2, 4)
    memory.means = np.ones(3, np.float32)
    with pytest.raises(ShapeError, match=r"`means` of a codec's memory must have the shape \(2,\), got \(3,\)"):
        codec_of(1, threshold="previous_mean").encode(gradients, memory, Address())
