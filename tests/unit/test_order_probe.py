"""emu.testing.probe_order: trees recovered from our own orders and from NumPy's, and what they compute."""

from __future__ import annotations

from functools import partial, reduce
from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.testing import OrderTree, assert_bits_equal, order_tree, probe_order

DEPTHS = [1, 2, 3, 5, 8, 13]


def unit(mac: emu.Mac, fmt: str = "fp16"):
    """A dot product of emu, with or without an addend."""

    def product(a, b, c=None):
        third = {} if c is None else {"addend": c, "addend_format": "fp32"}
        formats = {"a_format": fmt, "b_format": fmt, "out_format": "fp32"}
        return emu.matmul(a, b, mac=mac, backend="reference", **formats, **third)

    return product


def chain(start, terms):
    """((start + t0) + t1) + ...; nothing for no term."""
    return reduce(lambda acc, t: t if acc is None else (acc, t), terms, start)


def halves(level):
    """Neighbours first; the padding of docs/concepts/products.md leaves the last one of an odd level as it is."""
    while len(level) > 1:
        level = [tuple(level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def expected(order: str, k: int, addend: bool):
    terms, last = list(range(k)), [k] if addend else []
    if order == "sequential":
        return chain(k if addend else None, terms)
    if order == "pairwise":
        return chain(halves(terms), last)
    lanes = int(order[6:-1])
    return chain(halves([chain(None, terms[j::lanes]) for j in range(min(lanes, k))]), last)


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(2)", "lanes(3)", "lanes(8)"])
@pytest.mark.parametrize("k", DEPTHS)
def test_our_own_orders_are_recovered_with_and_without_addend(order, k):
    mac = emu.Mac("exact", "fp32", order)
    for addend in (False, True):
        tree = probe_order(unit(mac), k, a_format="fp16", addend_format="fp32" if addend else None)
        assert tree == OrderTree.of(expected(order, k, addend), has_addend=addend)
        assert tree == order_tree(order, k, addend=addend)


BLOCKS_OF_SEVEN = {
    "blocks(4, 24)": ((0, 1, 2, 3, 7), 4, 5, 6),
    "blocks(3, 20)": (((0, 1, 2, 7), 3, 4, 5), 6),
    "blocks(2, 24, addend=after)": ((((7, (0, 1)), (2, 3)), (4, 5)), 6),
    "blocks(4, 24, index_order=alternating_pairs)": ((0, 1, 4, 5, 7), 2, 3, 6),
    "blocks(2, 24, index_order=alternating_pairs, addend=after)": ((7, ((0, 1), 2, 3)), ((4, 5), 6)),
}


@pytest.mark.parametrize("order", BLOCKS_OF_SEVEN)
@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
def test_blocks_of_matrix_units_are_nodes_of_several_children(order, rounding):
    mac = emu.Mac("exact", "fp32", order, rounding)
    tree = probe_order(unit(mac), 7, a_format="fp16", addend_format="fp32")
    assert tree == OrderTree.of(BLOCKS_OF_SEVEN[order], has_addend=True)
    assert tree == order_tree(order, 7, addend=True)
    assert tree.is_binary == (order == "blocks(2, 24, addend=after)")


#: All but those that hide the order: random bits of their own, and last bits that are 1 whatever was added.
@most_are_slow(
    ("fmt", "rounding"),
    product(["fp16", "fp8_e4m3"], [mode for mode in emu.Rounding if mode != "stochastic" and mode.value != "jamming"]),
    keep=[("fp16", "floor"), ("fp16", "to_odd"), ("fp8_e4m3", "nearest_even"), ("fp8_e4m3", "toward_zero")],
)
def test_orders_are_recovered_whatever_the_rounding_of_the_adds(rounding, fmt):
    mac = emu.Mac(fmt, fmt, "lanes(2)", rounding)
    assert probe_order(unit(mac, fmt), 5, a_format=fmt) == OrderTree.of((((0, 2), 4), (1, 3)))


def test_stochastic_adds_into_a_wide_range_hide_a_one_below_their_random_bits():
    mac = emu.Mac("exact", "fp32", "pairwise", "stochastic")
    assert probe_order(unit(mac, "bf16"), 5, a_format="bf16") == order_tree("pairwise", 5)


@pytest.mark.parametrize(("accumulator", "bits"), [("fp16", 11), ("fp32", 24), ("bf16", 8), ("e8m13", 14)])
def test_the_significand_of_every_sum_but_the_last_is_measured(accumulator, bits):
    tree = probe_order(unit(emu.Mac("exact", accumulator, "lanes(2)"), "fp16"), 6, a_format="fp16")
    assert tree.significand_bits == (bits, bits, bits, bits, None)


def test_more_terms_than_a_small_format_counts_are_counted_in_parts():
    """e5m1 has the integers up to 4, and then every second one."""
    product = unit(emu.Mac("exact", "e5m1", "pairwise"), "e5m1")
    assert probe_order(product, 11, a_format="e5m1") == order_tree("pairwise", 11)


def test_the_same_tree_is_recovered_from_matrices():
    mac = emu.Mac("exact", "fp32", "lanes(2)")
    tree = probe_order(unit(mac), 6, a_format="fp16", addend_format="fp32", shape=(2, 3))
    assert tree == order_tree("lanes(2)", 6, addend=True)


def test_wide_fixed_operands_are_given_as_raws():
    formats = {"a_format": "fix60f30", "b_format": "fix60f10", "addend_format": "fix62f40"}
    mac = emu.Mac(accumulator="fp32", order="lanes(2)")

    def dot(a, b, c):
        return emu.matmul(a, b, addend=c, mac=mac, out_format="fp32", backend="reference", **formats)

    assert probe_order(dot, 5, **formats) == order_tree("lanes(2)", 5, addend=True)


def test_unsigned_operands_take_the_sign_of_the_other():
    """M = 2**38 overflows the accumulator: masks that fit it are found."""
    formats = {"a_format": "ufix1f0", "b_format": "fix40f0"}
    mac = emu.Mac("exact", "fp16", "pairwise")
    product = partial(emu.matmul, **formats, out_format="fp32", mac=mac, backend="reference")
    assert probe_order(product, 5, **formats) == order_tree("pairwise", 5)
    with pytest.raises(emu.FormatError, match="must be signed, got ufix1f0 and ufix1f0"):
        probe_order(product, 5, a_format="ufix1f0")


# NumPy's own orders: what they are depends on its build and on the processor; the tree is checked by what it computes


def in_float32(children):
    return reduce(lambda x, y: np.float32(x + y), children)


def executed(tree: OrderTree, terms) -> np.float32:
    """The tree's sum, every node rounded to the bits that were measured (OpenBLAS adds what is left over in double)."""
    values = [np.float64(term) for term in terms]
    for children, bits in zip(tree.nodes, tree.significand_bits, strict=True):
        assert bits in (24, 53, None)
        total = reduce(lambda x, y: x + y, [values[child] for child in children])
        values.append(np.float64(np.float32(total)) if bits == 24 else total)
    return np.float32(values[-1])


def loop(a, b):
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total = np.float32(total + x * y)
    return total


NUMPY = {
    "np.dot": np.dot,
    "np.sum": lambda a, b: np.sum(a * b),
    "np.add.reduce": lambda a, b: np.add.reduce(a * b),
    "np.add.accumulate": lambda a, b: np.add.accumulate(a * b)[-1],
    "a loop": loop,
}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("k", [2, 7, 8, 19, 40])
def test_the_tree_of_a_numpy_function_computes_its_bits(name, k):
    tree = probe_order(NUMPY[name], k)
    assert tree.is_binary
    random = np.random.default_rng(k)
    results, sums = [], []
    for _ in range(50):
        a = random.standard_normal(k).astype(np.float32) * np.float32(2.0) ** random.integers(-6, 7, k)
        a = a.astype(np.float32)
        b = np.float32(2.0) ** random.integers(-3, 4, k).astype(np.float32)  # products are exact, fused or not
        results.append(NUMPY[name](a, b))
        sums.append(executed(tree, a * b))
    assert_bits_equal(np.array(results), np.array(sums))


def test_another_tree_does_not_compute_numpys_bits():
    """What the test above asserts can fail."""
    random = np.random.default_rng(0)
    data = random.standard_normal((50, 40)).astype(np.float32)
    sums = np.array([np.sum(row) for row in data])
    others = np.array([order_tree("sequential", 40).evaluate(list(row), in_float32) for row in data])
    with pytest.raises(AssertionError, match="differs"):
        assert_bits_equal(sums, others)


def test_a_loop_is_sequential_and_accumulate_too():
    assert probe_order(loop, 9) == order_tree("sequential", 9) == probe_order(NUMPY["np.add.accumulate"], 9)


def test_numpys_sum_of_many_terms_is_a_tree_of_unrolled_lanes():
    """numpy/_core/src/umath/loops_utils.h.src: eight running sums, joined in pairs, for 8 up to 128 elements."""
    lanes = [chain(None, range(j, 40, 8)) for j in range(8)]
    assert probe_order(lambda a, b: np.sum(np.lib.stride_tricks.as_strided(a * b, (40,), (4,))), 40) == OrderTree.of(
        (((lanes[0], lanes[1]), (lanes[2], lanes[3])), ((lanes[4], lanes[5]), (lanes[6], lanes[7])))
    )


# What cannot be probed


def upward(a, b):
    """Sums in float32, rounded up."""
    total = np.float64(0)
    for term in (a * b).astype(np.float64):
        exact = total + term
        total = np.float64(np.float32(exact))
        if total < exact:
            total = np.float64(np.nextafter(np.float32(exact), np.float32(np.inf)))
    return total


@pytest.mark.parametrize(
    ("product", "k", "formats", "reason"),
    [
        (unit(emu.Mac()), 5, {"a_format": "fp16"}, "M hides nothing: sums are exact"),
        (lambda a, b: 1.0, 5, {}, "a single 1 does not come out as 1"),
        (lambda a, b: np.dot(a, b), 5, {"a_format": "fix4f0"}, "M hides nothing"),
        (upward, 70, {"accumulator": "fp16"}, "beyond 64 terms 1s are not watched one by one"),
    ],
    ids=["exact sums", "a constant", "operands of 4 bits", "too many terms"],
)  # fmt: skip
def test_what_has_no_order_or_hides_it_is_refused_with_what_was_tried(product, k, formats, reason):
    with pytest.raises(emu.FormatError, match=f"no masks reveal the order of {k} terms") as caught:
        probe_order(product, k, **formats)
    assert reason in str(caught.value)
    assert "name its format with `accumulator=`" in str(caught.value)


def test_a_function_without_a_fixed_tree_is_refused():
    random = np.random.default_rng(5)
    with pytest.raises(emu.FormatError, match="no masks reveal the order of 6 terms"):
        probe_order(lambda a, b: in_float32(random.permutation(a * b)), 6)


def test_errors_of_the_function_itself_and_wrong_shapes_come_through():
    with pytest.raises(emu.FormatError, match="every value must belong to fp16"):
        probe_order(unit(emu.Mac("exact", "fp16")), 4)
    with pytest.raises(emu.ShapeError, match="must return one number, got shape"):
        probe_order(lambda a, b: a * b, 4)
    with pytest.raises(emu.ShapeError, match=r"must return an array of `shape` \(2, 2\), got \(2,\)"):
        probe_order(lambda a, b: (a @ b)[0], 4, shape=(2, 2))
    with pytest.raises(emu.ShapeError, match="`k` must be at least 1, got 0"):
        probe_order(np.dot, 0)


# The tree


def test_trees_are_drawn_as_text():
    assert str(OrderTree.of(((0, 2), (1, 3)))) == "0 ─┐\n2 ─┴─┐\n1 ─┐ │\n3 ─┴─┴─"
    assert str(OrderTree.of((((0, 1, 3), 2)), has_addend=True)) == "0 ─┐\n1 ─┤\nc ─┴─┐\n2 ───┴─"
    assert str(OrderTree.of((0, (1, (2, 3))))) == "0 ─────┐\n1 ───┐ │\n2 ─┐ │ │\n3 ─┴─┴─┴─"
    assert str(OrderTree.of(0)) == "0 ─"
    assert repr(OrderTree.of(((0, 2), 1), has_addend=True)) == "OrderTree(((0 + c) + 1))"


def test_a_drawing_has_a_line_for_every_leaf_in_numbers_of_one_width():
    lines = str(order_tree("lanes(4)", 23)).splitlines()
    assert sorted(int(line[:2]) for line in lines) == list(range(23))
    assert lines[0].startswith(" 0 ─")


def test_the_svg_picture_is_well_formed_and_shows_leaves_and_nodes():
    tree = order_tree("blocks(4, 24)", 10, addend=True)
    root = ElementTree.fromstring(tree.to_svg())
    kinds = [child.tag.rpartition("}")[2] for child in root]
    assert [child.text for child in root if child.tag.endswith("text")].count("c") == 1
    assert (kinds.count("text"), kinds.count("circle")) == (11, len(tree.nodes))
    assert tree._repr_svg_() == tree.to_svg()


def test_equality_ignores_left_and_right_and_nothing_else():
    assert OrderTree.of((2, (1, 0))) == OrderTree.of(((0, 1), 2))
    assert hash(OrderTree.of((2, (1, 0)))) == hash(OrderTree.of(((0, 1), 2)))
    assert OrderTree.of(((0, 1), 2)) != OrderTree.of((0, (1, 2)))
    assert OrderTree.of((0, 1, 2)) != OrderTree.of(((0, 1), 2))
    assert OrderTree.of(((0, 1), 2)) != OrderTree.of(((0, 1), 2), has_addend=True)


def test_what_is_no_tree_is_refused():
    with pytest.raises(emu.ShapeError, match="every term must come once"):
        OrderTree.of(((0, 1), 1))
    for term, got in (("ab", "an integer, got 'ab'"), (1.5, "an integer, got 1.5"), (-1, "at least 0, got -1")):
        with pytest.raises(emu.ShapeError, match=f"`term` must be {got}"):
            OrderTree.of((0, term))
    for nested in ((), (0,), ((0,), 1)):
        with pytest.raises(emu.ShapeError, match="every node of a tree must join two terms or more, got "):
            OrderTree.of(nested)
    assert OrderTree.of([np.int64(0), (1, 2)]) == OrderTree.of((0, (1, 2)))
    with pytest.raises(emu.ShapeError, match="must join all of its terms, got 3 terms"):
        OrderTree(3, frozenset({0b11}))
    with pytest.raises(emu.ShapeError, match="must not overlap"):
        OrderTree(3, frozenset({0b11, 0b110, 0b111}))
    with pytest.raises(emu.ShapeError, match="one per leaf, 3, got 2"):
        OrderTree.of((0, 1, 2)).evaluate([1, 2], sum)
    with pytest.raises(emu.ShapeError, match="`k` must be at least 1, got 0"):
        order_tree("pairwise", 0)
