"""Paths of the files that engineers edit, and of caches; no other module has them.

In a checkout the files are next to the package, in a wheel inside it:

    checkout    emu/_paths.py   devices/*.toml             models/, costs/             kernels/*.cu
    wheel       emu/_paths.py   emu/_data/devices/*.toml   emu/_data/models/, costs/   emu/_data/kernels/*.cu
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Literal

from emu.errors import ConfigError, nearest_name

#: Folders of shipped content, and the word for one file of each.
Content = Literal["devices", "models", "costs"]
_SINGULAR: dict[Content, str] = {"devices": "device", "models": "model", "costs": "cost table"}

_PACKAGE = Path(__file__).resolve().parent


def content_folder(content: Content | Literal["kernels"], package: Path = _PACKAGE) -> Path:
    """Return the folder of shipped files: the wheel's, or the checkout's if there is none in the package.

    Args:
        content: kind of files.
        package: folder of the import package.
    """
    inside = package / "_data" / content
    return inside if inside.is_dir() else package.parent / content


@lru_cache(maxsize=1)
def sources_sha256() -> str:
    """Return the hash of emu's own code, kernels included, which decides what it computes."""
    digest = hashlib.sha256()
    # `*.[ch]*` are .cu, .cuh, .c and .h. TOML files do not count: the address of a cached run covers recipe and device
    # by themselves.
    for folder, pattern in ((_PACKAGE, "*.py"), (content_folder("kernels"), "*.[ch]*")):
        for source in sorted(folder.rglob(pattern)):
            # Names count, too: a module that moves is another program, although all bytes are the same.
            digest.update(source.relative_to(folder).as_posix().encode() + source.read_bytes())
    return digest.hexdigest()


def cache_folder(part: str = "") -> Path:
    """Return the folder of the cache, or a folder in it: compiled kernels, tables of functions, runs.

    It is the user's cache, or the folder that EMU_CACHE_DIR names.

    Args:
        part: name of the folder in the cache.
    """
    chosen = os.environ.get("EMU_CACHE_DIR")
    if chosen:
        return Path(chosen) / part
    # Imported late: it is not needed if EMU_CACHE_DIR is set.
    from platformdirs import user_cache_path

    return user_cache_path("emu", appauthor=False) / part


def content_names(content: Content) -> list[str]:
    """Return the names of the shipped devices or models, sorted."""
    return sorted(path.stem for path in content_folder(content).glob("*.toml"))


def find_content(content: Content, name_or_path: str | Path) -> Path:
    """Return the TOML file of a name or a path.

    Args:
        content: kind of files.
        name_or_path: a shipped name (`fixed16`), or a path: anything with a folder in it or ending in `.toml`.

    Raises:
        ConfigError: it is neither text nor a path, no shipped file has this name, or no file has this path.
    """
    kind, names = _SINGULAR[content], content_names(content)
    if not isinstance(name_or_path, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        made = "" if content == "costs" else f" or what emu.{kind}() returns"
        raise ConfigError(
            f"a {kind} must be the name of a shipped {kind}{',' if made else ' or'} the path of a .toml file{made}, "
            f"got {name_or_path!r}; shipped: {', '.join(names)}"
        )
    path = Path(name_or_path)
    # Before paths: a shipped name wins over a file of the same name in the current folder, which `./NAME` reaches.
    if isinstance(name_or_path, str) and name_or_path in names:
        return content_folder(content) / f"{name_or_path}.toml"
    if path.suffix != ".toml" and len(path.parts) < 2:
        raise ConfigError(
            f"a {kind} must be the name of a shipped {kind} or the path of a .toml file, "
            f"got {name_or_path!r}{nearest_name(str(name_or_path), names)}"
        )
    try:
        exists = path.is_file()
    except OSError:  # a name that is too long, a folder that may not be read
        exists = False
    if not exists:
        raise ConfigError(
            f"a {kind} file must exist, got {str(name_or_path)!r}; "
            f"check the path, or name a shipped {kind}: {', '.join(names)}"
        )
    return path


def from_here(path: Path) -> Path:
    """Return an absolute path as it is typed in the current folder: relative, if it is inside."""
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path


def shown(path: Path) -> str:
    """Return `path` for messages: shipped files as `devices/x.toml`, others as they were given."""
    for content in _SINGULAR:
        # Shipped files are shown alike in a checkout and in a wheel, so messages do not depend on the installation.
        if path.parent == content_folder(content):
            return f"{content}/{path.name}"
    return str(path)
