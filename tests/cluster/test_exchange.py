"""Striped exchange: what all nodes have behind it, what is kept back, and what travels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import counting
import numpy as np
import pytest
from fast_suite import most_are_slow

from emu.cluster import AdaGradRule, Exchange, Layout, MomentumRule, ReplicaError, Simulated, stripes_of
from emu.cluster.codecs import Address, Memory, Quantiser, codec_of
from emu.errors import ConfigError

SHAPES = {"fc1.weight": (10, 33), "fc1.bias": (1, 10), "fc2.weight": (3, 64)}


def gradients_of(
    nodes: int, step: int = 0, dtype: type[np.floating[Any]] = np.float32
) -> dict[int, dict[str, np.ndarray]]:
    rng = np.random.default_rng([step, 5])
    return {n: {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()} for n in range(nodes)}


def exchange(nodes: int, bits: int = 1, **options: Any) -> Exchange:
    layout = options.pop("layout", None) or Layout(nodes, quantise_own=options.pop("quantise_own", True))
    return Exchange(SHAPES, layout, codec_of(bits), options.pop("transport", Simulated(nodes)), **options)


class Counting(Simulated):
    """Counts what is sent and what is received."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.sent = self.received = 0

    def swap(self, parcels: Mapping[tuple[int, int], bytes]) -> dict[tuple[int, int], bytes]:
        self.sent += sum(map(len, parcels.values()))
        arrived = {pair: bytes(data) for pair, data in super().swap(parcels).items()}
        self.received += sum(map(len, arrived.values()))
        return arrived


def by_hand(
    grads: Any,
    nodes: int,
    bits: int,
    memories: dict[Any, Memory],
    owner_bits: int,
    step: int,
    *,
    quantise_own: bool = True,
) -> dict[str, Any]:
    """The exchange in loops, each stripe by itself."""
    found: dict[str, Any] = {}
    for name, (columns, rows) in SHAPES.items():
        found[name] = np.empty((columns, rows), np.float32)
        of_vector = columns == 1  # a bias goes with its neuron: its numbers are divided
        for number, (start, width) in enumerate(stripes_of(rows if of_vector else columns, nodes)):
            block = np.s_[:, start : start + width] if of_vector else np.s_[start : start + width]
            shape = found[name][block].shape
            parts = []
            for node in range(nodes):
                memory = memories.setdefault((name, number, node), Memory.empty(*shape))
                codec = codec_of(bits)
                part = grads[node][name][block]
                if node == number and not quantise_own:
                    parts.append(part)
                    continue
                parts.append(codec.decode(codec.encode(part, memory, Address(step=step)), shape[1]))
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            memory = memories.setdefault((name, number, "owner"), Memory.empty(*shape))
            codec = codec_of(owner_bits)
            found[name][block] = codec.decode(codec.encode(total, memory, Address(step=step)), shape[1])
    return found


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(("bits", "owner_bits"), [(1, 1), (2, 2), (1, 8), (4, 32), (32, 32)])
def test_owners_add_stripes_in_node_order_and_quantise_again_with_residuals_of_their_own_c1_c5(
    nodes: int, bits: int, owner_bits: int
):
    running, memories = exchange(nodes, bits, owner_codec=codec_of(owner_bits)), dict[Any, Memory]()
    for step in range(4):
        grads = gradients_of(nodes, step)
        expected = by_hand(grads, nodes, bits, memories, owner_bits, step)
        for name, array in running.exchange(grads, step).items():
            np.testing.assert_array_equal(array.view(np.uint32), expected[name].view(np.uint32))


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(("bits", "owner_bits"), [(1, 1), (1, 8), (12, 32), (32, 32)])
def test_an_owner_may_add_its_own_part_as_it_is_in_its_place_c5(nodes: int, bits: int, owner_bits: int):
    running = exchange(nodes, bits, owner_codec=codec_of(owner_bits), quantise_own=False)
    quantising, memories = exchange(nodes, bits, owner_codec=codec_of(owner_bits)), dict[Any, Memory]()
    for step in range(4):
        grads = gradients_of(nodes, step)
        expected = by_hand(grads, nodes, bits, memories, owner_bits, step, quantise_own=False)
        found, other = running.exchange(grads, step), quantising.exchange(grads, step)
        for name, array in found.items():
            np.testing.assert_array_equal(array.view(np.uint32), expected[name].view(np.uint32))
        same = all(array.tobytes() == other[name].tobytes() for name, array in found.items())
        assert same == (bits == 32), "gradients of 32 bits are as they are in any case"
    assert running.sent == quantising.sent
    memories_of_own = [running.arrays()[f"worker/fc1.weight/stripe{n}@{n}/residual"] for n in range(nodes)]
    assert not any(residual.any() for residual in memories_of_own)


def test_no_code_of_an_owners_own_part_is_shown_if_it_has_none_c5():
    """The report counts the codes of node 0, which owns stripe 0 of 3."""
    shown: dict[bool, int] = {}
    for quantise_own in (True, False):
        running = exchange(3, quantise_own=quantise_own)
        running.exchange(gradients_of(3), 0)
        shown[quantise_own] = sum(count.values for _, count in running.code_counts())
    own = sum(shape[0] * shape[1] if shape[0] > 1 else shape[1] for shape in ((4, 33), (1, 4), (1, 64)))
    assert shown == {True: 10 * 33 + 10 + 3 * 64, False: 10 * 33 + 10 + 3 * 64 - own}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinity_and_nan_of_an_owners_own_part_are_those_of_a_sum_c5(dtype: Any):
    grads = gradients_of(2, dtype=dtype)
    grads[1]["fc2.weight"][2, :3] = np.inf, -np.inf, -np.nan
    grads[0]["fc2.weight"][2, 0] = -np.inf
    found = exchange(2, 32, quantise_own=False, dtype=dtype).exchange(grads, 0)["fc2.weight"]
    assert np.isnan(found[2, [0, 2]]).all()
    assert np.isneginf(found[2, 1])
    assert not np.signbit(found[2, [0, 2]]).any()
    assert np.isfinite(found[:2]).all()


@pytest.mark.parametrize("quantise_own", [True, False])
@pytest.mark.parametrize("lag", [2, 3])
def test_what_is_applied_and_all_residuals_that_wait_are_the_sum_of_true_gradients_c1_c5(lag: int, quantise_own: bool):
    """In float64 to 1e-12 of the largest sum, after each step."""
    codec, owner_codec = Quantiser(residual_lag=lag), Quantiser(16, range=(-1.0, 1.0), residual_lag=2)
    layout = Layout(3, quantise_own=quantise_own)
    running = Exchange(SHAPES, layout, codec, Simulated(3), owner_codec=owner_codec, dtype=np.float64)
    true, applied = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(12):
        grads = gradients_of(3, step, np.float64)
        for name, array in running.exchange(grads, step).items():
            applied[name] += array
            true[name] += sum(grads[node][name] for node in range(3))
        largest = max(np.abs(total).max() for total in true.values())
        for name, left in running.residuals().items():
            assert left.any()
            assert np.abs(applied[name] + left - true[name]).max() <= 1e-12 * largest


@pytest.mark.parametrize("quantise_own", [True, False])
@most_are_slow("bits", [1, 2, 4, 8, 11, 16, 32], keep=[1, 4, 11, 32])
@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_what_is_applied_and_all_residuals_are_the_sum_of_true_gradients_c1_c5(
    nodes: int, bits: int, quantise_own: bool
):
    """In float64 to 1e-12 of the largest sum."""
    running = exchange(nodes, bits, dtype=np.float64, quantise_own=quantise_own)
    true = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    applied = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step in range(20):
        grads = gradients_of(nodes, step, np.float64)
        for name, array in running.exchange(grads, step).items():
            applied[name] += array
            true[name] += sum(grads[node][name] for node in range(nodes))
    largest = max(np.abs(total).max() for total in true.values())
    for name, left in running.residuals().items():
        assert np.abs(applied[name] + left - true[name]).max() <= 1e-12 * largest


@pytest.mark.parametrize("owners", [(0,), (3,), (2, 0), (1, 1, 3), (3, 2, 1, 0)])
def test_any_placement_of_owners_gives_the_sums_of_float32_c5(owners: tuple[int, ...]):
    grads = gradients_of(4)
    found = exchange(4, 32, layout=Layout(4, owners=owners)).exchange(grads, 0)
    for name, array in found.items():
        total = grads[0][name]
        for node in range(1, 4):
            total = total + grads[node][name]
        np.testing.assert_array_equal(array.view(np.uint32), total.view(np.uint32))


def test_a_node_may_own_stripes_and_compute_no_gradient_c5():
    grads = gradients_of(2)
    alone = exchange(3, layout=Layout(3, workers=(0, 1), owners=(2,)))
    same = exchange(2, layout=Layout(2, owners=(0,)))
    for step in range(3):
        found, expected = alone.exchange(grads, step), same.exchange(grads, step)
        assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in expected.items()}


def test_owners_may_smooth_by_momentum_c5():
    running, state = exchange(2, 32, rule=MomentumRule(0.5)), 0.0
    for step in range(3):
        grads = gradients_of(2, step)
        found = running.exchange(grads, step)["fc2.weight"]
        state = np.float32(0.5) * state + (grads[0]["fc2.weight"] + grads[1]["fc2.weight"])
        np.testing.assert_array_equal(found, state)


def test_owners_may_divide_by_the_root_of_squares_so_far_c5():
    running, squares = exchange(2, 32, rule=AdaGradRule(1e-6)), np.zeros((3, 64), np.float32)
    for step in range(3):
        grads = gradients_of(2, step)
        found = running.exchange(grads, step)["fc2.weight"]
        total = grads[0]["fc2.weight"] + grads[1]["fc2.weight"]
        squares = squares + total * total
        np.testing.assert_array_equal(found, total / (np.sqrt(squares) + np.float32(1e-6)))


def test_sums_that_were_always_0_stay_0_however_small_eps_is_in_their_dtype():
    sums = np.float32([0.0, -0.0, 2.0])
    result, _ = AdaGradRule(1e-46).apply(sums, None)
    assert result.tolist() == [0.0, 0.0, 1.0]


def test_sums_that_overflow_or_are_not_finite_pass_the_rules_of_owners_without_a_warning():
    sums = np.float32([3e38, np.inf, np.nan])
    for rule, first, second in (
        (MomentumRule(0.5), [sums[0], np.inf, np.nan], [np.inf, np.inf, np.nan]),
        (AdaGradRule(), [0.0, np.nan, np.nan], [0.0, np.nan, np.nan]),
    ):
        result, state = rule.apply(sums, None)
        np.testing.assert_array_equal(result, first)
        np.testing.assert_array_equal(rule.apply(sums, state)[0], second)


@pytest.mark.parametrize("nodes", [1, 2, 5, 8])
@pytest.mark.parametrize("bits", [1, 3, 32])
def test_bytes_sent_are_bytes_received_and_those_of_the_wire_format_c4_c5(nodes: int, bits: int):
    transport = Counting(nodes)
    running = exchange(nodes, bits, transport=transport)
    for step in range(2):
        running.exchange(gradients_of(nodes, step), step)
    assert running.sent == transport.sent == transport.received == 2 * running.step_bytes()
    vector, *_ = (rows for columns, rows in SHAPES.values() if columns == 1)
    once = sum(codec_of(bits).message_bytes(*shape) for shape in SHAPES.values() if shape != (1, vector))
    once += sum(codec_of(bits).message_bytes(1, part.width) for part in stripes_of(vector, nodes))
    assert running.step_bytes() == 2 * (nodes - 1) * once  # each stripe to its owner from nodes - 1, and back to them


@pytest.mark.parametrize(
    ("nodes", "megabytes", "milliseconds", "at_one_bit"),
    [(2, 184, 30.7, 5.93), (4, 276, 46.0, 8.89), (8, 322, 53.7, 10.38)],
)
def test_46_million_parameters_are_the_published_bytes_of_a_node_and_direction_c6(
    nodes: int, megabytes: float, milliseconds: float, at_one_bit: float
):
    """Columns of 2048 rows, as many as every K divides."""
    rows, columns = 2048, 46_000_000 // 2048 // 8 * 8
    scale = 46e6 / (rows * columns)
    for bits, expected in ((32, megabytes), (1, at_one_bit)):
        shapes, codec = {"w": (columns, rows)}, codec_of(bits)
        width = columns // nodes
        each = 2 * (nodes - 1) * codec.message_bytes(width, rows) * scale / 1e6
        assert each == pytest.approx(expected, rel=0.002)
        if bits == 32:
            assert each / 6 == pytest.approx(milliseconds, rel=0.002)  # 6 GB/s
        assert sum(codec.message_bytes(*shape) for shape in shapes.values()) == nodes * codec.message_bytes(width, rows)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (0, r"on node 2 and .* on node 0 in 'fc1.weight', column 0, row 1; the transport or the memory of a node"),
        (8 + 1, r"on node 2 and .* on node 0 in 'fc1.weight', column 0, row 8;"),
        (4 * 16 + 8, r"on node 2 and .* on node 0 in 'fc1.bias', column 0, row 0;"),
    ],
)
def test_a_replica_that_differs_is_named_with_tensor_and_index_c5(place: int, text: str):
    with pytest.raises(ReplicaError, match=text):
        exchange(3, transport=counting.Counting(3, damage=(0, 2, place))).exchange(gradients_of(3), 0)


@pytest.mark.parametrize(
    ("rule", "codec", "quantise_own"),
    [
        *(
            (rule, Quantiser(4, smoothing="window", interval=2, left_out=0.1), True)
            for rule in (None, MomentumRule(0.9), AdaGradRule())
        ),
        (None, Quantiser(threshold="previous_mean", threshold_lag=2, residual_lag=3), False),
        (MomentumRule(0.5), Quantiser(threshold="previous_mean", threshold_lag=7, residual_lag=9), True),
    ],
    ids=str,
)
def test_an_exchange_goes_on_from_a_checkpoint_to_the_same_bits_c1(rule: Any, codec: Quantiser, quantise_own: bool):
    layout = Layout(3, quantise_own=quantise_own)
    first, again = (Exchange(SHAPES, layout, codec, Simulated(3), rule=rule, seed=4) for _ in range(2))
    for step in range(3):
        first.exchange(gradients_of(3, step), step)
    again.load({name: array.copy() for name, array in first.arrays().items()})
    for step in range(3, 6):
        found, expected = (running.exchange(gradients_of(3, step), step) for running in (again, first))
        assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in expected.items()}


def test_more_owners_than_columns_and_rules_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="for each of the 11 owners, got 10 in the widest tensor"):
        exchange(11)
    with pytest.raises(ConfigError, match=r"`momentum` of an owner must be 0 or more, below 1, got 1.0"):
        MomentumRule(1.0)
    with pytest.raises(ConfigError, match=r"`eps` of an owner must be above 0, got 0.0"):
        AdaGradRule(0.0)
