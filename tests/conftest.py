"""What every test shares: Hypothesis profiles, and the backends that must agree."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from emu.report import chart

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=SLOW_DRAWS)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

#: Backends of this machine's processor; each promised to return the reference's bits.
BACKENDS = ("reference", "numba")


#: Tests that are slow for their time alone: the beginnings of their names, a line each.
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


@pytest.hookimpl(tryfirst=True)  # before the marks decide what is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `slow.txt`."""
    names = tuple(line for line in SLOW.read_text(encoding="utf-8").splitlines() if line.startswith("tests/"))
    for item in items:
        if item.nodeid.startswith(names):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Generator[None, None, None]:
    """What a test writes need not outlive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def charts_are_checked() -> Generator[None, None, None]:
    """Every chart of a report is checked against Vega-Lite's schema."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart, "CHECKS", True)
        yield


@pytest.fixture(params=BACKENDS, scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """Name of a backend; a test that takes it runs on each."""
    return request.param
