"""The tables of a run folder: their columns and types."""

from __future__ import annotations

#: Table -> column -> Arrow type. Every column can be null.
TABLES: dict[str, dict[str, str]] = {
    # one row per logged point; accuracies and test loss are null where they were not measured, rates are fractions of
    # all elements written since the row before
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
    # signal to noise against float32 with the same weights; null: no noise at all; NaN: no signal, or not finite
    "snr": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "snr_db": "float64",
    },
    # where float32's errors and gradients lie, all layers of a probe together: exponents of leading bits, null for 0;
    # S of the loss is taken out, and stands beside them
    "exponents": {
        "step": "int64",
        "role": "string",
        "exponent": "int32",
        "count": "int64",
        "scale": "float64",
    },
    # of loss scaling, what happened to S: `start`, `overflow` (scale: S of the run), `repeat` (S it is repeated at),
    # `skip` (S of the run given up), `growth` and `change` (the new S)
    "loss_scaling": {
        "step": "int64",
        "event": "string",
        "scale": "float64",
    },
    # of dynamic fixed point: where the point of a tensor was put; redone: the operation that writes it ran again for it
    "points": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "part": "string",
        "point": "int32",
        "redone": "bool_",
    },
    # simulated time of each interval's steps, of a device with a clock: layer and role are empty for the batch; unit is
    # the device's or the host's, `memory`'s time is within its unit's, `link` moves bytes to the host and back; kind is
    # forward, backward, update, redo, host or transfer; operations are multiply-adds, or results where there are none
    "simulation": {
        "step": "int64",
        "layer": "string",
        "role": "string",
        "unit": "string",
        "kind": "string",
        "calls": "int64",
        "cycles": "int64",
        "picoseconds": "int64",
        "operations": "int64",
        "bytes": "int64",
    },
    # where the time of each interval's steps went; layer and role are null for the host (its calls are steps), path
    # and proof where there was no product, fallback where none was left to the reference; a first call is the first of
    # its kind in a process: it loads or compiles kernels. Seconds are measured, and differ from run to run
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

#: Tables that are not there before their first row.
SYSTEM_TABLES = {"loss_scaling", "points", "exponents", "simulation"}
