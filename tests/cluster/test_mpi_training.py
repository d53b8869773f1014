"""`mpirun -n 4 emu train`: the bits of one process, whatever happens on the way."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fast_suite import most_are_slow, some_of
from jobs import Ended, emu_on, job, needs_mpi

import emu
from emu import training
from emu.training.folders.run_folder import RunFolder

pytestmark = needs_mpi

SMALL: dict[str, Any] = {
    "training.steps": 6,
    "training.batch": 8,
    "data.test_images": 8,
    "training.log_every": 3,
    "training.checkpoint_every": 2,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
    "cluster.nodes": 4,
    "cluster.timeout_s": 6.0,
}
#: Systems whose nodes meet: a line each.
SYSTEMS: dict[str, dict[str, Any]] = {
    "C": {"cluster.bits": 1},
    "C with other codes": {
        "cluster.quantise_own": False,
        "cluster.codec": {"threshold": "previous_mean", "threshold_lag": 2, "residual_lag": 2},
        "cluster.owner_bits": 12,
        "cluster.owner_codec": {"range": [-0.5, 0.5]},
    },
    "D": {
        "clipping.rules": [{"rule": "variance", "k": 1.0}],
        "cluster.exchange": "controllers",
        "cluster.controllers": [0, 3],
    },
}
OVERLAP: dict[str, dict[str, Any]] = {"in step": {}, "one step late": {"cluster.double_buffering": True}}

#: On one rank, before its n-th update of a parameter; mlp has 6 of them in a step.
IN_UPDATE = """
from emu.optim import GradientDescent
real, calls = GradientDescent.apply, []
def apply(*arguments):
    if type(arguments[5]).__name__ != "ShapeRunner":  # which only asks what an update takes
        calls.append(1)
    if rank in {ranks} and len(calls) == {n}:
        os.kill(os.getpid(), signal.{signal})
    real(*arguments)
GradientDescent.apply = apply
"""
#: At rank 0, the n-th time a file is about to be moved into its place; saves are behind steps 2, 3, 4 and 6.
AT_FILE = """
real, calls = os.replace, []
def replace(*arguments):
    calls.extend([1] * str(arguments[1]).endswith("{file}"))
    if len(calls) == {n}:
        {what}
    real(*arguments)
os.replace = replace
"""
FULL = "raise OSError(28, 'No space left on device')"
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
#: The page is no part of what is compared, and takes longer than these runs.
NO_REPORT = "\nimport emu.cli.runs\nemu.cli.runs.build_report = lambda path: path\n"


def arguments(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in (SMALL | settings).items() for word in ("--set", f"{name}={toml(value)}")]


def toml(value: Any) -> str:
    """Return a value as TOML has it inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(held)}" for name, held in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def train(out: Path, settings: dict[str, Any], device: str, backend: str, before: str = "", ranks: int = 4) -> Ended:
    options = ["--device", device, "--backend", backend, "--out", str(out)]
    return job(emu_on(ranks, "train", "mlp", *options, *arguments(settings), before=before))


def hashes(info: dict[str, Any]) -> tuple[str, str]:
    return info["weights_sha256"], info["registers_sha256"]


def simulated(out: Path, settings: dict[str, Any], device: str = "fixed8", backend: str = "numba") -> dict[str, Any]:
    options: dict[str, Any] = {"backend": backend, "overrides": SMALL | settings}
    return training.train(emu.model("mlp"), emu.device(device), out=out, **options).info


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of one process ends in; kernels are compiled behind it."""
    return simulated(tmp_path_factory.mktemp("undisturbed") / "run", {})


@most_are_slow(
    ("system", "overlap", "backend"),
    product(SYSTEMS, OVERLAP, ("reference", "numba")),
    keep=[("C", "in step", "numba"), ("D", "one step late", "reference")],
)
def test_four_processes_end_in_the_bits_of_one_that_simulates_them(
    system: str, overlap: str, backend: str, tmp_path: Path
):
    settings = SYSTEMS[system] | OVERLAP[overlap]
    alone = simulated(tmp_path / "alone", settings, backend=backend)
    ended = train(tmp_path / "several", settings, "fixed8", backend)
    assert ended.code == 0, ended.errors
    info = RunFolder(tmp_path / "several").read_json()
    assert hashes(info) == hashes(alone)
    assert info["metrics"] == alone["metrics"]
    assert info["status"] == "finished"
    assert (tmp_path / "several" / "report.html").is_file()
    assert ended.output.count(hashes(alone)[0]) == 1, "one rank says it"
    assert ended.errors.count("step 6/6") == 1, "one rank shows progress"
    assert ended.outlived == []


def resumed(path: Path, *, ranks: int = 4) -> tuple[str, str]:
    """Return the hashes of a run that goes on under mpirun."""
    ended = job(emu_on(ranks, "train", "--resume", str(path), before=NO_REPORT))
    assert ended.code == 0, ended.errors
    assert not list(path.glob("*.emu-tmp"))
    return hashes(RunFolder(path).read_json())


def step_of(path: Path) -> int:
    return RunFolder(path).load_checkpoint()[1]["step"]


FAULTS: dict[str, tuple[str, str]] = {
    "killed": (IN_UPDATE.format(ranks=(2,), n=6 * 4 + 3, signal="SIGKILL"), "emu: rank 2 has died: process "),
    "stopped": (
        IN_UPDATE.format(ranks=(2,), n=6 * 4 + 3, signal="SIGSTOP"),
        "emu: rank 0: rank 2 has not answered within 6 s; the job ends, its last checkpoint is intact; ",
    ),
    "full disk": (
        "if rank == 0:" + AT_FILE.format(file="flags.parquet", n=3, what=FULL).replace("\n", "\n    "),
        "emu: rank 0: {path}/flags.parquet must be writable, got 'No space left on device'; ",
    ),
}


@most_are_slow("fault", FAULTS, keep=["killed"])
def test_a_fault_on_one_rank_ends_the_job_with_its_name_and_leaves_the_last_checkpoint(
    fault: str, tmp_path: Path, undisturbed: dict[str, Any]
):
    before, text = FAULTS[fault]
    path = tmp_path / "run"
    ended = train(path, {}, "fixed8", "numba", before + NO_REPORT)
    assert ended.code != 0
    assert len(ended.of_emu()) == 1, ended.errors
    assert ended.of_emu()[0].startswith(text.format(path=path))
    assert "--resume" in ended.of_emu()[0]
    assert ended.outlived == []
    assert step_of(path) == (
        2 if fault == "full disk" else 4
    )  # every second step, and the third table cannot be written
    again = training.resume(path)  # in one process: what moves bytes decides no bit
    assert hashes(again.info) == hashes(undisturbed)


#: The process number of mpirun: a rank's parent is the proxy that mpirun has on a machine.
MPIRUN = "int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])"
#: Who gets which signal inside step 5, and what the user reads: a pattern.
SIGNALS: dict[str, tuple[int, str, str, str]] = {
    "mpirun is killed": (0, MPIRUN, "SIGKILL", r"mpi\S* \(process \d+\), which started the ranks, was killed"),
    "mpirun gets SIGTERM": (
        2, MPIRUN, "SIGTERM", "all ranks got SIGTERM, as when their launcher or a batch system ends them",
    ),
    "a rank gets SIGTERM": (2, "os.getpid()", "SIGTERM", "rank 2 got SIGTERM"),
    "rank 0 gets SIGTERM": (0, "os.getpid()", "SIGTERM", "rank 0 got SIGTERM"),
    "a rank is killed": (
        2, "os.getpid()", "SIGKILL",
        r"rank 2 has died: process \d+ was killed from outside, or there was no memory left",
    ),
}  # fmt: skip


@most_are_slow("fault", SIGNALS, keep=["mpirun is killed"])
def test_who_got_the_signal_is_named_to_the_user_and_in_the_run(
    fault: str, tmp_path: Path, undisturbed: dict[str, Any]
):
    rank, process, signal, why = SIGNALS[fault]
    sends = IN_UPDATE.format(ranks=(rank,), n=6 * 4 + 3, signal=signal).replace("os.getpid()", process)
    path = tmp_path / "run"
    ended = train(path, {}, "fixed8", "numba", sends + NO_REPORT)
    assert ended.code != 0
    (line,) = ended.of_emu()
    ends = re.escape(f"; the job ends, its last checkpoint is intact; start it again with --resume {path}")
    assert re.fullmatch(f"emu: {why}{ends}", line), line
    assert ended.outlived == []
    info = RunFolder(path).read_json()
    assert info["status"] == "stopped"
    assert re.fullmatch(f"{why}|its process got SIGTERM", info["stopped_because"])
    assert hashes(training.resume(path).info) == hashes(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["a rank gets SIGTERM", "mpirun gets SIGTERM", "mpirun is killed"])
def test_what_the_launcher_writes_at_its_end_does_not_overwrite_who_got_the_signal(fault: str, tmp_path: Path):
    """In a file that a shell opened with `2>`, each process writes at an offset of its own."""
    rank, process, signal, why = SIGNALS[fault]
    sends = IN_UPDATE.format(ranks=(rank,), n=6 * 4 + 3, signal=signal).replace("os.getpid()", process)
    options = ["--device", "fixed8", "--backend", "numba", "--out", str(tmp_path / "run"), *arguments({})]
    errors = tmp_path / "errors"
    job(emu_on(4, "train", "mlp", *options, before=sends + NO_REPORT), errors_in=errors)
    until = time.monotonic() + 20
    while "--resume" not in errors.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    ends = re.escape(f"; the job ends, its last checkpoint is intact; start it again with --resume {tmp_path / 'run'}")
    text = errors.read_text()
    assert re.search(f"(?m)^emu: {why}{ends}$", text), text


def test_an_error_on_a_rank_is_written_into_the_run(tmp_path: Path):
    """The launcher kills rank 0, which writes the folder, because of an error of rank 1."""
    broken = IN_UPDATE.replace("os.kill(os.getpid(), signal.{signal})", "raise OSError('the cable is loose')")
    path = tmp_path / "run"
    ended = train(path, {}, "fixed8", "numba", broken.format(ranks=(1,), n=6 * 4 + 3) + NO_REPORT)
    assert [line.split(":")[1] for line in ended.of_emu()] == [" rank 1"]
    info = RunFolder(path).read_json()
    assert info["status"] == "stopped"
    assert info["stopped_because"].startswith("rank 1: Traceback")
    assert info["stopped_because"].endswith("OSError: the cable is loose")


def killed_at(file: str, n: int) -> str:
    return "if rank == 0:" + AT_FILE.format(file=file, n=n, what=KILL).replace("\n", "\n    ")


def all_killed_in(update: int) -> str:
    return IN_UPDATE.format(ranks=(0, 1, 2, 3), n=update, signal="SIGKILL")


#: Where all processes are killed, and the step of the last checkpoint: 0 before the first one.
KILLS: list[tuple[str, str, int]] = [
    ("inside step 5", all_killed_in(6 * 4 + 3), 4),
    ("between two tables of the second save", killed_at("flags.parquet", 2), 2),
    ("before anything is written", killed_at("run.json", 1), -1),
    ("inside step 1", all_killed_in(2), 0),
    ("before the first checkpoint", killed_at("checkpoint.safetensors", 1), 0),
    ("behind the first checkpoint", killed_at("metrics.parquet", 2), 2),
    ("inside step 3", all_killed_in(6 * 2 + 1), 2),
    ("before the second checkpoint", killed_at("checkpoint.safetensors", 2), 2),
    ("inside step 4", all_killed_in(6 * 3 + 6), 3),
    ("inside step 6", all_killed_in(6 * 5 + 5), 4),
]


#: In the fast suite; of the others, which take a quarter of a minute each, one in three is in the slow one.
FAST_KILLS = ["inside step 5", "between two tables of the second save"]
CHOSEN_KILLS = [
    *(kill for kill in KILLS if kill[0] in FAST_KILLS),
    *some_of([kill for kill in KILLS if kill[0] not in FAST_KILLS], 3),
]


@most_are_slow(
    ("before", "step"),
    [pytest.param(before, step, id=name) for name, before, step in CHOSEN_KILLS],
    keep=FAST_KILLS,
)
def test_a_job_whose_processes_are_all_killed_goes_on_to_the_same_bits(
    before: str, step: int, tmp_path: Path, undisturbed: dict[str, Any]
):
    path = tmp_path / "run"
    in_one_process = step == 2  # what moves bytes decides no bit: two processes of two nodes each, then one of four
    ended = train(path, {}, "fixed8", "numba", before + NO_REPORT, ranks=2 if in_one_process else 4)
    assert ended.code != 0
    assert ended.outlived == []
    folder = RunFolder(path)
    assert (step_of(path) if folder.has_checkpoint else 0 if (path / "run.json").is_file() else -1) == step
    if step < 0:
        assert hashes(again_from_the_start(path)) == hashes(undisturbed)
    elif in_one_process:
        assert hashes(training.resume(path).info) == hashes(undisturbed)
    else:
        assert resumed(path) == hashes(undisturbed)


def again_from_the_start(path: Path) -> dict[str, Any]:
    for left in path.iterdir():
        left.unlink()
    ended = train(path, {}, "fixed8", "numba", NO_REPORT)
    assert ended.code == 0, ended.errors
    return RunFolder(path).read_json()


# ---- what is refused ----


OTHER_VERSION = (
    "import emu.training.loop.summary as s; real = s.version; s.version = lambda n: '9.9' if n == 'numpy' else real(n)"
)


@most_are_slow(
    ("more", "before", "text"),
    [
        pytest.param(["--set", "training.seed=7"], "", "the same recipe, got 'mlp' (", id="recipe"),
        pytest.param(["--device", "fp16"], "", "the same device, got 'fp16' (", id="device"),
        pytest.param([], OTHER_VERSION, "the same version of numpy, got 9.9 on rank 1 and ", id="version"),
    ],
    keep=["recipe"],
)
def test_ranks_with_other_recipes_devices_or_versions_are_refused_at_the_start_and_named(
    more: list[str], before: str, text: str, tmp_path: Path
):
    same = [*arguments({"cluster.nodes": 2}), "--out", str(tmp_path / "run")]
    ended = job(emu_on(1, "train", "mlp", *same), emu_on(1, "train", "mlp", *same, *more, before=before))
    assert [line.startswith(f"emu: rank 0: all ranks must have {text}") for line in ended.of_emu()] == [True]
    assert (ended.code, ended.outlived) == (2, [])
    assert not (tmp_path / "run").exists()


@most_are_slow(
    ("ranks", "settings", "text"),
    [
        (
            3,
            {},
            "`cluster.nodes` must be a multiple of the 3 ranks of the job, got 4; start as many ranks as nodes, e.g. "
            "mpirun -n 4",
        ),
        (
            2,
            {"cluster.transport": "simulated"},
            "`cluster.transport` 'simulated' must run in one process, got 2 processes of a launcher; leave it out, or "
            "start one process",
        ),
    ],
    keep=["simulated on two ranks"],  # the other one is refused in threads, too
    ids=["three ranks for four nodes", "simulated on two ranks"],
)
def test_processes_that_do_not_fit_are_refused_by_one_of_them(
    ranks: int, settings: dict[str, Any], text: str, tmp_path: Path
):
    ended = train(tmp_path / "run", settings, "float32", "numba", ranks=ranks)
    assert ended.of_emu() == [f"emu: rank 0: {text}"]
    assert (ended.code, ended.outlived) == (2, [])
    assert not (tmp_path / "run").exists()


def test_several_processes_of_a_recipe_without_a_cluster_are_refused(tmp_path: Path):
    ended = job(emu_on(2, "train", "mlp", "--out", str(tmp_path / "run")))
    assert ended.of_emu() == [
        "emu: rank 0: a recipe must have a [cluster] to run in several processes, got none for 2 processes; add --set "
        "cluster.nodes=2, or start one process"
    ]
    assert ended.code == 2


def test_mpi_asked_for_without_its_launcher_is_refused(tmp_path: Path):
    assert "PMI_SIZE" not in os.environ
    with pytest.raises(emu.EmuError) as caught:
        simulated(tmp_path / "run", {"cluster.transport": "mpi"})
    assert str(caught.value) == (
        "`cluster.transport` 'mpi' must have several processes, got one; start them with mpirun -n 4, or set it to "
        "'simulated'"
    )
