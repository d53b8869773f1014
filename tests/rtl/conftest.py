"""Simulations of these tests are built in a cache of their own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from emu.testing.rtl import simulation

#: It is run inside of simulations, where there is cocotb.
collect_ignore = ["in_cocotb.py"]


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path, None, None]:
    folder = tmp_path_factory.mktemp("rtl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "cache_folder", lambda part="": folder / part)
        yield folder
