"""The pages of a watched folder: made in memory, and again if their files change; the last good one stays."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from emu.errors import ConfigError, EmuError
from emu.report.build import FILE_NAME
from emu.training.folders.study_folder import ATTEMPTS, RUNS
from emu.watch.kinds import RUN_KIND, Kind, View, comparison_view, kind_of
from emu.watch.state import State

#: Runs in a folder: KEY is a folder's name, which does not begin with a dot.
_KEY = r"[^/.\\\0][^/\\\0]*"
_RUN = re.compile(rf"/(?:{RUNS}|{ATTEMPTS})/(?P<key>{_KEY})/{re.escape(FILE_NAME)}")
#: Several of them on one page.
_COMPARISON = re.compile(rf"/compare/(?P<keys>{_KEY}(?:/{_KEY})*)/{re.escape(FILE_NAME)}")
#: Files that are served unchanged: devices of a search, tables as text, pictures.
_FILE = re.compile(r"/(?:devices/trial-[0-9]+\.toml|report\.md|front\.svg)")


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        version: changes when the page changes.
        html: the page.
        note: why it is an older page; empty if it is not.
    """

    version: str
    html: str
    note: str = ""


class Pages:
    """The pages of a folder.

    Attributes:
        folder: the folder; it may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare for a folder.

        Raises:
            ConfigError: it cannot be watched.
        """
        self.folder = folder.resolve()
        self._kind = kind_of(self.folder)
        self._lock = threading.Lock()
        self._known: dict[str, Page] = {}

    @property
    def kind(self) -> Kind | None:
        """Kind of the folder; None as long as nothing has begun in it."""
        if self._kind is None:
            with suppress(ConfigError):  # other files may come before the one that identifies a kind
                self._kind = kind_of(self.folder)
        return self._kind

    def waiting(self) -> str:
        """Return what is waited for; empty if something has begun."""
        if self.kind is not None:
            return ""
        missing = "in which nothing has begun" if self.folder.is_dir() else "which does not exist yet"
        return (
            f"Waiting for {self.folder}, {missing}: the report comes once run.json (emu train), study.json (emu study) "
            "or search.json (emu search) is in it."
        )

    def _resolved(self, path: str) -> View | None:
        """Return what a server path shows; None if there is no such page."""
        if self.kind is None:
            return None
        if path == f"/{FILE_NAME}":
            return self.kind.view(self.folder)
        # the whole path: what follows a page's name is no page
        if match := _RUN.fullmatch(path):
            run = self._run(match["key"])
            return RUN_KIND.view(run) if run else None
        if match := _COMPARISON.fullmatch(path):
            runs = [self._run(key) for key in match["keys"].split("/")]
            known = [run for run in runs if run]
            # one unknown run, no page: the comparison was asked for with it
            return comparison_view(known) if len(known) == len(runs) else None
        return None

    def _run(self, key: str) -> Path | None:
        """Return the folder of a run of a study, a search or a folder of runs; None if there is none.

        Which of `runs` and `attempts` the path names does not matter: a run moves from `attempts` to `runs` when it is
        finished, and its address stays good.
        """
        for part in self.kind.runs_in if self.kind else ():
            # `part` is empty in a folder of runs
            run = self.folder / part / key
            with suppress(OSError):  # a name that is too long, a link to itself
                # resolved, because a link could lead out of the folder
                if (run / RUN_KIND.marker).is_file() and run.resolve().is_relative_to(self.folder):
                    return run
        return None

    def version(self, path: str) -> str | None:
        """Return the version of a page; None if there is none."""
        view = self._resolved(path)
        return view.version() if view else None

    def state(self, path: str) -> State | None:
        """Return what runs in the folder of a page; None if there is no page."""
        view = self._resolved(path)
        return view.state() if view else None

    def note(self, path: str) -> str:
        """Return why the page that was made last is older than its files; empty if it is not."""
        known = self._known.get(path)
        return known.note if known else ""

    def page(self, path: str) -> Page | None:
        """Return a page; None if there is none.

        If a table cannot be read, for example while it is copied, the last page stays, with a note.

        Raises:
            EmuError: the page cannot be made, and there is no earlier one of this path.
        """
        view = self._resolved(path)
        if view is None:
            return None
        with self._lock:  # Altair draws for one thread at a time
            # the version before the page: files that change meanwhile give another version, and the page is made again
            version, known = view.version(), self._known.get(path)
            if known is not None and known.version == version:
                return known
            try:
                made = Page(version, view.page())
            except EmuError as error:
                if known is None:
                    raise
                # with the new version: it is not tried again until files change
                made = Page(version, known.html, f"An older state is shown, for now: {error}")
            self._known[path] = made
            return made

    def file(self, path: str) -> bytes | None:
        """Return a file that is served unchanged; None if there is none."""
        if not _FILE.fullmatch(path):
            return None
        file = self.folder / path.removeprefix("/")
        try:
            return file.read_bytes() if file.resolve().is_relative_to(self.folder) else None
        except OSError:
            return None
