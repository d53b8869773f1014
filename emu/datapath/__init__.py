"""What the hardware does to a number, described: frozen data, no array arithmetic.

    exact result ──► register observes ──► round ──► overflow rule ──► flags ──► written value

Backends read these descriptions and compute; nothing here touches an array of values.

Source: docs/concepts/index.md, "What every bit means".
"""

from emu.datapath.affine import Affine
from emu.datapath.cast import Cast, Hadamard, Points
from emu.datapath.flags import FLAG_NAMES, Flags, Tininess
from emu.datapath.lfsr import LFSR
from emu.datapath.mac import Mac
from emu.datapath.order import Blocks, Lanes, Order, Pairwise, Promote, Sequential
from emu.datapath.overflow import Overflow
from emu.datapath.presets import MATRIX_UNITS, SCALED_MATRIX_UNITS, MatrixUnit
from emu.datapath.random import Philox, RandomSource, RecordedBits, stream_of
from emu.datapath.registers import StatisticsRegister
from emu.datapath.requantiser import Requantiser, RequantiserKind
from emu.datapath.rounding import Rounding
from emu.datapath.scale_counts import ScaleCounts
from emu.datapath.stage import OutputStage

__all__ = [
    "FLAG_NAMES",
    "LFSR",
    "MATRIX_UNITS",
    "SCALED_MATRIX_UNITS",
    "Affine",
    "Blocks",
    "Cast",
    "Flags",
    "Hadamard",
    "Lanes",
    "Mac",
    "MatrixUnit",
    "Order",
    "OutputStage",
    "Overflow",
    "Pairwise",
    "Philox",
    "Points",
    "Promote",
    "RandomSource",
    "RecordedBits",
    "Requantiser",
    "RequantiserKind",
    "Rounding",
    "ScaleCounts",
    "Sequential",
    "StatisticsRegister",
    "Tininess",
    "stream_of",
]
