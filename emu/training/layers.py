"""The layers of a recipe: a configuration table for each class of `emu.nn`, made from the fields of that class.

    [[network.layers]]  ──► table: type, name, keys ──► `named`: every name ──► `build`: emu.nn.Linear(...), ...
    of a recipe             checked by pydantic         filled in               with the extents of its input

Everything about a layer is in its class: keys and limits, shapes, messages. A table keeps the values of the recipe, so
that it can be written back as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, ForwardRef, Literal, TypeAlias, Union, get_type_hints

from pydantic import Field, create_model

from emu import nn
from emu._config import Items, Table
from emu.errors import ConfigError
from emu.nn.layer import Key, Shape, extents_of, keys_of, misfit

#: A layer inside another one has that one's name, a dot and its own name.
_LAYER_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
#: Type of a field whose key is an array of layers.
_LISTED = tuple[nn.Layer, ...]


class LayerTable(Table):
    """Base of the tables of layers: a type, and a name, which `named` fills in if the recipe gives none.

    Attributes:
        kind: class of the layer.
        lists: keys whose values are lists of layers.
    """

    kind: ClassVar[type[nn.Layer]]
    lists: ClassVar[tuple[str, ...]]
    name: str | None = Field(default=None, pattern=_LAYER_NAME)
    if TYPE_CHECKING:
        type: str  # each table has this field, among its own

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer for inputs of `shape`.

        Raises:
            ConfigError: the layer cannot take this shape; names the layer and both shapes.
        """
        assert self.name is not None, "names are filled in before layers are built"
        takes = self.kind.takes
        if takes is not None and not takes.fits(shape):
            raise misfit(self.name, self.type, takes, shape, takes.remedy)
        # extents, such as in_features, come from the input's shape; keys come from the table
        values: dict[str, Any] = dict(extents_of(self.kind, shape))
        for item, key in keys_of(self.kind).items():
            name = key.name or item
            value: Any = getattr(self, name)
            if name in self.lists:
                value = build_layers(value, shape)
            # a key that is left out may stand for an earlier key, which is in `values` already
            values[item] = values[key.like] if key.like and value is None else value
        return self.kind(self.name, **values)


def _field_of(key: Key, hint: Any, default: Any) -> tuple[Any, Any]:
    """Return pydantic's field for a key: its type, then default and limits."""
    # the union of all tables does not exist yet; `model_rebuild` below resolves the name
    of_type = Items[ForwardRef("AnyLayer")] if hint == _LISTED else key.type or hint
    if key.like:
        of_type, default = of_type | None, None
    options: dict[str, Any] = dict(key.limits)
    if key.is_shown_if_set:
        # at its default the key is left out of run.json, and so of the hash of a run
        options["exclude_if"] = default.__eq__
    return of_type, Field(default, **options)


def _table_of(kind: type[nn.Layer]) -> type[LayerTable]:
    """Return the table of a class."""
    hints, lists = get_type_hints(kind), list[str]()
    # `...` is pydantic's mark of a key that must be given
    defaults = {item.name: ... if item.default is MISSING else item.default for item in fields(kind)}
    # in the order of the fields, with `type` before the first that is not inherited: the order of keys in run.json
    inherited, own = dict[str, Any](), dict[str, Any](type=(Literal[kind.type_names], ...))
    for item, key in keys_of(kind).items():
        name = key.name or item
        if hints[item] == _LISTED:
            lists.append(name)
        if name != "type":
            keys = own if item in kind.__annotations__ else inherited
            keys[name] = _field_of(key, hints[item], defaults[item])
    table = create_model(
        kind.__name__, __base__=LayerTable, __module__=__name__, __doc__=kind.__doc__, **inherited, **own
    )
    table.kind, table.lists = kind, tuple(lists)
    return table


TABLES = tuple(_table_of(kind) for kind in nn.LAYERS)
# a pickle of a recipe names the classes of its tables
globals().update({table.__name__: table for table in TABLES})

if TYPE_CHECKING:
    AnyLayer: TypeAlias = LayerTable
else:
    # pydantic reads `type` first, and checks one table only
    AnyLayer = Annotated[Union[TABLES], Field(discriminator="type")]  # noqa: UP007 - made from a list
    for _table in TABLES:
        _table.model_rebuild()


def build_layers(tables: Sequence[AnyLayer], shape: Shape) -> tuple[nn.Layer, ...]:
    """Return the layers that tables describe, for inputs of `shape`.

    Raises:
        ConfigError: a layer cannot take its input; names the layer and both shapes.

    Examples:
        >>> [linear] = [table for table in TABLES if table.kind is nn.Linear]
        >>> build_layers(named([linear(type="linear", out_features=10)], reserved=()), (784,))
        (Linear(name='linear1', in_features=784, out_features=10, bias=True, initialiser='he'),)
    """
    layers: list[nn.Layer] = []
    for table in tables:
        layers.append(table.build(shape))
        shape = layers[-1].output(shape)
    return tuple(layers)


def named(tables: Sequence[AnyLayer], reserved: Sequence[str]) -> tuple[AnyLayer, ...]:
    """Return the tables with every name filled in: the type and a running number, counted per type (`relu2`).

    Layers inside another one are counted within it, and have its name and a dot before their own.

    Raises:
        ConfigError: two layers have one name, or a name is reserved.
    """
    return _named(tables, "", dict.fromkeys(reserved, "is kept for the network's own tensors"))


def _named(tables: Sequence[AnyLayer], prefix: str, taken: dict[str, str]) -> tuple[AnyLayer, ...]:
    result: list[AnyLayer] = []
    counts: dict[str, int] = {}
    for table in tables:
        counts[table.type] = counts.get(table.type, 0) + 1
        # a recipe that was written back has full names, so the prefix may be there already
        own = (table.name or f"{table.type}{counts[table.type]}").removeprefix(prefix)
        name = prefix + own
        if "." in own:
            raise ConfigError(
                f"`name` of a layer must have no dot, got {own!r}: dots separate a layer from the layers inside it; "
                "rename it"
            )
        if name in taken:
            raise ConfigError(
                f"`name` of a layer must not be taken, got {name!r}, which {taken[name]}; choose another name"
            )
        taken[name] = "is another layer's"
        # one count and one set of names for all lists inside: no prefix distinguishes body from shortcut
        inside = [part for key in table.lists for part in getattr(table, key)]
        parts = iter(_named(inside, f"{name}.", taken))
        lists = {key: tuple(next(parts) for _ in getattr(table, key)) for key in table.lists}
        result.append(table.model_copy(update={"name": name, **lists}))
    return tuple(result)
