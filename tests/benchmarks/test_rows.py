"""The catalogue: names, choice, and that a row computes what it says."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.measuring.arrays import CACHE_LINE_BYTES, aligned, integers, reals
from benchmarks.measuring.costs import estimate_s, seconds_of
from benchmarks.measuring.environment import environment, other_core_type
from benchmarks.measuring.hardware_half import _count_wrong_by_numpy, count_wrong
from benchmarks.measuring.peer import Peer
from benchmarks.measuring.processes import jobs
from benchmarks.measuring.result import PeerResult, Result, median_sweeps
from benchmarks.measuring.row import CodecWork, PairWork, ProductWork, StageWork
from benchmarks.measuring.streaming_copy import WAYS, copy
from benchmarks.measuring.timing import Spread
from benchmarks.peers import PEERS, chosen
from benchmarks.rows import CHOICE, all_rows, select
from benchmarks.rows.matrix import SWEEPS
from emu.backends.modes import HAND_WRITTEN
from emu.datapath import Flags, Rounding, StatisticsRegister
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.engine import matmul, quantize
from emu.errors import BackendUnavailable, ConfigError
from emu.formats import ScaledValue, parse
from emu.hardware import device_names, load_device


def test_names_are_unique_and_every_row_of_the_table_has_a_bar_or_says_why_not():
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    without = [row.name for row in rows if row.group == "table" and row.bar is None]
    devices = sorted(name for name in set(device_names()) - {"fixed16"} if load_device(name).crossbar is None)
    assert without == [f"step/{name}" for name in (*devices, "lenet-fixed16")]
    assert all(row.goal is None or row.bar is not None for row in rows)


def test_the_matrix_holds_every_mode_with_code_of_its_own_with_every_rule():
    written = list(Rounding)[:HAND_WRITTEN]
    cells = {row.name for row in all_rows() if row.group == "matrix"}
    assert {f"matrix/fix8f4/{m.value}/{r.value}" for m in written for r in FIXED_RULES} <= cells
    assert {f"matrix/fp8_e4m3/{m.value}/{r.value}" for m in written for r in FLOAT_RULES} <= cells


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["product/int8"], ["product/int8"]),
        (["stage/fp8"], ["stage/fp8-e4m3", "stage/fp8-e5m2"]),
        (["stage/fix8"], ["stage/fix8"]),
        (["*/fp8-e?m?"], ["stage/fp8-e4m3", "stage/fp8-e5m2"]),
        (["pairs/add", "stepwise"], ["product/fp16-stepwise", "pairs/add"]),
    ],
)
def test_rows_are_chosen_by_name_by_part_and_by_pattern(patterns: list[str], names: list[str]):
    assert [row.name for row in select(patterns)] == names


def test_without_a_pattern_a_choice_is_measured_and_a_star_is_everything():
    assert sorted(row.name for row in select([])) == sorted(CHOICE)
    assert [row.name for row in select(["table"])] == [row.name for row in all_rows() if row.group == "table"]
    assert [row.name for row in select(["*"])] == [row.name for row in all_rows()]


def test_every_row_has_an_estimate_and_the_choice_takes_about_a_minute(monkeypatch: pytest.MonkeyPatch):
    assert all(seconds_of(row) > 0 for row in all_rows())
    for flags in (set[str](), {"avx512bw"}):
        monkeypatch.setattr("benchmarks.measuring.processes.processor_flags", flags.copy)
        assert 40 <= estimate_s(jobs(select([]), [1, 2], [], quick=False)) <= 80


def test_a_peer_beside_a_row_takes_as_long_again_and_a_second_sweep_does_not_ask_it():
    rows = select(["product/int16", "matrix/fix8f4/floor/wrap"])
    alone, beside = (estimate_s(jobs(rows, [1], peers, quick=False)) for peers in ([], ["numpy"]))
    assert beside - alone == seconds_of(rows[0])


def test_an_unknown_row_lists_what_there_is():
    with pytest.raises(
        ConfigError, match=r"--rows must match the name of a row, got 'nosuch'; rows are stage/fix8, "
    ) as e:
        select(["nosuch"])
    assert "matrix/fix8f4/* (40)" in str(e.value)


def test_an_unknown_peer_names_the_nearest_one():
    with pytest.raises(ConfigError, match="got 'qtroch'; did you mean 'qtorch'"):
        chosen("apytypes, qtroch")
    assert [peer.name for peer in chosen("gfloat,numpy")] == ["gfloat", "numpy"]
    assert chosen("peers") == list(PEERS.values())


def test_an_absent_peer_is_absent_with_its_remedy():
    peer = Peer("nobody", "no_such_module_at_all", "no-such-package", lambda task: [])
    assert not peer.is_here
    assert peer.version == peer.remedy == "absent: pip install no-such-package"


def test_every_thread_count_has_its_process_and_products_have_one_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.measuring.processes.processor_flags", lambda: {"avx512bw"})
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    planned = jobs(select(["product/int8", "stage/fix8"]), [1, 2], ["numpy"], quick=False)
    kinds = [(job.threads, job.core_type, len(job.rows), job.peers) for job in planned]
    assert kinds == [(1, "", 2, ("numpy",)), (1, "SkylakeX", 1, ()), (2, "", 2, ("numpy",)), (2, "SkylakeX", 1, ())]
    assert len(jobs(select(["product/int8"]), [1], [], quick=True)) == 1


def test_what_is_measured_more_than_once_is_measured_again_behind_everything_else():
    rows = select(["matrix/fix8f4/floor/wrap", "stage/fix8"])
    planned = jobs(rows, [1, 2], ["numpy"], quick=False)
    assert [(job.threads, len(job.rows)) for job in planned] == [(1, 2), (2, 2), *[(1, 1), (2, 1)] * (SWEEPS - 1)]
    assert all(job.rows[0].group == "matrix" and not job.peers for job in planned[2:])
    assert len(jobs(rows, [1, 2], [], quick=True)) == 2


def test_of_several_sweeps_the_one_with_the_median_ratio_counts():
    def result(name: str, ratio: float | None, threads: int = 1) -> Result:
        return Result(name, threads, ratio=None if ratio is None else Spread(ratio, ratio, ratio, 1))

    swept = [result("a", 0.4), result("b", None), result("a", 0.7, 2), result("a", 0.6), result("a", 0.5)]
    assert median_sweeps(swept) == (result("a", 0.5), result("b", None), result("a", 0.7, 2))
    assert median_sweeps([result("a", None), result("a", 0.3)]) == (result("a", 0.3),)
    beside = replace(result("a", 0.9), peers=(PeerResult("qtorch"),))
    assert median_sweeps([beside, result("a", 0.1), result("a", 0.2)]) == (
        replace(beside, ratio=Spread(*[0.2] * 3, 1)),
    )


def test_the_environment_fixes_every_pool_and_keeps_the_rest():
    made = environment({"HOME": "/h", "EMU_THREADS": "9"}, 2, "SkylakeX")
    assert (made["HOME"], made["EMU_THREADS"], made["OPENBLAS_NUM_THREADS"], made["OMP_NUM_THREADS"]) == (
        "/h",
        "2",
        "2",
        "2",
    )
    assert (made["OMP_WAIT_POLICY"], made["OPENBLAS_CORETYPE"]) == ("PASSIVE", "SkylakeX")
    assert "OPENBLAS_CORETYPE" not in environment({}, 1)


def test_the_other_width_of_blas_kernels_needs_avx_512():
    assert other_core_type({}, set()) == ""
    assert other_core_type({"OPENBLAS_CORETYPE": "SkylakeX"}, {"avx512bw"}) == "Haswell"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_every_way_of_copying_copies(way: str, size: int):
    source, target = np.arange(size, dtype=np.float32), aligned((size,))
    copy(way, target, source)
    assert np.array_equal(source, target)


def test_arrays_begin_on_a_cache_line_and_hold_what_the_row_says():
    assert aligned((3, 5), np.float64).ctypes.data % CACHE_LINE_BYTES == 0
    fmt = parse("fix8f4")
    share = float(np.mean(np.abs(reals(1 << 16, fmt)) >= 8.0))
    assert 0.001 < share < 0.005  # three deviations: 0.0027
    raw = fmt.to_raw(integers((64, 64), fmt, 4, seed=1))
    assert (raw.min(), raw.max()) == (-8, 7)


def test_a_stage_row_works_on_data_that_round_vanish_and_are_subnormal():
    prepared = next(row for row in all_rows() if row.name == "stage/e5m7").prepare(True)
    assert isinstance(prepared.task, StageWork)
    assert prepared.ours.amount == prepared.task.x.size == prepared.limit.amount
    prepared.ours.run()
    prepared.limit.run()
    register, flags = StatisticsRegister(), Flags()
    quantize(prepared.task.x, "e5m7", register=register, flags=flags, backend="reference")
    assert flags.underflow > 0
    assert flags.subnormal > 0
    assert flags.inexact > 0.9 * prepared.task.x.size


def test_a_product_row_uses_the_range_of_its_output():
    prepared = next(row for row in all_rows() if row.name == "product/int16").prepare(True)
    task = prepared.task
    assert isinstance(task, ProductWork)
    assert prepared.ours.amount == task.macs == 64**3
    formats = {"a_format": task.a_format, "b_format": task.b_format, "out_format": task.out_format}
    written = matmul(task.a, task.b, **formats, backend="reference")
    assert np.abs(task.out_format.to_raw(written)).max() > 100
    assert "exact" in prepared.path


@pytest.mark.parametrize("row", ["mxfp8-4096", "mxfp8-rceil-1024", "nvfp4-1024"])
def test_a_row_of_scaled_formats_writes_as_many_elements_as_are_copied(row: str):
    prepared = next(r for r in all_rows() if r.name == f"scaled/{row}").prepare(True)
    assert prepared.limit is not None
    assert prepared.ours.amount == prepared.limit.amount == 128 * 128
    value = prepared.ours.run()
    assert isinstance(value, ScaledValue)
    assert value.shape == (128, 128)
    assert str(value.format) == {"mxfp8-4096": "mxfp8_e4m3", "mxfp8-rceil-1024": "mxfp8_e4m3 rceil"}.get(row, "nvfp4")
    prepared.limit.run()


@pytest.mark.parametrize(
    ("row", "bytes_a_gradient"), [("encode", 12), ("decode", 4), ("decode-and-sum", 8)], ids=lambda value: str(value)
)
def test_a_codec_row_counts_the_bytes_that_must_move_as_its_limit_does(row: str, bytes_a_gradient: int):
    prepared = next(r for r in all_rows() if r.name == f"codec/one-bit-{row}").prepare(True)
    assert isinstance(prepared.task, CodecWork)
    assert prepared.limit is not None
    columns, rows = prepared.task.gradients.shape
    messages = columns * (rows // 8 + 8)  # a bit each, and two levels of float32 a column
    assert prepared.ours.amount == bytes_a_gradient * columns * rows + messages
    assert prepared.limit.amount == 8 * columns * rows
    prepared.ours.run()
    prepared.limit.run()


HALVES = parse("fp16").decode(parse("fp16").codes())


@pytest.mark.parametrize("operation", ["add", "multiply"])
def test_the_oracle_of_pairs_finds_every_planted_mistake(operation: str):
    a, b = np.resize(HALVES[::257], 4096).astype(np.float32), np.resize(HALVES[::131], 4096).astype(np.float32)
    with np.errstate(all="ignore"):
        right = getattr(np, operation)(a, b).astype(np.float16).astype(np.float32)
    assert count_wrong(operation, a, b, right) == _count_wrong_by_numpy(operation, a, b, right) == 0
    finite = np.flatnonzero(np.isfinite(right))
    wrong = right.copy()
    wrong[finite[:5]] = np.nextafter(wrong[finite[:5]], np.float32(np.inf))
    zero = finite[np.flatnonzero(right[finite] == 0)[0]]
    wrong[zero] = -wrong[zero]
    planted = len({*finite[:5].tolist(), int(zero)})
    assert count_wrong(operation, a, b, wrong) == _count_wrong_by_numpy(operation, a, b, wrong) == planted


@pytest.mark.parametrize("name", ["gfloat", "ml_dtypes", "apytypes", "numpy"])
def test_a_peer_does_a_rows_work(name: str):
    peer = PEERS[name]
    if find_spec(peer.module) is None:
        pytest.skip(peer.remedy)
    tasks = [
        StageWork(reals(256, parse("fp8_e5m2")), parse("fp8_e5m2")),
        StageWork(reals(256, parse("fp16")), parse("fp16")),
        StageWork(reals(256, parse("fix8f4")), parse("fix8f4")),
        PairWork("add", HALVES[:64].astype(np.float32), HALVES[64:128].astype(np.float32)),
    ]
    sides = [side for task in tasks for side in peer.sides(task)]
    assert sides
    for side in sides:
        side.run()
        assert side.amount <= 256


def test_qtorch_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    qtorch_rounding = import_module("benchmarks.peers.qtorch_rounding")
    monkeypatch.setattr(qtorch_rounding.shutil, "which", lambda tool: None)
    with pytest.raises(
        BackendUnavailable, match=r"got no g\+\+ and no ninja; install a C\+\+ compiler .*pip install ninja"
    ):
        qtorch_rounding.as_installed()
