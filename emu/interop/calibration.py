"""Binary points, or scales and zero points, for the tensors of a network, from float32 results that are seen once.

    examples ──► float32 pass ──┬─► register of each tensor: counts by leading bit ──► the point of its word
                                └─► smallest and largest number that a product reads ──► scale and zero point

A device whose tensors are fixed-point words gets points. The point leaves as many fraction bits as it can while at most
a share of the numbers, `overflow_rate`, lies outside. What only selects numbers, as relu does, gets the point of what
it reads: it need not round. A device whose products read integers, as int8-npu, gets a scale and a zero point for
what each layer reads, by the rule of its format; weights keep a scale for each channel by their own numbers. With a
rate both ends of a tensor lose half of that share.

Widths, units and modes are those of a device. The result is a device file.

Sources: US 11,593,620 (points from the counts of leading bits); docs/dynamic-fixed-point.md, "From counts to a point";
onnxruntime, "Quantize ONNX models", calibration by the smallest and largest number, and by percentiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu._config import FILE_NAME
from emu._files import replace_file
from emu._paths import find_content
from emu.backends.arrays import on_host
from emu.datapath import Cast, Points, StatisticsRegister
from emu.errors import ConfigError
from emu.formats import Fixed, Tiling
from emu.hardware import Device, load_device
from emu.interop.evaluation import BATCH, Progress, require_usable
from emu.interop.examples import Examples, examples_for
from emu.interop.graph import Graph, Machine
from emu.interop.loading import load
from emu.nn.wired import Wired
from emu.precision import CounterTable, Policy

#: Positions of the registers. Words of devices lie among them; larger numbers are counted together, as `above`.
_LOWEST, _BINS = -64, 128
#: Cells between the smallest and the largest number, in which these are counted: as many as onnxruntime's percentiles.
_CELLS = 2048
#: Primitives whose first factor is an input of the layer, and the second its weights.
_WEIGHED = ("linear", "conv2d")
#: What the comment above calibrated tables begins with.
_MARK = "Points from "
#: Roles whose points are chosen.
ROLES = ("activation", "weight", "bias")


@dataclass(frozen=True)
class Point:
    """The word of one tensor, or the integers of what a product reads.

    Attributes:
        layer: layer that writes it, or the network's input; of integers the layer that reads them.
        role: its role.
        format: its format.
        before: the format that the device has.
        overflow: share of the numbers that were seen that lie outside. Infinities and NaN do, and negative numbers if
            the word is unsigned. Of -2**n below a word of sign and magnitude that ends there, one is counted.
        largest_exponent: floor(log2) of the largest magnitude that was seen; None if all were 0.
        points: scale and zero point of integers; None of a word.
        weight: format of the other factor of their product; "" of a word.
    """

    layer: str
    role: str
    format: str
    before: str
    overflow: float
    largest_exponent: int | None
    points: Points | None = None
    weight: str = ""


def calibrate(
    network: str | Path | Graph,
    device: str | Path | Device,
    data: str | Path | Examples,
    *,
    overflow_rate: float = 0.0,
    backend: str = "auto",
    progress: Progress | None = None,
) -> tuple[Point, ...]:
    """Return a point for every fixed-point word of a device, and scale and zero point for integers that products read.

    Args:
        network: the file, or what `emu.onnx.load` returns.
        device: widths of the words: a name, a path, or what `emu.device` returns.
        data: examples, or a file of them; labels are not read.
        overflow_rate: share of the numbers of a tensor that may lie outside its format.
        backend: backend that computes.
        progress: receives how far it is.

    Raises:
        ConfigError: network, device or data cannot be used, the rate is no share, or the device has neither
            fixed-point words nor products of integers.
        ShapeError: inputs have not the shape that the network reads.
        FormatError: elements do not fit the 8 bits of the network's input.
    """
    if not isinstance(overflow_rate, Real) or not 0 <= overflow_rate < 1:
        raise ConfigError(
            f"`overflow_rate` must be a share from 0 to below 1, got {overflow_rate!r}; 0.001 is 1 in 1000"
        )
    graph, machine = network if isinstance(network, Graph) else load(network), load_device(device)
    require_usable(graph, machine)
    wired = graph.wired()
    examples = examples_for(graph, data)
    policy = Policy(machine.precision)
    ranges = _ProductRanges(wired, policy, overflow_rate)
    counters = ranges.run(examples, backend, progress)
    points = [*_points(wired, policy, counters, overflow_rate), *ranges.points()]
    if not points:
        if any(step.has_elements for step in wired.steps):
            raise ConfigError(
                f"a network that is calibrated must have layers of floats that {machine.name} writes in words or reads "
                f"as integers, got none in {graph.path}, which is quantised already; calibrate the float network"
            )
        raise ConfigError(
            f"a device that is calibrated must have fixed-point words or products of integers, got none for "
            f"{', '.join(ROLES)} of {machine.name!r}; choose one such as fixed8 or int8-npu"
        )
    return tuple(points)


class _Range:
    """The numbers that a product reads: the smallest, the largest, and a histogram between them."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.total = self.nonfinite = 0
        self.counts: NDArray[np.int64] | None = None

    def widen(self, numbers: NDArray[Any]) -> None:
        """Take in more numbers; NaN and infinities are counted, and are no ends."""
        finite = numbers[np.isfinite(numbers)]
        self.total += numbers.size
        self.nonfinite += numbers.size - finite.size
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def count(self, numbers: NDArray[Any]) -> None:
        """Count numbers between the ends."""
        if self.low >= self.high:  # none was finite, or all are equal: `ends` needs no counts
            return
        # in float32, some edges of cells are equal in a narrow range of large numbers, which NumPy refuses
        edges = np.linspace(self.low, self.high, _CELLS + 1, dtype=np.float32)
        exact = numbers if (edges[1:] > edges[:-1]).all() else numbers.astype(np.float64)
        more, _ = np.histogram(exact, _CELLS, (self.low, self.high))
        self.counts = more if self.counts is None else self.counts + more

    def ends(self, rate: float) -> tuple[float, float]:
        """Return ends that leave at most a share of the numbers outside, half of it at each."""
        if self.low > self.high:
            return 0.0, 0.0
        if self.counts is None or self.low == self.high:
            return self.low, self.high
        below, edges = np.cumsum(self.counts), np.linspace(self.low, self.high, _CELLS + 1)
        most = rate / 2 * below[-1]
        # the first `first` cells hold at most half the share; `last` is the first cell after which at most half is left
        first, last = int((below <= most).sum()), int((below < below[-1] - most).sum())
        return float(edges[min(first, _CELLS - 1)]), float(edges[last + 1])


class _ProductRanges:
    """What a pass in float32 has shown of the numbers that products of integers read."""

    def __init__(self, wired: Wired, policy: Policy, rate: float) -> None:
        self._wired, self._rate = wired, rate
        self._casts = dict(_integer_products(wired, policy))
        self._ranges = {name: _Range() for name in self._casts}

    def run(self, examples: Examples, backend: str, progress: Progress | None) -> CounterTable:
        """Compute the examples, once more if a share may lie outside; return what registers count of every tensor."""
        # registers by tensor, filled in the first pass alone
        counters = CounterTable(lambda: StatisticsRegister(_LOWEST, _BINS))
        takes: list[tuple[CounterTable | None, Callable[[_Range, NDArray[Any]], None]]] = [(counters, _Range.widen)]
        # a histogram needs both ends, which are known only after all examples: a second pass
        if self._casts and self._rate:
            takes.append((None, _Range.count))
        starts = range(0, len(examples), BATCH)
        for turn, (counted, take) in enumerate(takes):
            # a machine of its own, so that the second pass counts nothing twice
            exact = Machine(self._wired, load_device("float32"), backend, counted)
            for done, start in enumerate(starts, start=1):
                inputs = examples.inputs[start : start + BATCH]
                results = self._wired.all_results(exact.tape, exact.inputs([inputs]), exact.constants)
                for step in self._wired.steps:
                    if step.name in self._ranges:
                        take(self._ranges[step.name], np.asarray(on_host(results[step.reads[0]].value.array)))
                if progress is not None:
                    progress(turn * len(starts) + done, len(takes) * len(starts))
        return counters

    def points(self) -> Iterator[Point]:
        """Yield scale and zero point of what each product reads."""
        for name, (activation, weight) in self._casts.items():
            numbers = self._ranges[name]
            low, high = numbers.ends(self._rate)
            # the format's own rule of scales, given a tensor of two numbers
            q: Any = engine.quantize(np.array([low, high], np.float32), activation.format, backend="reference")
            # one scale for the tensor: the only one of `scales`
            points = Points(float(q.scales[0].item()), None if q.zero is None else int(q.zero.item()))
            top = max(abs(numbers.low), abs(numbers.high)) if numbers.low <= numbers.high else 0.0
            exponent = int(np.floor(np.log2(top))) if top else None
            share = (_outside(numbers, low, high) + numbers.nonfinite) / max(numbers.total, 1)
            fmt = str(activation.format)
            yield Point(name, "activation", fmt, fmt, share, exponent, points, str(weight.format))


def _outside(numbers: _Range, low: float, high: float) -> int:
    """Return how many finite numbers lie outside, by the middles of the cells that they were counted in."""
    # without a second pass nothing lies outside: both ends were seen
    if numbers.counts is None:
        return 0
    edges = np.linspace(numbers.low, numbers.high, _CELLS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    return int(numbers.counts[(middles < low) | (middles > high)].sum())


def _integer_products(wired: Wired, policy: Policy) -> Iterator[tuple[str, tuple[Cast, Cast]]]:
    """Yield the layers whose products read integers with one scale for the tensor, and how."""
    for step in wired.steps:
        casts = policy.casts(step.name, "activation") if step.primitive in _WEIGHED else None
        if casts is None:
            continue
        fmt = casts[0].format
        # one level of scales, one tile: one scale for the whole tensor
        if isinstance(fmt.element, Fixed) and len(fmt.levels) == 1 and fmt.tiling == Tiling(None, None):
            yield step.name, casts


def _points(wired: Wired, policy: Policy, counters: CounterTable, rate: float) -> list[Point]:
    # a register without results has nothing to say
    counted = {key: c.register for key, c in counters.items() if c.register.total}
    chosen: dict[str, int] = {}  # fraction bits of activations
    points: list[Point] = []
    # in the order of steps, so that the points of what a step reads are chosen before its own
    for name, read in _written(wired):
        for role in ROLES:
            fmt, register = policy.stage(name, role).format, counted.get((name, role))
            if not isinstance(fmt, Fixed):
                continue
            if register is not None:
                bits = _point(register, fmt, rate)
            # it only selects numbers: the least fraction bits of what it reads hold all of them. Nothing new is
            # counted, and the empty register makes its share 0
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
        if not step.only_moves and not step.has_elements:  # the device has no format for elements
            yield step.name, [writers[name] for name in step.reads]


def _point(register: StatisticsRegister, fmt: Fixed, rate: float) -> int:
    """Return the largest number of fraction bits that leaves at most a share of the numbers outside."""
    counts, outside = _by_exponent(register, fmt), _outside_everywhere(register, fmt)
    # from the largest exponent down: numbers of all larger ones lie outside
    for top in sorted(counts, reverse=True):
        outside += counts[top]
        if outside > rate * register.total:
            # a number whose leading bit is `top` needs `top + 1` integer bits
            return fmt.width_bits - fmt.signed - 1 - top
    return fmt.frac_bits  # all are 0


def _outside_everywhere(register: StatisticsRegister, fmt: Fixed) -> int:
    """Return how many numbers a format holds at no point: infinities, NaN, and negative ones if it is unsigned."""
    return register.nonfinite + (0 if fmt.signed else sum(register.negative.values()))


def _by_exponent(register: StatisticsRegister, fmt: Fixed) -> dict[int, int]:
    """Return how many numbers need which leading bit, of those that the format holds at some point."""
    counts: dict[int, int] = {}
    # a signed word holds a number or not by its magnitude alone
    for side in (register.positive, register.negative) if fmt.signed else (register.positive,):
        for exponent, count in side.items():
            counts[exponent] = counts.get(exponent, 0) + count
    # how large each number above the positions is was not counted: all are taken to be as large as the largest
    if register.above:
        assert register.max_exponent is not None
        counts[register.max_exponent] = counts.get(register.max_exponent, 0) + register.above
    # The register counts -2**n at n - 1, where two's complement holds it, and a word of sign and magnitude does not. If
    # nothing else has the exponent n, at least one of the numbers is -2**n; how many are was not counted.
    top = register.max_exponent
    if fmt.sign_magnitude and top is not None and top not in counts and top - 1 in counts:
        counts[top], counts[top - 1] = 1, counts[top - 1] - 1
    return counts


def _beyond(register: StatisticsRegister, fmt: Fixed) -> int:
    """Return how many numbers lie outside a format."""
    # a number with leading bit e is at least 2**e: with n integer bits, all with e >= n lie outside
    integer_bits = fmt.width_bits - fmt.signed - fmt.frac_bits
    larger = sum(count for exponent, count in _by_exponent(register, fmt).items() if exponent >= integer_bits)
    return larger + _outside_everywhere(register, fmt)


def _line(point: Point) -> str:
    """Return the line of a layer's table that gives a tensor its format."""
    if point.points is None:
        return f'{point.role} = {{ format = "{point.format}" }}'
    zero = "" if point.points.zero is None else f", zero = {point.points.zero}"
    activation = f'{{ format = "{point.format}", scale = {point.points.scale!r}{zero} }}'
    return f'operands = {{ forward = {{ activation = {activation}, weight = "{point.weight}" }} }}'


def write_calibrated(path: str | Path, device: str | Path, points: Sequence[Point], source: str) -> Path:
    """Write a device file with the points: the text of the device's file, then a table for each layer.

    Args:
        path: the new file; its name is the device's.
        device: name or path of the device that was calibrated.
        points: what `calibrate` returned.
        source: what they follow from: the rest of a sentence that begins with "Points from".

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
    # only the first `name`: tables further down have names of their own
    text = re.sub(r"^name *= *.*$", f'name = "{file.stem}"', text, count=1, flags=re.MULTILINE)
    text = text.partition(f"\n# {_MARK}")[0]  # those of an earlier calibration, which these replace
    layers: dict[str, list[Point]] = {}
    for point in points:
        layers.setdefault(point.layer, []).append(point)
    tables: list[str] = []
    for layer, own in layers.items():
        formats = [_line(point) for point in own]
        tables.append("\n".join(["[[precision.layers]]", f'match = "{layer}"', *formats]))
    whole = "\n\n".join([text.rstrip(), f"# {_MARK}{source}", *tables]) + "\n"
    try:
        # atomically: a reader sees the old file or the whole new one
        replace_file(file, lambda out: out.write(whole.encode()))
    except OSError as error:
        raise ConfigError(f"{file} must be a file that can be written, got {error.strerror}; choose another") from None
    # read at once, so that a table that does not fit is reported here
    load_device(file)
    return file
