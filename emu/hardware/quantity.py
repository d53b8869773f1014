"""Numbers of a machine: each with its source beside it, its unit in the name of its key."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from emu._config import Items, Table


class Quantity(Table):
    """A number of the machine; its unit is in the name of its key.

    Attributes:
        value: the number, above 0; a latency may be 0.
        source: where it is from: a datasheet, a measurement, a design choice and its reason.
    """

    value: float = Field(gt=0)
    source: str = Field(min_length=1)


class Rate(Quantity):
    """A number per second: cycles, bytes."""

    value: float = Field(ge=1, le=1e18)


class Count(Quantity):
    """A whole number of things."""

    value: float = Field(ge=1, le=2**31, multiple_of=1)


class Latency(Quantity):
    """A time in seconds; 0 if the model leaves it out."""

    value: float = Field(ge=0, le=3600)


class Share(Quantity):
    """A part of a whole: what is reached of a nominal number, for instance."""

    value: float = Field(gt=0, le=1)


class Tile(NamedTuple):
    """A block of a product's results that a multiprocessor computes as a whole.

    Attributes:
        rows: its rows.
        columns: its columns.
        efficiency: share of the peak that the multiprocessor reaches on it.
    """

    rows: Annotated[int, Field(ge=1, le=2**16)]
    columns: Annotated[int, Field(ge=1, le=2**16)]
    efficiency: Annotated[float, Field(gt=0, le=1)]


class Tiles(Table):
    """The tiles among which a library chooses.

    Attributes:
        value: rows, columns and efficiency of each.
        source: where they are from.
    """

    value: Items[Tile] = Field(min_length=1)
    source: str = Field(min_length=1)
