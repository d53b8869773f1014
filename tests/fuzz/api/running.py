"""One case: its line evaluated on both backends, and everything that is wrong with what came of it."""

from __future__ import annotations

import random
import threading
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import emu

from . import model
from .calls import BUILDERS, Case
from .draw import Pen
from .judge import Refused, Result, expected
from .messages import CALL, flaw, shape_of
from .other_calls import OTHER_BUILDERS
from .things import NAMES, NoNumbers, Real, arrays_in, contents

BACKENDS = ("reference", "numba")
THREADS, TURNS = 4, 3
#: Functions that take `backend`.
_WITH_BACKEND = (
    "emu.quantize", "emu.add", "emu.subtract", "emu.multiply", "emu.divide", "emu.fma", "emu.sqrt", "emu.remainder",
    "emu.round_to_integral", "emu.compare", "emu.matmul", "emu.conv2d", "emu.relu", "emu.exp", "emu.log", "emu.tanh",
    "emu.sigmoid", "emu.erf", "emu.gelu", "emu.rsqrt", "emu.engine.", "emu.sparse.matmul", "emu.sparse.transposed",
    "emu.sparse.compact_matmul", "emu.sparse.update_rows", "emu.sparse.CSR.from_dense", "emu.Unit",
)  # fmt: skip
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


@dataclass
class Outcome:
    """How a call ended on a backend."""

    given: dict[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    error: BaseException | None = None
    void: bool = False
    warned: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])


def drawn(seed: str) -> Case:
    """The case of a seed."""
    listed = [*BUILDERS, *OTHER_BUILDERS]
    builder = random.Random(seed).choices([b for b, _ in listed], [w for _, w in listed])[0]
    return builder(Pen(f"{seed}/{builder.__name__}"))


def judged(case: Case) -> tuple[str, list[Fault]]:
    """How a case ended, and what is wrong with that."""
    outcomes = [outcome_of(case, backend) for backend in BACKENDS]
    if outcomes[0].void:
        return "void", []
    faults = [
        fault for outcome, backend in zip(outcomes, BACKENDS, strict=True) for fault in _faults(case, outcome, backend)
    ]
    faults += _differences(case, *outcomes)
    if case.twist == "threads" and outcomes[1].error is None:
        faults += _of_threads(case)
    ending = "refused" if outcomes[0].error is not None else "taken"
    unique = {fault.kind: fault for fault in reversed(faults)}
    return ending, list(unique.values())


# ---- the call --------------------------------------------------------------------------------------------------------


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
            outcome.void = not isinstance(error, emu.EmuError) and not _emu_frames(error)
            return outcome
        caught.clear()
        if (
            "backend" not in case.arguments
            and case.function.startswith(_WITH_BACKEND)
            and ".replace" not in case.function
        ):
            outcome.given["backend"] = backend
        before = {
            name: _print_of(x) for name, x in outcome.given.items() if name not in ("out", "register", "flags", "w")
        }
        shared = "m" in case.setup
        try:
            outcome.result = call(**outcome.given)
        except Exception as error:
            outcome.error = error
        if not shared:
            outcome.changed = [name for name, was in before.items() if _print_of(outcome.given[name]) != was]
        outcome.warned = [
            f"{w.category.__name__}: {w.message}" for w in caught if not issubclass(w.category, emu.EmuWarning)
        ]
    return outcome


def _print_of(x: Any) -> Any:
    """A print of what an argument's arrays hold."""
    return [
        (a.shape, a.dtype, a.strides, a.flags.writeable, a.tobytes() if a.dtype != object else repr(a))
        for a in arrays_in(x)
    ]


def _emu_frames(error: BaseException) -> list[traceback.FrameSummary]:
    root = str(Path(emu.__file__).parent)
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]


def _place(error: BaseException) -> str:
    frames = _emu_frames(error)
    if not frames:
        return "outside emu"
    last = frames[-1]
    return f"{Path(last.filename).relative_to(Path(emu.__file__).parent)}:{last.name}"


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def _faults(case: Case, outcome: Outcome, backend: str) -> list[Fault]:
    name = _name(case)
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
    if case.arguments.get("check", ("",))[0] != "False":
        faults += _of_result(case, outcome, backend)
    return faults + _of_memory(case, outcome, name)


def _name(case: Case) -> str:
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
        return [] if unchecked else [Fault(f"{name} at {_place(error)}: {shape_of(first)}", text[:300])]
    faults: list[Fault] = []
    if lacks := flaw(text):
        faults.append(Fault(f"message, {lacks}, at {_place(error)}: {shape_of(first)}", text[:400]))
    if not case.bad and not unchecked and not _MAY_REFUSE & case.arguments.keys() and not _emu_in_arguments(outcome):
        wanted = _expected(case, outcome)
        if isinstance(wanted, Result) and wanted.must:
            faults.append(Fault(f"refused though sound at {_place(error)}: {shape_of(first)}", text[:300]))
    return faults


def _emu_in_arguments(outcome: Outcome) -> bool:
    """Whether an argument, not the call, was refused."""
    return not outcome.given


def _expected(case: Case, outcome: Outcome) -> Result | Refused | None:
    if case.function.startswith("unit."):
        return None
    return expected(case.judge, case.function, outcome.given)


def _of_result(case: Case, outcome: Outcome, backend: str) -> list[Fault]:
    wanted = _expected(case, outcome)
    name = _name(case)
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
    wide = sorted({str(emu.parse(v)) for n, v in outcome.given.items() if (n.endswith("format") or n == "fmt") and v is not None
                   and isinstance(emu.parse(v), emu.Fixed) and emu.parse(v).carries_raws})  # fmt: skip
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
    before = _print_of(outcome.result)
    for array in theirs:
        base = array
        while isinstance(base.base, np.ndarray) and not base.flags.writeable:
            base = base.base
        if base.flags.writeable and base.size and base.dtype.kind in "fiu":
            base[...] = base[::-1] if base.ndim else 7
            base += np.asarray(1, base.dtype)
    for x in outcome.given.values():
        if hasattr(x, "sum_duplicates"):
            x.sum_duplicates()
    return [] if _print_of(outcome.result) == before else [Fault(f"{name} changes with its source", "")]


def _differences(case: Case, one: Outcome, other: Outcome) -> list[Fault]:
    """What the two backends do not agree about."""
    name = _name(case)
    if (one.error is None) != (other.error is None):
        said = "numba refuses" if one.error is None else "the reference refuses"
        error = one.error or other.error
        return [Fault(f"backends differ: {said} at {_place(error)} ({name})", str(error)[:200])]  # type: ignore[arg-type]
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


def _of_threads(case: Case) -> list[Fault]:
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
            for _ in range(TURNS):
                results.append(call(**given))
        except Exception as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=turn) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    name = _name(case)
    if errors:
        return [Fault(f"threads: {type(errors[0]).__name__} at {_place(errors[0])} ({name})", str(errors[0])[:200])]
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
