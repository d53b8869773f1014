"""The tables of a run folder: their columns and types."""

from __future__ import annotations

from collections.abc import Mapping

from emu.training.systems import SYSTEMS

#: Tables of every run: column -> Arrow type. Every column can be null.
_OF_EVERY_RUN: dict[str, Mapping[str, str]] = {
    # a row for each log point; accuracies and test loss are null if they were not measured, rates are fractions of
    # all elements written since the row before; the hash is that of `run.json`, of the weights after this step
    "metrics": {
        "step": "int64",
        "epoch": "float64",
        "train_loss": "float64",
        "train_accuracy": "float64",
        "test_accuracy": "float64",
        "test_loss": "float64",
        "overflow_rate": "float64",
        "underflow_rate": "float64",
        "learning_rate": "float64",
        "weights_sha256": "string",
    },
    # statistics registers: one interval per step value, which is its end; `kind` is positive, negative, none, below,
    # above, nonfinite or total; `exponent` is null for the last five
    "registers": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "kind": "string",
        "exponent": "int32",
        "count": "int64",
    },
    # flag counts of each interval
    "flags": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "elements": "int64",
        "overflow": "int64",
        "underflow": "int64",
        "inexact": "int64",
        "invalid": "int64",
        "subnormal": "int64",
        "accumulator_overflow": "int64",
        "division_by_zero": "int64",
    },
    # signal to noise against float32 with the same weights; null: no noise; NaN: no signal, or not finite
    "snr": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "snr_db": "float64",
    },
    # exponents of the leading bits of float32's errors and gradients, over all layers of a probe; null for 0; the loss
    # scale S is taken out of them, and is in the column `scale`
    "exponents": {
        "step": "int64",
        "role": "string",
        "exponent": "int32",
        "count": "int64",
        "scale": "float64",
    },
    # blocks that were cast for products of linear layers, one interval per step value; `role` is that of the product's
    # result, `factor` that of the operand; `kind` is blocks, elements, clipped, clipped_largest, vanished, zero_blocks,
    # at_limit, nan_scales, or scale, of which `exponent` is the exponent of the finest scale's leading bit
    "scales": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "factor": "string",
        "kind": "string",
        "exponent": "int32",
        "count": "int64",
    },
    # time that operations took in each interval; layer and role are null for the host (its calls are steps), path and
    # proof if the operation is no product, fallback if the reference did not have to compute it; a first call is the
    # first of its kind in a process: it loads or compiles kernels. Seconds are measured, and differ from run to run
    "profile": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "operation": "string",
        "path": "string",
        "fallback": "string",
        "proof": "string",
        "calls": "int64",
        "elements": "int64",
        "multiply_adds": "int64",
        "seconds": "float64",
        "first_calls": "int64",
        "first_seconds": "float64",
    },
}

# a system declares its own tables, so a new system needs no line here
_OF_SYSTEMS: dict[str, Mapping[str, str]] = {
    name: columns for system in SYSTEMS for name, columns in system.tables.items()
}
#: Table -> column -> Arrow type.
TABLES: dict[str, Mapping[str, str]] = {**_OF_EVERY_RUN, **_OF_SYSTEMS}
#: Tables whose file does not exist before their first row.
#: others are written even while they are empty, so that a reader finds all columns
OPTIONAL_TABLES = {"exponents", "scales", *_OF_SYSTEMS}
#: Columns that a report can do without: an older run may lack them.
_SPARE_COLUMNS: dict[str, frozenset[str]] = {
    "metrics": frozenset(TABLES["metrics"]) - {"step", "train_loss"},
    "flags": frozenset({"inexact", "invalid", "subnormal", "accumulator_overflow", "division_by_zero"}),
    "profile": frozenset({"step"}),
    "simulation": frozenset({"step"}),
}


def needed_columns(table: str) -> tuple[str, ...]:
    """Return the columns without which a report cannot show a table."""
    spare = _SPARE_COLUMNS.get(table, frozenset())
    return tuple(column for column in TABLES[table] if column not in spare)
