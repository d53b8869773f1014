"""Names of rounding modes and overflow rules elsewhere: those that are read, and those with several meanings.

A name is read as its source spells it. One that has other meanings in other sources is refused, with all of them.

Source: IEEE 754-2019 section 4.3 and the other names of each mode: the table in `rounding.py`. RISC-V Unprivileged ISA,
table of rounding modes, and V extension, section 3.8 (rnu, rod); SMT-LIB FloatingPoint; OpenCL C, section 6.2.3.2;
MATLAB Fixed-Point Designer, RoundingMethod and OverflowAction; Python, module decimal; Java, RoundingMode.
"""

from __future__ import annotations

#: Rounding modes -> their names elsewhere. Those of IEEE 754, SystemC, gfloat and APyTypes stand in `rounding.py`.
ROUNDING_NAMES: dict[str, tuple[str, ...]] = {
    "nearest_even": (
        "RNE", "rne", "RTE", "rte", "half_even", "HALF_EVEN", "ROUND_HALF_EVEN", "round_half_even", "convergent",
        "Convergent",
    ),
    "nearest_away": ("RNA", "RMM", "rmm", "half_away", "ROUND_HALF_UP"),
    "nearest_up": ("RNU", "rnu"),
    "nearest_zero": ("ROUND_HALF_DOWN",),
    "floor": ("RDN", "rdn", "Floor", "FLOOR", "ROUND_FLOOR"),
    "ceil": ("RUP", "rup", "RTP", "rtp", "ceiling", "Ceiling", "CEILING", "ROUND_CEILING"),
    "toward_zero": ("RTZ", "rtz", "Zero", "ROUND_DOWN"),
    "away_from_zero": ("ROUND_UP",),
    "to_odd": ("ROD", "rod"),
}  # fmt: skip


def _or(*meanings: str) -> str:
    """Return the end of the message about a name with several meanings."""
    return f", which may be {', '.join(meanings[:-1])} or {meanings[-1]}; write the one that is meant"


_HALF_UP = _or("'nearest_away' (Java, decimal)", "'nearest_up' (add half, drop bits)")
_HALF_DOWN = _or("'nearest_zero' (Java, decimal)", "'nearest_down'")
_DROPPED = _or("'toward_zero' (of a magnitude, C's trunc)", "'floor' (of a two's complement word, SystemC's TRN)")
_UP = _or("'ceil' (RISC-V's RUP)", "'away_from_zero' (Java, decimal)")
_DOWN = _or("'floor' (RISC-V's RDN)", "'toward_zero' (Java, decimal)")
_LIMITED = _or("'saturate' of fixed point", "'satfinite' of floats")
#: Lower case -> how a message about the name ends.
AMBIGUOUS_ROUNDINGS = {
    "round": _or("'nearest_even' (Python, NumPy)", "'nearest_away' (C, MATLAB)", "'nearest_up' (JavaScript)"),
    "nearest": _or("'nearest_even' (IEEE 754, the default)", "'nearest_up' (MATLAB)"),
    "half_up": _HALF_UP,
    "half_down": _HALF_DOWN,
    "round_half_up": _HALF_UP,
    "round_half_down": _HALF_DOWN,
    "trunc": _DROPPED,
    "truncate": _DROPPED,
    "truncation": _DROPPED,
    "up": _UP,
    "round_up": _UP,
    "down": _DOWN,
    "round_down": _DOWN,
    "rtn": _or("'floor' (SMT-LIB, OpenCL)", "'nearest_even' (round to nearest)"),
    "stochastic": _or("'stochastic' (drops bits)", "'stochastic_nearest_even' (gfloat's Stochastic)"),
}

#: Names of overflow rules.
OVERFLOW_NAMES: dict[str, tuple[str, ...]] = {
    "saturate": ("SAT", "Saturate"),
    "saturate_symmetric": ("SAT_SYM",),
    "saturate_zero": ("SAT_ZERO",),
    "wrap": ("WRAP", "Wrap", "wraparound", "modulo"),
}
#: Lower case -> how a message about the name ends.
UNCLEAR_OVERFLOWS = {
    **dict.fromkeys(("sat", "saturation", "clip", "clamp"), _LIMITED),
    "wrap_sm": ": no rule here wraps two's complement as a sign and a magnitude; choose 'wrap' or 'saturate'",
}
