"""A study on a Dask cluster whose workers die and hang has the report of one process."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

import emu
from emu.cli.study import StudyOptions, run_study
from emu.jobs import open_engine

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'emu-numerics[dask]'")

STUDY = """
name = "spread"
baseline = "float32"

[[grid]]
models = ["mlp"]
devices = ["float32", "fixed8"]
seeds = [1, 2, 3, 4]
[[grid.settings]]
set = { "training.steps" = 60, "training.batch" = 8, "data.test_images" = 20, "training.log_every" = 2 }
"""
WORKERS = 4


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[tuple[str, list[subprocess.Popen[bytes]]], None, None]:
    """A scheduler that gives up hung workers soon, and four worker processes."""
    address = f"tcp://127.0.0.1:{free_port()}"
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", address.rpartition(":")[2]]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    processes = [
        subprocess.Popen(
            [*command, "--no-dashboard"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in (scheduler, *[worker] * WORKERS)
    ]
    yield address, processes[1:]
    for process in processes:
        process.kill()
        process.wait()


def wait_for_workers(address: str) -> None:
    end = time.monotonic() + 60
    while True:
        with open_engine(f"dask:{address}") as engine:
            if engine.slots == WORKERS:
                return
        assert time.monotonic() < end, "workers never came"
        time.sleep(0.5)


@pytest.mark.slow
def test_two_workers_killed_and_one_hung_change_no_byte_of_the_report(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
):
    (tmp_path / "study.toml").write_text(STUDY)
    alone = run_study(tmp_path / "study.toml", tmp_path / "alone", StudyOptions(workers=1, cache=False))
    address, workers = cluster
    wait_for_workers(address)
    out = tmp_path / "spread"
    command = [sys.executable, "-m", "emu", "study", str(tmp_path / "study.toml"), "--out", str(out), "--no-cache"]
    study = subprocess.Popen([*command, "--on", f"dask:{address}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    draw = random.Random(26)
    while not list((out / "claims").glob("*.process")):
        assert study.poll() is None, study.communicate()[0].decode()
        time.sleep(0.05)
    for worker, how in zip(workers, (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP), strict=False):
        time.sleep(draw.uniform(0.2, 2.0))
        worker.send_signal(how)
    said, _ = study.communicate(timeout=400)
    assert study.returncode == 0, said.decode()
    assert (out / "report.md").read_bytes() == (tmp_path / "alone" / "report.md").read_bytes()
    assert (out / "report.html").read_bytes() == alone.read_bytes()
    workers[2].send_signal(signal.SIGCONT)  # comes back, and finds that others did its work
    time.sleep(3)
    assert (out / "report.html").read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in (out / "runs").iterdir()) == sorted(
        path.name for path in (tmp_path / "alone" / "runs").iterdir()
    )


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_named_and_nothing_is_lost(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(emu.ConfigError, match=r"must answer within 20 s, got .* from tcp://127\.0\.0\.1:9"):
        run_study(tmp_path / "study.toml", tmp_path / "out", StudyOptions(on="dask:tcp://127.0.0.1:9", cache=False))
    assert (tmp_path / "out" / "study.json").is_file()
