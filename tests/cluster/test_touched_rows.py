"""Gradients of some rows: what travels of them, what is held back, and what every node has behind an exchange (E6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from counting import Counting
from hypothesis import given
from hypothesis import strategies as st

from emu.autodiff import Value
from emu.cluster import (
    AdaGradRule,
    Controllers,
    Exchange,
    Homes,
    Layout,
    MomentumRule,
    ReplicaError,
    Simulated,
    stripes_of,
)
from emu.cluster.codecs import Address, Memory, Quantiser, codec_of
from emu.cluster.wires import Touched, added, arrays_of, header_bytes, header_of, indices_of, lines_from, wire_of
from emu.errors import ConfigError
from emu.formats import parse

LINES, NUMBERS = 200, 40
SHAPES = {"words.weight": (LINES, NUMBERS), "words.bias": (1, NUMBERS), "fc2.weight": (3, NUMBERS)}
TOUCHED = ("words.weight",)


def gradients_of(nodes: int, step: int, touched: int = 20, dtype: Any = np.float32) -> dict[int, dict[str, Any]]:
    rng = np.random.default_rng([step, 7])
    found: dict[int, dict[str, Any]] = {}
    for node in range(nodes):
        found[node] = {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}
        places = np.sort(rng.choice(LINES, touched, replace=False))
        found[node]["words.weight"] = Touched(places, found[node]["words.weight"][places])
    return found


def exchange(nodes: int, bits: int = 1, **options: Any) -> Exchange:
    layout = options.pop("layout", None) or Layout(nodes, quantise_own=options.pop("quantise_own", True))
    given_to = (options.pop("shapes", SHAPES), layout, codec_of(bits), options.pop("transport", Simulated(nodes)))
    return Exchange(*given_to, touched=options.pop("touched", TOUCHED), **options)


def whole(gradients: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    return {
        node: {name: one.whole(LINES) if isinstance(one, Touched) else one for name, one in found.items()}
        for node, found in gradients.items()
    }


# ---- which lines ----


@given(lines=st.integers(1, 100), seed=st.integers(0, 2**31))
def test_a_header_says_which_lines_are_there_in_the_fewest_bytes_e6(lines: int, seed: int):
    rng = np.random.default_rng(seed)
    places = np.flatnonzero(rng.random(lines) < rng.random())
    header = header_of(places, lines)
    assert len(header) == header_bytes(len(places), lines)
    assert indices_of(header + b"what follows", lines).tolist() == places.tolist()
    bits, numbers = -(-lines // 8), 4 * len(places)
    assert len(header) == 4 + (0 if len(places) == lines else min(bits, numbers))


def test_three_of_64_lines_take_eight_bytes_of_bits_and_one_takes_four():
    assert header_of(np.array([0, 9, 63]), 64).hex() == "03000000" + "0102000000000080"
    assert header_of(np.array([9]), 64).hex() == "01000000" + "09000000"
    assert header_of(np.arange(64), 64).hex() == "40000000"
    assert header_of(np.arange(0), 64).hex() == "00000000"


# ---- a wire ----


@pytest.mark.parametrize("count", [0, 1, 5, 63, 64])
@pytest.mark.parametrize("bits", [1, 4, 32])
def test_a_message_of_some_lines_is_the_codecs_own_behind_a_header_e6(bits: int, count: int):
    codec, rng = codec_of(bits), np.random.default_rng(count)
    wire = wire_of(codec, 64, 40, np.float32, feedback=True, touched=True)
    places = np.sort(rng.choice(64, count, replace=False))
    numbers = rng.standard_normal((count, 40)).astype(np.float32)
    data = wire.encoded(Touched(places, numbers), Memory.empty(64, 40), Address())
    own = codec.encode(numbers, Memory.empty(count, 40), Address()).to_bytes() if count else b""
    if count == 63 and bits == 1:  # 8 bytes of bits are as much as half a line
        assert len(data) < 4 + codec.message_bytes(64, 40)
    assert data == header_of(places, 64) + own
    assert wire.size_of(memoryview(data + b"another message")) == len(data)
    found = wire.decoded(data)
    assert isinstance(found, Touched)
    assert found.indices.tolist() == places.tolist()


def test_all_lines_are_sent_where_that_is_fewer_bytes_e6():
    """A line of one number at 32 bits: 4 bytes; of 31 of 32 lines, 4 bytes would say which."""
    wire = wire_of(codec_of(32), 32, 1, np.float32, feedback=True, touched=True)
    some = Touched(np.arange(31), np.ones((31, 1), np.float32))
    data = wire.encoded(some, Memory.empty(32, 1), Address())
    assert len(data) == 4 + 32 * 4
    found = wire.decoded(data)
    assert isinstance(found, Touched)
    assert found.whole(32)[:, 0].tolist() == [1.0] * 31 + [0.0]
    fewer = wire.encoded(Touched(np.arange(30), np.ones((30, 1), np.float32)), Memory.empty(32, 1), Address())
    assert len(fewer) == 4 + 4 + 30 * 4


def test_residuals_stay_with_their_lines_e6():
    """By hand: line 1 is [1, 2]; one bit says [1.5, 1.5]; its residual waits until line 1 comes again."""
    wire = wire_of(codec_of(1), 4, 2, np.float32, feedback=True, touched=True)
    memory = Memory.empty(4, 2)
    wire.encoded(Touched(np.array([1]), np.float32([[1, 2]])), memory, Address())
    assert memory.residual.tolist() == [[0, 0], [-0.5, 0.5], [0, 0], [0, 0]]
    wire.encoded(Touched(np.array([3]), np.float32([[2, 4]])), memory, Address())
    assert memory.residual.tolist() == [[0, 0], [-0.5, 0.5], [0, 0], [-1, 1]]
    data = wire.encoded(Touched(np.array([1]), np.float32([[0.5, -0.5]])), memory, Address())
    assert wire.decoded(data).lines.tolist() == [[0, 0]]  # type: ignore[union-attr]
    assert memory.residual.tolist() == [[0, 0], [0, 0], [0, 0], [-1, 1]]


def test_without_feedback_nothing_is_held_back_of_the_lines_that_are_there():
    wire = wire_of(codec_of(1), 4, 2, np.float32, feedback=False, touched=True)
    memory = Memory.empty(4, 2)
    wire.encoded(Touched(np.array([1]), np.float32([[1, 2]])), memory, Address())
    assert not memory.residual.any()


def test_a_sum_has_every_line_that_any_message_has():
    one, other = Touched(np.array([1, 4]), np.float32([[1], [2]])), Touched(np.array([0, 4]), np.float32([[5], [7]]))
    total = added(one, other)
    assert isinstance(total, Touched)
    assert (total.indices.tolist(), total.lines.tolist()) == ([0, 1, 4], [[5], [1], [9]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("touched", [False, True])
def test_a_sum_of_infinities_is_the_same_nan_on_every_wire(touched: bool):
    """x86 processors write the NaN of inf - inf with a sign, others without."""
    wire = wire_of(codec_of(32), 2, 2, np.float32, feedback=True, touched=touched)
    arrays = [np.float32([[np.inf, 3e38], [-np.nan, 1]]), np.float32([[-np.inf, 3e38], [2, 3]])]
    lines = [Touched(np.arange(2), array) if touched else array for array in arrays]
    messages = [wire.encoded(part, Memory.empty(2, 2), Address()) for part in lines]
    for total in (wire.summed(lines), wire.summed(messages), added(*lines)):
        numbers = total.whole(2) if isinstance(total, Touched) else total
        assert numbers.view(np.uint32).tolist() == [[0x7FC00000, 0x7F800000], [0x7FC00000, 0x40800000]]


def test_lines_are_arrays_by_name_and_back():
    found = {"a": np.ones((2, 3)), "b": Touched(np.array([4]), np.ones((1, 2)))}
    back = lines_from(arrays_of(found))
    assert back.keys() == found.keys()
    assert isinstance(back["b"], Touched)
    assert back["b"].indices.tolist() == [4]


# ---- stripes ----


@pytest.mark.parametrize("owners", [(), (2,), (1, 0, 1)])
@pytest.mark.parametrize("nodes", [1, 3])
def test_at_32_bits_all_nodes_have_the_sum_of_all_rows_e6(nodes: int, owners: tuple[int, ...]):
    owners = owners if nodes > 1 else ()
    running = exchange(nodes, 32, layout=Layout(nodes, owners=owners))
    plain = exchange(nodes, 32, layout=Layout(nodes, owners=owners), touched=())
    for step in range(3):
        grads = gradients_of(nodes, step)
        found, expected = running.exchange(grads, step), plain.exchange(whole(grads), step)
        for name, lines in found.items():
            same = lines.whole(LINES) if isinstance(lines, Touched) else lines
            np.testing.assert_array_equal(same, expected[name])
        touched = np.unique(np.concatenate([grads[node]["words.weight"].indices for node in range(nodes)]))
        there = found["words.weight"]
        assert isinstance(there, Touched)
        assert there.indices.tolist() == touched.tolist()


@pytest.mark.parametrize("quantise_own", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 8, 12])
@pytest.mark.parametrize("touched", [1, 20, 190])
def test_what_is_applied_and_all_residuals_are_the_sum_of_true_rows_e6(touched: int, bits: int, quantise_own: bool):
    """In float64 to 1e-12 of the largest sum."""
    running = exchange(3, bits, dtype=np.float64, quantise_own=quantise_own)
    true, applied = np.zeros((LINES, NUMBERS)), np.zeros((LINES, NUMBERS))
    for step in range(12):
        grads = gradients_of(3, step, touched, np.float64)
        found = running.exchange(grads, step)["words.weight"]
        assert isinstance(found, Touched)
        applied += found.whole(LINES)
        true += sum(grads[node]["words.weight"].whole(LINES) for node in range(3))
    left = running.residuals()["words.weight"]
    assert np.abs(applied + left - true).max() <= 1e-12 * np.abs(true).max()


def test_an_owner_adds_its_own_rows_as_they_are_c5_e6():
    running, quantising = (exchange(2, 1, owner_codec=codec_of(32), quantise_own=own) for own in (False, True))
    grads = gradients_of(2, 0)
    found, other = (e.exchange(grads, 0)["words.weight"].whole(LINES) for e in (running, quantising))
    (begin, width), *_ = stripes_of(LINES, 2)
    of_others = np.isin(np.arange(LINES), grads[1]["words.weight"].indices)
    alone = ~of_others & (np.arange(LINES) < begin + width)
    own = grads[0]["words.weight"].whole(LINES)
    assert own[alone].any()
    np.testing.assert_array_equal(found[alone], own[alone])
    assert (other[alone] != own[alone]).any()


def test_rows_by_hand_in_stripes_e6():
    """Each stripe in loops: residuals by row, sums in node order, requantised with the owner's."""
    running, nodes = exchange(3, 1), 3
    held = {node: np.zeros((LINES, NUMBERS), np.float32) for node in range(nodes)}
    owned = np.zeros((LINES, NUMBERS), np.float32)
    codec = Quantiser()
    for step in range(4):
        grads = gradients_of(nodes, step)
        sums: dict[int, Any] = {}
        for node in range(nodes):
            for place, line in zip(*grads[node]["words.weight"], strict=True):
                memory = Memory(held[node][[place]])
                said = codec.decode(codec.encode(line[None], memory, Address()), NUMBERS)[0]
                held[node][place] = memory.residual[0]
                sums[place] = said if place not in sums else sums[place] + said
        found = running.exchange(grads, step)["words.weight"]
        assert isinstance(found, Touched)
        assert found.indices.tolist() == sorted(sums)
        for place, line in zip(*found, strict=True):
            memory = Memory(owned[[place]])
            said = codec.decode(codec.encode(sums[place][None], memory, Address()), NUMBERS)[0]
            owned[place] = memory.residual[0]
            assert line.tobytes() == said.tobytes()


def test_bytes_sent_are_those_of_headers_and_of_the_codecs_messages_e6():
    transport, codec, nodes = Counting(3), codec_of(1), 3
    running = exchange(nodes, 1, transport=transport)
    grads = gradients_of(nodes, 0)
    found = running.exchange(grads, 0)["words.weight"]
    assert isinstance(found, Touched)
    expected = 0
    for owner, stripe in enumerate(stripes_of(LINES, nodes)):

        def size(places: Any, stripe: Any = stripe) -> int:
            count = int(((places >= stripe.start) & (places < stripe.start + stripe.width)).sum())
            return header_bytes(count, stripe.width) + codec.message_bytes(count, NUMBERS)

        expected += sum(size(grads[node]["words.weight"].indices) for node in range(nodes) if node != owner)
        expected += (nodes - 1) * size(found.indices)
    others = {name: shape for name, shape in SHAPES.items() if name not in TOUCHED}
    expected += exchange(nodes, 1, shapes=others, touched=()).step_bytes()
    assert running.sent == transport.bytes() == expected
    assert running.sent < exchange(nodes, 1, touched=()).step_bytes() / 2


def test_adagrad_at_the_owner_moves_the_rows_that_came_e6():
    running, plain = (exchange(2, 32, rule=AdaGradRule(), touched=touched) for touched in (TOUCHED, ()))
    for step in range(3):
        grads = gradients_of(2, step)
        found, expected = running.exchange(grads, step)["words.weight"], plain.exchange(whole(grads), step)
        assert isinstance(found, Touched)
        np.testing.assert_array_equal(found.whole(LINES), expected["words.weight"])


def test_what_is_remembered_of_rows_comes_back_from_a_checkpoint_e6():
    running = exchange(2, 1, rule=AdaGradRule())
    for step in range(2):
        running.exchange(gradients_of(2, step), step)
    other = exchange(2, 1, rule=AdaGradRule())
    other.load({name: array.copy() for name, array in running.arrays().items()})
    for step in range(2, 4):
        one, two = (ex.exchange(gradients_of(2, step), step)["words.weight"] for ex in (running, other))
        assert one.indices.tolist() == two.indices.tolist()  # type: ignore[union-attr]
        assert one.lines.tobytes() == two.lines.tobytes()  # type: ignore[union-attr]


def test_residuals_of_rows_follow_a_changed_scale_e6():
    running = exchange(2, 1)
    running.exchange(gradients_of(2, 0), 0, scale=1.0)
    before = running.residuals()["words.weight"]
    grads = gradients_of(2, 1)
    lines = [grads[node]["words.weight"].indices for node in range(2)]
    running.exchange(grads, 1, scale=4.0)
    after = running.residuals()["words.weight"]
    others = np.setdiff1d(np.arange(LINES), np.concatenate(lines))
    np.testing.assert_array_equal(after[others], 4 * before[others])


def test_a_node_that_receives_other_rows_is_named_e6():
    transport = Counting(3, damage=(0, 2, 40))
    with pytest.raises(ReplicaError, match=r"on node 2 and .* on node 0 in 'words.weight', column \d+, row \d+; "):
        exchange(3, 1, transport=transport).exchange(gradients_of(3, 0), 0)


@pytest.mark.parametrize(
    "options",
    [{"lag": 1}, {"smoothing": "window"}, {"interval": 2}, {"threshold": "previous_mean"}, {"residual_lag": 2}],
)
def test_codecs_that_look_back_at_other_rows_are_refused_e6(options: dict[str, Any]):
    text = (
        "gradients of some rows must have levels and thresholds of the present mini-batch, got a codec that uses "
        "earlier mini-batches; remove `lag`, `smoothing`, `interval`, `residual_lag` and threshold 'previous_mean' of "
        "[cluster.codec] and [cluster.owner_codec]"
    )
    for pair in ({"owner_codec": codec_of(1, **options)}, {}):
        with pytest.raises(ConfigError) as found:
            Exchange(SHAPES, Layout(2), codec_of(1, **({} if pair else options)), Simulated(2), touched=TOUCHED, **pair)
        assert str(found.value) == text


def test_momentum_at_the_owner_is_refused_e6():
    with pytest.raises(ConfigError) as found:
        exchange(2, 1, rule=MomentumRule(0.9))
    assert str(found.value) == (
        "an owner must not change rows that no node has sent, got `rule` 'momentum', which changes all rows; choose "
        "`rule` 'none' or 'adagrad' of [cluster]"
    )


# ---- controllers ----


def controllers(nodes: int, **options: Any) -> Controllers:
    formats = dict.fromkeys(SHAPES, parse("fp32"))
    transport = options.pop("transport", Simulated(nodes))
    homes = Homes(options.pop("controllers", (0,)), options.pop("placement", "fixed"))
    codec = codec_of(options.pop("bits", 32))
    return Controllers(SHAPES, formats, Layout(nodes), codec, transport, homes=homes, **options)


@pytest.mark.parametrize("placement", [{"controllers": (0,)}, {"controllers": (2, 0)}])
def test_controllers_return_the_rows_that_came_and_no_others_e6(placement: dict[str, Any]):
    """A row that no worker has touched is never read: NaN stays where it is, and is not sent."""
    transport = Counting(3)
    running = controllers(3, touched=TOUCHED, transport=transport, **placement)
    grads = gradients_of(3, 0)
    means = running.exchange(grads, 0)
    mean = means["words.weight"]
    assert isinstance(mean, Touched)
    expected = sum(grads[node]["words.weight"].whole(LINES) for node in range(3)) / np.float32(3)
    np.testing.assert_array_equal(mean.whole(LINES), expected)
    parameters = {name: Value(np.full(shape, np.nan, np.float32), parse("fp32")) for name, shape in SHAPES.items()}
    for name in SHAPES:
        parameters[name].array[mean.indices if name in TOUCHED else slice(None)] = 2.0
    sent = transport.bytes()
    returned = running.returned(parameters)
    assert np.isnan(returned["words.weight"].array).all(axis=1).sum() == LINES - len(mean.indices)
    own = header_bytes(len(mean.indices), LINES) + 4 * len(mean.indices) * NUMBERS
    others = 4 * sum(columns * rows for name, (columns, rows) in SHAPES.items() if name not in TOUCHED)
    assert transport.bytes() - sent == 2 * (own + others)


def test_parameters_of_some_rows_come_back_from_their_message_e6():
    running = controllers(2, touched=TOUCHED)
    mean = running.exchange(gradients_of(2, 0), 0)["words.weight"]
    assert isinstance(mean, Touched)
    rng = np.random.default_rng(0)
    theirs, mine = (Value(rng.standard_normal((LINES, NUMBERS)).astype(np.float32), parse("fp32")) for _ in range(2))
    before = mine.array.copy()
    found = running.parameter_of("words.weight", running.parameters_message("words.weight", theirs), mine).array
    others = np.setdiff1d(np.arange(LINES), mean.indices)
    np.testing.assert_array_equal(found[mean.indices], theirs.array[mean.indices])
    np.testing.assert_array_equal(found[others], before[others])


def test_a_node_that_receives_other_parameters_of_rows_is_named_e6():
    parameters = {name: Value(np.ones(shape, np.float32), parse("fp32")) for name, shape in SHAPES.items()}
    own = 4 * SHAPES["fc2.weight"][0] * NUMBERS
    for place, text in (
        (own, r"got other columns of 'words.weight' on node 1"),
        (own + 60, r"in 'words.weight', column"),
    ):
        running = controllers(2, touched=TOUCHED, transport=Counting(2, damage=(0, 1, place + 4)))
        running.exchange(gradients_of(2, 0), 0)
        with pytest.raises(ReplicaError, match=text):
            running.returned(parameters)


def test_lines_of_two_workers_are_added_whole_or_by_their_places_e6():
    whole = np.float32([[1, 2], [3, 4]])
    assert added(whole, whole * 10).tolist() == [[11, 22], [33, 44]]
    one, other = Touched(np.array([1, 4]), whole), Touched(np.array([0, 4]), whole * 10)
    total = added(one, other)
    assert isinstance(total, Touched)
    assert (total.indices.tolist(), total.lines.tolist()) == ([0, 1, 4], [[10, 20], [1, 2], [33, 44]])
