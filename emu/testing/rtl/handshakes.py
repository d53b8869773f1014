"""How a unit takes operands and gives results. A handshake is a row of `HANDSHAKES`: signals, and when they mean what.

    none          operands in every cycle, results `latency` cycles later
    valid_ready   in_valid, in_ready ─► unit ─► out_valid, out_ready; a transfer where both are 1 at a rising edge
    stb_ack       the same with a strobe and an acknowledge for each operand
    start_done    start with the operands; the next start after done

Signals are roles, so a unit with other names needs no row of its own: `signals={"offer": "vld_i", "accept": None}`.
The testbenches of all languages, and the functions of `emu.testing.rtl`, are made from these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from emu.errors import ConfigError, nearest_name

#: Stands for the name of an operand or result in the name of a signal: each then has one of its own.
PORT = "{port}"
#: Before the name of a signal that is active when it is 0.
LOW = "!"
ROLES = ("offer", "accept", "result", "take")


@dataclass(frozen=True)
class Handshake:
    """Roles of signals; None where a unit has no such signal.

    Attributes:
        name: of the handshake.
        offer: the testbench sets it: operands are there.
        accept: the unit sets it: operands are taken at the next edge; without: always.
        result: the unit sets it: the result is there; without: a fixed time after its operands.
        take: the testbench sets it: the result is taken at the next edge.
        overlaps: whether operands may be offered before the last result is there.
        result_at_once: whether a result may come in the cycle in which its operands are taken.
        result_may_stay: whether `result` may stay 1 without a new result.
        offers_first_alone: whether only the first term of a sum is offered; the others follow, one a cycle.
        holds: whether operands must stay until the result is there.
    """

    name: str
    offer: str | None = None
    accept: str | None = None
    result: str | None = None
    take: str | None = None
    overlaps: bool = True
    result_at_once: bool = True
    result_may_stay: bool = False
    offers_first_alone: bool = False
    holds: bool = False

    def with_signals(self, signals: Mapping[str, str | None]) -> Handshake:
        """Return the handshake with other signals.

        Raises:
            ConfigError: a role is unknown.
        """
        for role in signals:
            if role not in ROLES:
                raise ConfigError(
                    f"`signals` must name roles, {', '.join(ROLES)}, got {role!r}{nearest_name(role, ROLES)}"
                )
        # roles are the names of fields
        return replace(self, **signals)  # pyright: ignore[reportArgumentType]

    def names(self) -> list[str]:
        """Return the signals by role, for messages."""
        return [f"{role}={name}" for role in ROLES if (name := getattr(self, role)) is not None]


HANDSHAKES = {
    row.name: row
    for row in (
        Handshake("none"),
        Handshake("valid_ready", "in_valid", "in_ready", "out_valid", "out_ready"),
        # with PORT in a signal's name each operand, and the result, has a pair of its own
        Handshake("stb_ack", f"{PORT}_stb", f"{PORT}_ack", f"{PORT}_stb", f"{PORT}_ack"),
        Handshake(
            "start_done",
            offer="start",
            result="done",
            overlaps=False,
            result_at_once=False,
            result_may_stay=True,
            offers_first_alone=True,
        ),
    )
}


def handshake_of(name: str | Handshake) -> Handshake:
    """Return a row of the list by its name, or a row that was given.

    Raises:
        ConfigError: there is none.
    """
    if isinstance(name, Handshake):
        return name
    if name not in HANDSHAKES:
        raise ConfigError(
            f"`handshake` must be one of {', '.join(HANDSHAKES)}, got {name!r}{nearest_name(name, HANDSHAKES)}"
        )
    return HANDSHAKES[name]
