"""`emu warm`: what it compiles, how it runs steps side by side, and what it says of those that fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import emu
from emu._paths import find_content
from emu.cli import warm
from emu.cli.warm import Warming, warm_devices
from emu.errors import ConfigError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
TRAIN = """
import emu
from emu.backends.numba.compiling import compiled_count
emu.train("mlp", "fixed8", out="run", overrides={"training.steps": 12})
print(compiled_count())
"""


@pytest.mark.slow
def test_a_training_compiles_nothing_behind_it(tmp_path: Path):
    environment = {**os.environ, "EMU_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "emu", "warm", "fixed8", "--model", "mlp", "--json"]
    data = json.loads(subprocess.check_output(command, env=environment, cwd=tmp_path, text=True))
    assert [(run["device"], run["model"]) for run in data["runs"]] == [("fixed8", "mlp")]
    kernels = list(Path(data["folder"]).rglob("*.nbc"))
    assert Path(data["folder"]).is_relative_to(tmp_path / "cache")
    assert data["bytes"] >= sum(path.stat().st_size for path in kernels) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["cache"], "its runs are in no folder of the user"
    left = subprocess.check_output([sys.executable, "-c", TRAIN], env=environment, cwd=tmp_path, text=True)
    assert left == "0\n"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Warming]:
    """Short processes in place of steps; that of v100 fails. Gives the steps in the order in which they begin."""
    order: list[Warming] = []

    def begin(self: Warming, scratch: Path, threads: int) -> subprocess.Popen[bytes]:
        assert scratch.is_dir()
        order.append(self)
        script = "import sys; sys.exit('emu: a step must have memory, got 0')" if self.device == "v100" else ""
        with self.errors(scratch).open("wb") as errors:
            return subprocess.Popen([sys.executable, "-c", script], stderr=errors)

    monkeypatch.setattr(Warming, "begin", begin)
    return order


def test_each_model_is_trained_on_each_device_and_lenet_if_none_is_named(begun: list[Warming]):
    data = warm_devices(["fixed16", "fp16"], ["mlp", "lenet"], 1).plain()
    rows = [("fixed16", "mlp"), ("fixed16", "lenet"), ("fp16", "mlp"), ("fp16", "lenet")]
    assert [(run["device"], run["model"]) for run in data["runs"]] == rows
    assert [(run.device, run.model) for run in begun] == rows
    assert [run.name for run in begun[:2]] == ["mlp-fixed16", "lenet-fixed16"]
    assert all(0 < run["seconds"] < 60 for run in data["runs"])
    warm_devices(["fp16"], [], None)
    assert begun[-1] == Warming("lenet-fp16", "lenet", "fp16")


def test_a_step_that_fails_is_named_behind_all_others_with_its_reason(begun: list[Warming]):
    with pytest.raises(ConfigError) as caught:
        warm_devices(["v100", "fp16"], ["mlp"], 2)
    assert "got 1 of 2 that failed: mlp-v100: a step must have memory, got 0. The others are compiled" in str(
        caught.value
    )
    assert len(begun) == 2


def test_two_files_that_say_the_same_name_are_two_steps(begun: list[Warming], tmp_path: Path):
    files = [tmp_path / name for name in ("a.toml", "b.toml")]
    for file in files:
        shutil.copy(find_content("devices", "fp16"), file)
    data = warm_devices([str(file) for file in files], ["mlp"], 2).plain()
    assert [run["device"] for run in data["runs"]] == ["fp16", "fp16"]
    assert [(run.name, run.device) for run in begun] == [("mlp-fp16", str(files[0])), ("mlp-fp16-1", str(files[1]))]


def test_a_step_that_prints_more_than_a_pipe_holds_ends(monkeypatch: pytest.MonkeyPatch):
    script = "import sys; sys.stderr.write('warning' * 100_000 + chr(10) + 'emu: no memory'); sys.exit(2)"

    def begin(self: Warming, scratch: Path, threads: int) -> subprocess.Popen[bytes]:
        with self.errors(scratch).open("wb") as errors:
            return subprocess.Popen([sys.executable, "-c", script], stderr=errors)

    monkeypatch.setattr(Warming, "begin", begin)
    with pytest.raises(ConfigError, match="mlp-fp16: no memory"):
        warm_devices(["fp16"], ["mlp"], 1)


def test_a_process_that_says_nothing_is_named_by_its_exit_code(monkeypatch: pytest.MonkeyPatch):
    script = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]

    def begin(self: Warming, scratch: Path, threads: int) -> subprocess.Popen[bytes]:
        self.errors(scratch).touch()
        return subprocess.Popen(script)

    monkeypatch.setattr(Warming, "begin", begin)
    with pytest.raises(ConfigError, match="mlp-fp16: signal 9"):
        warm_devices(["fp16"], ["mlp"], 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_than_that_many_processes_run_at_once(workers: int, monkeypatch: pytest.MonkeyPatch):
    alive: list[subprocess.Popen[bytes]] = []
    most: list[int] = []

    def begin(*_: object) -> subprocess.Popen[bytes]:
        alive.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.4)"]))
        most.append(sum(process.poll() is None for process in alive))
        return alive[-1]

    monkeypatch.setattr(Warming, "begin", begin)
    warm_devices(["fixed16", "fp16", "v100"], ["mlp"], workers)
    assert max(most) == workers


def test_an_interrupt_ends_the_processes(monkeypatch: pytest.MonkeyPatch):
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*_: object) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return processes[-1]

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Warming, "begin", begin)
    monkeypatch.setattr(warm.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        warm_devices(["fixed16", "fp16"], [], 2)
    assert [process.returncode for process in processes] == [-9, -9]


def test_a_step_is_one_of_the_compiled_backend_in_a_folder_that_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    asked, threads = list[list[str]](), list[str]()

    def begin(command: list[str], *, env: dict[str, str], **_: object) -> None:
        asked.append(command)
        threads.append(env["EMU_THREADS"])

    monkeypatch.setattr(warm.subprocess, "Popen", begin)
    Warming("mlp-fp16", "mlp", "fp16").begin(tmp_path, 3)
    assert threads == ["3"]
    assert Warming("mlp-fp16", "mlp", "fp16").errors(tmp_path).read_bytes() == b""
    line = f"-m emu train mlp --device fp16 --backend numba --set training.steps=1 --out {tmp_path / 'mlp-fp16'}"
    assert [" ".join(words) for words in asked] == [f"{sys.executable} {line}"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((["fixed17"], [], None), "a device must be the name of a shipped device"),
        ((["fixed16"], ["lenett"], None), "a model must be the name of a shipped model"),
        ((["fixed16"], [], 0), "--workers must be at least 1, got 0"),
    ],
)
def test_words_that_name_nothing_are_refused_before_anything_is_compiled(
    begun: list[Warming], arguments: tuple[list[str], list[str], int | None], reason: str
):
    with pytest.raises(ConfigError, match=reason):
        warm_devices(*arguments)
    assert begun == []


def test_the_page_names_the_keys_of_its_data_and_every_shipped_device(begun: list[Warming]):
    row = next(line for line in PAGE.splitlines() if line.startswith("| `emu warm`"))
    data = warm_devices(["fixed16"], [], 1).plain()
    assert set(re.findall(r"`(\w+)`", row)) == {*data, *data["runs"][0]}
    section = PAGE.partition("## Compiled code")[2]
    assert all(f"`{name}`" in section for name in emu.hardware.device_names())
