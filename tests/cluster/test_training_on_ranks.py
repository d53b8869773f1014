"""Several ranks end in the bits of one process that simulates all nodes: weights, registers, checkpoints, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from ranks_in_threads import InProcess, on_ranks
from test_cluster_training import NARROW, SMALL

import emu
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder, SilentFolder
from emu.training.folders.tables import TABLES
from emu.training.loop import Loop
from emu.training.loop.run_to_end import run_to_end
from emu.training.workbench import Workbench
from emu.training.workbench.ranks import Ranks

#: Everything that nodes decide, count or average together, each once.
CASES: dict[str, dict[str, Any]] = {
    "one bit": {},
    "sums of other bits": {"device": "fixed16", "cluster__bits": 2, "cluster__owner_bits": 4},
    "momentum at owners": {"cluster__rule": "momentum", "cluster__owners": [1, 0]},
    "one step late": {"device": "fixed8", "cluster__double_buffering": True},
    "a warm start": {"cluster__warm_start": 1},
    "random codecs": {"cluster__codec.smoothing": "window", "cluster__codec.left_out": 0.1},
    "own parts as they are, residuals that wait": {
        "cluster__quantise_own": False,
        "cluster__codec": {"threshold": "previous_mean", "threshold_lag": 2, "residual_lag": 2},
    },
    "units of nodes": {"cluster__units": 2},
    "S moves": {"device": "fp16-mixed", "loss_scaling__policy": "backoff", "loss_scaling__start": 2.0**24},
    "S from logarithms": {"device": "fp16-mixed", "loss_scaling__policy": "statistical"},
    "points behind float32": {"device": "dlu16", "dynamic_point__schedule": "float_pretraining"},
    "points that all decide": {"device": "dlu16", "dynamic_point__pretraining_steps": 2},
    "points of every node": {"device": "dlu16", "dynamic_point__pretraining_steps": 2, "cluster__points": "own"},
    "simulated time": {"device": "k20x-8x", "training__batch": 16},
    "clipped": {
        "clipping__rules": [{"rule": "variance", "k": 1.0}],
        "cluster__warm_start": 1,
        "cluster__workers": [1, 3],  # units of clipping are numbered over these
    },
    "clipped with S": {
        "device": "fp16-mixed",
        "loss_scaling__policy": "backoff",
        "clipping__rules": [{"rule": "constant", "high": 0.01}, {"rule": "momentum", "k": 0.5}],
    },
    "controllers": {
        "device": "fixed16",
        "cluster__exchange": "controllers",
        "cluster__controllers": [1, 2],
        "cluster__double_buffering": True,
        "clipping__rules": [{"rule": "momentum", "k": 0.5}],
    },
    "simulated time of two workers": {"device": "k20x-8x", "training__batch": 16, "cluster__workers": [1, 3]},
    "simulated time of some rows": {
        "model": "everything",
        "device": "k20x-8x",
        "network__input": [600],
        "data": {"kind": "ngrams", "reach": 4, "longest": 2, "stride": 60},
        "training__batch": 16,
        "cluster__warm_start": 1,
    },
    "as many nodes as time says": {
        "device": "k20x-8x",
        "training__steps": 5,
        "training__batch": 16,
        "cluster__search": {"parallelism": True, "multiple": 4, "decay": 0.0},
    },
    "a controller without passes": {
        "device": "dlu16",
        "dynamic_point__pretraining_steps": 2,
        "cluster__exchange": "controllers",
        "cluster__workers": [0, 1],
        "cluster__controllers": [3],
        "training__batch": 8,
        "clipping__rules": [{"rule": "variance", "k": 1.0}],
    },
    "points of every worker": {
        "device": "dlu16",
        "dynamic_point__pretraining_steps": 2,
        "cluster__points": "own",
        "cluster__workers": [1, 2],
        "training__batch": 8,
    },
    "moments": {"model": "resnet8", "training__steps": 1, "training__batch": 4},
}


def loop(
    ranks: Ranks | None = None, model: str = "mlp", device: str = "float32", backend: str = "auto", **settings: Any
) -> Loop:
    named = {
        key.replace("__", "."): value for key, value in {"cluster.nodes": 4, "training__steps": 3, **settings}.items()
    }
    recipe = emu.model(model).with_settings(SMALL | (NARROW if model == "mlp" else {}) | named)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), backend, None, ranks))


def run(folder: RunFolder, ranks: Ranks | None = None, **settings: Any) -> dict[str, Any]:
    return run_to_end(loop(ranks, **settings), folder).info


def on(path: Path, nodes_each: int = 1, **settings: Any) -> list[dict[str, Any]]:
    """Train on four nodes; return what `run.json` says on each rank."""

    def work(channel: InProcess) -> dict[str, Any]:
        return run((SilentFolder if channel.rank else RunFolder.create)(path), Ranks(channel), **settings)

    return on_ranks(4 // nodes_each, work)


def decisive(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in ("seconds", "started", "ended")}


def tables(path: Path) -> dict[str, Any]:
    """Return all tables but that of times, rows in any order: it is that of first use, by whatever runner."""
    found: dict[str, Any] = {}
    for name in TABLES:
        columns = RunFolder(path).read_table(name)
        found[name] = sorted(repr(row) for row in zip(*columns.values(), strict=True))
    return {name: rows for name, rows in found.items() if name != "profile"}


@most_are_slow(
    "case",
    CASES,
    keep=[
        "one bit", "one step late", "points that all decide", "clipped", "controllers",
    ],
)  # fmt: skip
def test_ranks_end_like_one_process_that_simulates_their_nodes(case: str, tmp_path: Path):
    settings = CASES[case]
    alone = run(RunFolder.create(tmp_path / "alone"), **settings)
    several = on(tmp_path / "several", nodes_each=2 if "units" in case else 1, **settings)
    for info in several:
        assert decisive(info) == decisive(alone)
    (held, state), (expected, expected_state) = (
        RunFolder(tmp_path / name).load_checkpoint() for name in ("several", "alone")
    )
    assert held.keys() == expected.keys()
    for name, array in held.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    for name in ("identity", "losses", "interval", "total", "update", "cluster", "loss_scaling", "clipping"):
        assert state[name] == expected_state[name], name
    assert tables(tmp_path / "several") == tables(tmp_path / "alone")


def test_what_is_not_finite_on_one_node_makes_all_ranks_repeat_and_give_up_the_step():
    settings: dict[str, Any] = {
        **CASES["S moves"],
        "loss_scaling__on_overflow": "repeat",
        "loss_scaling__max_repeats": 2,
    }

    def advanced(ranks: Ranks | None) -> tuple[Any, ...]:
        found = loop(ranks, **settings)
        images, labels = found.bench.batches.batch(0)
        images = images.copy()
        images[-1] = np.nan  # of the last node
        found.bench.batches.batch = lambda step: (images, labels)  # type: ignore[method-assign]
        found.advance()
        metrics = found.log.metrics()
        return metrics["repeats"], metrics["skips"], found.log.scale, found.log.registers().sha256()

    alone = advanced(None)
    assert alone[:2] == (2, 1)
    assert on_ranks(4, lambda channel: advanced(Ranks(channel))) == [alone] * 4


def test_only_rank_0_writes(tmp_path: Path):
    def work(channel: InProcess) -> None:
        path = tmp_path / str(channel.rank)
        run(RunFolder.create(path) if channel.rank == 0 else SilentFolder(path), Ranks(channel))

    on_ranks(4, work)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize(("first", "then"), [(1, 4), (4, 1), (2, 4)], ids=["1 then 4", "4 then 1", "2 then 4"])
def test_a_run_goes_on_with_other_ranks_to_the_same_bits(first: int, then: int, tmp_path: Path):
    """What moves bytes is no part of a run's identity: only nodes are."""
    settings: dict[str, Any] = {"device": "fixed8", "cluster__rule": "adagrad", "cluster__double_buffering": True}
    whole = loop(**settings)
    for _ in range(3):
        whole.advance()
    path = tmp_path / "run"

    def begin(channel: InProcess) -> None:
        found = loop(Ranks(channel), **settings)
        found.advance()
        found.checkpoint.save(SilentFolder(path) if channel.rank else RunFolder.create(path))

    def go_on(channel: InProcess) -> tuple[str, str]:
        found = loop(Ranks(channel), **settings, cluster__transport="mpi", cluster__timeout_s=7.0)
        found.checkpoint.restore(SilentFolder(path))
        for _ in range(2):
            found.advance()
        return found.bench.model.sha256(), found.log.registers().sha256()

    on_ranks(first, begin)
    assert set(on_ranks(then, go_on)) == {(whole.bench.model.sha256(), whole.log.registers().sha256())}


def test_a_checkpoint_of_another_number_of_nodes_is_refused_on_every_rank(tmp_path: Path):
    trained = loop(cluster__nodes=2)
    trained.advance()
    trained.checkpoint.save(RunFolder.create(tmp_path / "run"))

    def work(channel: InProcess) -> None:
        loop(Ranks(channel)).checkpoint.restore(SilentFolder(tmp_path / "run"))

    with pytest.raises(ConfigError, match="a checkpoint of 2 nodes must be resumed on 2, got 4 for"):
        on_ranks(4, work)


def test_ranks_save_at_the_time_that_rank_0_says():
    given = on_ranks(3, lambda channel: Ranks(channel).agree(channel.rank == 1))
    assert given == [False] * 3
    assert on_ranks(3, lambda channel: Ranks(channel).agree(channel.rank == 0)) == [True] * 3


def test_ranks_end_a_run_by_the_seconds_of_rank_0():
    def is_over(channel: InProcess) -> bool:
        found = loop(Ranks(channel), training__stop={"seconds": 50.0})
        found.advance()
        found.log.seconds = 100.0 if channel.rank == late else 0.0
        found.log.end_interval()
        return found.steps.are_stopped

    late = 1
    assert on_ranks(2, is_over) == [False, False]
    late = 0
    assert on_ranks(2, is_over) == [True, True]


def test_the_first_rank_that_differs_is_named_and_what_differs():
    def work(channel: InProcess) -> None:
        versions = {"recipe": "'mlp' (1)", "version of numpy": "2.2" if channel.rank < 2 else "2.3"}
        Ranks(channel).require_same(versions)

    with pytest.raises(ConfigError) as caught:
        on_ranks(4, work)
    assert str(caught.value) == (
        "all ranks must have the same version of numpy, got 2.3 on rank 2 and 2.2 on rank 0; start all ranks with the "
        "same command, in the same environment"
    )
    on_ranks(4, lambda channel: Ranks(channel).require_same({"recipe": "'mlp' (1)"}))


def test_ranks_that_do_not_divide_the_nodes_are_refused():
    with pytest.raises(ConfigError) as caught:
        on_ranks(3, lambda channel: Ranks(channel).transport(4))
    assert str(caught.value) == (
        "`cluster.nodes` must be a multiple of the 3 ranks of the job, got 4; start as many ranks as nodes, e.g. "
        "mpirun -n 4"
    )
