"""Which cases of a long table the fast suite runs: one of every kind; the slow suite runs the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest


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
