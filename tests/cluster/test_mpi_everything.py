"""`mpirun -n 2 emu train everything`: all five systems in two processes end in the bits of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jobs import emu_on, job, needs_mpi

import emu
from emu.training.folders.run_folder import RunFolder

pytestmark = needs_mpi

SMALL: dict[str, Any] = {
    "network.input": [600],
    "data.reach": 4,
    "data.longest": 2,
    "data.stride": 60,
    "training.steps": 6,
    "training.batch": 8,
    "training.log_every": 3,
    "training.checkpoint_every": 2,
    "loss_scaling.start": 2.0**24,
    "cluster.nodes": 2,
    "cluster.warm_start": 2,
    "cluster.timeout_s": 6.0,
}
KINDS: dict[str, dict[str, Any]] = {
    "stripes": {},
    "one step late": {"cluster.double_buffering": True},
    "controllers": {"cluster.exchange": "controllers", "cluster.controllers": [1], "loss_scaling.start": 2.0**21},
}


@pytest.mark.parametrize(
    ("kind", "device"),
    [
        ("stripes", "fp16"),
        *(pytest.param("stripes", name, marks=pytest.mark.slow) for name in ("dlu16", "fixed16")),
        *(pytest.param(kind, "fp16", marks=pytest.mark.slow) for kind in ("one step late", "controllers")),
    ],
)
def test_two_processes_end_in_the_bits_of_one_with_all_systems(kind: str, device: str, tmp_path: Path):
    settings = SMALL | KINDS[kind]
    options = {"out": tmp_path / "alone", "backend": "numba", "overrides": settings}
    alone = emu.train(emu.model("everything"), emu.device(device), **options).info
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    ended = job(
        emu_on(
            2, "train", "everything", "--device", device, "--backend", "numba", "--out", str(tmp_path / "two"), *words
        )
    )
    assert ended.code == 0, ended.errors
    info = RunFolder(tmp_path / "two").read_json()
    assert (info["weights_sha256"], info["registers_sha256"]) == (alone["weights_sha256"], alone["registers_sha256"])
    assert info["metrics"] == alone["metrics"]
    assert alone["metrics"]["bytes_sent"] > 0
    assert alone["metrics"]["skips"] > 0 or device != "fp16"
    assert ended.outlived == []
