"""Options of a unit besides its sources, name and ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from emu.errors import nearest_name
from emu.testing.rtl.bench import Parameter
from emu.testing.rtl.handshakes import Handshake


class UnitOptions(TypedDict, total=False):
    """Options of `emu.testing.rtl.Unit`.

    Attributes:
        clock: name of the clock; None: the unit has no registers.
        reset: name of the reset. It is active low if it is written `!name`, or if the name ends in `_n`, `_ni`, `_b`,
            `resetn`, `rstn`, `nreset` or `nrst`.
        handshake: none, valid_ready, stb_ack, start_done, or a `Handshake` of your own.
        signals: names of its signals that differ, by role: offer, accept, result, take; None for one that is missing.
        holds: whether operands must stay until the result is there.
        latency: cycles from operands to result. None: it is measured. A given number is compared with the measured one,
            unless results do not settle while operands are held.
        parameters: of the module, or generics of the entity.
        simulator: icarus, verilator or ghdl; None: the first that is present and compiles the sources.
        include: folders of included files, or one.
        defines: macros.
        options: further words of the simulator's command, or one.
        data: files that the unit reads by their names, such as tables of $readmemh, or one.
        bound_cycles: cycles without any transfer after which the unit is stuck; 1000 unless given.
        verify: whether the first call drives its operands in three manners and compares; True unless given.
    """

    clock: str | None
    reset: str | None
    handshake: str | Handshake
    signals: Mapping[str, str | None]
    holds: bool
    latency: int | None
    parameters: Mapping[str, Parameter]
    simulator: str | None
    include: str | Path | Iterable[str | Path]
    defines: Mapping[str, str]
    options: str | Iterable[str]
    data: str | Path | Iterable[str | Path]
    bound_cycles: int
    verify: bool


def require_known(options: UnitOptions) -> None:
    """Look for words that are no options.

    Raises:
        TypeError: there is one; names the nearest option.
    """
    known = UnitOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"`{name}` is no option of a unit{nearest_name(name, known)}")
