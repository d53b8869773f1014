"""Simulators, in the order in which they are asked for if none is named: those that show x first."""

from __future__ import annotations

from emu.errors import BackendUnavailable, ConfigError, nearest_name
from emu.testing.rtl.simulators.ghdl import Ghdl
from emu.testing.rtl.simulators.icarus import Icarus
from emu.testing.rtl.simulators.simulator import Simulator, Sources
from emu.testing.rtl.simulators.verilator import Verilator

SIMULATORS: dict[str, Simulator] = {row.name: row for row in (Icarus(), Verilator(), Ghdl())}


def simulators_for(sources: Sources, name: str | None) -> list[Simulator]:
    """Return the simulators that are asked in turn: the named one, or those that are present and know the language.

    Raises:
        ConfigError: there is no such simulator, or it does not know the language of the sources.
        BackendUnavailable: it cannot be run here, or none can.
    """
    language = sources.language
    known = [row for row in SIMULATORS.values() if row.language == language]
    if name is None:
        present = [row for row in known if row.version() is not None]
        if not present:
            remedies = "; ".join(f"{row.name}: {row.remedy}" for row in known)
            raise BackendUnavailable(f"a simulator of {language} must be present, got none; {remedies}")
        return present
    if name not in SIMULATORS:
        raise ConfigError(
            f"`simulator` must be one of {', '.join(SIMULATORS)}, got {name!r}{nearest_name(name, SIMULATORS)}"
        )
    row = SIMULATORS[name]
    if row.language != language:
        raise ConfigError(
            f"`simulator` must know {language}, got {name}; take {' or '.join(row.name for row in known)}"
        )
    # here, and not at the first call: a named simulator that is missing is an error of the arguments
    row.require()
    return [row]
