"""The page in a real browser: it draws everything, says nothing on the console, asks the network for nothing."""

import json
import re
import shutil
import subprocess

import pytest
from synthetic_run import write_run

import emu
from emu.report import build_report
from emu.report.page import asset
from emu.report.words import percent

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"),
]
FETCHING = "<!doctype html><script>console.warn('noticed'); fetch('https://example.com/x').catch(() => {})</script>"
#: A page in a frame as wide as a phone, which tells its parent how wide its content is.
FRAME = """<!doctype html><iframe id="f" style="width:{width}px;height:700px;border:0" src="{name}"></iframe><script>
const poll = setInterval(() => {{
  const inner = document.getElementById("f").contentDocument;
  if (!inner || inner.documentElement.dataset.ready !== "true") return;
  clearInterval(poll);
  document.documentElement.dataset.widths = inner.documentElement.scrollWidth + " " + inner.documentElement.clientWidth;
}}, 50);
</script>"""


def visit(path, tmp_path, *options):
    """Return the document after its scripts ran, its console lines, and the URLs it asked for."""
    log = tmp_path / "net.json"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
        f"--log-net-log={log}", "--virtual-time-budget=20000", "--dump-dom", *options, path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, console, requests_of_pages(json.loads(log.read_text()))


def requests_of_pages(log):
    """URLs that a document asked for; the browser's own errands have no origin."""
    start = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    begun = [event["params"] for event in log["events"] if event["type"] == start and "url" in event.get("params", {})]
    return [one["url"] for one in begun if one.get("initiator") != "not an origin" and one["url"].startswith("http")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return build_report(write_run(tmp_path_factory.mktemp("runs") / "lenet", points=20))


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    """A run with every section: moving points, a loss that is scaled, a machine with a clock."""
    overrides = {
        "training.steps": 12, "training.batch": 8, "data.test_images": 20, "training.log_every": 2,
        "network.input": [1, 8, 8], "dynamic_point.pretraining_steps": 3, "dynamic_point.interval": 2,
        "precision.error.format": "fp16", "precision.gradient.format": "fp16",
        "loss_scaling": {"policy": "backoff", "start": 2.0**24, "on_overflow": "repeat", "interval": 3},
    }  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "systems"
    emu.train(emu.model("mlp"), emu.device("dlu16"), out=out, overrides=overrides)
    return out / "report.html"


def test_the_check_itself_notices_a_request_and_a_console_line(tmp_path):
    path = tmp_path / "fetching.html"
    path.write_text(FETCHING)
    _, console, requests = visit(path, tmp_path)
    assert requests == ["https://example.com/x"]
    assert any("noticed" in line for line in console)


@pytest.mark.parametrize(
    ("name", "number", "scheme"), [("report", 10, "light"), ("report", 10, "dark"), ("systems", 20, "light")]
)
def test_every_chart_is_drawn_without_console_lines_or_requests(request, tmp_path, name, number, scheme):
    report = request.getfixturevalue(name)
    document, console, requests = visit(
        report, tmp_path, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    )
    assert console == []
    assert requests == []
    assert 'data-ready="true"' in document
    charts = re.findall(r'<div class="chart[^"]*" id="([^"]+)"[^>]*>(.{0,300})', document, re.DOTALL)
    assert len(charts) == number
    assert all("<svg" in inside for _, inside in charts)
    assert "undefined" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


def test_a_hostile_layer_name_runs_nothing(tmp_path):
    name = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    path = build_report(write_run(tmp_path / "x", layers=["input", name, "loss"], points=4))
    document, console, requests = visit(path, tmp_path)
    assert (console, requests) == ([], [])
    assert "<title>lenet on fixed16: emu report</title>" in document


@pytest.mark.parametrize(("name", "width"), [("report", 375), ("report", 320), ("systems", 375)])
def test_nothing_sticks_out_on_a_phone(request, tmp_path, name, width):
    report = request.getfixturevalue(name)
    frame = report.with_name(f"frame{width}.html")
    frame.write_text(FRAME.format(width=width, name=report.name))
    document, _, _ = visit(frame, tmp_path, "--allow-file-access-from-files", "--disable-web-security")
    content, shown = map(int, re.search(r'data-widths="(\d+) (\d+)"', document).groups())
    assert content <= shown <= width


def test_the_script_writes_shares_as_the_page_does(tmp_path):
    script = str(asset("page.js"))
    function = re.search(r"const percent = .*?\n  };", script, re.DOTALL).group()
    millionths = [
        0, 5, 10, 12, 99, 1234, 83_400, 504_000, 990_000, 990_049, 991_000, 995_000, 999_900, 999_999, 1_000_000,
    ]  # fmt: skip
    path = tmp_path / "percent.html"
    path.write_text(
        f"<!doctype html><p></p><script>{function} document.querySelector('p').textContent = "
        f"{millionths}.map(percent).join(' ')</script>"
    )
    document, _, _ = visit(path, tmp_path)
    shown = re.search(r"<p>(.*)</p>", document).group(1).replace("&lt;", "<").split(" ")
    assert shown == [percent(parts / 1e6) for parts in millionths]
