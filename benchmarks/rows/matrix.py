"""Every rounding mode with every overflow rule, for small formats: the output stage has no slow corner."""

from __future__ import annotations

from benchmarks.measuring.row import Row
from benchmarks.rows.stage import stage
from emu.backends.modes import HAND_WRITTEN
from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed, parse

#: Small formats of both families: words, an unsigned one, binary floats, one without infinities, one that flushes.
FORMATS = (
    "fix4f2",
    "fix8f4",
    "ufix8f4",
    "fix16f8",
    "fp16",
    "bf16",
    "e5m7",
    "fp8_e4m3",
    "fp8_e5m2",
    "e3m2",
    "e5m10 ftz",
)
BAR = 0.5
#: Times that each is measured.
SWEEPS = 3


def rows() -> list[Row]:
    """Return one row for every format, mode with code of its own, and rule, named `matrix/format/mode/rule`."""
    return [
        Row(
            f"matrix/{text.replace(' ', '-')}/{mode.value}/{rule.value}",
            f"float32 to {text}, {mode.value}, {rule.value}",
            "GElem/s",
            stage(text, rounding=mode.value, overflow=rule.value),
            BAR,
            group="matrix",
            sweeps=SWEEPS,
        )
        for text in FORMATS
        for mode in list(Rounding)[:HAND_WRITTEN]
        for rule in (FIXED_RULES if isinstance(parse(text), Fixed) else FLOAT_RULES)
    ]
