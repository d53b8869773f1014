"""What is wrong with how a call ended: its message, or its result beside rational numbers, counts, memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import emu

from . import model
from .calls import Case
from .judge import Refused, Result
from .judge_codes import expected
from .messages import CALL, flaw, shape_of
from .outcome import Outcome, place_of, print_of
from .things import NoNumbers, Real, arrays_in, contents

#: Options beside which a sound operand may still be refused.
_MAY_REFUSE = frozenset({"rbits", "mac", "random", "out", "check", "n_rbits", "roundin"})
COUNTED = ("overflow", "underflow", "inexact", "subnormal")


class Fault(NamedTuple):
    """Something wrong.

    Attributes:
        kind: equal for what is one fault.
        detail: of this case.
    """

    kind: str
    detail: str


def faults_of(case: Case, outcome: Outcome, backend: str) -> list[Fault]:
    name = name_of(case)
    faults = [Fault(f"warning: {shape_of(text)} ({name})", text) for text in outcome.warned]
    if outcome.error is None:
        faults += [Fault(f"{name} changes its argument `{changed}`", backend) for changed in outcome.changed]
    if outcome.error is not None:
        return faults + _of_error(case, outcome)
    if case.bad:
        bad = next(n for n, text in case.arguments.items() if text.bad)
        return [
            *faults,
            Fault(
                f"{name} takes `{bad}` that is none: {_category(case.arguments[bad].text)}",
                f"{bad}={case.arguments[bad].text}",
            ),
        ]
    if not _is_unchecked(case):
        faults += _of_result(case, outcome, backend)
    return faults + _of_memory(case, outcome, name)


def breaks_its_promise(case: Case, outcome: Outcome) -> bool:
    """Whether a call leaves out the check of operands that are no values of their formats: nothing is promised then."""
    return _is_unchecked(case) and not case.bad and isinstance(_expected(case, outcome), Refused)


def _is_unchecked(case: Case) -> bool:
    return case.arguments.get("check", ("",))[0] == "False"


def name_of(case: Case) -> str:
    """The function without what it is called of."""
    text = case.function
    return text if text.startswith("emu.") and "(" not in text else text.rpartition(".")[2] if ")" in text else text


def _category(text: str) -> str:
    return text if len(text) < 60 else f"{text[:60]}..."


def _of_error(case: Case, outcome: Outcome) -> list[Fault]:
    error = outcome.error
    assert error is not None
    text, name = str(error), type(error).__name__
    first = text.splitlines()[0] if text else ""
    if case.judge == "equal_bits" and isinstance(error, AssertionError) and not text.startswith("NumPy"):
        return []
    if case.free and isinstance(error, IndexError):
        return []
    if isinstance(error, TypeError) and not isinstance(error, emu.EmuError) and CALL.search(text):
        return []
    unchecked = "check" in case.arguments
    if not isinstance(error, emu.EmuError):
        return [] if unchecked else [Fault(f"{name} at {place_of(error)}: {shape_of(first)}", text[:300])]
    faults: list[Fault] = []
    if lacks := flaw(text):
        faults.append(Fault(f"message, {lacks}, at {place_of(error)}: {shape_of(first)}", text[:400]))
    if not case.bad and not unchecked and not _MAY_REFUSE & case.arguments.keys() and not _emu_in_arguments(outcome):
        wanted = _expected(case, outcome)
        if isinstance(wanted, Result) and wanted.must:
            faults.append(Fault(f"refused though sound at {place_of(error)}: {shape_of(first)}", text[:300]))
    return faults


def _emu_in_arguments(outcome: Outcome) -> bool:
    """Whether an argument, not the call, was refused."""
    return not outcome.given


def _expected(case: Case, outcome: Outcome) -> Result | Refused | None:
    if case.function.startswith("unit."):
        return None
    return expected(case.judge, case.function, outcome.read)


def _of_result(case: Case, outcome: Outcome, backend: str) -> list[Fault]:
    wanted = _expected(case, outcome)
    name = name_of(case)
    if isinstance(wanted, Refused):
        return [Fault(f"{name} takes what is none: {shape_of(wanted.why)}", wanted.why)]
    if wanted is None:
        return _of_totals(name, outcome)
    try:
        came = reals_of(case, outcome)
    except NoNumbers as error:
        return [Fault(f"{name} returns no numbers: {error}", repr(outcome.result)[:200])]
    why = ""
    for exact in wanted.exact:
        if not (why := _mismatch(exact, came, wanted, outcome)):
            return _of_totals(name, outcome)
    return [Fault(f"{name} is wrong: {_holder(case, outcome)}", f"{backend}: {why}")]


def _holder(case: Case, outcome: Outcome) -> str:
    """The operands' containers, and whether formats are wide."""
    kinds: list[str] = []
    for name, x in outcome.given.items():
        if name in ("a", "b", "c", "x", "w", "array", "values", "raw", "codes", "data", "dy", "windows"):
            kinds.append(f"{type(x).__name__} {getattr(x, 'dtype', '')}".strip())
    texts = [x for n, x in outcome.given.items() if (n.endswith("format") or n == "fmt") and x is not None]
    wide = any(emu.parse(text).carries_raws for text in texts)
    return f"{', '.join(kinds)}{'; raws' if wide else ''}"


def reals_of(case: Case, outcome: Outcome) -> Any:
    """A result as an array of rational numbers."""
    result, given = outcome.result, outcome.given
    method = case.judge
    if method == "csr":
        return contents(emu.Value(result.to_dense(), result.format)).grid
    if method == "max_pool":
        return contents(result[0]).grid
    if method == "sparse" and isinstance(result, emu.sparse.Compact):
        return contents(emu.Value(result.values, result.format)).grid
    if method in ("encode", "decode", "from_raw"):
        fmt = emu.parse(case.function.split("'")[1])
        if method == "encode":
            return _decoded(result, fmt)
        return contents(emu.Value(result, fmt)).grid
    if isinstance(result, emu.Value) or method in ("value", "compare", "relu", "to_raw", "contains"):
        return contents(result).grid
    fmt = emu.parse(given.get("out_format", given.get("fmt")))
    result = np.asarray(result)
    if result.dtype == fmt.carrier:
        return contents(emu.Value(result, fmt)).grid
    if "out" not in given or result.dtype.kind not in "iu":
        raise NoNumbers(f"dtype {result.dtype}, right {fmt.carrier}")
    if result.dtype.kind == "u":
        return _decoded(result, fmt)
    scale = model.Fraction(2) ** -fmt.frac_bits
    held = contents(result)
    return held._replace(reals=[Real(r.negative, r.magnitude * scale) for r in held.reals]).grid


def _decoded(codes: Any, fmt: Any) -> Any:
    known = model.model_of(fmt)
    plain = model.replace(known, daz=False) if isinstance(known, model.FloatModel) else known
    held = contents(codes)
    return held._replace(reals=[plain.decode(int(r.signed)) for r in held.reals]).grid


def _mismatch(exact: Any, came: Any, wanted: Result, outcome: Outcome) -> str:
    """The first difference between what must come out and what came; "" without one."""
    if exact.shape != came.shape:
        return f"shape {came.shape}, right {exact.shape}"
    given, counts = outcome.given, dict.fromkeys(COUNTED, 0)
    known = None if wanted.out is None else model.model_of(wanted.out)
    unknown = False
    for place in np.ndindex(exact.shape):
        right: Any = exact[place]
        if known is not None:
            mode = str(given.get("rounding", "nearest_even"))
            rule = str(given.get("overflow") or model.default_rule(known))
            unknown |= right.magnitude == model.NAN
            right, done = model.written(known, right, mode, rule)
            for name in counts:
                counts[name] += name in done.flags
        same = (
            right == came[place]
            if wanted.signs
            else right == came[place] or (right.magnitude == 0 == came[place].magnitude)
        )
        if not same:
            return f"{_shown(came[place])} at {place}, right {_shown(right)}"
    flags = given.get("flags")
    if flags is not None and known is not None and not unknown and flags.tininess is None:
        found = {name: getattr(flags, name) for name in counts}
        if found != counts:
            return f"flags {found}, right {counts}"
    return ""


def _shown(real: Any) -> str:
    sign = "-" if real.negative else ""
    size = real.magnitude
    return sign + (size if isinstance(size, str) else str(size) if len(str(size)) < 40 else f"{str(size)[:20]}...")


def _of_totals(name: str, outcome: Outcome) -> list[Fault]:
    """Every written element is observed once."""
    register = outcome.given.get("register")
    result = outcome.result.values if isinstance(outcome.result, emu.sparse.Compact) else outcome.result
    if register is None or not hasattr(result, "shape") or isinstance(result, (emu.sparse.CSR, emu.Unit)):
        return []
    size = int(np.prod(result.shape))
    if register.total != size:
        return [
            Fault(f"{name}: the register counts other elements than are written", f"{register.total}, right {size}")
        ]
    sides = sum(register.positive.values()) + sum(register.negative.values())
    whole = sides + register.none + register.below + register.above + register.nonfinite
    return [] if whole == size else [Fault(f"{name}: the register's counts do not add up", repr(register))]


def _of_memory(case: Case, outcome: Outcome, name: str) -> list[Fault]:
    """Results have memory of their own; those that are made to last do not change with their source."""
    faults: list[Fault] = []
    result = outcome.result
    mine = [*arrays_in(result), *arrays_in(getattr(result, "values", None)), *arrays_in(getattr(result, "rows", None))]
    theirs = [a for n, x in outcome.given.items() if n not in ("out", "w") for a in arrays_in(x)]
    sharing = any(np.shares_memory(a, b) for a in mine for b in theirs if a.size and b.size)
    frozen = not any(a.flags.writeable for a in [*mine, *theirs])  # a value of a value is the same
    if sharing and not frozen and "m" not in case.setup and name != "emu.Value" and not case.free:
        faults.append(Fault(f"{name} shares memory with its argument", _category(case.line)))
    if case.twist == "mutate":
        faults += _of_mutation(outcome, name, theirs)
    return faults


def _of_mutation(outcome: Outcome, name: str, theirs: list[Any]) -> list[Fault]:
    before = print_of(outcome.result)
    for x in outcome.given.values():
        if hasattr(x, "sum_duplicates"):
            x.sum_duplicates()
    for array in theirs:
        base = array
        while isinstance(base.base, np.ndarray) and not base.flags.writeable:
            base = base.base
        if base.flags.writeable and base.size and base.dtype.kind in "fiu":
            base[...] = base[::-1] if base.ndim else 7
            base += np.asarray(1, base.dtype)
    return [] if print_of(outcome.result) == before else [Fault(f"{name} changes with its source", "")]
