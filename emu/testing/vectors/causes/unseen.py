"""Faults that no vector shows: a unit that has one is right by these vectors."""

from __future__ import annotations

import numpy as np

from emu.testing.vectors.causes import BLOCK_TOLD_APART, TOLD_APART
from emu.testing.vectors.evidence import Evidence

#: Faults of one kind, by the beginnings of their names.
# the beginnings are those of names in `rules.py`, `scales.py` and `units.py`, which must be changed in both places
_KINDS = {
    "another rounding of results": ("rounding ", "truncation "),
    "another overflow rule of results": ("overflow rule ",),
    "another scale rule": ("scales by ",),
    "another rounding of adds": ("adds rounded ",),
    "another order of adds": ("adds in the order ",),
    "another overflow rule of the unit": ("an accumulator with ", "products with "),
    "another width of the accumulator": ("an accumulator of ",),
}


def unseen(e: Evidence) -> list[str]:
    """Return the faults that would have written these results, too: a unit with one of them is right by these vectors.

    Several unseen faults of one kind are one line, with their number. Some change nothing whatever the operands are, as
    another rounding of sums that are never rounded.
    """
    families = TOLD_APART if e.description.blocks is None else BLOCK_TOLD_APART
    each = (hypothesis for family in families for hypothesis in family(e))
    seen = {name: not np.array_equal(e.joined(codes), e.expected) for name, codes in each}
    lines: list[str] = []
    for kind, beginnings in _KINDS.items():
        members = [name for name in seen if name.startswith(beginnings)]
        hidden = [name for name in members if not seen[name]]
        if len(hidden) > 1:
            lines.append(kind if len(hidden) == len(members) else f"{kind} ({len(hidden)} of {len(members)})")
            # counted with their kind, and not listed once more
            for name in hidden:
                del seen[name]
    return lines + [name for name, is_seen in seen.items() if not is_seen]
