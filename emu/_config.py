"""Load TOML files, merge tables, apply `--set`, and check them; errors are one line.

    file.toml ──► load_toml ──► merge ──► apply_settings ──► checked(Model, ...) ──► frozen model
                                                                   └── ConfigError: key, rule, value, file, remedy

All tables of devices and recipes derive from `Table`, which refuses unknown keys and names the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from emu._paths import shown
from emu.errors import ConfigError, EmuError, nearest_name

Data = dict[str, Any]
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
InitT = TypeVar("InitT", bound=Callable[..., None])

#: Pattern of the names of devices and recipes, which are names of folders of runs as well.
FILE_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
#: A TOML array, stored as a tuple, so that frozen models are hashable.
Items = Annotated[tuple[T, ...], Field(strict=False)]


def _only_from_python(init: InitT) -> InitT:
    """Mark an `__init__` that pydantic skips for nested tables, so that their errors keep the path of their keys."""
    setattr(init, "__pydantic_base_init__", True)  # noqa: B010 - the type checker has no such attribute
    return init


class Table(BaseModel):
    """A table of a configuration file: frozen, without conversion of types, without unknown keys.

    Raises:
        ConfigError: it is made from Python with a value that breaks a rule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @_only_from_python
    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise ConfigError(_sentence(error, data, f"{type(self).__name__}(...)", {})) from None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            keys = cast("Mapping[str, Any]", data)
            for key in keys:
                # Before pydantic looks at any field: its own check, `extra="forbid"`, cannot name the nearest key.
                if key not in cls.model_fields:
                    raise UnknownKeyError(key, nearest_name(key, cls.model_fields))
        return cast(object, data)


class UnknownKeyError(ConfigError):
    """A table has a key that its kind of table does not have."""

    def __init__(self, key: str, hint: str) -> None:
        super().__init__(f"`{key}` is not a key of this table{hint}")
        self.key = key
        self.hint = hint


def load_toml(path: Path) -> Data:
    """Return the content of a TOML file.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is not TOML.
    """
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"a configuration file must be TOML, got an error in {shown(path)}: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"a configuration file must be UTF-8 text, got byte {error.object[error.start]:#04x} at offset "
            f"{error.start} in {shown(path)}; save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"a configuration file must be readable, got {error.strerror} for {shown(path)}; check the path"
        ) from None


def _parsed(text: str) -> Data:
    """Return the content of TOML text; all errors of the parser are raised as TOMLDecodeError."""
    try:
        return tomllib.loads(text)
    # It is a ValueError, too: without this clause the last one would cut its text.
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("arrays or tables are nested too deeply") from None
    # Python reads no integers of more than 4,300 digits; behind the semicolon stands advice for programmers.
    except ValueError as error:  # an integer of thousands of digits
        raise tomllib.TOMLDecodeError(str(error).partition(";")[0]) from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any], *, joined: Sequence[str] = ()) -> Data:
    """Return `base` with the keys of `over` laid over it, table by table; neither is changed.

    Args:
        base: the lower table.
        over: the upper table; None values count as absent.
        joined: keys whose arrays are concatenated, base first, instead of replaced.
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merge(cast(Data, below), cast(Data, value), joined=joined)
        elif key in joined and isinstance(value, Sequence) and isinstance(below, Sequence):
            result[key] = [*cast("Sequence[Any]", below), *cast("Sequence[Any]", value)]
        elif value is not None:
            result[key] = value
    return result


def parse_setting(text: str) -> tuple[str, Any]:
    """Return key path and value of a command-line setting.

    Args:
        text: `key.path=value`, the value in TOML syntax; a bare word is text.

    Raises:
        ConfigError: no key, no value, or a value that begins like TOML and is not.

    Examples:
        >>> parse_setting("training.batch=32"), parse_setting("precision.mac.accumulator=fp32")
        (('training.batch', 32), ('precision.mac.accumulator', 'fp32'))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not value or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key):
        raise ConfigError(
            f"a setting must be written as key.path=value, got --set {text!r}; e.g. --set training.batch=32"
        )
    try:
        parsed = _parsed(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        # A value that begins like TOML was meant as TOML, and a bare word must not hide its typing error.
        if value[0] in "[{\"'":
            raise ConfigError(
                f"the value of a setting must be TOML or a bare word, got --set {text!r}: {error}; "
                "quote the whole setting for the shell"
            ) from None
        return key, value
    # text with a line break would add another key, and no setting is a TOML date
    plain = len(parsed) == 1 and not hasattr(parsed["value"], "isoformat")
    return key, parsed["value"] if plain else value


def apply_settings(data: Mapping[str, Any], settings: Mapping[str, Any]) -> Data:
    """Return `data` with all key paths of `settings` set; missing tables are added.

    An item of an array of tables is selected by position or by its `name`: `network.layers.conv1.kernel`.

    Raises:
        ConfigError: a path goes through something that is not a table, or names no item of an array.
    """
    result: Any = dict(data)
    for path, value in settings.items():
        result = _with_setting(result, path.split("."), value, path)
    return cast(Data, result)


def _with_setting(node: object, keys: list[str], value: object, path: str) -> object:
    if not keys:
        return value
    key, *rest = keys
    if isinstance(node, Mapping) or node is None:
        table = dict(cast("Mapping[str, Any]", node or {}))
        table[key] = _with_setting(table.get(key), rest, value, path)
        return table
    if isinstance(node, Sequence) and not isinstance(node, str):
        items = list(cast("Sequence[Any]", node))
        names = [str(cast(Data, i)["name"]) if isinstance(i, Mapping) and "name" in i else None for i in items]
        positions = [str(position) for position in range(len(items))]
        if key in names:
            index = names.index(key)
        elif key in positions:
            index = positions.index(key)
        else:
            if any(names):
                known = nearest_name(key, [n for n in names if n])
            # An array without names can only be addressed by position.
            else:
                known = (
                    f"; use 0..{len(items) - 1}" if items else f"; remove `.{'.'.join(keys)}` to set the whole array"
                )
            raise ConfigError(
                f"`{key}` of --set {path} must be the name or position of one of {len(items)} items{known}"
            )
        items[index] = _with_setting(items[index], rest, value, path)
        return items
    raise ConfigError(f"`{key}` of --set {path} must lie in a table, got {node!r} there; remove `.{'.'.join(keys)}`")


def checked(
    model: type[ModelT], data: Mapping[str, Any], *, file: str, settings: Mapping[str, Any] | None = None
) -> ModelT:
    """Return `data` as a frozen model.

    Args:
        model: class of the result.
        data: tables as TOML has them.
        file: name of the source of the data in messages.
        settings: key paths set on the command line; an error in such a value names the setting instead of the file.

    Raises:
        ConfigError: the data breaks a rule: one line with key, rule, value, place and remedy.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_sentence(error, data, file, settings or {})) from None


def _sentence(error: ValidationError, data: Mapping[str, Any], file: str, settings: Mapping[str, Any]) -> str:
    """Return the sentence for the first error; a misspelt key comes first, because it causes others."""
    details = [_plain(cast(Data, dict(d))) for d in error.errors(include_url=False)]
    # False sorts before True; `min` keeps pydantic's order among equals.
    first = min(details, key=lambda d: not isinstance(_cause(d), UnknownKeyError))
    keys, names = _key_path(first, data)
    cause = _cause(first)
    if isinstance(cause, UnknownKeyError):
        table = f"[{_dotted(keys, names)}]" if keys else "the top level"
        # Without the prefix "FILE with", the message says "in --set ...", which is where the key comes from.
        source = _source([*keys, cause.key], names, file, settings).removeprefix(f"{file} with ")
        return f"`{cause.key}` is not a key of {table} in {source}{cause.hint}"
    source = _source(keys, names, file, settings)
    if isinstance(cause, EmuError):
        return f"{cause} (in {_location(source, keys, names, file)})"
    # the name of the wrong key within its table: `batch`, `input[2]`
    own = max((depth for depth, key in enumerate(keys) if isinstance(key, str)), default=0)
    where = _location(source, keys[:own], names, file)
    offender = _dotted(keys[own:], {}) or "the file"
    if first["type"] == "missing":
        return f"`{offender}` must be given, got nothing in {where}; add `{offender} = ...` there"
    rule, remedy = _rule(first)
    return f"`{offender}` must be {rule}, got {_brief(first['input'])} in {where}; {remedy}"


def _location(source: str, keys: Sequence[str | int], names: Mapping[int, str], file: str) -> str:
    """Return the source of a value, and its table if the source does not name it."""
    return f"{source}: {_dotted(keys, names)}" if keys and source.startswith(file) else source


def _plain(detail: Data) -> Data:
    """Return an error about the tag of a tagged union as an error of the key that has the tag."""
    if detail["type"] not in ("union_tag_invalid", "union_tag_not_found"):
        return detail
    key = str(detail["ctx"]["discriminator"]).strip("'")
    if detail["type"] == "union_tag_not_found":
        return {**detail, "type": "missing", "loc": (*detail["loc"], key)}
    expected = detail["ctx"]["expected_tags"]
    return {
        **detail,
        "type": "literal_error",
        "loc": (*detail["loc"], key),
        "ctx": {"expected": expected},
        "input": detail["ctx"]["tag"],
    }


def _cause(detail: Data) -> object:
    return detail.get("ctx", {}).get("error")


def _key_path(detail: Data, data: Mapping[str, Any]) -> tuple[list[str | int], dict[int, str]]:
    """Return the keys from the top to the wrong value, and the names of array items by depth."""
    location = cast("tuple[str | int, ...]", detail["loc"])
    # A missing key is not in the data, so the search in the data ends at its table.
    missing = location[-1:] if detail["type"] == "missing" else ()
    keys = _steps(data, location[: len(location) - len(missing)], detail["input"]) or []
    names: dict[int, str] = {}
    node: Any = data
    for depth, key in enumerate(keys):
        node = node[key]
        if isinstance(key, int) and hasattr(node, "keys") and "name" in node:
            names[depth] = str(node["name"])
    return [*keys, *missing], names


def _steps(node: object, location: Sequence[str | int], target: object) -> list[str | int] | None:
    """Return the parts of pydantic's `location` that lead from `node` to `target` in the data; None if none do.

    Parts that are tags of tagged unions are left out; a tag may be spelt like a key (`momentum`).
    """
    if not location:
        return [] if node is target or node == target else None
    part, *rest = location
    items = cast(Any, node)
    inside = part in items if isinstance(node, Mapping) else isinstance(node, Sequence) and isinstance(part, int)
    # First try the part as a key, then without it: a tag of a union is in pydantic's location, but not in the data.
    if inside and (steps := _steps(items[part], rest, target)) is not None:
        return [part, *steps]
    return _steps(items, rest, target)


def _dotted(keys: Sequence[str | int], names: Mapping[int, str]) -> str:
    """Return a key path as text: `network.layers[2] (conv2).kernel`."""
    text = ""
    for depth, key in enumerate(keys):
        if isinstance(key, int):
            text += f"[{key}]" + (f" ({names[depth]})" if depth in names else "")
        else:
            text += f".{key}" if text else key
    return text


def _source(keys: Sequence[str | int], names: Mapping[int, str], file: str, settings: Mapping[str, Any]) -> str:
    """Return the origin of a value: the setting that wrote it, or the file with the settings inside its table."""
    by_position = ".".join(str(k) for k in keys)
    by_name = ".".join(names.get(depth, str(k)) for depth, k in enumerate(keys))
    inside: list[str] = []
    # A setting above the value wrote it, and is the only one to blame. Settings below it changed parts of it: all of
    # these are named.
    for path, value in settings.items():
        if any(own == path or own.startswith(f"{path}.") for own in (by_position, by_name)):
            return f"--set {path}={_brief(value)}"
        if not keys or any(path.startswith(f"{own}.") for own in (by_position, by_name)):
            inside.append(f"--set {path}={_brief(value)}")
    return f"{file} with {' '.join(inside)}" if inside else file


def _brief(value: object, limit: int = 80) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _choice(allowed: Iterable[str], value: object) -> tuple[str, str]:
    names = [name.strip("'") for name in allowed]
    hint = nearest_name(str(value), names)
    remedy = hint.removeprefix("; ") if "did you mean" in hint else "choose one of them"
    return f"one of {', '.join(names)}", remedy


def _literal(detail: Data) -> tuple[str, str]:
    return _choice(re.split(r", | or ", str(detail["ctx"]["expected"])), detail["input"])


def _length(detail: Data) -> tuple[str, str]:
    context = detail["ctx"]
    bound = f"at least {context['min_length']}" if "min_length" in context else f"at most {context['max_length']}"
    return f"an array of {bound} items", "add or remove items"


def _pattern(detail: Data) -> tuple[str, str]:
    if detail["ctx"]["pattern"] == FILE_NAME:
        return "letters, digits, `.`, `_` and `-`, no `.` first", "choose another name; it also names folders"
    return "letters, digits and underscores, no digit first", "choose another name"


_NUMBER = "write a number without quotes"
_WHOLE = "write a whole number without quotes and without a point"
_TABLE = "write its keys under a [table] header"
_FIXED_RULES: dict[str, tuple[str, str]] = {
    "int_type": ("an integer", _WHOLE),
    "int_from_float": ("an integer", _WHOLE),
    "int_parsing": ("an integer", _WHOLE),
    "float_type": ("a number", _NUMBER),
    "finite_number": ("a finite number", "write a number that is neither inf nor nan"),
    "string_type": ("text", "put it in quotes"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "tuple_type": ("an array", "put it in square brackets"),
    "list_type": ("an array", "put it in square brackets"),
    "dict_type": ("a table", _TABLE),
    "model_type": ("a table", _TABLE),
    "model_attributes_type": ("a table", _TABLE),
}
_RULES: dict[str, Callable[[Data], tuple[str, str]]] = {
    "literal_error": _literal,
    "enum": _literal,
    "too_short": _length,
    "too_long": _length,
    "string_pattern_mismatch": _pattern,
    "greater_than": lambda d: (f"above {d['ctx']['gt']}", "choose a larger value"),
    "greater_than_equal": lambda d: (f"at least {d['ctx']['ge']}", "choose a larger value"),
    "less_than": lambda d: (f"below {d['ctx']['lt']}", "choose a smaller value"),
    "less_than_equal": lambda d: (f"at most {d['ctx']['le']}", "choose a smaller value"),
    "multiple_of": lambda _: ("a whole number", "choose the nearest one"),  # only multiples of 1 are required anywhere
}


def _rule(detail: Data) -> tuple[str, str]:
    """Return what the value must be, and the remedy."""
    kind = str(detail["type"])
    if kind in _RULES:
        return _RULES[kind](detail)
    return _FIXED_RULES.get(kind, (f"valid ({detail['msg']})", "correct it"))
