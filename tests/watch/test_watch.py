"""The live page: it follows what is written, reads only, and answers to this computer alone."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import platform
import shlex
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import emu
from emu.cli.study import StudyOptions, run_study
from emu.cli.watch import watch_folder
from emu.errors import ConfigError
from emu.jobs import Ended, Runs, run_job
from emu.report import build_report
from emu.training.folders.claim import Claim
from emu.training.folders.lease import Holder
from emu.watch import WatchServer
from emu.watch.pages import Pages
from emu.watch.state import state_of_run, state_of_search

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def short(steps: int = 6) -> Any:
    settings = {"training.steps": steps, "training.batch": 8, "training.log_every": 2, "data.test_images": 20}
    return emu.model("mlp").with_settings(settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch") / "run"
    emu.train(short(), "fixed16", out=folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A run of one's own."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


class Client:
    """A browser's requests."""

    def __init__(self, server: WatchServer) -> None:
        self.server = server

    def ask(self, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{self.server.server_port}"})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def page(self, path: str = "/report.html") -> str:
        status, _, text = self.ask(path)
        assert status == 200, text
        return text

    def state(self, page: str = "/report.html") -> dict[str, Any]:
        status, _, text = self.ask(f"/state?page={page}")
        assert status == 200, text
        return json.loads(text)


@pytest.fixture
def serve() -> Generator[Any, None, None]:
    servers: list[WatchServer] = []

    def start(folder: Path) -> Client:
        server = WatchServer(folder)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return Client(server)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file and folder, with its time and content."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def test_the_page_of_a_run_is_its_report_and_watching_changes_no_byte(run: Path, serve: Any):
    (run / "report.html").unlink(missing_ok=True)
    before = contents(run)
    client = serve(run)
    text = client.page()
    assert client.page() == text
    state = client.state()
    client.page("/")
    client.page("/watch.js")
    assert contents(run) == before
    assert "mlp" in text
    assert state["ended"]
    assert state["share"] == 1.0
    assert state["title"] == "run run"
    assert state["says"].startswith("Ended ")


def test_the_page_is_the_report_to_the_byte(run: Path, serve: Any):
    assert serve(run).page() == build_report(run).read_text()


class Halt:
    """Training waits after a step until it is told to go on."""

    def __init__(self, step: int) -> None:
        self.step, self.reached, self.go_on = step, threading.Event(), threading.Event()

    def start(self, step: int, steps: int) -> None: ...

    def update(self, step: int, *_: float) -> None:
        if step == self.step:
            self.reached.set()
            assert self.go_on.wait(60)

    def finish(self) -> None: ...


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path, serve: Any):
    folder, seen, halt = tmp_path / "run", list[str](), Halt(7)
    training = threading.Thread(target=lambda: emu.train(short(12), "fixed16", out=folder, progress=halt))
    training.start()
    assert halt.reached.wait(60)
    client = serve(folder)
    first = client.state()
    seen.append(client.page())
    halt.go_on.set()
    training.join()
    last = client.state()
    seen.append(client.page())
    assert first["version"] != last["version"]
    assert not first["ended"]
    assert "step 6 of 12, about " in first["says"]
    assert first["share"] == 0.5
    assert last["ended"]
    assert "Still running" in seen[0]
    assert "Trained 12 steps" in seen[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "MKCOL"])
def test_methods_that_could_write_are_refused(run: Path, serve: Any, method: str):
    before = contents(run)
    status, headers, _ = serve(run).ask("/report.html", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert contents(run) == before


def test_the_head_of_a_page_has_its_version_and_no_body(run: Path, serve: Any):
    client = serve(run)
    status, headers, text = client.ask("/report.html", "HEAD")
    assert (status, text) == (200, "")
    assert headers["ETag"] == f'"{client.state()["version"]}"'
    assert int(headers["Content-Length"]) == len(client.page().encode())


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80"])
def test_a_site_of_another_name_that_points_here_gets_nothing(run: Path, serve: Any, host: str):
    assert serve(run).ask("/report.html", host=host)[0] == 403


def test_the_names_of_this_computer_are_answered(run: Path, serve: Any):
    client = serve(run)
    assert client.ask("/", host=f"localhost:{client.server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/run.json", "/metrics.parquet", "/../run.json", "/%2e%2e/run.json", "/runs/../../etc/passwd/report.html",
        "/runs/..%2f..%2fsecret/report.html", "/runs/x/report.html", "//etc/passwd", "/checkpoint.safetensors",
        "/devices/../run.json", "/assets/watch.js",
    ],
)  # fmt: skip
def test_nothing_but_the_pages_is_served(run: Path, serve: Any, path: str):
    assert serve(run).ask(path)[0] == 404


def test_an_address_that_cannot_be_read_is_refused(run: Path, serve: Any):
    assert serve(run).ask("http://[")[0] == 400


def test_a_browser_that_leaves_while_a_page_is_sent_prints_nothing(
    run: Path, serve: Any, capfd: pytest.CaptureFixture[str]
):
    client = serve(run)
    client.page()  # made now, so that only sending is left
    request = f"GET /report.html HTTP/1.1\r\nHost: 127.0.0.1:{client.server.server_port}\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", client.server.server_port)) as left:
            # closed with RST: 1 for linger, 0 seconds
            left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            left.sendall(request)
            left.recv(1)
    time.sleep(0.3)
    assert client.ask("/state")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_link_out_of_the_folder_is_not_followed(run: Path, tmp_path: Path, serve: Any):
    study = tmp_path / "study"
    (study / "runs").mkdir(parents=True)
    (study / "search.json").write_text("{}")
    (study / "runs" / "inside").symlink_to(run)
    assert serve(study).ask("/runs/inside/report.html")[0] == 404


def test_a_table_that_is_half_written_leaves_the_last_good_page_with_a_note(run: Path, serve: Any):
    client = serve(run)
    good, whole = client.page(), (run / "metrics.parquet").read_bytes()
    (run / "metrics.parquet").write_bytes(whole[: len(whole) // 2])
    assert client.page() == good
    assert "An older state is shown, for now: metrics.parquet could not be read" in client.state()["note"]
    (run / "metrics.parquet").write_bytes(whole)
    assert client.page() == good
    assert client.state()["note"] == ""


def test_a_first_page_that_cannot_be_made_says_why(run: Path, serve: Any):
    (run / "metrics.parquet").write_bytes(b"PAR1")
    status, _, text = serve(run).ask("/report.html")
    assert status == 503
    assert "metrics.parquet could not be read" in text


@pytest.mark.parametrize(
    ("computer", "age_s", "lives"), [("", 0, True), ("", 100, False), ("elsewhere", 0, True), ("elsewhere", 100, False)]
)
def test_a_run_is_shown_as_running_only_while_its_process_lives(
    computer: str, age_s: float, lives: bool, run: Path, serve: Any
):
    """A process of this computer, or of another one that sees the folder; it has counted, or not for long."""
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "running", "ended": None}))
    holder = Holder(computer or platform.node(), os.getpid(), "", 3)
    (run / "run.process").write_text(holder.lines())
    client = serve(run)
    alive, page = client.state(), client.page()
    assert alive["says"].startswith("Training since ")
    assert "Still running" in page
    os.utime(run / "run.process", (time.time() - age_s,) * 2)
    later = client.state()
    assert later["says"].startswith("Training since ") == lives
    assert ("Still running" in client.page()) == lives
    assert (later["version"] == alive["version"]) == lives
    if not lives:
        assert later["says"] == (
            "Stopped at step 6 of 6, because its process was killed, or its computer went off. Continue it with emu "
            f"train --resume {run}."
        )
    (run / "run.process").unlink()
    assert client.state()["says"].startswith("Stopped at step 6 of 6, because ")


def test_the_command_that_continues_a_run_can_be_pasted_whatever_its_folder_is_called(run: Path, tmp_path: Path):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "stopped"}))
    folder = run.rename(tmp_path / "my run")
    says = state_of_run(folder).says
    command = says.partition("Continue it with ")[2].rstrip(".")
    assert shlex.split(command) == ["emu", "train", "--resume", str(folder)]


def test_a_study_names_no_run_whose_process_has_ended(tmp_path: Path, serve: Any):
    (tmp_path / "claims").mkdir()
    (tmp_path / "study.json").write_text('{"grid": []}')
    with Claim(tmp_path / "claims", "lives").hold():
        (tmp_path / "claims" / "dead.process").write_text(Holder(platform.node(), 2**22 + 1, "", 3).lines())
        assert serve(tmp_path).state()["says"] == "0 of 0 runs have ended. Training now: lives."


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("study.json", '{"grid": [{}]}'), ("study.json", '{"grid": 5}'), ("study.json", '{"grid": [5]}'),
        ("study.json", '{"grid": [{"models": 3}]}'), ("search.json", '{"trials": "x"}'),
        ("trials.json", '{"trials": 5}'), ("trials.json", '{"trials": ["x"]}'),
    ],
)  # fmt: skip
def test_the_line_above_the_report_survives_a_damaged_file(tmp_path: Path, serve: Any, file: str, content: str):
    (tmp_path / "search.json").write_text("{}")
    if file == "study.json":
        (tmp_path / "search.json").unlink()
    (tmp_path / file).write_text(content)
    says = serve(tmp_path).state()["says"]
    assert says == f"0 of 0 {'runs' if file == 'study.json' else 'trials'} have ended."


def test_a_study_is_served_with_the_pages_of_its_runs_and_stays_as_it_was(
    tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\nbaseline = "fixed16"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["fixed16", "fixed8"]\n'
        "seeds = [1]\n[[grid.settings]]\n"
        'set = { "training.steps" = 2, "training.batch" = 8, "data.test_images" = 20 }\n'
    )
    monkeypatch.setattr("emu.cli.study.Runs", RunsHere)
    monkeypatch.setattr("emu.cli.study.open_engine", lambda on, workers: None)
    home = run_study(file, tmp_path / "study", StudyOptions(cache=False)).parent
    before = contents(home)
    client = serve(home)
    text = client.page()
    assert text == (home / "report.html").read_text()
    key = "mlp-fixed8-plain-seed1"
    assert f'href="runs/{key}/report.html"' in text
    assert client.page(f"/runs/{key}/report.html") == (home / "runs" / key / "report.html").read_text()
    assert client.state()["says"] == "2 of 2 runs have ended."
    assert client.state(f"/runs/{key}/report.html")["says"].startswith("Ended ")
    assert contents(home) == before
    version = client.state()["version"]
    (home / "attempts").mkdir()
    (home / "runs" / key).rename(home / "attempts" / key)
    (home / "claims" / f"{key}.process").write_text("")
    assert client.state()["version"] != version
    assert client.state()["says"] == f"1 of 2 runs have ended. Training now: {key}."
    assert "1 of 2 runs are finished" in client.page()
    assert client.page(f"/runs/{key}/report.html")  # while it is trained


class RunsHere(Runs):
    """Runs in this process."""

    def __init__(self, engine: object) -> None:
        self._waiting_jobs: list[Any] = []

    def submit(self, job: Any) -> None:
        self._waiting_jobs.append(job)

    def running(self) -> list[str]:
        return [job.key for job in self._waiting_jobs]

    def ended(self, timeout_s: float = 0.3) -> list[Any]:
        job = self._waiting_jobs.pop()
        return [Ended(job.key, None, run_job(job))]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("port", "said"), [(-1, "--port must be 0..65535, got -1"), (70000, "--port must be 0..65535, got 70000")]
)
def test_a_port_that_is_none_is_named(run: Path, port: int, said: str):
    with pytest.raises(ConfigError, match=said):
        WatchServer(run, port)


def test_a_port_that_is_taken_is_named(run: Path, serve: Any):
    taken = serve(run).server.server_port
    with pytest.raises(ConfigError, match=f"--port must be free on 127.0.0.1, got .* for {taken}; leave it out"):
        WatchServer(run, taken)


@pytest.mark.parametrize("name", ["notes.txt", "somewhere"])
def test_a_folder_of_other_things_is_named(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=r"must hold one of search.json \(search\), study.json \(study\), run.json"):
        WatchServer(tmp_path)


def test_a_file_is_no_folder_to_watch(tmp_path: Path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match=r"must hold one of .*, or nothing yet, got "):
        WatchServer(tmp_path / "run")


def begun(folder: Path, kind: str) -> None:
    """What a command makes before the file that names its kind."""
    if kind != "missing":
        folder.mkdir()
    if kind == "claimed":
        (folder / "run.lock").touch()
        (folder / "run.process").touch()
    if kind == "half written":
        (folder / "run.json.77.emu-tmp").write_text("{")
    if kind == "study":
        for part in ("runs", "failures", "claims"):
            (folder / part).mkdir()


@pytest.mark.parametrize("kind", ["missing", "empty", "claimed", "half written", "study"])
def test_a_run_that_has_not_begun_is_waited_for_in_words_until_its_run_json_is_there(
    finished: Path, tmp_path: Path, serve: Any, kind: str
):
    folder = tmp_path / "later"
    begun(folder, kind)
    client = serve(folder)
    state = client.state()
    missing = "which does not exist yet" if kind == "missing" else "in which nothing has begun"
    assert state["waits"] == (
        f"Waiting for {folder}, {missing}: the report comes once run.json (emu train), study.json (emu study) or "
        "search.json (emu search) is in it."
    )
    assert (state["title"], state["version"], state["share"], state["ended"]) == ("later", "", None, False)
    assert state["says"] == "Nothing has begun yet."
    assert client.ask("/report.html")[0] == 404
    assert client.ask("/runs/x/report.html")[0] == 404
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    later = client.state()
    assert (later["waits"], later["title"]) == ("", "run later")
    assert later["version"]
    assert "mlp" in client.page()


def test_other_files_that_come_first_are_waited_through(finished: Path, tmp_path: Path, serve: Any):
    client = serve(tmp_path / "later")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "metrics.parquet").touch()
    assert client.state()["waits"].startswith(f"Waiting for {tmp_path / 'later'}, in which nothing has begun")
    shutil.copytree(finished, tmp_path / "later", dirs_exist_ok=True)
    assert client.state()["waits"] == ""


def test_the_command_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    def interrupt(_: WatchServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WatchServer, "serve_forever", interrupt)
    watch_folder(tmp_path / "later")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"watching {tmp_path / 'later'} at http://127.0.0.1:")
    assert lines[1].startswith(f"Waiting for {tmp_path / 'later'}, which does not exist yet")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_browser_draws_the_report_below_what_runs(run: Path, tmp_path: Path, serve: Any):
    client = serve(run)
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--timeout=8000", "--virtual-time-budget=8000"]
    picture = tmp_path / "watch.png"
    command += [f"--screenshot={picture}", "--window-size=1000,900", client.server.address]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    drawn = subprocess.run(
        [*command[:6], "--dump-dom", client.server.address], check=True, capture_output=True, timeout=120
    ).stdout.decode()
    assert picture.stat().st_size > 20_000
    assert ">run run<" in drawn
    assert 'src="/report.html"' in drawn
    assert "Ended " in drawn


def drawn_within(milliseconds: int, address: str) -> str:
    """Return the elements of a page after so long."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--timeout={milliseconds}"]
    command += [f"--virtual-time-budget={milliseconds}", "--dump-dom", address]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_browser_says_what_it_waits_for_and_is_not_white(tmp_path: Path, serve: Any):
    client = serve(tmp_path / "later")
    page = drawn_within(4000, client.server.address)
    assert f'<p id="waits">Waiting for {tmp_path / "later"}, which does not exist yet' in page
    assert "<iframe" not in page


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_browser_that_waits_draws_the_report_once_the_run_has_begun(
    finished: Path, tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
):
    waiting, asked = Pages.waiting, list[str]()

    def begins_at_the_third_question(pages: Pages) -> str:
        asked.append(waiting(pages))
        if len(asked) == 3:
            shutil.copytree(finished, tmp_path / "later")
        return asked[-1]

    monkeypatch.setattr(Pages, "waiting", begins_at_the_third_question)
    client = serve(tmp_path / "later")
    page = drawn_within(20000, client.server.address)
    assert [bool(text) for text in asked[:4]] == [True, True, True, False]
    assert 'src="/report.html"' in page
    assert '<p id="waits" hidden="">Drawing the report ...</p>' in page
    assert ">run later<" in page


def test_a_trial_that_repeats_another_has_ended(tmp_path: Path):
    (tmp_path / "search.json").write_text('{"trials": 4}')
    for states, says, has_ended in (
        (["finished", "repeated", "running"], "2 of 4 trials have ended.", False),
        (["finished", "repeated", "failed", "repeated"], "4 of 4 trials have ended, 1 of them failed.", True),
    ):
        (tmp_path / "trials.json").write_text(json.dumps({"trials": [{"state": state} for state in states]}))
        state = state_of_search(tmp_path)
        assert (state.says, state.has_ended) == (says, has_ended)
