"""What every test shares: Hypothesis profiles, and the backends that must agree."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from fast_suite import in_turn, whose_turn
from hypothesis import HealthCheck, settings

from emu.report import chart

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=SLOW_DRAWS)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

#: Backends of this machine's processor; each promised to return the reference's bits.
BACKENDS = ("reference", "numba")


#: Of so many cases of a slow test, or slow tests of a file that have one case, one runs; with EMU_CASES=all, every one.
CASES_IN_TURN = 6
#: Tests that are slow for their time alone, a line each: the name of a test, or the beginning of the names of cases. Of
#: a test that has several cases, the one whose turn it is stays in the fast suite.
SLOW = Path(__file__).with_name("slow.txt")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look through the tests for it again.

    They are some millions of objects that live until the end: a look takes a third of a second, of which there would
    be one every few tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def cases_by_test(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the cases of each test by its name."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return cases


def groups_of(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the cases of each test, and together the tests of each file that have one case."""
    cases = cases_by_test(items)
    alone: dict[str, list[pytest.Item]] = {}
    for name, group in cases.items():
        if len(group) == 1:
            alone.setdefault(name.partition("::")[0], []).extend(group)
    return [*(group for group in cases.values() if len(group) > 1), *alone.values()]


@pytest.hookimpl(tryfirst=True)  # before the marks decide what is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `slow.txt`; leave out the slow ones whose turn it is not."""
    names = [line for line in SLOW.read_text(encoding="utf-8").splitlines() if line.startswith("tests/")]
    tests, beginnings = frozenset(names), tuple(name for name in names if "[" in name or "::" not in name)
    for name, group in cases_by_test(items).items():
        stays = whose_turn(group) if name in tests and len(group) > 1 else None
        for item in group:
            if item.nodeid.startswith(beginnings) or (name in tests and item is not stays):
                item.add_marker(pytest.mark.slow)
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    kept = {id(item) for group in groups_of(slow) for item in in_turn(group, CASES_IN_TURN)}
    left_out = {id(item) for item in slow} - kept
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Generator[None, None, None]:
    """What a test writes need not outlive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_copies_of_a_test_process() -> Generator[None, None, None]:
    """Every processor has a test process of its own already, and one of these is large."""
    try:
        from emu.backends.numba import ahead
    except ModuleNotFoundError:  # Numba is hidden from tests of the definition (`tests/mutation`)
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MOST_COPIES", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def charts_are_checked() -> Generator[None, None, None]:
    """Every chart of a report is checked against Vega-Lite's schema."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart, "VALIDATES", True)
        yield


@pytest.fixture(params=BACKENDS, scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """Name of a backend; a test that takes it runs on each."""
    return request.param
