"""What a damaged file does to its reader, as one error: bytes where a name should be, a missing table, a wrong size."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from emu.errors import ConfigError, EmuError

_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


@contextmanager
def undamaged(path: Path) -> Generator[None]:
    """Raise ConfigError for any error of a block that reads a file, or makes steps of it.

    A file is a tree of many hundred fields, each of which may be damaged. What is common has a check and an error of
    its own; this is for the rest.
    """
    try:
        yield
    # it has a sentence of its own already
    except EmuError:
        raise
    except _FAULTS as error:
        what = " ".join(str(error).split())[:200] or "no more is known"
        raise ConfigError(
            f"{path} must be a whole file whose fields fit together, got {type(error).__name__}: {what}; export it "
            "again"
        ) from error
