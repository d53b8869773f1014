"""Which cases of a long table run: the fast suite runs one of every kind, the slow suite the others.

Of the cases of each slow test, one in six runs, and of tests with one case one in six of a file (`conftest.py`); of
tables that take minutes, whose cases differ in numbers alone, a smaller part: `some_of`. Which they are changes with
emu's sources. EMU_CASES=all runs them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from emu._paths import sources_sha256

T = TypeVar("T")


def most_are_slow(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    keep: Sequence[Any] | Callable[..., bool],
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """Return `pytest.mark.parametrize` with every case marked slow, but those to keep.

    Args:
        names: of the test's arguments, as `parametrize` takes them.
        cases: a value each, a tuple of values where there are several names, or a `pytest.param`.
        keep: cases, or their ids where they have some; or what says of a case's values whether it stays fast.
        ids: as `parametrize` takes them.
    """
    params = [_param(case, several=not isinstance(names, str)) for case in cases]
    labels: list[Any] = list(ids) if isinstance(ids, Sequence) else [param.id for param in params]
    kept = [
        keep(*param.values) if callable(keep) else _is_one_of(keep, param, label)
        for param, label in zip(params, labels, strict=True)
    ]
    wanted = 1 if callable(keep) else len(keep)
    assert wanted <= sum(kept) < len(kept), f"cases to keep must be some of the cases, got {keep}"
    marked = [
        pytest.param(*param.values, id=param.id, marks=[*param.marks, *([] if is_kept else [pytest.mark.slow])])
        for param, is_kept in zip(params, kept, strict=True)
    ]
    return pytest.mark.parametrize(names, marked, ids=ids)


def some_of(cases: Iterable[T], one_in: int) -> list[T]:
    """Return one in so many cases, evenly spread; with EMU_CASES=all, all of them.

    Which these are follows from emu's sources: a change is held against other cases than the one before it, and every
    run of the same sources against the same.

    Args:
        cases: cases of one law, in an order in which neighbours are alike.
        one_in: how many cases one of them stands for.
    """
    every = list(cases)
    assert len(every) >= one_in, f"one in {one_in} of {len(every)} cases must be at least one"
    return in_turn(every, one_in)


def in_turn(cases: Sequence[T], one_in: int) -> list[T]:
    """Return one in so many cases as `some_of` does, of fewer one."""
    if os.environ.get("EMU_CASES") == "all":
        return list(cases)
    step = min(one_in, len(cases))
    return list(cases[_turn(step) :: step])


def whose_turn(cases: Sequence[T]) -> T:
    """Return the one case that emu's sources choose."""
    return cases[_turn(len(cases))]


def _turn(several: int) -> int:
    return int(sources_sha256()[:8], 16) % several


def with_something_new(cases: Iterable[Any], traits: Callable[[Any], Iterable[Hashable]]) -> list[Any]:
    """Return the cases with a trait that no case before them has: each trait is there at least once."""
    seen: set[Hashable] = set()
    kept: list[Any] = []
    for case in cases:
        if new := set(traits(case)) - seen:
            kept.append(case)
            seen |= new
    return kept


def _param(case: Any, several: bool) -> Any:
    if isinstance(case, type(pytest.param(0))):
        return case
    return pytest.param(*case) if several else pytest.param(case)


def _is_one_of(keep: Sequence[Any], param: Any, label: Any) -> bool:
    value = param.values if len(param.values) > 1 else param.values[0]
    return any(wanted == value or (label is not None and wanted == label) for wanted in keep)
