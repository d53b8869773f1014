"""The site as a reader has it: its pages once mkdocs has built them, and what they do in a browser."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from urllib.parse import unquote

import built_site
import pytest
from documents import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(built_site.MKDOCS is None, reason="no mkdocs on the PATH: pip install -e '.[docs]'"),
]
in_a_browser = pytest.mark.skipif(
    built_site.BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"
)
#: What users type, and the page that must come first.
QUERIES = {
    "round half up": "concepts/rounding",
    "banker's rounding": "concepts/rounding",
    "truncation": "concepts/rounding",
    "saturate": "concepts/overflow",
    "crossbar": "howto/device",
    "custom device": "howto/device",
    "custom layer": "howto/layer",
    "custom format": "howto/format",
    "1-bit gradients": "cluster",
    "1-bit sgd": "cluster",
    "tensor core": "concepts/matrix-units",
    "mixed precision": "loss-scaling",
    "golden vectors": "testing",
    "verilog testbench": "testing",
    "training time": "simulate",
    "resume a killed run": "tutorial",
    "hyperparameter search": "search",
    "slurm": "many-machines",
    "jupyter": "notebook",
    "install": "",
    "energy": "energy",
    "sparse": "sparse",
    "bf16": "concepts/formats",
    "StatisticsUnit": "reference/machines",
    "matmul": "reference/arithmetic",
    "onnx": "onnx",
    "tflite": "tflite",
    "pytorch": "torch",
}
#: In pixels. The longest page of the reference is 2.5 times as long as the tutorial.
LONGEST_ON_A_PHONE = 32_000
#: Of screens, the widest first: what a narrower one hides slides away at once.
WIDTHS = (1440, 1024, 390)
#: How wide each page is in a frame as wide as each screen, and how long.
MEASURE = """
const found = {};
const [pages, widths] = given;
for (const page of pages) {
  const frame = await framed("/" + page, widths[0]);
  const root = frame.contentDocument.documentElement;
  found[page] = [];
  for (const width of widths) {
    frame.style.width = `${width}px`;
    await sleep(40);
    found[page].push([root.scrollWidth, root.scrollHeight]);
  }
  frame.remove();
}
return found;
"""
#: What each button of a page copies.
COPY = """
const frame = await framed("/" + given[0], 1200);
const page = frame.contentDocument;
const copied = [];
page.execCommand = () => { copied.push(page.querySelector("textarea[readonly]").value); return true; };
await until(() => page.querySelector("[data-clipboard-target]"));
for (const button of page.querySelectorAll("[data-clipboard-target]")) { button.click(); await sleep(30); }
return copied;
"""
#: The colours of a page before and after each press of the button, and those of another page after two presses.
SWITCH = """
const seen = [];
let frame;
async function look() {
  await sleep(200);
  const body = frame.contentDocument.body;
  seen.push(body.dataset.mdColorScheme + " " + frame.contentWindow.getComputedStyle(body).backgroundColor);
}
function press() {
  [...frame.contentDocument.querySelectorAll("label[for^=__palette]")].find((label) => !label.hidden).click();
}
frame = await framed("/", 1200);
await look();
press();
await look();
press();
await look();
frame.remove();
frame = await framed("/tutorial/", 1200);
await look();
press();
await look();
return seen;
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_site.build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The HTML of every page, by its address."""
    texts = {path.parent.relative_to(site): path.read_text(encoding="utf-8") for path in site.rglob("index.html")}
    return {"" if str(name) == "." else f"{name}/": text for name, text in sorted(texts.items())}


@pytest.fixture(scope="module")
def index(site: Path) -> list[dict[str, str]]:
    return json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]


def test_every_page_leads_to_the_next_and_the_one_before(pages: dict[str, str]):
    links = {
        page: re.findall(r'<a href="[^"]*" class="md-footer__link md-footer__link--(\w+)"', text)
        for page, text in pages.items()
    }
    assert links[""] == ["next"]
    assert [page for page, directions in links.items() if directions != ["prev", "next"]] == [
        "",
        "design/dependencies/",
    ]


@pytest.mark.parametrize("part", ['"content.code.copy"', 'id="__palette_2"', "(prefers-color-scheme: dark)"])
def test_every_page_has_copy_buttons_and_the_switch_of_colours(pages: dict[str, str], part: str):
    assert [page for page, text in pages.items() if part not in text] == []


def test_code_is_coloured_by_its_language(pages: dict[str, str]):
    assert '<span class="kn">import</span>' in pages[""]
    assert '<span class="gp">&gt;&gt;&gt; </span>' in pages["tutorial/"]
    assert '<span class="gp">$ </span>' in pages["tutorial/"]
    assert '<span class="gi">+' in pages["howto/format/"]
    assert re.search(r'<span class="k[nt]?">\[precision', pages["howto/device/"])


def test_every_class_and_function_of_the_reference_shows_its_source(pages: dict[str, str]):
    headings = 0
    for page, text in pages.items():
        if not page.startswith("reference/"):
            continue
        objects = re.split(r'<div class="doc doc-object doc-(class|function)">', text)[1:]
        headings += len(objects) // 2
        without = [
            body for kind, body in zip(objects[::2], objects[1::2], strict=True) if "mkdocstrings-source" not in body
        ]
        assert [re.search(r'id="([^"]+)"', body)[1] for body in without] == [], page
        files = re.findall(r"Source code in <code>([^<]+)</code>", text)
        assert [file for file in files if not (ROOT / unquote(file)).is_file()] == [], page
    assert headings > 300


def test_the_search_reads_pages_but_no_source_code(index: list[dict[str, str]]):
    texts = "\n".join(entry["text"] for entry in index)
    assert "banker's rounding" in texts
    assert "def quantize(x, rounding=" in texts, "of a page"
    assert "def quantize(x: Any" not in texts
    assert "call_of(" not in texts
    assert "Source code in" not in texts


def test_a_page_asks_no_other_site_for_anything(pages: dict[str, str]):
    for page, text in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect|preload)"[^>]* href="(https?:[^"]*)"', text)
        assert loaded == [], page


@in_a_browser
def test_users_words_find_their_page_first(site: Path, tmp_path: Path):
    found = built_site.in_browser(site, tmp_path, built_site.SEARCH, list(QUERIES))
    first = {query: paths[0].strip("/").removesuffix("index.html") if paths else None for query, paths in found.items()}
    assert first == QUERIES


@in_a_browser
def test_the_search_returns_pages_for_every_first_digit(site: Path, tmp_path: Path):
    found = built_site.in_browser(site, tmp_path, built_site.SEARCH, list(string.digits))
    assert [digit for digit, paths in found.items() if not paths] == []


@in_a_browser
def test_a_button_copies_what_a_reader_types(site: Path, tmp_path: Path):
    copied = built_site.in_browser(site, tmp_path, COPY, ["tutorial/"])
    assert "pip install -e .\nemu --version" in copied
    assert "emu formats fix8f4" in copied
    assert 'import emu\nimport numpy as np\nemu.quantize([0.1, 1.26, 200.0], "fix8f4")' in copied
    assert [text for text in copied if re.search(r"^(>>>|\$) ", text, re.MULTILINE)] == []


@in_a_browser
def test_the_switch_makes_pages_light_and_dark_and_other_pages_keep_it(site: Path, tmp_path: Path):
    light, dark = "default rgb(255, 255, 255)", "slate rgb(30, 33, 41)"
    seen = built_site.in_browser(site, tmp_path, SWITCH, [], "--blink-settings=preferredColorScheme=1")
    assert seen == [light, light, dark, dark, light]


@in_a_browser
def test_no_page_is_wider_than_its_screen_or_endless_on_a_phone(site: Path, pages: dict[str, str], tmp_path: Path):
    found = built_site.in_browser(site, tmp_path, MEASURE, [list(pages), WIDTHS])
    assert set(found) == set(pages)
    for at, screen in enumerate(WIDTHS):
        assert [page for page, sizes in found.items() if sizes[at][0] > screen] == [], screen
    on_a_phone = {page: sizes[-1][1] for page, sizes in found.items() if page.startswith("reference/")}
    assert {page: long for page, long in on_a_phone.items() if long > LONGEST_ON_A_PHONE} == {}
