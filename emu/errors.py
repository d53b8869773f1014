"""All errors that emu raises on purpose.

    EmuError
    ├── FormatError         (ValueError)   a number format, or a value that is not in it
    ├── ShapeError          (ValueError)   arrays or layers whose shapes do not fit together
    ├── ConfigError         (ValueError)   a device, model, recipe, data file or run folder
    ├── RtlError            (ValueError)   a unit in RTL gave no result, an undriven one, or another one when driven
    │                                      in another manner
    ├── BackendUnavailable  (ImportError)  a backend or simulator that cannot compute here; names the remedy
    └── NotDifferentiable   (TypeError)    the gradient of something that has none

`EmuWarning` is the category of warnings about settings that are allowed but cost exactness.

Each message has three parts: the rule, the value that breaks it, and a remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EmuError(Exception):
    """Base of all errors that emu raises on purpose."""


class FormatError(EmuError, ValueError):
    """A number format is impossible, or a value does not belong to the format it was declared with."""


class ShapeError(EmuError, ValueError):
    """Shapes do not fit together."""


class ConfigError(EmuError, ValueError):
    """A device, model, recipe, data file or run folder cannot be used."""


class RtlError(EmuError, ValueError):
    """A unit in RTL hangs, leaves bits of a result undriven, or its results depend on how it is driven."""


class BackendUnavailable(EmuError, ImportError):  # noqa: N818 - names a condition, as KeyboardInterrupt does
    """The chosen backend cannot compute on this machine."""


class NotDifferentiable(EmuError, TypeError):  # noqa: N818 - as above
    """An operation or value has no gradient."""


class EmuWarning(UserWarning):
    """A setting is allowed but costs exactness; the message says how."""


def nearest_name(name: object, known: Iterable[str], default: str | None = None) -> str:
    """Return `"; did you mean 'x'?"` for the known name nearest to `name`, or the list of known names.

    If a name is the beginning of known names, the hint has all of these, the default first.

    Args:
        name: name that was given; anything but text is near to no name.
        known: all known names.
        default: the default among them, if any.

    Examples:
        >>> nearest_name("fixed61", ["fixed16", "fp16"])
        "; did you mean 'fixed16'?"
        >>> nearest_name("zzz", ["fixed16", "fp16"])
        '; known: fixed16, fp16'
        >>> nearest_name("near", ["nearest_away", "nearest_even", "floor"], "nearest_even")
        "; did you mean 'nearest_even' (the default) or 'nearest_away'?"
    """
    names, text = sorted(known), name if isinstance(name, str) else ""
    # If the name is the beginning of known ones, the sort is stable and False comes first: the default, then
    # alphabetical.
    meant = sorted(
        (candidate for candidate in names if text and candidate.startswith(text)), key=lambda c: c != default
    )
    # 0.6 is difflib's own default.
    meant = meant or difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if not meant:
        return "; known: " + ", ".join(names)
    choices = [repr(candidate) + (" (the default)" if candidate == default else "") for candidate in meant]
    return f"; did you mean {' or '.join(filter(None, [', '.join(choices[:-1]), choices[-1]]))}?"


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, those nearest to `name` first.

    Examples:
        >>> nearest_first("h300", ["v100", "b200", "h100"])
        ['h100', 'v100', 'b200']
    """
    return sorted(known, key=lambda other: -difflib.SequenceMatcher(None, name.lower(), other).ratio())
