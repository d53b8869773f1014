"""One case: drawn from its seed, and judged on both backends."""

from __future__ import annotations

import random

from .agreement import differences, of_threads
from .calls import BUILDERS, Case
from .draw import Pen
from .faults import Fault, faults_of
from .outcome import outcome_of
from .parts import PART_BUILDERS
from .sparse_calls import sparse

BACKENDS = ("reference", "numba")
_LISTED = [*BUILDERS, *PART_BUILDERS, (sparse, 12)]


def drawn(seed: str) -> Case:
    """The case of a seed."""
    builder = random.Random(seed).choices([b for b, _ in _LISTED], [w for _, w in _LISTED])[0]
    return builder(Pen(f"{seed}/{builder.__name__}"))


def judged(case: Case) -> tuple[str, list[Fault]]:
    """How a case ended, and what is wrong with that."""
    outcomes = [outcome_of(case, backend) for backend in BACKENDS]
    if outcomes[0].void:
        return "void", []
    faults = [
        fault
        for outcome, backend in zip(outcomes, BACKENDS, strict=True)
        for fault in faults_of(case, outcome, backend)
    ]
    faults += differences(case, *outcomes)
    if case.twist == "threads" and outcomes[1].error is None:
        faults += of_threads(case)
    ending = "refused" if outcomes[0].error is not None else "taken"
    unique = {fault.kind: fault for fault in reversed(faults)}
    return ending, list(unique.values())
