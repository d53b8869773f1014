"""Peers of `emu bench`: a checkout has them in `benchmarks/peers`, an installed wheel has none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from emu._paths import checkout_folder
from emu.bench.peer import Peer
from emu.errors import ConfigError, nearest_name

#: The folder of a checkout, and what its package is called once it is imported.
FOLDER, PACKAGE = Path("benchmarks") / "peers", "emu_peers"
#: What stands for all of them.
EVERY = "peers"


def all_peers() -> dict[str, Peer]:
    """Return every peer by its name; none where emu is no checkout."""
    folder = checkout_folder(FOLDER)
    if folder is None:
        return {}
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
    peers: dict[str, Peer] = sys.modules[PACKAGE].PEERS
    return peers


def chosen(names: str | None) -> list[Peer]:
    """Return the peers that `--against` names: `peers` for all, or names with commas between.

    Raises:
        ConfigError: no such peer; names the nearest one. Or there are none, since emu is no checkout.
    """
    if not names:
        return []
    known = all_peers()
    if not known:
        raise ConfigError(
            f"--against must be used in a checkout, whose folder {FOLDER.as_posix()} has the peers, got {names!r} "
            "in an emu installed without it; clone the repository, `pip install -e .` there, or leave --against out"
        )
    wanted = list(known) if names == EVERY else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"--against must be `{EVERY}` or names of peers with commas between, got {name!r}"
                f"{nearest_name(name, [EVERY, *known])}"
            )
    return [known[name] for name in wanted]
