"""A folder of runs: a list that sorts, says what each run does, and leads to runs and to comparisons of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from test_watch import BROWSER, Halt, contents, serve, short  # noqa: F401 - serve is a fixture

import emu
from emu.report import build_report
from emu.report.run_list import list_page, listed_runs, summary_of
from emu.training.folders.claim import Claim

#: Sorts the list, ticks runs, and notes order and link; laid into the page instead of a reader.
READER = """<script>
const at = (id) => document.getElementById(id);
const sort = (key) => { at("list-order").value = key; at("list-order").dispatchEvent(new Event("change")); };
const order = () => [...document.querySelectorAll("#list-rows a")].map((a) => a.textContent).join(" ");
const head = (key) => document.querySelector(`th[data-key="${key}"]`).click();
const link = () => [at("list-compare").getAttribute("href"), at("list-compare").textContent];
const tick = (name) => at(`tick-${name}`).click();
const seen = {};
seen.first = order();
head("name"); seen.name = order();
head("name"); seen.reversed = order();
head("test accuracy"); seen.accuracy = order();
head("test accuracy"); seen.worst = order();
head("training loss"); seen.loss = order();
seen.head = document.querySelector('th[data-key="training loss"]').getAttribute("aria-sort");
sort("name"); seen.menu = order();
seen.none = link();
tick("b"); seen.single = link();
tick("a"); seen.pair = link();
sort("started"); seen.sorted = link();
document.documentElement.dataset.seen = JSON.stringify(seen);
</script></body>"""


def fake(folder: Path, started: str, accuracy: float | None, loss: float | None, **info: Any) -> None:
    """Write what a list reads of a run."""
    folder.mkdir(parents=True)
    whole = {
        "status": "finished", "steps": 1200, "started": started, "recipe": {"name": "mlp", "network": {"layers": []}},
        "device": {"name": "fixed16", "precision": {}}, "metrics": {"test_accuracy": accuracy, "train_loss": loss},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(whole | info))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("list") / "runs"
    for name, device in (("a", "fixed16"), ("b with a space & more", "fixed8")):
        emu.train(short(), device, out=home / name)
    return home


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_list_has_a_row_for_each_run_and_changes_no_byte(runs: Path, serve: Any):  # noqa: F811
    before = contents(runs)
    client = serve(runs)
    page = client.page()
    assert client.state()["says"] == "2 runs: 2 finished."
    assert client.state()["title"] == "folder runs"
    assert not client.state()["ended"]  # another run may begin
    rows = re.findall(r'<tr><th scope="row".*?</tr>', page)
    assert len(rows) == 2
    info = json.loads((runs / "a" / "run.json").read_text())
    (own,) = [row for row in rows if 'href="runs/a/report.html"' in row]
    for text in ("mlp", "fixed16", "finished", ">6<", f">{info['metrics']['test_accuracy'] * 100:.1f}%<"):
        assert text in own
    assert contents(runs) == before


def test_the_page_of_a_listed_run_is_its_report_whatever_its_name(runs: Path, serve: Any):  # noqa: F811
    client = serve(runs)
    name = quote("b with a space & more")
    assert f'href="runs/{name}/report.html"' in client.page()
    path = f"/runs/{name}/report.html"
    assert client.page(path) == build_report(runs / "b with a space & more").read_text()
    assert client.state(quote(path))["says"].startswith("Ended ")


def test_ticked_runs_lead_to_their_comparison_with_links_to_their_pages(runs: Path, serve: Any):  # noqa: F811
    client = serve(runs)
    path = f"/compare/a/{quote('b with a space & more')}/report.html"
    page = client.page(path)
    assert '<a href="/runs/a/report.html">a</a>: mlp on fixed16.' in page
    assert 'href="/runs/b%20with%20a%20space%20%26%20more/report.html"' in page
    state = client.state(quote(path))
    assert (state["says"], state["ended"], state["share"]) == ("All compared runs have ended.", True, None)
    (runs / "a" / "metrics.parquet").touch()
    assert client.state(quote(path))["version"] != state["version"]


def test_a_comparison_follows_a_run_that_goes_on_and_survives_a_table_that_is_copied(runs: Path, serve: Any):  # noqa: F811
    shutil.copytree(runs / "a", runs / "c")
    info = json.loads((runs / "c" / "run.json").read_text())
    (runs / "c" / "run.json").write_text(json.dumps({**info, "status": "running", "ended": None}))
    client, path = serve(runs), "/compare/a/c/report.html"
    with Claim.of_run(runs / "c").hold():
        state = client.state(path)
        assert state["says"].startswith("c: Training since ")
        assert not state["ended"]
        page, whole = client.page(path), (runs / "c" / "flags.parquet").read_bytes()
        (runs / "c" / "flags.parquet").write_bytes(whole[:50])
        assert client.page(path) == page
        assert "An older state is shown, for now: flags.parquet could not be read" in client.state(path)["note"]


@pytest.mark.parametrize(
    "path",
    [
        "/compare/a/none/report.html", "/compare/report.html", "/compare/a/../report.html", "/compare//a/report.html",
        "/compare/a/%2e%2e/report.html", "/runs/../report.html", "/runs/./report.html",
        "/runs/%2e%2e%2fruns/report.html", "/runs/a/run.json", "/a/report.html", "/runs/outside/report.html",
        "/compare/a/outside/report.html",
        "/runs/a%00/report.html", f"/runs/{300 * 'x'}/report.html",
    ],
)  # fmt: skip
def test_nothing_else_is_served(runs: Path, tmp_path: Path, serve: Any, path: str):  # noqa: F811
    shutil.copytree(runs / "a", tmp_path / "elsewhere")
    (runs / "outside").symlink_to(tmp_path / "elsewhere")
    assert serve(runs).ask(path)[0] == 404


def test_a_single_run_cannot_be_compared_and_the_page_says_so(runs: Path, serve: Any):  # noqa: F811
    status, _, text = serve(runs).ask("/compare/a/report.html")
    assert status == 503
    assert "a comparison must have at least two runs, got only" in text


def test_a_run_that_begins_or_goes_on_or_dies_changes_the_list(runs: Path, serve: Any):  # noqa: F811
    client = serve(runs)
    versions = [client.state()["version"]]
    info = json.loads((runs / "a" / "run.json").read_text())
    shutil.copytree(runs / "a", runs / "c")
    (runs / "c" / "run.json").write_text(json.dumps({**info, "status": "running", "metrics": {}, "steps": 0}))
    versions.append(client.state()["version"])
    assert client.state()["says"] == "3 runs: 2 finished, 1 stopped."
    with Claim.of_run(runs / "c").hold():
        versions.append(client.state()["version"])
        assert client.state()["says"] == "3 runs: 2 finished, 1 running."
        (row,) = [row for row in listed_runs(runs) if row.name == "c"]
        # a run that goes on has its numbers in its table of metrics only
        assert (row.status, row.test_accuracy) == ("running", info["metrics"]["test_accuracy"])
        assert '<td data-label="status" data-rank="running">running</td>' in client.page()
    versions.append(client.state()["version"])
    assert len({*versions}) == 3
    assert versions[3] == versions[1]


def test_a_run_is_followed_in_the_list_while_it_is_trained(tmp_path: Path, serve: Any):  # noqa: F811
    import threading

    halt = Halt(5)
    options: dict[str, Any] = {"out": tmp_path / "home" / "new", "progress": halt, "report": False}
    training = threading.Thread(target=lambda: emu.train(short(8), "fixed16", **options))
    training.start()
    assert halt.reached.wait(60)
    client = serve(tmp_path / "home")
    assert client.state()["says"] == "1 run: 1 running."
    (row,) = listed_runs(tmp_path / "home")
    assert row.train_loss is not None
    halt.go_on.set()
    training.join()
    assert client.state()["says"] == "1 run: 1 finished."


def test_a_run_that_cannot_be_read_is_listed_as_such(runs: Path, serve: Any):  # noqa: F811
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text('{"status":')
    client = serve(runs)
    assert client.state()["says"] == "3 runs: 2 finished, 1 unreadable."
    assert ">broken</a>" in client.page()
    (runs / "broken" / "run.json").write_text(json.dumps({"status": "finished", "model": "x", "device": "y"}))
    (row,) = [row for row in listed_runs(runs) if row.name == "broken"]
    assert (row.model, row.device, row.status, row.started) == ("x", "y", "finished", "")


@pytest.mark.parametrize("entry", [{"steps": "many"}, {"steps": []}, {"seconds": "long"}, {"stopped_by": 5}])
def test_a_run_with_a_wrong_entry_does_not_take_the_list_away(listed: Path, entry: dict[str, Any]):
    (listed / "broken").mkdir()
    (listed / "broken" / "run.json").write_text(json.dumps({"status": "finished", **entry}))
    assert {run.name: run.status for run in listed_runs(listed)}["broken"] == "unreadable"
    assert ">broken</a>" in list_page(listed)


def test_runs_are_counted_by_state():
    assert summary_of(["stopped", "finished", "stopped"]) == "3 runs: 1 finished, 2 stopped."
    assert summary_of(["finished"]) == "1 run: 1 finished."


def test_the_pages_of_studies_can_be_compared_too(runs: Path, tmp_path: Path, serve: Any):  # noqa: F811
    study = tmp_path / "study"
    (study / "runs").mkdir(parents=True)
    (study / "study.json").write_text('{"grid": []}')
    (runs / "a").rename(study / "runs" / "key-1")
    (runs / "b with a space & more").rename(study / "runs" / "key-2")
    assert "2 runs compared" in serve(study).page("/compare/key-1/key-2/report.html")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Runs of known numbers: c is the newest; a has no accuracy, and its loss is no number."""
    home = tmp_path / "home"
    fake(home / "a", "2026-01-01T10:00:00+00:00", None, None)
    fake(home / "b", "2026-01-02T10:00:00+00:00", 0.9, 0.25)
    fake(home / "c", "2026-01-03T10:00:00+00:00", 0.85, 0.125)
    fake(home / "d10", "2026-01-01T09:00:00+00:00", 0.95, 10.0)
    fake(home / "d9", "2026-01-01T08:00:00+00:00", 0.0, 9.0)
    return home


def test_the_newest_run_is_first_and_menus_say_so(listed: Path, serve: Any):  # noqa: F811
    page = serve(listed).page()
    assert re.findall(r'href="runs/(\w+)/report.html"', page) == ["c", "b", "a", "d10", "d9"]
    assert re.findall(r'<option value="([^"]+)" selected>', page) == ["started", "down"]
    assert re.findall(r'data-key="([^"]+)" data-number', page) == ["steps", "test accuracy", "training loss"]
    (row,) = re.findall(r"<tr><th scope=\"row\" data-rank=\"b\">.*?</tr>", page)
    assert re.findall(r'data-label="([^"]+)" data-rank="([^"]*)">([^<]*)<', row)[:6] == [
        ("model", "mlp", "mlp"), ("device", "fixed16", "fixed16"), ("status", "finished", "finished"),
        ("steps", "1200", "1,200"), ("test accuracy", "0.9", "90.0%"), ("training loss", "0.25", "0.25"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_reader_sorts_the_list_and_ticks_runs_to_compare(listed: Path, tmp_path: Path, serve: Any):  # noqa: F811
    page = tmp_path / "list.html"
    page.write_text(serve(listed).page().replace("</body>", READER))
    document = dump(page.as_uri(), tmp_path)
    found = re.search(r'data-seen="([^"]+)"', document)
    assert found is not None
    seen = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert seen["first"] == "c b a d10 d9"
    assert seen["name"] == "a b c d9 d10"
    assert seen["reversed"] == "d10 d9 c b a"
    assert seen["accuracy"] == "d10 b c d9 a"
    assert seen["worst"] == "d9 c b d10 a"  # a run without a number is last in both directions
    assert seen["loss"] == "c b d9 d10 a"
    assert seen["head"] == "ascending"
    assert seen["menu"] == "a b c d9 d10"
    assert seen["none"] == seen["single"] == [None, "Tick two or more runs to compare them"]
    assert seen["pair"] == seen["sorted"] == ["compare/a/b/report.html", "Compare 2 runs"]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize("path", ["", "compare/b/c/report.html"])
def test_a_browser_shows_the_list_below_what_runs(listed: Path, tmp_path: Path, serve: Any, path: str):  # noqa: F811
    client = serve(listed)
    document = dump(client.server.address + path, tmp_path)
    assert ("5 runs: 5 finished." if not path else "2 runs compared") in document


def dump(address: str, tmp_path: Path) -> str:
    """Return a document after its scripts ran."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--timeout=8000", "--virtual-time-budget=8000", "--dump-dom", address]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()
