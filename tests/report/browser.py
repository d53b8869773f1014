"""A headless Chromium that opens many pages in one start: it is told what to do over a pipe, in DevTools messages.

Source: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Becomes a browser that reads messages from descriptor 3 and writes answers to 4, as Chromium does.
_WITH_PIPES = """import fcntl, os, sys
for own, given in enumerate([fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]], 3):
    os.dup2(given, own)
os.execv(sys.argv[3], sys.argv[3:])"""
#: Seconds to wait for an answer: a script that fails in a timer never gives one.
MOST_S = 60
#: A page is ready when its charts are drawn; a page without charts when it is loaded.
READY = """new Promise(done => {
  const look = () => document.readyState === "complete"
    && (document.documentElement?.dataset.ready === "true" || !document.getElementById("charts")) ? done(true)
    : setTimeout(look, 20);
  look();
})"""


class Browser:
    """One page of a browser. Widths are CSS pixels."""

    def __init__(self, process: subprocess.Popen[bytes], to_browser: int, from_browser: int) -> None:
        self._process, self._to, self._from = process, to_browser, from_browser
        self._number, self._unread = 0, b""
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a command; events that come before it are dropped."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            answers, _, _ = select.select([self._from], [], [], MOST_S)
            assert answers, f"the browser has not answered for {MOST_S} s"
            received = os.read(self._from, 1 << 20)
            assert received, "the browser has ended"
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def show(self, width: int, *, height: int = 900, scheme: str = "light") -> None:
        """Set the size of the page, and whether it is dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Open a page and wait until its charts are drawn."""
        self.ask("Page.navigate", url=url)
        self.run(READY)

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, or of the promise that it gives."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def images(self) -> list[tuple[str, str]]:
        """Return names and descriptions of the pictures, as a screen reader gets them."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node["ignored"]]
        pictures = [node for node in shown if node["role"]["value"] in ("image", "graphics-document", "img")]
        return [
            (node.get("name", {}).get("value", ""), node.get("description", {}).get("value", "")) for node in pictures
        ]

    def picture(self, path: Path, height: int | None = None, scale: float = 1.0) -> None:
        """Write the page as PNG, from its top down to `height`, or whole."""
        height = height or min(self.run("document.documentElement.scrollHeight"), 16000)
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": scale}
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser(profile: Path, options: Sequence[str] = ()) -> Generator[Browser, None, None]:
    """Start a browser, and end it."""
    assert BROWSER is not None
    to_read, to_write = os.pipe()  # what the browser reads
    from_read, from_write = os.pipe()
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--remote-debugging-pipe", *options,
    ]  # fmt: skip
    pipes = [str(to_read), str(from_write)]
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_PIPES, *pipes, *command], pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(process, to_write, from_read)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(to_write)
        os.close(from_read)
