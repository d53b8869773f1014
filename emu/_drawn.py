"""What draws itself in a notebook: the pictures are in `emu.notebook`, which is loaded when the first one is shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Drawn:
    """Base of what a notebook shows as a picture; elsewhere it is the text of `repr`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return notebook().html_of(self)


def notebook() -> Any:
    """Return `emu.notebook`. By name: it stands above everything that it draws."""
    return import_module("emu.notebook")
