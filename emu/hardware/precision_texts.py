"""Texts of formats, rounding modes and overflow rules in tables of files: checked, each mode under its own key.

    format = "ap_fixed<16,8,AP_RND,AP_SAT>"   ->   format = "ap_fixed<16,8>"
                                                   rounding = "nearest_up"
                                                   overflow = "saturate"

So each key can replace the same key of another table, or be replaced. Default modes of a notation get no key: they
belong to the text, and a key of any table replaces them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from emu.datapath import Overflow, Rounding
from emu.datapath.mac import common_modes
from emu.datapath.order import parse_order
from emu.datapath.stage import require_placed
from emu.errors import EmuError, FormatError
from emu.formats import DynamicFixed, parse, parse_number
from emu.formats.parse import modes_of


def known_format(text: str | None) -> str | None:
    """Return the text of a format, `exact` or None; checked."""
    if text is not None and text != "exact":
        parse_number(text)
    return text


def placed_format(text: str | None) -> str | None:
    """Return the text of a format whose binary point is given, `exact` or None; checked."""
    if text is not None and text != "exact":
        require_placed(parse(text))
    return text


def known_rounding(text: str | None) -> str | None:
    """Return the name that a rounding mode has here."""
    return None if text is None else Rounding.parse(text).value


def known_overflow(text: str | None) -> str | None:
    """Return the name that an overflow rule has here."""
    return None if text is None else Overflow.named(text).value


def known_order(text: str | None) -> str | None:
    """Return an order of adds as it is written here."""
    return None if text is None else str(parse_order(text))


def with_named_modes(data: Any, format_keys: tuple[str, ...]) -> Any:
    """Return a table whose format texts name no modes: the keys `rounding` and `overflow` have those modes.

    Args:
        data: a table as a file has it, checked or not.
        format_keys: its keys that are formats.

    Raises:
        FormatError: a text names another mode than the key beside it, or than another text brings.
    """
    if not isinstance(data, Mapping):
        return data
    table = dict(cast("Mapping[str, Any]", data))
    try:
        given = known_rounding(table.get("rounding")), known_overflow(table.get("overflow"))
    except FormatError:
        return table  # the checks of these keys raise it again, with the key's name
    texts = {key: table[key] for key in format_keys if _is_format(table.get(key))}
    modes = {key: modes_of(text) for key, text in texts.items()}
    rounding, overflow = common_modes(texts, *given)
    # a mode that is only the notation's default gets no key: it would replace that of a lower table
    if any(of_text.rounding.is_named for of_text in modes.values()):
        table["rounding"] = rounding
    if any(of_text.overflow.is_named for of_text in modes.values()):
        table["overflow"] = overflow
    return table | {key: of_text.bare or texts[key] for key, of_text in modes.items()}


def _is_format(text: object) -> bool:
    """Return whether `text` names a format; if it should and does not, the key's own check raises."""
    try:
        return isinstance(text, str) and parse_number(text) is not None
    except FormatError:
        return False


def can_have(fmt: str | None, overflow: str | None) -> bool:
    """Return whether a format may have an overflow rule; True if one of them is not given."""
    if fmt is None or fmt == "exact" or overflow is None:
        return True
    try:
        # any point will do: rules belong to families of formats
        Overflow.parse(overflow, require_placed(parse(placed_at(fmt, 0))))
    except EmuError:
        return False
    return True


def any_format_for(overflow: str | None) -> str:
    """Return a format that may have `overflow`, to check the rest of a table that leaves its format open."""
    return "fix8f0" if can_have("fix8f0", overflow) else "fp32"


def placed_at(fmt: str, point: int) -> str:
    """Return the text of a format; `point` replaces the question mark of an open point."""
    parsed = parse_number(fmt) if fmt != "exact" else None
    return str(parsed.at(point)) if isinstance(parsed, DynamicFixed) else fmt
