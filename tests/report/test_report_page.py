"""The page a run's report is: alone, whole, readable, safe."""

import json
import math
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import LAYERS, write_run

from emu.errors import ConfigError
from emu.report import build_report
from emu.report.run_data import read_run

MOST_BYTES = 3_000_000
HOSTILE = "</script><script>alert('conv')</script><img src=x onerror=alert(1)>&\"'"


class Page(HTMLParser):
    """Start tags with their attributes, and the text of headings, scripts left out."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.headings, self._heading = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._heading = [] if tag in ("h1", "h2") else self._heading

    def handle_endtag(self, tag):
        if tag in ("h1", "h2"):
            self.headings.append("".join(self._heading))
            self._heading = None

    def handle_data(self, data):
        if self._heading is not None:
            self._heading.append(data)

    def of(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "lenet", fmt="fix8f5", device="fixed8", learns=False, shift=-1)


@pytest.fixture(scope="module")
def text(folder):
    return build_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_report_is_written_into_the_run_folder(folder, text):
    assert build_report(folder) == folder / "report.html"
    assert text.startswith("<!doctype html>")


def test_the_page_refers_to_nothing_outside_itself(page):
    for tag, attributes in page.tags:
        for name in ("src", "srcset", "data", "action", "poster"):
            assert name not in attributes, f"<{tag}> has a {name}"
        target = attributes.get("href", "#")
        assert target.startswith("#") or target == "data:,", f"<{tag}> points to {target}"


def test_the_style_sheet_loads_nothing(text):
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_the_page_forbids_the_browser_every_request(page):
    policies = [a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none';")
    assert "http" not in policies[0]


def test_the_page_stays_under_three_megabytes(text):
    assert len(text.encode()) < MOST_BYTES


@pytest.mark.slow
def test_the_page_of_a_deep_network_logged_often_stays_under_three_megabytes(tmp_path):
    layers = ["input", *(f"{kind}{i}" for i in range(30) for kind in ("relu", "tanh")), "loss"]
    path = build_report(write_run(tmp_path / "deep", layers=layers, points=90, steps=90_000, samples=200))
    assert path.stat().st_size < MOST_BYTES


def test_sections_come_in_reading_order(page):
    assert page.headings == [
        "lenet on fixed8", "Diagnosis", "Loss and accuracy", "The network", "Every tensor against its format",
        "How large the numbers were", "Overflow and underflow", "Signal-to-noise", "Where the time went",
        "Device and formats", "Training recipe", "Versions and hashes",
    ]  # fmt: skip


def test_the_document_has_language_title_skip_link_and_landmarks(page, text):
    assert page.of("html") == [{"lang": "en"}]
    assert "<title>lenet on fixed8: emu report</title>" in text
    skip = page.of("a")[0]
    assert skip["href"] == "#report"
    assert page.of("main")[0]["id"] == "report"
    assert len(page.of("nav")) == len(page.of("header")) == len(page.of("footer")) == len(page.of("h1")) == 1


def test_every_identifier_is_unique_and_every_link_arrives(page):
    identifiers = [a["id"] for _, a in page.tags if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    assert {a["href"][1:] for a in page.of("a")} <= set(identifiers)


def test_every_chart_and_table_says_what_it_is(page):
    charts = [a for a in page.of("div") if a.get("class") == "chart"]
    assert len(charts) == 10
    assert all(a["role"] == "img" and len(a["aria-label"]) > 30 for a in charts)
    assert len(page.of("table")) == len(page.of("caption")) == 10


def test_layer_and_role_are_chosen_with_labelled_native_selects(page, text):
    menus = ["network-column", "ranges-order", "ranges-role", "bits-layer", "bits-role"]
    assert [a["id"] for a in page.of("select")] == menus
    assert len(page.of("label")) == len(menus)
    assert "<label><span>Layer</span><select" in text
    assert "<label><span>Role</span><select" in text


def test_names_from_a_run_are_shown_and_never_run(tmp_path):
    layers = ["input", HOSTILE, "loss"]
    folder = write_run(tmp_path / "x", layers=layers, device=HOSTILE, description=HOSTILE, fmt="fix8f7", points=3)
    text = build_report(folder).read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert Page(text).of("img") == []
    assert "&lt;/script&gt;&lt;script&gt;alert" in text
    assert len(Page(text).of("script")) == 5


@pytest.mark.parametrize(
    ("file", "heading"),
    [
        ("metrics.parquet", "Loss and accuracy"),
        ("registers.parquet", "How large the numbers were"),
        ("flags.parquet", "Overflow and underflow"),
        ("snr.parquet", "Signal-to-noise"),
    ],
)
def test_a_missing_file_is_said_where_its_picture_would_be(tmp_path, file, heading):
    text = build_report(write_run(tmp_path / "x", points=3, leave_out=[file])).read_text(encoding="utf-8")
    section = text[text.index(f">{heading}</h2>") :].split("</section>")[0]
    assert f"{file} is not in this run folder, so there is nothing to show here" in section
    assert text.count("is not in this run folder") == 1


def test_a_folder_with_nothing_but_run_json_still_gives_a_page_without_any_chart(tmp_path):
    files = ["metrics.parquet", "registers.parquet", "flags.parquet", "snr.parquet", "profile.parquet"]
    folder = write_run(tmp_path / "x", points=3, leave_out=files)
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert not [a for a in page.of("div") if a.get("class") == "chart"]
    assert page.headings[-1] == "Versions and hashes"


def test_a_run_of_one_interval_that_is_all_nan_still_gives_a_page(tmp_path):
    folder = write_run(tmp_path / "x", points=1)
    nan = {"step": [10], "train_loss": [math.nan], "train_accuracy": [math.nan], "test_accuracy": [None]}
    pq.write_table(pa.table(nan), folder / "metrics.parquet")
    snr = {"step": [10, 10], "layer": ["conv1", "fc1"], "role": ["weight", "weight"], "snr_db": [None, math.nan]}
    pq.write_table(pa.table({**snr, "snr_db": pa.array(snr["snr_db"], pa.float64())}), folder / "snr.parquet")
    text = build_report(folder).read_text(encoding="utf-8")
    assert "No loss or accuracy that is a finite number was logged." in text
    assert "1 of 2 tensors is identical to float32." in text


def test_an_empty_run_json_still_gives_a_page(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    page = Page(build_report(tmp_path).read_text(encoding="utf-8"))
    assert page.headings[0] == "network on unnamed device"


@pytest.mark.parametrize("name", ["flags.parquet", "profile.parquet"])
def test_a_damaged_file_is_said_where_its_picture_would_be(tmp_path, name):
    folder = write_run(tmp_path / "x", points=3)
    (folder / name).write_bytes(b"PAR1 and then nothing")
    assert f"{name} could not be read (" in build_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["seconds", "simulated_seconds"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1.0"])
def test_a_time_that_is_no_time_is_named(tmp_path, name, value):
    folder = write_run(tmp_path / "x", points=3)
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, name: float(value)}))
    with pytest.raises(ConfigError, match=rf"^`{name}` must be .* got .* in .*run\.json"):
        build_report(folder)


def test_a_run_that_lacks_columns_which_no_picture_draws_is_shown(tmp_path):
    folder = write_run(tmp_path / "x", points=3)
    drawn = {"metrics": ["step", "train_loss"], "flags": ["step", "layer", "role", "elements", "overflow", "underflow"]}
    for name, columns in drawn.items():
        path = folder / f"{name}.parquet"
        table = pq.read_table(path)
        pq.write_table(table.select(columns), path)
        assert read_run(folder).missing == {}
        pq.write_table(table.select(columns[:-1]), path)
        assert f"lacks the columns {columns[-1]}" in read_run(folder).missing[f"{name}.parquet"]
        pq.write_table(table, path)


def test_a_run_from_before_profiles_says_nothing_of_time(tmp_path):
    folder = write_run(tmp_path / "x", points=3, leave_out=["profile.parquet"])
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert "Where the time went" not in page.headings
    assert [a["id"] for a in page.of("section") if a.get("id") == "time"] == []


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"a run folder must hold run\.json, got .* without it; give a folder"):
        build_report(tmp_path)
    with pytest.raises(ConfigError, match=r"a run folder must exist, got .*nowhere"):
        build_report(tmp_path / "nowhere")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"run\.json must be JSON, got .*run\.json"):
        build_report(tmp_path)


def test_a_report_that_cannot_be_completed_leaves_the_old_one(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "x", points=3)
    (folder / "report.html").write_text("the old one")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match=r"report\.html must be writable, got 'No space left on device'"):
        build_report(folder)
    assert (folder / "report.html").read_text() == "the old one"
    assert not list(folder.glob("*.emu-tmp"))


def test_equal_folders_give_equal_pages_in_any_process(folder, text):
    program = (
        "import sys; from pathlib import Path; from emu.report import build_report; build_report(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", program, folder], check=True, env=environment)
    assert (folder / "report.html").read_text(encoding="utf-8") == text


def test_importing_the_report_loads_no_plotting_library():
    program = "import sys, emu.report; print({'altair', 'vl_convert', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_every_layer_can_be_chosen(text):
    assert all(f"<option>{layer}</option>" in text for layer in LAYERS)


def test_the_page_has_no_trace_of_where_it_was_built(folder, text):
    assert str(folder) not in text
    assert str(Path.home()) not in text
