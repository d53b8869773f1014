"""Folders that appear in one step: whole or not at all, and the first one stays."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from emu._files import TEMPORARY
from emu.errors import ConfigError


def place(source: Path, target: Path) -> bool:
    """Let a folder's files lie in another place, too: by hard links where the file system has them, else by copies.

    Args:
        source: folder.
        target: path that it gets; what is there already stays.

    Returns:
        Whether it was placed; False where a folder is there.

    Raises:
        ConfigError: the target cannot be written, or a file is in its place.
    """
    if target.is_dir():
        return False
    beside = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, beside, copy_function=_link)
        os.rename(beside, target)  # refused where a folder with files is
    except OSError as error:
        if target.is_dir():
            return False
        raise unwritable(target, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def unwritable(folder: Path, error: OSError) -> ConfigError:
    """Return what is said of a folder that cannot be written."""
    return ConfigError(
        f"the folder of a run must be writable, got {error.strerror or str(error)!r} for {folder}; choose another one "
        "with --out"
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
