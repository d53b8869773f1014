"""Every picture of every kind of page in a browser, in two fonts and three widths: nothing is cut, each is named."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import BROWSER, Browser, browser
from every_picture import write_pages

from emu.watch import WatchServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"),
]
FAULTS = Path(__file__).with_name("faults.js").read_text(encoding="utf-8")
#: Phone, tablet, desktop.
WIDTHS = (390, 1024, 1440)
#: A wide font and a narrow one; a machine without them has others of such widths.
FONTS = ("'DejaVu Sans', Verdana, monospace", "'Noto Sans', 'Liberation Sans', Arial, serif")
#: How emu's pages and drawings name their font.
OWN_FONT = re.compile(
    r"""system-ui, -apple-system, (["'])Segoe UI\1, Roboto, sans-serif|(?<=font-family=")sans-serif"""
)
#: Numbers of charts; a drawing in a file of its own is one.
CHARTS = {
    "run": 25, "still": 14, "comparison": 4, "sensitivity": 3, "study": 3, "search": 16, "front": 1, "simulate": 1,
    "notebook": 3,
}  # fmt: skip
#: Pages on which several charts share the text that says how to read them.
READ_TOGETHER = ("comparison", "sensitivity")
#: Tensors whose leading bits are looked at: with an accumulator, with one and a point that moves, with neither.
TENSORS = (("conv2", "activation"), ("fc1", "gradient"), ("relu1", "activation"))
CHOOSE = """new Promise(done => {{
  for (const [id, value] of [["bits-layer", "{0}"], ["bits-role", "{1}"]]) {{
    const menu = document.getElementById(id);
    menu.value = value;
    menu.dispatchEvent(new Event("change"));
  }}
  setTimeout(() => done(document.getElementById("bits-chart").getAttribute("aria-label")), 200);
}})"""

#: Texts of axes whose contrast to the card behind them is below 3. Source: WCAG 2.2, 1.4.11.
TOO_DARK = """(() => {
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = css => {
    const [r, g, b] = css.match(/[0-9.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const card = luminance(getComputedStyle(document.querySelector("figure")).backgroundColor);
  return [...document.querySelectorAll(".chart svg [class*='role-axis'] text")]
    .filter(text => text.textContent.trim())
    .map(text => [luminance(getComputedStyle(text).fill), text.textContent])
    .filter(([ink]) => (Math.max(ink, card) + 0.05) / (Math.min(ink, card) + 0.05) < 3)
    .map(([ink, content]) => content);
})()"""
#: Waits until the live page shows a report whose charts are drawn.
LIVE = """new Promise(done => {
  const look = () => frames[0]?.document?.documentElement?.dataset.ready ? done(true) : setTimeout(look, 50);
  look();
})"""
#: A drawing with a fault of every kind, and beside each what is no fault.
FAULTY = """<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200" viewBox="0 0 200 200">
<clipPath id="half"><rect x="0" y="0" width="100" height="100"/></clipPath>
<text x="180" y="90">outside</text><text x="20" y="90">inside</text>
<g clip-path="url(#half)"><g class="mark-symbol"><path d="M95 50h10v10h-10z"/><path d="M45 50h10v10h-10z"/>
<path d="M145 50h10v10h-10z"/></g></g>
<g><g class="role-axis-label"><text x="10" y="20">1%</text><text x="50" y="20">1%</text></g></g>
<g><g class="role-axis-label"><text x="10" y="120">0</text><text x="50" y="120">0.5</text></g>
<g class="role-axis-title"><text x="90" y="120">step</text></g></g>
<g><g class="role-axis-label"><text x="10" y="140">2^1.5</text><text x="60" y="140">2^2</text></g></g>
<g><g class="role-axis-label"><text x="10" y="160">0.5</text><text x="60" y="160">1.0</text></g></g>
<g class="role-legend-symbol"><path d="M120 20h10" fill="black"/><path d="M120 30h10" stroke="black"/>
<path d="M120 40h10v10h-10z" fill="black"/></g>
<text x="150" y="150">over</text><text x="152" y="152">under</text>
</svg>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser, None, None]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def in_font(path: Path, font: str) -> Path:
    """The page in another font."""
    copy = path.with_name(f"{quote(font[1:5])}-{path.name}")
    copy.write_text(OWN_FONT.sub(font, path.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


@pytest.mark.parametrize("name", [name for name in CHARTS if name not in ("front", "simulate", "notebook")])
def test_every_chart_can_be_read_on_a_dark_page(page: Browser, pages: dict[str, Path], name: str):
    page.show(WIDTHS[1], scheme="dark")
    page.open(pages[name].as_uri())
    assert page.run("matchMedia('(prefers-color-scheme: dark)').matches")
    assert page.run(TOO_DARK) == []
    assert page.run(TOO_DARK.replace("< 3)", "< 21)")), "texts of axes are there to be judged"


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("name", CHARTS)
def test_no_picture_leaves_its_frame_or_says_a_thing_twice(page: Browser, pages: dict[str, Path], name: str, font: str):
    shown = in_font(pages[name], font)
    for width in WIDTHS:
        page.show(width)
        page.open(shown.as_uri())
        assert page.run(FAULTS) == [], width
        assert page.run("document.querySelectorAll('.chart > svg, svg.marks').length") >= CHARTS[name]


def test_a_picture_fits_again_when_the_window_becomes_narrower(page: Browser, pages: dict[str, Path]):
    page.show(WIDTHS[-1])
    page.open(pages["run"].as_uri())
    page.show(WIDTHS[0])
    page.run("new Promise(done => setTimeout(done, 500))")
    assert page.run(FAULTS) == []


@pytest.mark.parametrize("tensor", TENSORS)
def test_the_leading_bits_of_every_kind_of_tensor_fit(page: Browser, pages: dict[str, Path], tensor: tuple[str, str]):
    for width in WIDTHS:
        page.show(width)
        page.open(pages["run"].as_uri())
        assert page.run(CHOOSE.format(*tensor)).startswith(f"Leading bits of {' '.join(tensor)} over time.")
        assert page.run(FAULTS) == [], width
        rules = page.run("[...document.querySelectorAll('#bits-lines li')].map(item => !item.hidden)")
        assert rules == [tensor != ("fc1", "gradient"), tensor != ("relu1", "activation")]


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_has_a_name_of_its_own_and_says_how_to_read_it(page: Browser, pages: dict[str, Path], name: str):
    page.show(WIDTHS[1])
    page.open(pages[name].as_uri())
    images = page.images()
    assert len(images) == CHARTS[name]
    assert len({label for label, _ in images}) == len(images)
    assert all(label and "Vega" not in label for label, _ in images)
    is_report = 'id="charts"' in pages[name].read_text(encoding="utf-8")
    if is_report and name not in READ_TOGETHER:  # each figure says how to read it
        assert all("read" in description.lower() for _, description in images), images


def test_the_live_page_shows_the_same_pictures(page: Browser, pages: dict[str, Path]):
    server = WatchServer(pages["run"].parent)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        for width in WIDTHS:
            page.show(width)
            page.open(server.address)
            page.run(LIVE)
            assert page.run(f"frames[0].eval({json.dumps(FAULTS)})") == [], width
            assert page.run("frames[0].document.querySelectorAll('.chart svg.marks').length") == CHARTS["run"]
    finally:
        server.shutdown()
        server.server_close()


def test_the_check_itself_notices_every_kind_of_fault(page: Browser, tmp_path: Path):
    page.show(WIDTHS[1])
    (tmp_path / "faulty.svg").write_text(FAULTY, encoding="utf-8")
    page.open((tmp_path / "faulty.svg").as_uri())
    faults = "\n".join(page.run(FAULTS))
    for fault in (
        'text "outside" leaves the drawing', "mark-symbol is cut", "an axis says one thing twice: 1%, 1%",
        "not whole: step 0, 0.5", "not whole: undefined 2^1.5", "a symbol of a legend has no colour",
        'text "over" lies over text "under"',
    ):  # fmt: skip
        assert fault in faults, faults
    assert len(faults.splitlines()) == 7
