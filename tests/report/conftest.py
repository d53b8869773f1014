"""Every chart of these tests is checked against Vega-Lite's schema."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from emu.report import chart


@pytest.fixture(scope="session", autouse=True)
def charts_are_checked() -> Generator[None, None, None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart, "CHECKS", True)
        yield
