"""Read a run folder into arrays; for each file that is missing or damaged, a sentence says why.

run.json            -> RunData.info          required
metrics.parquet     -> RunData.metrics       optional, like those below
registers.parquet   -> RunData.registers
flags.parquet       -> RunData.flags
snr.parquet         -> RunData.snr
profile.parquet     -> RunData.profile       older runs lack it, without a sentence; likewise for those below
exponents.parquet   -> RunData.exponents
loss_scaling.parquet -> RunData.loss_scaling
points.parquet      -> RunData.points
simulation.parquet  -> RunData.simulation
others of systems   -> RunData.table(name)
trace.json          -> RunData.trace
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from emu._config import checked
from emu._files import read_json
from emu._tables import arrow_errors, read_parquet
from emu.errors import ConfigError
from emu.report.words import role_order
from emu.training.folders.status import is_trained, with_status
from emu.training.folders.tables import OPTIONAL_TABLES, TABLES, needed_columns

Array = NDArray[Any]
#: A column file: name -> values, all of one length.
Columns = dict[str, Array]
#: A tensor of a run: its layer and its role there.
Tensor = tuple[str, str]

#: Columns that each file must have for its pictures.
FILES: dict[str, tuple[str, ...]] = {
    f"{name}.parquet": needed_columns(name)
    for name in (*sorted(OPTIONAL_TABLES), *(name for name in TABLES if name not in OPTIONAL_TABLES))
}
#: Files that runs of older versions, or without a system, do not have.
_NEWER = {"profile.parquet", *(f"{name}.parquet" for name in OPTIONAL_TABLES)}
#: Columns whose null means infinity: no element differed, so the ratio of signal to noise is infinite.
#: Parquet keeps NaN and null apart: NaN means that there was no signal.
_NULL_IS_INFINITE = {"snr_db"}
_REMEDY = "it is written by `emu train`; the rest of this page does not need it"


class _Row(BaseModel):
    """The datapath of one tensor in `run.json`."""

    model_config = ConfigDict(strict=True)

    layer: str
    role: str
    format: str
    rounding: str | None = None
    overflow: str | None = None
    mac: dict[str, str | None] | str | None = None


class _Energy(BaseModel):
    """The energy of a part of the datapath for a layer, in `run.json`."""

    model_config = ConfigDict(strict=True)

    layer: str
    unit: str
    kind: str
    uses: int = Field(ge=0, le=2**62)
    picojoules: float = Field(ge=0, allow_inf_nan=False)


class _Area(BaseModel):
    """The area of a part of a unit, in `run.json`."""

    model_config = ConfigDict(strict=True)

    compute_unit: str
    unit: str
    lanes: float = Field(ge=0, allow_inf_nan=False)
    area_um2: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    share: float = Field(ge=0, allow_inf_nan=False)


class _Cost(BaseModel):
    """Energy and area, in `run.json`."""

    model_config = ConfigDict(strict=True)

    table: str
    memory: str
    batch: int = Field(ge=0, le=2**53)
    joules_per_step: float = Field(ge=0, allow_inf_nan=False)
    joules_per_inference: float = Field(ge=0, allow_inf_nan=False)
    area_mm2: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    shares: dict[str, float] = Field(default_factory=dict[str, float])
    energy: list[_Energy] = Field(default_factory=list[_Energy])
    areas: list[_Area] | None = None


class _RunInfo(BaseModel):
    """The entries of `run.json` that a report reads; recipe and device are checked only if a section fails."""

    model_config = ConfigDict(strict=True, extra="allow")

    status: str | None = None
    recipe: dict[str, Any] | None = None
    device: dict[str, Any] | str | None = None
    data: dict[str, Any] | str | None = None
    versions: dict[str, Any] | None = None
    model: str | None = None
    emu_version: str | None = None
    steps: int | None = Field(default=None, ge=0, le=2**53)
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    simulated_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    parameters: int | None = Field(default=None, ge=0, le=2**62)
    metrics: dict[str, float | int | None] | None = None
    cost: _Cost | None = None
    layers: list[str] | None = None
    formats: list[_Row] | None = None
    failures: list[str] | None = None
    stopped_by: list[str] | None = None
    stopped_because: str | None = None

    @field_validator("cost", mode="before")
    @classmethod
    def _with_energy(cls, cost: object) -> object:
        """Return the cost, or None if it has no row of energy."""
        # A cost without rows of energy is not shown, so it need not be complete.
        return cost if table_of(cost).get("energy") else None


class _DamagedError(ConfigError):
    """A file exists but cannot be read."""


@dataclass(frozen=True)
class TensorFormat:
    """The datapath of one tensor.

    Attributes:
        layer: layer name.
        role: role of the tensor in that layer.
        format: text form of the number format.
        rounding: rounding mode, or None for the default.
        overflow: overflow rule, or None for the default of the format's family.
        mac: the multiply-accumulate unit that computes it, or None.
    """

    layer: str
    role: str
    format: str
    rounding: str | None = None
    overflow: str | None = None
    mac: Mapping[str, Any] | str | None = None


class _TableOfRun:
    """An attribute that is the table of the same name: its columns, or None if the run lacks it.

    Attributes:
        content: what the table contains, for readers of the code.
    """

    def __init__(self, content: str) -> None:
        self.content = content

    # Python calls this with the name of the attribute, which is that of the table.
    def __set_name__(self, owner: type[RunData], name: str) -> None:
        self._name = name

    def __get__(self, run: RunData, owner: type[RunData]) -> Columns | None:
        return run.table(self._name)


@dataclass(frozen=True)
class RunData:
    """The data of a run's folder.

    Attributes:
        info: content of `run.json`; `status` is "running" only while a process trains the run.
        tables: file name -> its columns, for the files that could be read.
        missing: file name -> a sentence about why it could not be read.
        trace: events of the simulated machine in `trace.json`; empty without the file.
        damaged: names of the files that exist but cannot be read.
    """

    info: dict[str, Any]
    tables: dict[str, Columns] = field(default_factory=dict[str, Columns])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    trace: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    damaged: tuple[str, ...] = ()

    def table(self, name: str) -> Columns | None:
        """Return a table by its name, or None."""
        return self.tables.get(f"{name}.parquet")

    metrics = _TableOfRun("loss and accuracy over steps")
    registers = _TableOfRun("leading-bit counts per step, tensor and exponent")
    flags = _TableOfRun("flag counts per step and tensor")
    snr = _TableOfRun("signal-to-noise in dB per step and tensor")
    profile = _TableOfRun("calls and seconds per step, layer, role and operation")
    scales = _TableOfRun("counts of blocks that are cast for products, per step, layer, product and factor")
    exponents = _TableOfRun("exponents of float32's errors and gradients, per measured step")
    loss_scaling = _TableOfRun("what happened to the scale of the loss, event by event")
    points = _TableOfRun("binary points of tensors, move by move")
    simulation = _TableOfRun("simulated time per step, layer, role, unit and kind")

    @cached_property
    def layers(self) -> list[str]:
        """Layer names in network order, then names that only the tables have."""
        layers: list[Any] = self.info.get("layers") or []
        named = [str(name) for name in layers]
        # A dict as an ordered set: the order of `run.json` first, then names that only tables or formats have.
        seen: dict[str, None] = dict.fromkeys(named)
        for table in (self.registers, self.flags, self.snr):
            if table is not None:
                seen.update(dict.fromkeys(str(name) for name in np.unique(table["layer"].astype(str))))
        seen.update(dict.fromkeys(layer for layer, _ in self.formats))
        return list(seen)

    @cached_property
    def formats(self) -> dict[Tensor, TensorFormat]:
        """Tensor -> its datapath, for each tensor that `run.json` names."""
        rows: Iterable[Mapping[str, Any]] = self.info.get("formats") or []
        read = (
            TensorFormat(
                str(row["layer"]),
                str(row["role"]),
                str(row["format"]),
                row.get("rounding"),
                row.get("overflow"),
                row.get("mac"),
            )
            for row in rows
        )
        return {(tensor.layer, tensor.role): tensor for tensor in read}

    def section(self, name: str) -> dict[str, Any]:
        """Return the table `name` of `run.json`, empty if there is none."""
        return table_of(self.info.get(name))

    def in_order(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return tensors sorted by network order, then by role."""
        layers = {name: i for i, name in enumerate(self.layers)}
        return sorted(set(tensors), key=lambda t: (layers.get(t[0], len(layers)), role_order(t[1]), t))

    def name(self) -> tuple[str, str]:
        """Return the names of the model and of the device."""
        recipe, device = self.section("recipe"), self.section("device")
        model = self.info.get("model") or recipe.get("name") or "network"
        return str(model), str(device.get("name") or self.info.get("device") or "unnamed device")


def read_run(folder: Path) -> RunData:
    """Return the run in `folder`.

    Raises:
        ConfigError: the folder does not exist, or its `run.json` is missing or not JSON.
    """
    # Asked before `run.json` is read: a run that ends between the two must not look stopped.
    has_process = is_trained(folder)
    info = with_status(read_info(folder), has_process)
    tables: dict[str, Columns] = {}
    missing: dict[str, str] = {}
    damaged: list[str] = []
    for name, required in FILES.items():
        if name in _NEWER and not (folder / name).is_file():
            continue
        try:
            tables[name] = read_columns(folder / name, required)
        except ConfigError as error:
            missing[name] = str(error)
            # A table that is absent, empty or of another version is no damage; one that cannot be read is.
            if isinstance(error, _DamagedError):
                damaged.append(name)
    return RunData(info, tables, missing, _read_trace(folder / "trace.json"), tuple(damaged))


def read_info(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json`.

    Raises:
        ConfigError: the folder or the file does not exist, it is not JSON, or an entry that reports read is wrong.
    """
    path = folder / "run.json"
    if not folder.is_dir():
        raise ConfigError(f"a run folder must exist, got {str(folder)!r}; `emu train` writes one and prints its name")
    if not path.is_file():
        raise ConfigError(
            f"a run folder must hold run.json, got {str(folder)!r} without it; give a folder `emu train` wrote"
        )
    try:
        info = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"run.json must be JSON, got {error} in {path}; train again, or restore the file") from None
    if not isinstance(info, dict):
        raise ConfigError(f"run.json must hold a JSON object, got {type(info).__name__} in {path}; train again")
    # Only to raise: pictures read the plain table, which has entries of other versions, too.
    checked(_RunInfo, table_of(info), file=str(path))
    return table_of(info)


def _read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace; none if the file does not exist or is not a trace."""
    try:
        events = table_of(read_json(path)).get("traceEvents")
    except (OSError, ValueError):
        return []
    return tables_of(events)


def table_of(value: Any) -> dict[str, Any]:
    """Return a JSON object as a table; anything else as an empty table."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def tables_of(value: Any) -> list[dict[str, Any]]:
    """Return a JSON array of objects as tables; anything else as an empty list."""
    return [table_of(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def read_columns(path: Path, required: tuple[str, ...]) -> Columns:
    """Return the columns of a table.

    Raises:
        ConfigError: it does not exist, cannot be read, lacks one of the `required` columns, or has no rows.
    """
    if not path.is_file():
        raise ConfigError(f"{path.name} is not in this run folder, so there is nothing to show here; {_REMEDY}.")
    try:
        read = read_parquet(path)
        names = read.column_names
        # Inside of the `try`: a conversion may raise, too.
        columns: Columns = {name: _values(read.column(name)) for name in names}
    except arrow_errors() as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise _DamagedError(
            f"{path.name} could not be read ({reason}), so there is nothing to show here; {_REMEDY}."
        ) from None
    absent = [name for name in required if name not in names]
    if absent:
        raise ConfigError(
            f"{path.name} lacks the columns {', '.join(absent)}, so there is nothing to show here; {_REMEDY}."
        )
    if not read.num_rows:
        raise ConfigError(f"{path.name} holds no rows yet: the run has not logged a first interval.")
    for name in _NULL_IS_INFINITE & columns.keys():
        # Asked of Arrow's column: in the array a null has become NaN already.
        columns[name] = np.where(read.column(name).is_null().to_numpy(), np.inf, columns[name])
    return columns


def _values(column: Any) -> Array:
    """Return the values of an Arrow column, null as NaN; a column of nulls alone may have lost its type."""
    return np.full(len(column), np.nan) if column.null_count == len(column) else column.to_numpy()


def rows_of_tensors(table: Columns) -> dict[Tensor, NDArray[np.int64]]:
    """Return tensor -> indices of its rows, in the order of the table."""
    layers, layer_of = np.unique(table["layer"].astype(str), return_inverse=True)
    roles, role_of = np.unique(table["role"].astype(str), return_inverse=True)
    key = layer_of * len(roles) + role_of  # a number for each tensor: one stable sort groups the rows of all
    order = np.argsort(key, kind="stable")
    # A tensor begins where the sorted key changes; -1 is no key, so the first row begins one.
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    ends = [*starts[1:], len(order)]
    return {
        (str(layers[key[order[a]] // len(roles)]), str(roles[key[order[a]] % len(roles)])): order[a:b]
        for a, b in zip(starts, ends, strict=True)
    }
