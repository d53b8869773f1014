"""A run folder as `emu train` writes it, made up from normal distributions: it tests the report, not arithmetic."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from emu.formats import Fixed, parse

LAYERS = [
    "input",
    "conv1",
    "relu1",
    "max_pool1",
    "conv2",
    "relu2",
    "max_pool2",
    "flatten1",
    "fc1",
    "relu3",
    "fc2",
    "loss",
]
TRAINED = {"conv1", "conv2", "fc1", "fc2"}
#: log2 of the standard deviation of each role at the start and at the end of training.
SCALE = {
    "weight": (-3.0, -2.5), "bias": (-8.0, -4.0), "activation": (-0.5, 2.0), "loss": (0.5, -4.0),
    "error": (-6.0, -11.5), "gradient": (-5.0, -9.0), "update": (-9.5, -13.0), "master": (-3.0, -2.5),
}  # fmt: skip


def roles_of(layer):
    if layer == "input":
        return ["activation"]
    if layer == "loss":
        return ["loss", "error"]
    more = ["weight", "bias", "gradient", "update", "master"] if layer in TRAINED else []
    return ["activation", "error", *more]


def write_run(folder: Path, *, fmt="fix16f13", device="fixed16", layers=LAYERS, points=60, steps=2000, learns=True,
              samples=2000, shift=0.0, leave_out=(), seed=0, description="16-bit fixed point everywhere."):  # fmt: skip
    """Write a run folder and return it.

    Every tensor has `samples` results per interval, scaled by 2**`shift`; `leave_out` names files that are not written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    ends = np.linspace(0, steps, points + 1).astype(int)[1:]
    tensors = [(layer, role) for layer in layers for role in roles_of(layer)]
    format_of = {t: ("fp32" if t[1] in ("master", "loss") else fmt) for t in tensors}
    tables = {
        "metrics.parquet": _metrics(rng, ends, learns),
        "snr.parquet": _snr(rng, ends, tensors, format_of, shift),
        **_registers_and_flags(rng, ends, tensors, format_of, shift, samples),
        "profile.parquet": profile(ends, [_timed(*tensor) for tensor in tensors]),
    }
    for name, table in tables.items():
        if name not in leave_out:
            pq.write_table(table, folder / name)
    (folder / "run.json").write_text(
        json.dumps(_run_json(device, description, layers, tensors, format_of, steps, tables, fmt))
    )
    return folder


def _metrics(rng, ends, learns):
    t = ends / ends[-1]
    loss = (2.3 * np.exp(-5 * t) + 0.04 if learns else np.full(len(t), 2.305)) * np.exp(rng.normal(0, 0.06, len(t)))
    train = np.clip(1 - loss / 2.4, 0.1, 1) if learns else np.full(len(t), 0.1) + rng.normal(0, 0.02, len(t))
    test = [float(np.clip(a - 0.01, 0, 1)) if i % 4 == 3 or i == len(t) - 1 else None for i, a in enumerate(train)]
    test_loss = [None if a is None else float(b * 1.15) for a, b in zip(test, loss, strict=True)]
    rate = np.full(len(t), 0.05)
    return pa.table({
        "step": ends, "epoch": ends / 45, "train_loss": loss, "train_accuracy": train, "test_accuracy": test,
        "test_loss": test_loss, "overflow_rate": rate * 0.01, "underflow_rate": rate, "learning_rate": rate,
    })  # fmt: skip


def _registers_and_flags(rng, ends, tensors, format_of, shift, samples):
    registers = {name: [] for name in ("step", "layer", "role", "kind", "exponent", "count")}
    names = [
        "step",
        "layer",
        "role",
        "elements",
        "overflow",
        "underflow",
        "inexact",
        "invalid",
        "subnormal",
        "accumulator_overflow",
    ]
    flags = {name: [] for name in names}
    for layer, role in tensors:
        fmt = parse(format_of[layer, role])
        depth = hash_free_depth(layer)
        for i, end in enumerate(ends):
            start, stop = SCALE.get(role, (-2.0, -2.0))
            scale = 2.0 ** (start + (stop - start) * i / len(ends) + shift - 0.6 * depth * (role == "error"))
            x = rng.normal(0, scale, samples) * np.exp(rng.normal(0, 0.8, samples))
            x[rng.random(len(x)) < (0.45 if "relu" in layer else 0.02)] = 0.0
            _observe(registers, int(end), layer, role, x)
            _flag(flags, int(end), layer, role, x, fmt)
    columns = {"registers.parquet": registers, "flags.parquet": flags}
    tables = {name: pa.table(values) for name, values in columns.items()}
    tables["registers.parquet"] = tables["registers.parquet"].cast(
        pa.schema([("step", pa.int64()), ("layer", pa.string()), ("role", pa.string()), ("kind", pa.string()),
                   ("exponent", pa.int32()), ("count", pa.int64())])
    )  # fmt: skip
    return tables


def hash_free_depth(layer):
    return LAYERS[::-1].index(layer) if layer in LAYERS else 3


def _observe(registers, step, layer, role, x):
    def row(kind, exponent, count):
        for name, value in zip(registers, (step, layer, role, kind, exponent, count), strict=True):
            registers[name].append(value)

    for kind, side in (("positive", x[x > 0]), ("negative", -x[x < 0])):
        exponents, counts = np.unique(np.frexp(side)[1] - 1, return_counts=True)
        for exponent, count in zip(exponents, counts, strict=True):
            row(kind, int(exponent), int(count))
    for kind, count in (("none", np.sum(x == 0)), ("below", 0), ("above", 0), ("nonfinite", 0), ("total", len(x))):
        row(kind, None, int(count))


def _flag(flags, step, layer, role, x, fmt):
    smallest, largest = float(fmt.smallest_positive), float(fmt.max)
    over = int(np.sum(np.abs(x) > largest))
    under = int(np.sum((x != 0) & (np.abs(x) < smallest / 2)))
    inexact = int(0.98 * np.sum(x != 0)) if isinstance(fmt, Fixed) else int(0.9 * np.sum(x != 0))
    for name, value in zip(flags, (step, layer, role, len(x), over, under, inexact, 0, 0, 0), strict=True):
        flags[name].append(value)


def _snr(rng, ends, tensors, format_of, shift):
    rows = {name: [] for name in ("step", "layer", "role", "snr_db")}
    for end in ends[:: max(1, len(ends) // 6)]:
        for i, (layer, role) in enumerate(tensors):
            fmt = parse(format_of[layer, role])
            scale = SCALE.get(role, (-2.0, -2.0))[0] + shift
            level = 6.02 * (scale + fmt.frac_bits) - 0.4 * i if isinstance(fmt, Fixed) else 140 - 0.5 * i
            exact = layer == "input" or role == "master"
            for name, value in zip(
                rows, (int(end), layer, role, None if exact else level + rng.normal(0, 1)), strict=True
            ):
                rows[name].append(value)
    return pa.table(rows)


def _timed(layer, role):
    """A product that writes what a trained layer computes, an operation that copies anything else."""
    made = layer in TRAINED and role in ("activation", "error", "gradient")
    operation = {"operation": "conv2d" if layer.startswith("conv") else "matmul"} if made else {"operation": "quantize"}
    plan = {"path": "integer_dot", "proof": "exact in 64-bit integers in any order", "multiply_adds": 9000}
    return {"layer": layer, "role": role, "seconds": 0.03 if made else 0.01, **operation, **(plan if made else {})}


def profile(ends, places, *, host=0.02, calls=10):
    """Return a profile in which the same is done in every interval; a first call takes a second more.

    `places` give layer, role, operation and what differs from an operation of 10 calls without a product.
    """
    rows = []
    for i, end in enumerate(ends):
        common = {"path": None, "fallback": None, "proof": None, "calls": calls, "elements": 1000, "multiply_adds": 0,
                  "seconds": 0.01}  # fmt: skip
        waiting = {"layer": None, "role": None, "operation": "host", "elements": 0, "seconds": host}
        for place in [*places, waiting]:
            row = {"step": int(end), **common, **place, "first_calls": int(i == 0)}
            each = row["seconds"] / calls
            first = each + 1.0 if i == 0 else 0.0
            rows.append(row | {"first_seconds": first, "seconds": row["seconds"] + (first and 1.0)})
    texts = ("layer", "role", "operation", "path", "fallback", "proof")
    return pa.table({
        name: pa.array([row[name] for row in rows], pa.string() if name in texts else None) for name in rows[0]
    })  # fmt: skip


def _layer(name):
    if name.startswith("conv"):
        return {"type": "conv2d", "name": name, "out_channels": 6, "kernel": 5, "stride": 1, "padding": 2}
    return {"type": "linear" if name.startswith("fc") else name.rstrip("0123456789"), "name": name}


def _run_json(device, description, layers, tensors, format_of, steps, tables, fmt):
    mac = {
        "product": "exact",
        "accumulator": "exact",
        "order": "sequential",
        "rounding": "nearest_even",
        "overflow": None,
    }
    formats = [
        {"layer": layer, "role": role, "format": format_of[layer, role], "rounding": "nearest_even", "overflow": None,
         "mac": mac if layer in TRAINED and role in ("activation", "error", "gradient") else None}
        for layer, role in tensors
    ]  # fmt: skip
    network = {
        "input": [1, 28, 28], "classes": 10, "loss": "softmax_cross_entropy",
        "layers": [_layer(name) for name in layers if name not in ("input", "loss")],
    }  # fmt: skip
    metrics = tables["metrics.parquet"].to_pydict()
    return {
        "model": "lenet",
        "recipe": {
            "name": "lenet", "network": network,
            "data": {"source": "digits", "test_images": 450, "upsample": 3, "pad": 2},
            "training": {"steps": steps, "epochs": None, "batch": 32, "seed": 1,
                         "optimiser": {"name": "momentum", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.0},
                         "schedule": {"name": "cosine"}},
            "precision": {"layers": []},
        },
        "device": {
            "name": device, "description": description, "source": "made up for tests",
            "precision": {"weight": {"format": fmt}, "mac": mac},
            "compute": {"clock_hz": {"value": 1.0e9, "source": "made up"}, "lanes": None, "units": {}},
        },
        "layers": layers, "formats": formats, "parameters": 61706, "history": {"log_every": steps // 60},
        "status": "finished", "started": "2025-01-01T10:00:00+00:00", "ended": "2025-01-01T10:01:14+00:00",
        "emu_version": "0.1.0", "failures": [],
        "seed": 1, "backend": "numba", "versions": {"python": "3.11.9", "numpy": "2.2.0", "numba": "0.61.0"},
        "weights_sha256": "9f" * 32, "registers_sha256": "3c" * 32,
        "metrics": {"train_loss": metrics["train_loss"][-1], "test_accuracy": metrics["test_accuracy"][-1], "redos": 0},
        "steps": steps, "seconds": 74.2, "simulated_seconds": None,
    }  # fmt: skip
