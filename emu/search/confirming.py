"""Write a study that confirms the front of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu._toml import toml_text
from emu.search.file import Search

#: Seeds of the study that confirms a front.
CONFIRMING_SEEDS = 5


def confirming_toml(search: Search, devices: Sequence[str]) -> str:
    """Return the text of a study that trains devices with seeds that the search did not use.

    A device on the front is there partly because its seeds were lucky: other seeds tell by how much.

    Args:
        search: the search that proposed them.
        devices: paths of their files.
    """
    first = max(search.seeds) + 1
    grid: dict[str, Any] = {
        "models": [search.model],
        "devices": [search.baseline, *devices],
        "seeds": list(range(first, first + CONFIRMING_SEEDS)),
    }
    if search.settings:
        grid["settings"] = [{"name": "plain", "set": search.settings}]
    content = {
        "name": f"{search.name}-confirmed",
        "description": f"The front of the search {search.name}, with seeds that it did not use.",
        "baseline": search.baseline,
        "grid": [grid],
    }
    return toml_text(content, f"Written by the search {search.name}: run it with emu study.")
