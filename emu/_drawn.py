"""Classes that a notebook shows as pictures: they have the base `Drawn`, and registered drawers draw them.

    class ──► Drawn._repr_html_ ──► drawers() ──► registered drawers ──► HTML

Classes that are drawn import this module, so it must not import their pictures. `emu` registers a function that loads
the drawers; it is called when a picture is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Drawers(Protocol):
    """The functions of `emu.notebook` that draw emu's objects."""

    def html_of(self, thing: Drawn) -> str:
        """Return the picture of `thing` as HTML that needs no other file."""
        ...

    def plot_register(self, register: Any, fmt: Any) -> Any:
        """Return the histogram of a statistics register as a chart of Altair, against the range of a format."""
        ...


#: The function that loads the drawers; empty until `emu` is imported.
_loaders: list[Callable[[], Drawers]] = []


def register_drawers(load: Callable[[], Drawers]) -> None:
    """Register the function that loads the drawers; it replaces an earlier one.

    Args:
        load: called for each picture; it raises `ImportError` if the drawers cannot be loaded.
    """
    _loaders[:] = [load]


def drawers() -> Drawers:
    """Return the drawers of emu's objects.

    Raises:
        ImportError: no drawers are registered, or they cannot be loaded.
    """
    if not _loaders:
        raise ImportError("nothing is registered that draws emu's objects; import emu")
    return _loaders[0]()


class Drawn:
    """Base of classes that a notebook shows as pictures; elsewhere they are shown by `repr`."""

    # Without this, subclasses that have slots would get a `__dict__` again.
    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Return the picture; None if the drawers cannot be loaded: then a notebook shows `repr`."""
        try:
            return drawers().html_of(self)
        except ImportError:
            return None
