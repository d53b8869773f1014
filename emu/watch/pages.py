"""The pages below a watched folder: made in memory, again when their files have changed; the last good one stays."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from emu.errors import EmuError
from emu.report.build import FILE_NAME
from emu.training.folders.study_folder import ATTEMPTS, RUNS
from emu.watch.kinds import RUN_KIND, Kind, kind_of
from emu.watch.state import State

#: Runs in a folder: KEY is a folder's name.
_RUN = re.compile(rf"/(?:{RUNS}|{ATTEMPTS})/(?P<key>[A-Za-z0-9_-][A-Za-z0-9._-]*)/{re.escape(FILE_NAME)}")
#: Files that are served as they are: devices of a search, tables as text, pictures.
_FILE = re.compile(r"/(?:devices/trial-[0-9]+\.toml|report\.md|front\.svg)")


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        version: changes when the page does.
        html: the page.
        note: why it is an older one; empty where it is not.
    """

    version: str
    html: str
    note: str = ""


class Pages:
    """The pages of a folder.

    Attributes:
        folder: the folder.
        kind: what it is.
    """

    def __init__(self, folder: Path) -> None:
        """Look at a folder.

        Raises:
            ConfigError: it can not be watched.
        """
        self.folder = folder.resolve()
        self.kind = kind_of(self.folder)
        self._lock = threading.Lock()
        self._known: dict[str, Page] = {}

    def _place(self, path: str) -> tuple[Kind, Path] | None:
        """Return what a path of the server stands for; None where it is nothing."""
        if path == f"/{FILE_NAME}":
            return self.kind, self.folder
        found = _RUN.fullmatch(path)
        if not found or not self.kind.has_runs:
            return None
        for part in (RUNS, ATTEMPTS):
            run = self.folder / part / found["key"]
            if (run / RUN_KIND.marker).is_file() and run.resolve().is_relative_to(self.folder):
                return RUN_KIND, run
        return None

    def version(self, path: str) -> str | None:
        """Return the version of a page; None where there is none."""
        place = self._place(path)
        return place[0].version(place[1]) if place else None

    def state(self, path: str) -> State | None:
        """Return what runs in the folder of a page; None where there is no page."""
        place = self._place(path)
        return place[0].state(place[1]) if place else None

    def note(self, path: str) -> str:
        """Return why the page that was made last is older than its files; empty where it is not."""
        known = self._known.get(path)
        return known.note if known else ""

    def page(self, path: str) -> Page | None:
        """Return a page; None where there is none.

        Where a table cannot be read, such as one that is being copied, the last page stays, with a note.

        Raises:
            EmuError: the first page of a folder cannot be made.
        """
        place = self._place(path)
        if place is None:
            return None
        kind, folder = place
        with self._lock:  # Altair draws for one thread at a time
            version, known = kind.version(folder), self._known.get(path)
            if known is not None and known.version == version:
                return known
            try:
                made = Page(version, kind.page(folder))
            except EmuError as error:
                if known is None:
                    raise
                made = Page(version, known.html, f"An older state is shown, for now: {error}")
            self._known[path] = made
            return made

    def file(self, path: str) -> bytes | None:
        """Return a file that is served as it is; None where there is none."""
        if not _FILE.fullmatch(path):
            return None
        place = self.folder / path.removeprefix("/")
        try:
            return place.read_bytes() if place.resolve().is_relative_to(self.folder) else None
        except OSError:
            return None
