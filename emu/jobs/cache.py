"""The cache of runs: a run that was trained in one study or search is not trained again in another.

    ADDRESS/        a finished run folder; its files are hard links, shared with the folders of studies and searches
    ADDRESS.json    size and SHA-256 of each file; its modification time is when the run was last used
    ADDRESS.*.emu-tmp   a copy or a note that a process is writing

An address is the hash of recipe, device, data, backend, cost and emu's code: of everything that decides the files of a
run. If a file was changed in place, perhaps through another link, its hash differs, and the entry is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from emu import _paths
from emu._files import TEMPORARY, read_json, replace_file
from emu.errors import ConfigError
from emu.jobs.placing import copy_atomically
from emu.training.loop import Loop

#: Size limit of the cache, unless EMU_RUN_CACHE_BYTES gives another: 20 GiB.
MOST_BYTES = 20 * 2**30
#: Seconds after which what has no note counts as left behind by a killed process: far more than copying a run takes.
LEFT_BEHIND_S = 3600.0
#: An address.
_ADDRESS = re.compile("[0-9a-f]{64}")


def address_of(loop: Loop) -> str | None:
    """Return the address of a run; None if its bits depend on the speed of the computer."""
    recipe = loop.bench.recipe
    stop = recipe.training.stop
    # a test on seconds ends a run at another step on another computer
    if stop is not None and stop.seconds is not None:
        return None
    parts = {  # the identity is a hash of device and data, too
        "identity": loop.checkpoint.identity.identity,
        "recipe": recipe.model_dump(mode="json"),
        "backend": loop.bench.runners.backend,
        "cost": loop.log.cost,
        "sources": _paths.sources_sha256(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cache_path() -> Path:
    """Return the folder of the cache: EMU_RUN_CACHE, or `runs` in the user's cache folder."""
    chosen = os.environ.get("EMU_RUN_CACHE")
    return Path(chosen) if chosen else _paths.cache_folder("runs")


def most_bytes() -> int:
    """Return the size limit of the cache.

    Raises:
        ConfigError: EMU_RUN_CACHE_BYTES is not a whole number.
    """
    chosen = os.environ.get("EMU_RUN_CACHE_BYTES", "")
    if chosen and not chosen.isdecimal():
        raise ConfigError(
            f"EMU_RUN_CACHE_BYTES must be a whole number of bytes, got {chosen!r}; unset it for {MOST_BYTES}"
        )
    return int(chosen) if chosen else MOST_BYTES


class RunCache:
    """Finished runs by their address.

    Attributes:
        path: folder of the cache.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def fetch(self, address: str, folder: Path) -> bool:
        """Copy a run to `folder` atomically. Return False if the run is missing or was changed."""
        entry, note = self.path / address, self._note(address)
        try:
            known = cast("dict[str, Any]", read_json(note))["files"]
            # files are hard links: a change through another folder's name is a change here
            if known != _hashes(entry):
                raise ValueError("changed")
            with suppress(OSError):  # the note may be another user's, or on a file system that is only read
                os.utime(note)  # the run is used now: `trim` drops the least recently used
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, KeyError):
            self.drop(address)
            return False
        with suppress(ConfigError):  # another process may drop it now
            return copy_atomically(entry, folder)
        return False

    def publish(self, address: str, folder: Path) -> None:
        """Store the finished run of a folder; do nothing if the cache cannot be written."""
        # the note is written last, so an entry with a note is complete
        if self._note(address).is_file():
            return
        with suppress(OSError, ConfigError):
            entry = self.path / address
            # False if the files are there without a note: a process was killed between the two
            copy_atomically(folder, entry)
            files = _hashes(entry)
            size = sum((entry / name).stat().st_size for name in files)
            text = json.dumps({"bytes": size, "files": files})
            replace_file(self._note(address), lambda file: file.write(text.encode()))

    def drop(self, address: str) -> None:
        """Remove a run from the cache; do nothing if the cache cannot be written."""
        # the note first: without it, the files are no entry
        with suppress(OSError):
            self._note(address).unlink(missing_ok=True)
            _remove(self.path / address)

    def trim(self, limit_bytes: int) -> None:
        """Drop the runs that were used least recently until the cache fits a limit, and what killed processes left."""
        self._drop_left_behind()
        used: list[tuple[int, int, str]] = []
        for note in self.path.glob("*.json"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                content = cast("dict[str, Any]", read_json(note))
                # notes that are dropped at this moment, or are no notes, are passed over
                used.append((note.stat().st_mtime_ns, int(content["bytes"]), note.stem))
        total = 0
        # latest first: those that still fit into the limit are kept
        for _, size, address in sorted(used, reverse=True):
            total += size
            if total > limit_bytes:
                self.drop(address)

    def _drop_left_behind(self) -> None:
        """Drop runs without a note and unfinished copies, if they are old: no note counts their bytes."""
        for path in self.path.glob("*"):
            # only names that the cache gives: its folder may have other files
            address, _, ending = path.name.partition(".")
            if not _ADDRESS.fullmatch(address) or ending == "json" or (not ending and self._note(address).is_file()):
                continue
            with suppress(OSError):
                # its modification time is that of the folder that was copied
                if time.time() - path.stat().st_ctime > LEFT_BEHIND_S:
                    _remove(path) if path.is_dir() else path.unlink()

    def _note(self, address: str) -> Path:
        return self.path / f"{address}.json"


def _remove(folder: Path) -> None:
    """Remove a folder; under its own name it is complete, or gone: what is half removed must not be published."""
    # an ending that `trim` knows, if this process is killed
    removed = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    with suppress(FileNotFoundError):
        folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
