"""The documentation as a site: built by mkdocs, served to a browser, and searched as a reader does."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from documents import ROOT

MKDOCS = shutil.which("mkdocs")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: A page that runs a script and sends what it returns to its server.
_RUNNER = """<!doctype html><title>runner</title><body><script type="module">
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(condition) {{
  for (let i = 0; i < 1200; i++) {{ const value = condition(); if (value) return value; await sleep(25); }}
  return null;
}}
async function framed(url, width) {{
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${{width}}px;height:900px;border:0`;
  frame.src = url;
  document.body.append(frame);
  await new Promise((resolve) => frame.addEventListener("load", resolve, {{ once: true }}));
  return frame;
}}
async function run(given) {{ {script} }}
let answer;
try {{ answer = {{ value: await run({given}) }}; }} catch (error) {{ answer = {{ error: String(error) }}; }}
await fetch("/answer", {{ method: "POST", body: JSON.stringify(answer) }});
</script>"""
#: What a reader sees who types each query into the search of the first page: the addresses of the results, in order.
SEARCH = """
const found = {};
for (const query of given) {
  const frame = await framed(`/index.html?q=${encodeURIComponent(query)}`, 1200);
  const page = frame.contentDocument;
  const links = () => [...page.querySelectorAll(".md-search-result__item > a.md-search-result__link")];
  await until(() => links().length || /No matching/.test(page.querySelector(".md-search-result__meta").textContent));
  found[query] = links().map((link) => link.pathname);
  frame.remove();
}
return found;
"""


def build(folder: Path) -> Path:
    """Build the site into a folder; a warning fails the build."""
    assert MKDOCS is not None
    command = [MKDOCS, "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site, one page that runs a script, and the address to which it sends its answer."""

    page: str
    answers: Queue[dict[str, Any]]

    def do_GET(self) -> None:
        if self.path != "/runner":
            super().do_GET()
            return
        text = self.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def _served(site: Path, page: str) -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    answers: Queue[dict[str, Any]] = Queue()
    handler = type("Handler", (_Handler,), {"page": page, "answers": answers})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/runner", answers
        server.shutdown()


def in_browser(site: Path, profile: Path, script: str, given: Sequence[Any], *options: str) -> Any:
    """Run a script on a page beside the site, and return what it returns."""
    assert BROWSER is not None
    with _served(site, _RUNNER.format(script=script, given=json.dumps(given))) as (address, answers):
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
            f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0", *options, address,
        ]  # fmt: skip
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            answer = answers.get(timeout=300)
        finally:
            browser.terminate()
            browser.wait(timeout=30)
    assert "error" not in answer, answer["error"]
    return answer["value"]
