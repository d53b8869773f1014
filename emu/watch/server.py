"""The server of `emu watch`: it answers this computer only, has two methods, and writes nothing.

/                      the frame: what runs, and the page below it
/report.html           the page of the folder
/runs/KEY/report.html  the page of a run of a study, a search or a folder of runs, also while it is trained
/compare/KEY/KEY/report.html  the page that compares such runs
/state?page=PATH       version of a page, empty as long as nothing has begun, and what runs (JSON)
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from emu.errors import ConfigError, EmuError
from emu.report.build import FILE_NAME
from emu.watch.pages import Pages
from emu.watch.state import State

#: The only address that is served.
ADDRESS = "127.0.0.1"
_METHODS = "GET, HEAD"
_ASSETS_FOLDER = Path(__file__).with_name("assets")
_ASSETS = {"/": ("watch.html", "text/html"), "/watch.js": ("watch.js", "text/javascript"),
           "/watch.css": ("watch.css", "text/css")}  # fmt: skip
_TYPES = {".toml": "text/plain", ".md": "text/plain", ".svg": "image/svg+xml"}
#: Policy of the frame; the pages of reports have their own, which allows no request at all.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# only this server's own frame may show a page
_POLICY_BELOW = "frame-ancestors 'self'"


class WatchServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        pages: pages that it serves.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Open the port; `serve_forever` answers requests.

        Args:
            folder: folder of a run, a study, a search, or of several runs.
            port: port; 0 for any free one.

        Raises:
            ConfigError: the folder cannot be watched, or the port is not free.
        """
        self.pages = Pages(folder)
        # checked here: the socket would raise an OverflowError
        if not 0 <= port <= 65535:
            raise ConfigError(f"--port must be 0..65535, got {port}; leave it out for one that is free")
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"--port must be free on {ADDRESS}, got {error.strerror!r} for {port}; leave it out for one that is"
            ) from None

    @property
    def address(self) -> str:
        """Address for a browser."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Host names that requests may have: another name means that a foreign site points to this server."""
        return {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser closes its connection whenever a tab is closed or a page is left: nothing is wrong then.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer  # pyright: ignore[reportIncompatibleVariableOverride]
    # connections stay open between the requests of each second
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with the head of a page."""
        self._answer()

    def __getattr__(self, name: str) -> Any:
        # the base class answers 501 with a page of its own if it finds no such method
        if name.startswith("do_"):  # every other method
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self.close_connection = True  # the body of the request is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"emu watch only reads\n", Allow=_METHODS)

    def _answer(self) -> None:
        # a foreign site whose name resolves to 127.0.0.1 could read pages through the user's browser;
        # its requests have its own name
        if self.headers.get("Host") not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"emu watch answers to this computer alone\n")
            return
        try:
            url = urlsplit(self.path)
        except ValueError:  # such as http://[
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", b"this address is no address of a page\n")
            return
        path = unquote(url.path)
        if path in _ASSETS:
            name, kind = _ASSETS[path]
            text = (_ASSETS_FOLDER / name).read_bytes()
            self._send(HTTPStatus.OK, kind, text, **{"Content-Security-Policy": _POLICY})
        elif path == "/state":
            self._state(parse_qs(url.query).get("page", [f"/{FILE_NAME}"])[0])
        else:
            self._page(path)

    def _state(self, path: str) -> None:
        pages = self.server.pages
        # before the version: something may begin in between, and is then shown at the next request
        waiting = pages.waiting()
        path = unquote(path)  # a browser names a page as it stands in the address
        version, state = pages.version(path), pages.state(path)
        if waiting:
            version, state = "", State("Nothing has begun yet.", None, False)
        if version is None or state is None:
            self._missing()
            return
        content = {
            "title": f"{pages.kind.name if pages.kind else ''} {pages.folder.name}".strip(),
            "version": version,
            "says": state.says,
            "share": state.share,
            "ended": state.has_ended,
            "note": pages.note(path),
            "waits": waiting,
        }
        self._send(HTTPStatus.OK, "application/json", json.dumps(content).encode())

    def _page(self, path: str) -> None:
        try:
            page = self.server.pages.page(path)
        except EmuError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode())
            return
        if page is not None:
            tag = {"ETag": f'"{page.version}"', "Content-Security-Policy": _POLICY_BELOW}
            self._send(HTTPStatus.OK, "text/html", page.html.encode(), **tag)
            return
        content = self.server.pages.file(path)
        if content is None:
            self._missing()
            return
        self._send(HTTPStatus.OK, _TYPES[Path(path).suffix], content)

    def _missing(self) -> None:
        self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")

    def _send(self, status: HTTPStatus, kind: str, content: bytes, **headers: str) -> None:
        self.send_response(status)
        kind = kind if kind == "image/svg+xml" else f"{kind}; charset=utf-8"
        common = {"Content-Type": kind, "Content-Length": str(len(content)), "Cache-Control": "no-store",
                  "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}  # fmt: skip
        for name, value in (common | headers).items():
            self.send_header(name, value)
        self.end_headers()
        # the length is that of the page, which a HEAD does not get
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Print nothing: the page sends a request every second."""
