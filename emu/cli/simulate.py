"""What `emu simulate` does: a table, and in a folder its data, a picture and a trace."""

from __future__ import annotations

import io
import json
from importlib import import_module
from pathlib import Path

from rich.text import Text

from emu.cli.tables import Listing, console
from emu.errors import ConfigError
from emu.hardware import chrome_trace, load_device
from emu.hardware.machine import SECOND_PS
from emu.training import load_recipe
from emu.training.cluster_time import SimulatedCluster, SimulatedStep, simulate
from emu.training.run_folder import RunFolder

#: Files of the folder.
DATA, TABLE, PICTURE, TRACE = "simulate.json", "simulate.parquet", "speed-up.svg", "trace.json"
_COLUMNS = (
    "batch", "bits", "nodes", "step", "compute", "quantise", "update", "wait", "send", "samples/s", "speed-up",
    "bound", "link",
)  # fmt: skip
_UNITS = (("s", SECOND_PS), ("ms", 10**9), ("us", 10**6), ("ns", 10**3))


def simulate_model(
    model: str,
    device: str,
    nodes: str | None,
    batches: str | None,
    bits: str | None,
    settings: list[str],
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Simulate, and print what came out."""
    counts = _numbers("--nodes", nodes)
    recipe = load_recipe(model, [f"cluster.nodes={max(counts, default=1)}", *settings])
    found = simulate(
        recipe,
        load_device(device),
        nodes=counts,
        batches=_numbers("--batch", batches),
        bits=_numbers("--bits", bits),
        keeps_events=out is not None,
    )
    if as_json:
        print(json.dumps(found.rows(), indent=2))
    else:
        _print(found)
    if out is not None:
        write_simulation(found, out)


def write_simulation(found: SimulatedCluster, out: Path) -> None:
    """Write data, picture and trace into a folder.

    Raises:
        ConfigError: it cannot be written.
    """
    from emu.report.pictures.speed_up import speed_up_picture

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder of --out must be writable, got {error.strerror!r} for {out}") from None
    folder = RunFolder(out)
    folder.write_json(DATA, found.rows())
    folder.write_bytes(TABLE, _parquet(found))
    folder.write_text(PICTURE, speed_up_picture(found))
    folder.write_text(TRACE, json.dumps(chrome_trace(found.device, found.events)))


def _parquet(found: SimulatedCluster) -> bytes:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(found.rows()), buffer, compression="zstd")
    return buffer.getvalue()


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    """Return the whole numbers of an option, separated by commas.

    Raises:
        ConfigError: it holds something else.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not part.isdecimal() or int(part) < 1), None)
    if wrong is not None:
        raise ConfigError(f"{option} must be whole numbers from 1 on, separated by commas, got {wrong!r} in {text!r}")
    return tuple(int(part) for part in parts)


def _print(found: SimulatedCluster) -> None:
    clips = any(step.time.clip_ps for step in found.steps)
    place = _COLUMNS.index("update")
    heads = (*_COLUMNS[:place], *(["clip"] if clips else []), *_COLUMNS[place:])
    rows: list[list[str]] = []
    longest = max(step.time.step_ps for step in found.steps)
    unit, size = next((one for one in _UNITS if longest >= one[1]), ("ps", 1))
    for step in found.steps:
        cells = _cells(step, size)
        cells[place:place] = [f"{step.time.clip_ps / size:.2f}"] if clips else []
        rows.append(cells)
    heading = f"{found.model} on {found.device}: {found.parameters} parameters; times in {unit}\n"
    console().print(Text(heading), Listing(heads, rows, keys=_COLUMNS.index("step"), numbers=heads))


def _cells(step: SimulatedStep, unit_ps: int) -> list[str]:
    time = step.time
    parts = (time.step_ps, time.compute_ps, time.quantise_ps, time.update_ps, time.wait_ps, time.send_ps)
    nodes = str(step.nodes) if step.devices == 1 else f"{step.nodes} x {step.devices}"
    bound = "" if step.bound is None else f"{step.bound:.{0 if step.bound >= 100 else 2}f}"
    times = [f"{picoseconds / unit_ps:.2f}" for picoseconds in parts]
    rates = [f"{step.samples_per_s:.0f}", f"{step.speed_up:.2f}", bound, f"{time.link_use:.1%}"]
    return [str(step.batch), str(step.bits), nodes, *times, *rates]
