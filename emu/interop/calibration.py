"""Binary points for every tensor of a network, from float32 results that went through registers once.

    examples ──► float32 pass ──► register of each tensor: counts by leading bit ──► the point of its word

The point leaves as many fraction bits as it can while at most a share of the numbers, `overflow_rate`, lies outside.
What only selects numbers, as relu does, gets the point of what it reads: it need not round.

Widths, units and modes are those of a device; only points move. The result is a device file.

Source: US 11,593,620 (points from the counts of leading bits); docs/dynamic-fixed-point.md, "From counts to a point".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emu._config import FILE_NAME
from emu._files import replace_file
from emu._paths import find_content
from emu.datapath import StatisticsRegister
from emu.errors import ConfigError
from emu.formats import Fixed
from emu.hardware import Device, load_device
from emu.interop.evaluation import BATCH, Progress, require_usable
from emu.interop.examples import Examples, read_examples
from emu.interop.graph import Graph, Machine
from emu.interop.loading import load
from emu.nn.wired import Wired
from emu.precision import CounterTable, Policy

#: Positions of the registers: float32's normal numbers that a word may hold are among them.
_LOWEST, _BINS = -64, 128
#: Roles whose points are chosen.
ROLES = ("activation", "weight", "bias")


@dataclass(frozen=True)
class Point:
    """The word of one tensor.

    Attributes:
        layer: layer that writes it, or the network's input.
        role: its role.
        format: its format.
        before: the format that the device has.
        overflow: share of the numbers that were seen that lie outside.
        largest_exponent: floor(log2) of the largest magnitude that was seen; None if all were 0.
    """

    layer: str
    role: str
    format: str
    before: str
    overflow: float
    largest_exponent: int | None


def calibrate(
    network: str | Path | Graph,
    device: str | Path | Device,
    data: str | Path | Examples,
    *,
    overflow_rate: float = 0.0,
    backend: str = "auto",
    progress: Progress | None = None,
) -> tuple[Point, ...]:
    """Return a binary point for every tensor of a network that a device has as a fixed-point word.

    Args:
        network: the file, or what `emu.onnx.load` returns.
        device: widths of the words: a name, a path, or what `emu.device` returns.
        data: examples, or a file of them; labels are not read.
        overflow_rate: share of the numbers of a tensor that may lie outside its format.
        backend: backend that computes.
        progress: receives how far it is.

    Raises:
        ConfigError: network, device or data cannot be used, the rate is no share, or no tensor is a fixed-point word.
    """
    if not 0 <= overflow_rate < 1:
        raise ConfigError(f"`overflow_rate` must be a share from 0 to below 1, got {overflow_rate}; 0.001 is 1 in 1000")
    graph, machine = network if isinstance(network, Graph) else load(network), load_device(device)
    require_usable(graph, machine)
    wired = graph.wired()
    examples = data if isinstance(data, Examples) else read_examples(
        data, wired.shapes[0][1:], tokens=not graph.reads_floats
    )  # fmt: skip
    counters = _counted(wired, examples, backend, progress)
    points = list(_points(wired, Policy(machine.precision), counters, overflow_rate))
    if not points:
        raise ConfigError(
            f"a device that is calibrated must have fixed-point words, got none for {', '.join(ROLES)} of "
            f"{machine.name!r}; choose one such as fixed8"
        )
    return tuple(points)


def _counted(wired: Wired, examples: Examples, backend: str, progress: Progress | None) -> CounterTable:
    """Return what registers count of every tensor in float32."""
    counters = CounterTable(lambda: StatisticsRegister(_LOWEST, _BINS))
    exact = Machine(wired, load_device("float32"), backend, counters)
    starts = range(0, len(examples), BATCH)
    for done, start in enumerate(starts, start=1):
        inputs = examples.inputs[start : start + BATCH]
        wired.all_results(exact.tape, exact.inputs([inputs]), exact.constants)
        if progress is not None:
            progress(done, len(starts))
    return counters


def _points(wired: Wired, policy: Policy, counters: CounterTable, rate: float) -> list[Point]:
    counted = {key: c.register for key, c in counters.items() if c.register.total}
    chosen: dict[str, int] = {}  # fraction bits of activations
    points: list[Point] = []
    for name, read in _written(wired):
        for role in ROLES:
            fmt, register = policy.stage(name, role).format, counted.get((name, role))
            if not isinstance(fmt, Fixed):
                continue
            if register is not None:
                bits = _point(register, fmt, rate)
            elif role == "activation" and read:
                bits, register = min(chosen.get(x, fmt.frac_bits) for x in read), StatisticsRegister(_LOWEST, _BINS)
            else:
                continue
            if role == "activation":
                chosen[name] = bits
            word = replace(fmt, frac_bits=bits)
            share = _beyond(register, word) / max(register.total, 1)
            points.append(Point(name, role, str(word), str(fmt), share, register.max_exponent))
    return points


def _written(wired: Wired) -> Iterator[tuple[str, list[str]]]:
    """Yield every tensor that has a format, and those that it is made from, moves left out."""
    writers = wired.writers()
    for name in wired.inputs:
        yield name, []
    for step in wired.steps:
        if not step.only_moves:
            yield step.name, [writers[name] for name in step.reads]


def _point(register: StatisticsRegister, fmt: Fixed, rate: float) -> int:
    """Return the largest number of fraction bits that leaves at most a share of the numbers outside."""
    counts, outside = _by_exponent(register), 0
    for top in sorted(counts, reverse=True):
        outside += counts[top]
        if outside > rate * register.total:
            # a number whose leading bit is `top` needs `top + 1` integer bits
            return fmt.width_bits - fmt.signed - 1 - top
    return fmt.frac_bits  # all are 0


def _by_exponent(register: StatisticsRegister) -> dict[int, int]:
    counts: dict[int, int] = {}
    for side in (register.positive, register.negative):
        for exponent, count in side.items():
            counts[exponent] = counts.get(exponent, 0) + count
    return counts


def _beyond(register: StatisticsRegister, fmt: Fixed) -> int:
    """Return how many numbers have their leading bit beyond a format."""
    integer_bits = fmt.width_bits - fmt.signed - fmt.frac_bits
    return sum(count for exponent, count in _by_exponent(register).items() if exponent >= integer_bits)


def write_calibrated(path: str | Path, device: str | Path, points: Sequence[Point], source: str) -> Path:
    """Write a device file with the points: the text of the device's file, then a table for each layer.

    Args:
        path: the new file; its name is the device's.
        device: name or path of the device that was calibrated.
        points: what `calibrate` returned.
        source: what they follow from, one sentence.

    Raises:
        ConfigError: the path is no name of a device, or the file cannot be written.
    """
    file = Path(path)
    if file.suffix != ".toml" or not re.fullmatch(FILE_NAME, file.stem):
        raise ConfigError(
            f"a calibrated device must be written to a .toml file of letters, digits, - and _, got {str(path)!r}; "
            "choose another name"
        )
    text = find_content("devices", device).read_text(encoding="utf-8")
    text = re.sub(r"^name *= *.*$", f'name = "{file.stem}"', text, count=1, flags=re.MULTILINE)
    layers: dict[str, list[Point]] = {}
    for point in points:
        layers.setdefault(point.layer, []).append(point)
    tables: list[str] = []
    for layer, own in layers.items():
        formats = [f'{point.role} = {{ format = "{point.format}" }}' for point in own]
        tables.append("\n".join(["[[precision.layers]]", f'match = "{layer}"', *formats]))
    whole = "\n\n".join([text.rstrip(), f"# {source}", *tables]) + "\n"
    try:
        replace_file(file, lambda out: out.write(whole.encode()))
    except OSError as error:
        raise ConfigError(f"{file} must be a file that can be written, got {error.strerror}; choose another") from None
    load_device(file)
    return file
