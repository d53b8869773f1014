"""Peers that do a row's work, one file each; none is a dependency, all are loaded where they are timed.

They run as they install. Where a peer cannot do the whole work (no statistics, no saturation) it does what it can, and
its note says what is missing: its figure is then kinder than a fair one. `emu.bench.peers` finds this folder.
"""

from emu.bench.peer import Peer

from . import (
    apytypes_arrays,
    gfloat_rounding,
    ml_dtypes_casts,
    numpy_code,
    pychop_rounding,
    qtorch_rounding,
    torch_tensors,
)

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
