"""What two backends, or several threads, do not agree about."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np

import emu

from .calls import Case
from .faults import Fault, breaks_its_promise, name_of
from .messages import shape_of
from .outcome import Outcome, outcome_of, place_of
from .things import NAMES, arrays_in

THREADS, TURNS = 4, 3


def differences(case: Case, one: Outcome, other: Outcome) -> list[Fault]:
    """What the two backends do not agree about."""
    name = name_of(case)
    if breaks_its_promise(case, one):
        return []
    if (one.error is None) != (other.error is None):
        said = "numba refuses" if one.error is None else "the reference refuses"
        error = one.error or other.error
        return [Fault(f"backends differ: {said} at {place_of(error)} ({name})", str(error)[:200])]  # type: ignore[arg-type]
    if one.error is not None and other.error is not None:
        same = type(one.error) is type(other.error) and shape_of(str(one.error)) == shape_of(str(other.error))
        return [] if same else [Fault(f"backends differ: other errors ({name})", f"{one.error}\n{other.error}"[:300])]
    faults: list[Fault] = []
    if type(one.result) is not type(other.result):
        kinds = f"{type(one.result).__name__} and {type(other.result).__name__}"
        faults.append(Fault(f"backends differ: {kinds} ({name})", ""))
    for a, b in zip(_arrays_of(one.result), _arrays_of(other.result), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return [Fault(f"backends differ: dtype or shape ({name})", f"{a.dtype} {a.shape}, {b.dtype} {b.shape}")]
        if a.dtype != object and a.tobytes() != b.tobytes():
            nans = a.dtype.kind == "f" and np.array_equal(np.isnan(a), np.isnan(b)) and np.isnan(a).any()
            plain = nans and np.where(np.isnan(a), 0, a).tobytes() == np.where(np.isnan(b), 0, b).tobytes()
            what = "NaN bits" if plain else "values"
            faults.append(Fault(f"backends differ: {what} ({name})", f"{a.ravel()[:6]} {b.ravel()[:6]}"))
    for part in ("flags", "register"):
        mine, theirs = one.given.get(part), other.given.get(part)
        if mine is not None and repr(mine) != repr(theirs):
            faults.append(Fault(f"backends differ: {part} ({name})", f"{mine} {theirs}"))
    return faults


def _arrays_of(x: Any) -> list[Any]:
    if isinstance(x, tuple):
        return [a for e in x for a in _arrays_of(e)]
    if isinstance(x, emu.sparse.Compact):
        return [x.rows, x.values]
    return [np.ascontiguousarray(a) for a in arrays_in(x)]


def of_threads(case: Case) -> list[Fault]:
    """Several threads at once write what one writes, and count it as often."""
    alone, together = outcome_of(case, "numba"), outcome_of(case, "numba")
    names = NAMES | {"BACKEND": "numba"}
    for name, text in case.setup.items():
        names[name] = eval(text, names)
    given = {name: eval(text.text, names) for name, text in case.arguments.items()}
    given |= {"backend": "numba"} if "backend" in together.given else {}
    call, results, errors = eval(case.function, names), [], []

    def turn() -> None:
        try:
            results.extend([call(**given) for _ in range(TURNS)])
        except Exception as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=turn) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    name = name_of(case)
    if errors:
        return [Fault(f"threads: {type(errors[0]).__name__} at {place_of(errors[0])} ({name})", str(errors[0])[:200])]
    right = [a.tobytes() for a in _arrays_of(alone.result)]
    faults = []
    if any([a.tobytes() for a in _arrays_of(result)] != right for result in results):
        faults.append(Fault(f"threads: other results than alone ({name})", ""))
    flags, register = given.get("flags"), given.get("register")
    if flags is not None and flags.counts() != tuple(n * THREADS * TURNS for n in alone.given["flags"].counts()):
        faults.append(Fault(f"threads: flags lose counts ({name})", f"{flags} {alone.given['flags']}"))
    if register is not None and register.total != alone.given["register"].total * THREADS * TURNS:
        faults.append(Fault(f"threads: the register loses counts ({name})", f"{register.total}"))
    return faults
