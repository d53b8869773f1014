"""Words of a claim's text."""

from __future__ import annotations

from collections.abc import Sequence


def listed(parts: Sequence[str]) -> str:
    """Return one or more parts as a list in a sentence.

    Examples:
        >>> listed(["1"]), listed(["1", "2"]), listed(["1", "2", "3"])
        ('1', '1 and 2', '1, 2 and 3')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
