"""Stripes of columns, workers, owners, and rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks_in_threads import InProcess, on_ranks

from emu import cluster
from emu.cluster.layout import Layout, blocks_of, stripes_of
from emu.cluster.lines import Lines, lines_and_numbers, lines_of, shaped
from emu.cluster.settings import ClusterTable
from emu.cluster.transport import Distributed, RankError, divided, joined
from emu.errors import ConfigError


def test_every_module_of_the_package_stands_in_its_table_once():
    rows = [line.split()[0] for line in (cluster.__doc__ or "").splitlines() if "  " in line]
    paths = Path(cluster.__file__).parent.iterdir()
    names = {f"{p.name}/" if p.is_dir() else p.name for p in paths if not p.name.startswith("__")}
    assert sorted(rows) == sorted(names)


def test_ten_columns_over_three_owners_are_the_published_stripes_c5():
    assert stripes_of(10, 3) == [(0, 4), (4, 3), (7, 3)]


@given(st.integers(0, 5000), st.integers(1, 200))
def test_stripes_cover_every_column_once_and_are_as_wide_as_each_other_but_one_c5(columns: int, parts: int):
    stripes = stripes_of(columns, parts)
    places = [place for stripe in stripes for place in range(*stripe.columns.indices(columns))]
    assert places == list(range(columns))
    assert max(s.width for s in stripes) - min(s.width for s in stripes) <= 1


@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_every_pair_of_nodes_meets_once_and_each_node_sends_and_receives_once_a_round_c5(nodes: int):
    rounds = Layout(nodes).rounds()
    assert len(rounds) == nodes - 1
    for pairs in rounds:
        assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(nodes))
    every = [pair for pairs in rounds for pair in pairs]
    assert sorted(every) == [(a, b) for a in range(nodes) for b in range(nodes) if a != b]


def test_owners_may_be_fewer_than_nodes_or_other_nodes_c5():
    assert Layout(4, owners=(2,)).owners == (2,)
    assert Layout(5, workers=(0, 1), owners=(4, 3)).owners == (4, 3)
    assert Layout(3).workers == Layout(3).owners == (0, 1, 2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nodes": 0}, "`nodes` must be at least 1, got 0; choose a larger one"),
        ({"nodes": 4, "owners": (4,)}, r"`owners` must be nodes 0\.\.3, got 4; name nodes of the cluster, or raise"),
        ({"nodes": 4, "owners": (-1,)}, r"`owners` must be nodes 0\.\.3, got -1"),
        ({"nodes": 2, "workers": (1, 0)}, r"`workers` must be ascending, each once, got \[1, 0\]"),
        ({"nodes": 2, "workers": (1, 1)}, r"`workers` must be ascending, each once, got \[1, 1\]"),
    ],
    ids=str,
)
def test_roles_that_do_not_fit_are_refused(options: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        Layout(**options)


def test_a_bias_goes_with_its_neuron_c5():
    """An owner of some columns of a layer's weights has the same numbers of its biases."""
    for parts in (1, 3, 4, 12):
        weights, biases = blocks_of((10, 64), parts), blocks_of((1, 10), parts)
        assert [block.lines for block in weights] == [block.numbers for block in biases]
        assert {block.numbers for block in weights} == {(0, 64)}
        assert {block.lines for block in biases} == {(0, 1)}
    assert [block.shape for block in blocks_of((1, 10), 3, by_lines=True)] == [(1, 10), (0, 10), (0, 10)]


def test_more_nodes_than_stripes_are_refused():
    Layout(8).require_stripes([(1, 7), (8, 3)])
    Layout(8).require_stripes([(1, 8), (7, 9)])
    with pytest.raises(ConfigError, match="at least one column for each of the 8 owners, got 7 in the widest tensor"):
        Layout(8).require_stripes([(1, 6), (7, 8)])


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("lines", ["outputs", "inputs"])
def test_a_parameter_as_lines_comes_back_in_its_shape_c2(shape: tuple[int, ...], lines: Lines):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = lines_of(array, lines)
    assert found.flags.c_contiguous
    assert found.shape == lines_and_numbers(shape, lines) == ((1, 3) if shape == (3,) else found.shape)
    np.testing.assert_array_equal(shaped(found, shape, lines), array)


def test_a_line_holds_what_leads_to_one_output_or_leaves_one_input_c2():
    weight = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    assert lines_of(weight, "outputs").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert lines_of(weight, "inputs").tolist() == [[1, 4], [2, 5], [3, 6]]
    assert lines_of(weight[0], "inputs").tolist() == [[1, 2, 3]]


def test_parcels_of_one_rank_come_back_and_too_few_bytes_are_refused():
    """Two lengths of eight bytes each stand before three parcels."""
    parts = [b"one", b"", b"three"]
    data = joined(parts)
    assert list(divided(data, 3, 0)) == parts
    assert list(divided(joined([b"alone"]), 1, 0)) == [b"alone"]
    assert list(divided(joined([b"", b"last"]), 2, 0)) == [b"", b"last"]
    assert list(divided(data[:-5], 3, 0)) == [b"one", b"", b""], "the last one has no length"
    with pytest.raises(
        RankError, match=rf"3 parcels of rank 7 must be {len(data) - 5} bytes or more, got {len(data) - 6}"
    ):
        list(divided(data[:-6], 3, 7))


def test_a_recipe_does_not_speak_of_what_is_newer_than_its_file_unless_it_is_asked_for():
    plain = ClusterTable(nodes=2).model_dump()
    assert not {"model_split", "streaming", "chunks", "search"} & set(plain)
    assert plain["timeout_s"] == 60.0
    asked = ClusterTable(nodes=4, model_parallel=2, model_split="layers", streaming=True, chunks=2).model_dump()
    assert (asked["model_split"], asked["streaming"], asked["chunks"]) == ("layers", True, 2)


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 3), (2, 4), (3, 3)])
def test_ranks_compute_for_neighbouring_nodes_and_swap_every_parcel(ranks: int, nodes: int):
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]

    def work(channel: InProcess) -> tuple[list[int], dict[tuple[int, int], bytes], list[bytes]]:
        mine = Distributed(nodes, channel)
        parcels = {(i, j): bytes([i, j]) * (i + 2 * j) for i, j in pairs if i in mine.local}
        return list(mine.local), mine.swap(parcels), mine.gather({node: bytes([node]) for node in mine.local})

    each = nodes // ranks
    for rank, (local, arrived, gathered) in enumerate(on_ranks(ranks, work)):
        assert local == list(range(rank * each, (rank + 1) * each))
        assert arrived == {(i, j): bytes([i, j]) * (i + 2 * j) for i, j in pairs if j in local}
        assert gathered == [bytes([node]) for node in range(nodes)]


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"bits": 1}, (1, 1)), ({"bits": 1, "owner_bits": 4}, (1, 4)),
        ({"bits": 4, "owner_codec": {"decay": 0.5}}, (4, 4)),
        ({"bits": 1, "owner_bits": 8, "owner_codec": {"deviations": 2.0}}, (1, 8)),
    ],
)  # fmt: skip
def test_owners_have_the_codec_of_workers_unless_bits_or_options_are_theirs(
    options: dict[str, Any], bits: tuple[int, int]
):
    worker, owner = ClusterTable(nodes=2, **options).codecs()
    assert (worker.bits, owner.bits) == bits  # type: ignore[attr-defined]
    assert (worker is owner) == (set(options) == {"bits"})
