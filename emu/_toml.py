"""Write tables as TOML files, from which `_config.py` loads them again.

{"name": "d", "grid": [{"seeds": [1, 2]}]}  ──►  name = "d"

[[grid]]
seeds = [1, 2]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from emu._config import Table


def toml_of(content: Table, comment: str) -> str:
    """Return the text of a file from which a device or a recipe is loaded again.

    Args:
        content: the device or the recipe.
        comment: comment of the first line.
    """
    # only what was given: defaults come back when the file is loaded. TOML has no null
    return toml_text(content.model_dump(mode="json", exclude_unset=True, exclude_none=True), comment)


def toml_text(content: Mapping[str, Any], comment: str) -> str:
    """Return the text of a file with that content.

    Args:
        content: keys and values; tables are mappings, arrays of tables lists of mappings.
        comment: comment of the first line.
    """
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
