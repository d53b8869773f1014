"""Write the device of a trial as a TOML file, so that it can be used anywhere, and a study that confirms the front."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from emu._config import Table
from emu.hardware import Device
from emu.search.file import Search

#: Seeds of the study that confirms a front.
CONFIRMING_SEEDS = 5


def device_toml(device: Device, comment: str) -> str:
    """Return the text of a device file.

    Args:
        device: the device.
        comment: comment of the first line.
    """
    return toml_of(device, comment)


def toml_of(content: Table, comment: str) -> str:
    """Return the text of a file from which a device or a recipe is loaded again.

    Args:
        content: the device or the recipe.
        comment: comment of the first line.
    """
    # only what was given: defaults come back when the file is loaded. TOML has no null
    return _text(content.model_dump(mode="json", exclude_unset=True, exclude_none=True), comment)


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
    return _text(content, f"Written by the search {search.name}: run it with emu study.")


def _text(content: Mapping[str, Any], comment: str) -> str:
    return "\n".join([f"# {comment}", "", *_table(content, ())]).rstrip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Return the lines of a table without its header: its own values, then its tables.

    Args:
        table: keys and values.
        path: keys, as TOML writes them, that lead to the table.
    """
    # before any table: after a header, keys belong to that table
    own = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not _is_below(value)]
    lines = [*own, ""] if own else []
    for key, value in table.items():
        name = (*path, _key(key))
        if isinstance(value, Mapping):
            inner = _table(cast("Mapping[str, Any]", value), name)
            # a table that has nothing but tables needs no header: theirs imply it
            is_plain = any(not _is_below(inside) for inside in cast("Mapping[str, Any]", value).values())
            lines += [f"[{'.'.join(name)}]", *inner] if is_plain or not inner else inner
        elif _is_below(value):
            for item in value:
                lines += [f"[[{'.'.join(name)}]]", *_table(item, name)]
    return lines


def _is_below(value: object) -> bool:
    """Return whether a value is written as tables of its own."""
    if isinstance(value, Mapping):
        return True
    items: Sequence[object] = cast("Sequence[object]", value) if isinstance(value, list) else []
    return bool(items) and all(isinstance(item, Mapping) for item in items)


def _key(key: str) -> str:
    # a bare key of TOML: ASCII letters, digits, _ and -
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else toml_string(key)


def _value(value: object) -> str:
    # `repr` below is for numbers, and would give Python's True
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in cast('list[object]', value))}]"
    return toml_string(value) if isinstance(value, str) else repr(value)


def toml_string(text: str) -> str:
    """Return a text as TOML writes it, in quotes."""
    # JSON escapes as TOML does, but for two: pairs of surrogates are no characters to TOML, and DEL must be escaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
