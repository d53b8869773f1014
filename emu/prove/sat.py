"""Yosys' SAT solver, asked whether an output of a circuit can be 1."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from emu.prove import yosys
from emu.prove.circuit import Circuit, aiger_of

_FILE = "miter.aag"
#: Rows of the table of a model: a signal's name, then its value in three bases.
_ROW = re.compile(r"^\s*\\x(\d+)\s+(\d)\s", re.MULTILINE)
_PROVED, _MODEL = "SAT proof finished - no model found: SUCCESS!", "SAT proof finished - model found: FAIL!"


class Undecided(Exception):  # noqa: N818 - names a condition
    """The solver did not end in time."""


def model_of(circuit: Circuit, output: int, limit_s: float) -> int | None:
    """Return an input for which a signal is 1, a model of it; None if there is none.

    Args:
        circuit: any.
        output: literal of the signal.
        limit_s: seconds.

    Raises:
        Undecided: it was not found out in time.
    """
    # folded to a constant: no solver is needed, and every input is a model of 1
    if output in (0, 1):
        return 0 if output else None
    shown = " ".join(f"-show x{i}" for i in range(circuit.n_inputs))
    script = f"read_aiger -module_name miter {_FILE}\nsat -prove bad 0 {shown} miter\n"
    with tempfile.TemporaryDirectory(prefix="emu-prove-") as name:
        folder = Path(name)
        (folder / _FILE).write_text(aiger_of(circuit, output), encoding="utf-8")
        try:
            text = yosys.run(script, folder, limit_s)
        except subprocess.TimeoutExpired:
            raise Undecided from None
    if _PROVED in text:
        return None
    # Yosys prints one of both sentences unless it is stopped
    assert _MODEL in text, text[-2000:]
    rows = _ROW.findall(text)
    assert rows or not circuit.n_inputs, text[-2000:]
    # an input that the table does not list counts as 0
    return sum(int(value) << int(i) for i, value in rows)
