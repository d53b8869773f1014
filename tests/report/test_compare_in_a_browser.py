"""Comparisons, ranges and the drawn network in a real browser: menus work, nothing sticks out, nothing is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import write_run
from test_report_in_a_browser import BROWSER, FRAME, visit

from emu.report import build_report
from emu.report.comparison import build_comparison

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"),
]
WIDTHS = (390, 1024, 1440)
#: Chooses menus when everything is drawn, then says what the page shows.
CHOOSING = """<script>
const poll = setInterval(() => {
  if (document.documentElement.dataset.ready !== "true") return;
  clearInterval(poll);
  for (const [id, value] of CHOICES) {
    const menu = document.getElementById(id);
    menu.value = value;
    menu.dispatchEvent(new Event("change"));
  }
  setTimeout(() => { document.documentElement.dataset.chosen = "true"; }, 500);
}, 50);
</script></body>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ["input", "residual_block1.conv1", "relu1", "fc1", "loss"]
    return build_report(write_run(tmp_path_factory.mktemp("runs") / "lenet", points=4, samples=200, layers=names))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("compared")
    names = [f"a-run-with-quite-a-long-name-that-says-much-about-it-{i}" for i in range(8)]
    formats = ["fix16f13", "fix8f6", "fp16", "bf16", "fix16f9", "fix16f13", "fix24f20", "fp32"]
    runs = [
        write_run(home / name, points=4, samples=30, fmt=fmt, seed=i, device=f"device{i}")
        for i, (name, fmt) in enumerate(zip(names, formats, strict=True))
    ]
    return build_comparison(runs, home / "compare.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_draws_its_curves_without_console_lines_or_requests(comparison: Path, tmp_path: Path, scheme: str):
    document, console, requests = visit(
        comparison, tmp_path, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    )
    assert (console, requests) == ([], [])
    assert 'data-ready="true"' in document
    charts = re.findall(r'<div class="chart[^"]*" id="([^"]+)"[^>]*>(.{0,300})', document, re.DOTALL)
    assert [name for name, _ in charts] == [
        "compared-train-loss", "compared-test-accuracy", "compared-test-loss", "compared-train-accuracy",
    ]  # fmt: skip
    assert all("<svg" in inside for _, inside in charts)
    assert "undefined" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_nothing_sticks_out(request: Any, tmp_path: Path, name: str, width: int):
    page = request.getfixturevalue(name)
    frame = page.with_name(f"frame{width}.html")
    frame.write_text(FRAME.format(width=width, name=page.name))
    document, _, _ = visit(frame, tmp_path, "--allow-file-access-from-files", "--disable-web-security")
    content, shown = map(int, re.search(r'data-widths="(\d+) (\d+)"', document).groups())
    assert content <= shown <= width


def chosen(report: Path, tmp_path: Path, *choices: tuple[str, str]) -> str:
    """Return the document after these menus were set."""
    page = tmp_path / "chosen.html"
    script = CHOOSING.replace("CHOICES", str([list(choice) for choice in choices]))
    before, _, after = report.read_text().rpartition("</body>")  # the drawing library has the same text in it
    page.write_text(f"{before}{script}{after}")
    document, console, _ = visit(page, tmp_path)
    assert console == []
    assert 'data-chosen="true"' in document
    return document


def rows_of(document: str) -> list[str]:
    """The names of the rows of the ranges, from top to bottom."""
    inside = document.split('id="ranges-chart"')[1].split("</svg>")[0]
    placed = re.findall(r'transform="translate\(-?[\d.]+,([\d.]+)\)"[^>]*>([a-z_0-9.\u2026]+ [a-z]+)</text>', inside)
    return [name for _, name in sorted(placed, key=lambda label: float(label[0]))]


def test_menus_sort_the_ranges_and_choose_a_role(report: Path, tmp_path: Path):
    by_layer = rows_of(chosen(report, tmp_path))
    assert by_layer[0] == "input activation"
    assert len(by_layer) > 10
    by_role = rows_of(chosen(report, tmp_path, ("ranges-order", "role")))
    roles = [name.split()[1] for name in by_role]
    assert len(by_role) == len(by_layer)
    assert roles == sorted(roles, key=roles.index)
    assert roles != [name.split()[1] for name in by_layer]
    errors = rows_of(chosen(report, tmp_path, ("ranges-role", "error")))
    assert {name.split()[1] for name in errors} == {"error"}
    assert len(errors) == 4


def test_a_menu_colours_the_network_and_shows_the_legend_of_its_column(report: Path, tmp_path: Path):
    def boxes(document: str) -> dict[str, str]:
        drawn = document.split('class="network"')[1].split("</ol>")[0]
        return dict(re.findall(r'<g data-layer="([^"]+)".*?class="value"[^>]*>([^<]*)</text>', drawn))

    first = chosen(report, tmp_path)
    noise = chosen(report, tmp_path, ("network-column", "noise"))
    assert boxes(first)["fc1"].endswith("%")
    assert boxes(noise)["fc1"].endswith(" dB")
    assert boxes(noise).keys() == boxes(first).keys() == {"input", "residual_block1.conv1", "relu1", "fc1", "loss"}
    for document, legend in ((first, "share"), (noise, "decibel")):
        shown = [name for name, hidden in re.findall(r'data-legend="(\w+)"( hidden="")?', document) if not hidden]
        assert shown == [legend]
