"""Peers that do a row's work, one file each; none is a dependency, all are loaded where they are timed.

They run as they install. Where a peer cannot do the whole work (no statistics, no saturation) it does what it can, and
its note says what is missing: its figure is then kinder than a fair one.
"""

from __future__ import annotations

from benchmarks.measuring.peer import Peer
from benchmarks.peers import (
    apytypes_arrays,
    gfloat_rounding,
    ml_dtypes_casts,
    numpy_code,
    pychop_rounding,
    qtorch_rounding,
    torch_tensors,
)
from emu.errors import ConfigError, nearest_name

#: Every peer by its name, in the order of the tables.
PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER
    for module in (
        qtorch_rounding,
        apytypes_arrays,
        gfloat_rounding,
        pychop_rounding,
        ml_dtypes_casts,
        torch_tensors,
        numpy_code,
    )
}
#: What stands for all of them.
EVERY = "peers"


def chosen(names: str | None) -> list[Peer]:
    """Return the peers that `--against` names: `peers` for all, or names with commas between.

    Raises:
        ConfigError: no such peer; names the nearest one.
    """
    if not names:
        return []
    wanted = list(PEERS) if names == EVERY else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in PEERS:
            raise ConfigError(
                f"--against must be `{EVERY}` or names of peers with commas between, got {name!r}"
                f"{nearest_name(name, [EVERY, *PEERS])}"
            )
    return [PEERS[name] for name in wanted]
