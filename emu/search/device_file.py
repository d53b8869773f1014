"""Write a device as a TOML file, so that the device of a trial can be used anywhere: `--device FILE`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from emu.hardware import Device


def device_toml(device: Device, comment: str) -> str:
    """Return the text of a device file.

    Args:
        device: the device.
        comment: comment of the first line.
    """
    content = device.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return "\n".join([f"# {comment}", "", *_table(content, ())]).rstrip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Return the lines of a table: its own values, then its tables."""
    own = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not _is_below(value)]
    lines = [*own, ""] if own else []
    for key, value in table.items():
        name = (*path, _key(key))
        if isinstance(value, Mapping):
            inner = _table(cast("Mapping[str, Any]", value), name)
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
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in cast('list[object]', value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
