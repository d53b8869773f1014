"""Folders that appear atomically: complete or not at all; a folder that exists is kept."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from emu._files import TEMPORARY
from emu.errors import ConfigError


def copy_atomically(source: Path, target: Path) -> bool:
    """Copy a folder to another path atomically, by hard links if the file system has them.

    Args:
        source: folder to copy.
        target: path of the copy.

    Returns:
        Whether it was copied; False if `target` is a folder already.

    Raises:
        ConfigError: the target cannot be written, or is a file.
    """
    if target.is_dir():
        return False
    # a name of its own for each copy: several processes may copy to one target at the same time
    unfinished = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, unfinished, copy_function=_link)
        os.rename(unfinished, target)  # fails if the target is a folder with files
    except OSError as error:
        # another process was first
        if target.is_dir():
            return False
        raise unwritable(target, error) from None
    finally:
        # after success the name is gone, and nothing is removed
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def unwritable(folder: Path, error: OSError) -> ConfigError:
    """Return the error for a folder that cannot be written."""
    return ConfigError(
        f"the folder of a run must be writable, got {error.strerror or str(error)!r} for {folder}; choose another one "
        "with --out"
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # another file system, or a file system without hard links
        shutil.copy2(source, target)
