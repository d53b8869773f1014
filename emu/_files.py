"""Files that are written atomically: complete or not at all, even if the process is killed."""

from __future__ import annotations

import json
import lzma
import os
import uuid
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO, cast

#: Errors of NumPy and of its archives for files that are no plain arrays.
UNREADABLE_ARRAYS = (
    OSError, EOFError, ValueError, KeyError, SyntaxError, TokenError, MemoryError, zlib.error, zipfile.BadZipFile,
    lzma.LZMAError,
    RuntimeError,  # encrypted, an unknown compression, nested too deeply
)  # fmt: skip
#: Ending of the names of unfinished files.
TEMPORARY = ".emu-tmp"


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file by what `write` writes: into a new file, forced to the disk, then moved over the old one.

    Raises:
        OSError: it cannot be written; the old file is intact, as it is if `write` raises anything.
    """
    # The same folder, so that `os.replace` stays on one file system, where it is atomic; the random part keeps writers
    # of one file apart: threads, and processes of several computers, which may have the same number.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            # Before the move: otherwise a crash could leave the new name with the content not yet on the disk.
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    # Ctrl-C, too, must leave no unfinished file.
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> object:
    """Return the content of a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8 or not JSON, is nested too deeply, or has half a surrogate pair, which UTF-8 lacks.
    """
    text = path.read_text(encoding="utf-8")
    try:
        content: object = json.loads(text)
        if "\\u" in text:  # only an escape can give half a surrogate pair: encoding then raises a ValueError
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("arrays or objects nested too deeply") from None
    return content


def mark_stopped(path: Path, why: str) -> None:
    """Record in the `run.json` of a run that it was stopped, unless it says that it has ended. It never raises.

    It is here because the sentinel of a cluster's machine, which loads nothing but the standard library, calls it, too.

    Args:
        path: path of `run.json`.
        why: part of a sentence that begins with "because".
    """
    with suppress(OSError, ValueError):
        content = read_json(path)
        info = cast("dict[str, object]", content) if isinstance(content, dict) else {}
        # A run that has ended in the meantime keeps its own verdict.
        if info.get("status") == "running":
            info |= {"status": "stopped", "stopped_because": why}
            info["ended"] = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps(info, indent=2, ensure_ascii=False) + "\n"
            replace_file(path, lambda file: file.write(text.encode()))


def _sync_folder(folder: Path) -> None:
    """Force the entries of a folder to the disk, where the system can."""
    if os.name == "posix":  # Windows cannot open folders
        # The new file has its place already. Some network file systems refuse to sync a folder, and a folder that may
        # be written need not be readable.
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
