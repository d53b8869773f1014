"""What a peer is: a package that may be here, and how it does a row's work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from benchmarks.measuring.row import Side, Task


@dataclass(frozen=True)
class Peer:
    """A package that emulates arithmetic, or does the same work at the machine's precision.

    Attributes:
        name: what `--against` and the tables call it.
        module: import name.
        package: what pip installs.
        sides: how it does a row's work, best effort; empty where it cannot.
    """

    name: str
    module: str
    package: str
    sides: Callable[[Task], list[Side]]

    @property
    def is_here(self) -> bool:
        """Whether it can be imported."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Its version, or how to get it."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return self.remedy

    @property
    def remedy(self) -> str:
        """The line that installs it."""
        return f"absent: pip install {self.package}"
