"""Every error emu raises on purpose.

    EmuError
    ├── FormatError         (ValueError)   a number format, or a value that is not in it
    ├── ShapeError          (ValueError)   arrays or layers whose shapes do not fit together
    ├── ConfigError         (ValueError)   a device, model, recipe, data file or run folder
    ├── BackendUnavailable  (ImportError)  a backend that cannot compute here; names the remedy
    └── NotDifferentiable   (TypeError)    a gradient was asked of something that has none

`EmuWarning` is the category of warnings: what is allowed, and costs exactness.

Each message says: what must hold, the value found, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EmuError(Exception):
    """Base of every error emu raises on purpose."""


class FormatError(EmuError, ValueError):
    """A number format is impossible, or a value does not belong to the format it was declared with."""


class ShapeError(EmuError, ValueError):
    """Shapes do not fit together."""


class ConfigError(EmuError, ValueError):
    """A device, model, recipe, data file or run folder cannot be used as it is."""


class BackendUnavailable(EmuError, ImportError):  # noqa: N818 - says what is the case, as KeyboardInterrupt does
    """The backend asked for cannot compute on this machine."""


class NotDifferentiable(EmuError, TypeError):  # noqa: N818 - as above
    """A gradient was asked of an operation or value that has none."""


class EmuWarning(UserWarning):
    """A setting that is allowed and costs exactness; the message says what it costs."""


def nearest_name(name: object, known: Iterable[str], default: str | None = None) -> str:
    """Return `"; did you mean 'x'?"` for the known name nearest to `name`, or the list of known names.

    A name that is the beginning of known ones is answered with all of those, the default first.

    Args:
        name: what was given; what is no text is near to no name.
        known: every name there is.
        default: the one that is meant where nothing is given.

    Examples:
        >>> nearest_name("fixed61", ["fixed16", "fp16"])
        "; did you mean 'fixed16'?"
        >>> nearest_name("zzz", ["fixed16", "fp16"])
        '; known: fixed16, fp16'
        >>> nearest_name("near", ["nearest_away", "nearest_even", "floor"], "nearest_even")
        "; did you mean 'nearest_even' (the default) or 'nearest_away'?"
    """
    names, text = sorted(known), name if isinstance(name, str) else ""
    meant = sorted((one for one in names if text and one.startswith(text)), key=lambda one: one != default)
    meant = meant or difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if not meant:
        return "; known: " + ", ".join(names)
    said = [repr(one) + (" (the default)" if one == default else "") for one in meant]
    return f"; did you mean {' or '.join(filter(None, [', '.join(said[:-1]), said[-1]]))}?"


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, the nearest to `name` first, the others as they were.

    Examples:
        >>> nearest_first("h300", ["v100", "b200", "h100"])
        ['h100', 'v100', 'b200']
    """
    return sorted(known, key=lambda one: -difflib.SequenceMatcher(None, name.lower(), one).ratio())
