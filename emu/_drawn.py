"""What a notebook shows as a picture: a class says that it is one, a register knows who draws it.

    class ──► Drawn._repr_html_ ──► drawers() ──► what was registered ──► HTML

This module stands below everything that is drawn, so it knows no picture. `emu` registers how the drawers are loaded;
they are loaded when the first picture is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Drawers(Protocol):
    """What draws emu's objects: the functions of `emu.notebook`."""

    def html_of(self, thing: Drawn) -> str:
        """Return the picture of `thing` as HTML that is complete in itself."""
        ...

    def plot_register(self, register: Any, fmt: Any) -> Any:
        """Return the histogram of a statistics register as a chart of Altair, against the range of a format."""
        ...


#: How the drawers are loaded; empty until `emu` is imported.
_loaders: list[Callable[[], Drawers]] = []


def register_drawers(load: Callable[[], Drawers]) -> None:
    """Have the pictures drawn by what `load` returns, in place of what was registered before.

    Args:
        load: called whenever a picture is asked for; it raises `ImportError` if the drawers cannot be loaded.
    """
    _loaders[:] = [load]


def drawers() -> Drawers:
    """Return what draws emu's objects.

    Raises:
        ImportError: no drawers are registered, or they cannot be loaded.
    """
    if not _loaders:
        raise ImportError("nothing is registered that draws emu's objects; import emu")
    return _loaders[0]()


class Drawn:
    """Base of what a notebook shows as a picture; elsewhere it is the text of `repr`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Return the picture, or None if it cannot be loaded: a notebook then shows the text of `repr`."""
        try:
            return drawers().html_of(self)
        except ImportError:
            return None
