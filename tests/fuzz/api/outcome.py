"""A call on one backend: its arguments evaluated, what it returned or raised, what it changed."""

from __future__ import annotations

import copy
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import emu

from .calls import Case
from .things import NAMES, arrays_in

#: Functions that take `backend`.
_WITH_BACKEND = (
    "emu.quantize", "emu.add", "emu.subtract", "emu.multiply", "emu.divide", "emu.fma", "emu.sqrt", "emu.remainder",
    "emu.round_to_integral", "emu.compare", "emu.matmul", "emu.conv2d", "emu.relu", "emu.exp", "emu.log", "emu.tanh",
    "emu.sigmoid", "emu.erf", "emu.gelu", "emu.rsqrt", "emu.engine.", "emu.sparse.matmul", "emu.sparse.transposed",
    "emu.sparse.compact_matmul", "emu.sparse.update_rows", "emu.sparse.CSR.from_dense", "emu.Unit",
)  # fmt: skip


@dataclass
class Outcome:
    """How a call ended on a backend.

    Attributes:
        given: arguments, after the call.
        read: the same as they were before it.
        result: what it returned.
        error: what it raised.
        void: whether its line is none.
        warned: warnings that are not emu's.
        changed: names of arguments that it changed.
    """

    given: dict[str, Any] = field(default_factory=dict[str, Any])
    read: dict[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    error: BaseException | None = None
    void: bool = False
    warned: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])


def outcome_of(case: Case, backend: str) -> Outcome:
    """Evaluate the arguments, make the call."""
    outcome = Outcome()
    names = NAMES | {"BACKEND": backend}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for name, text in case.setup.items():
                names[name] = eval(text, names)
            outcome.given = {name: eval(text.text, names) for name, text in case.arguments.items()}
            call = eval(case.function, names)
        except Exception as error:
            outcome.error = error
            outcome.void = not isinstance(error, emu.EmuError) and not emu_frames(error)
            return outcome
        caught.clear()
        if (
            "backend" not in case.arguments
            and case.function.startswith(_WITH_BACKEND)
            and ".replace" not in case.function
        ):
            outcome.given["backend"] = backend
        before = {
            name: print_of(x) for name, x in outcome.given.items() if name not in ("out", "register", "flags", "w")
        }
        shared = "m" in case.setup
        outcome.read = copy.deepcopy(outcome.given) if shared else outcome.given
        try:
            outcome.result = call(**outcome.given)
        except Exception as error:
            outcome.error = error
        if not shared:
            outcome.changed = [name for name, was in before.items() if print_of(outcome.given[name]) != was]
        outcome.warned = [
            f"{w.category.__name__}: {w.message}" for w in caught if not issubclass(w.category, emu.EmuWarning)
        ]
    return outcome


def print_of(x: Any) -> Any:
    """A print of what an argument's arrays hold."""
    return [
        (a.shape, a.dtype, a.strides, a.flags.writeable, a.tobytes() if a.dtype != object else repr(a))
        for a in arrays_in(x)
    ]


def emu_frames(error: BaseException) -> list[traceback.FrameSummary]:
    root = str(Path(emu.__file__).parent)
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]


def place_of(error: BaseException) -> str:
    frames = emu_frames(error)
    if not frames:
        return "outside emu"
    last = frames[-1]
    return f"{Path(last.filename).relative_to(Path(emu.__file__).parent)}:{last.name}"
