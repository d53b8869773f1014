"""Networks in files, on the command line: what is in one, and what a device does to it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.text import Text

from emu._files import replace_file
from emu.cli.options import NetworkOptions
from emu.cli.output import Column, Facts, Output, Table
from emu.errors import ConfigError
from emu.interop.calibration import Point, calibrate, write_calibrated
from emu.interop.evaluation import GraphEvaluation, StepError, evaluate_graph
from emu.interop.graph import Graph
from emu.interop.loading import load
from emu.jobs.bars import Part, Screen, bar, clock, fitted, left
from emu.nn.wired import Constant, Step
from emu.report.words import percent

#: Share of weights beyond their format from which on a reader is told why.
_MANY = 0.01


class _Bar:
    """A line with how much is done, and the time left; nothing if there is no terminal."""

    def __init__(self, title: str) -> None:
        self._title, self._began = title, time.monotonic()
        self._done, self._all = 0, 1
        self._screen = Screen(lambda width: [self._line(width)])
        self._screen.start()

    def __call__(self, done: int, work: int) -> None:
        self._done, self._all = done, work

    def _line(self, width: int) -> Text:
        passed_s = time.monotonic() - self._began
        left_s = passed_s / self._done * (self._all - self._done) if self._done else None
        done = Part(bar(self._done / self._all), 3, style="cyan")
        return fitted([Part(self._title), done, Part(clock(passed_s), 2, style="dim"), Part(left(left_s), 1)], width)

    def finish(self) -> None:
        """Stop the bar, and leave it on the screen."""
        self._screen.stop()


def evaluate_network(
    path: Path, device: str | None, backend: str, options: NetworkOptions, of_models: str | None
) -> Output:
    """Return what a device does to a network, layer by layer, worst first; or how it compares with recorded tensors.

    Args:
        path: the network.
        device: the device.
        backend: backend that computes.
        options: examples, layers that are tried alone, calibration, picture, recorded tensors.
        of_models: an option that models have and networks have not, if it was given.

    Raises:
        ConfigError: device or data are missing, or cannot be used.
    """
    if of_models is not None:
        raise ConfigError(
            f"a network's file must be evaluated without --model and --set, got {of_models!r}: the file is "
            "the network; give formats in a device file"
        )
    data = options.get("data")
    if device is None or data is None:
        missing = "--device" if device is None else "--data"
        raise ConfigError(
            f"a network's file must be evaluated with --device and --data, got no {missing}; for example: emu evaluate "
            f"{path} --device fixed16 --data test.npz"
        )
    _require_own(options)
    graph = load(path)
    calibrated = options.get("calibrate")
    if calibrated is None:
        return _evaluated(graph, device, data, backend, options)
    with TemporaryDirectory(prefix="emu-calibrated-") as scratch:
        # The name is that of the file to come, because messages and reports show it.
        path = Path(scratch) / calibrated.name  # until the evaluation has ended well
        points = _calibrated(graph, device, data, options, backend, path)
        output = _evaluated(graph, str(path), data, backend, options)
        content = path.read_bytes()
    # Only here: if the evaluation fails, an older file stays as it was.
    _written(calibrated, content, "--calibrate")
    parts = [_points(points), Text(f"written to {calibrated}\n"), *output.parts]
    return Output(parts, exit_code=output.exit_code)


def _evaluated(graph: Graph, device: str, data: Path, backend: str, options: NetworkOptions) -> Output:
    """Return the table of layers, or that of recorded tensors."""
    progress = _Bar(f"{graph.path.name} on {Path(device).stem}")
    try:
        against = options.get("against")
        if against is not None:
            from emu.cli.against import compared

            return compared(graph, device, data, against, backend, progress)
        only = options.get("only") or ["*"]
        # No list means all layers, an empty list none.
        names = [] if only == ["none"] else only
        result = evaluate_graph(graph, device, data, only=names, backend=backend, progress=progress)
    finally:
        progress.finish()
    return Output([*_summary(result), Text(), _steps(result), *_remarks(result), *_drawn(result, options)])


def _written(path: Path, content: bytes, option: str) -> None:
    """Write a file that an option names."""
    try:
        replace_file(path, lambda out: out.write(content))
    except OSError as error:
        raise ConfigError(
            f"{option} must be a file that can be written, got {error.strerror} for {path}; choose another"
        ) from None


def _require_own(options: NetworkOptions) -> None:
    """Raise ConfigError if options are given that only others make useful, or that exclude each other."""
    calibrated = options.get("calibrate")
    # Asked before the work, not when its result is written.
    if calibrated is not None and not calibrated.absolute().parent.is_dir():
        raise ConfigError(
            f"--calibrate must be a file in a folder that exists, got {calibrated}; make the folder first"
        )
    if calibrated is None:
        given = [name for name in ("calibration_data", "overflow_rate") if options.get(name) is not None]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            raise ConfigError(f"{option} must be given with --calibrate, got it alone; add --calibrate OUT.toml")
    if options.get("against") is not None:
        given = [name for name in ("only", "picture") if options.get(name)]
        if given:
            raise ConfigError(
                f"--{given[0]} must be left out with --against, which compares tensors, got both; drop one"
            )
    picture = options.get("picture")
    if picture is not None and (picture.suffix != ".svg" or not picture.absolute().parent.is_dir()):
        raise ConfigError(
            f"--picture must be an .svg file in a folder that exists, got {str(picture)!r}; name one such as layers.svg"
        )


def _drawn(result: GraphEvaluation, options: NetworkOptions) -> list[Any]:
    """Draw the layers, if asked; return where."""
    picture = options.get("picture")
    if picture is None:
        return []
    from emu.report.pictures.layers import layers_picture

    _written(picture, layers_picture(result).encode(), "--picture")
    return [f"picture  {picture}", Facts({}, {"picture": str(picture)})]


def _calibrated(
    graph: Graph, device: str, data: Path, how: NetworkOptions, backend: str, path: Path
) -> tuple[Point, ...]:  # fmt: skip
    """Choose points, and write the device file."""
    examples, rate = how.get("calibration_data") or data, how.get("overflow_rate") or 0.0
    progress = _Bar(f"calibrating {graph.path.name}")
    try:
        points = calibrate(graph, device, examples, overflow_rate=rate, backend=backend, progress=progress)
    finally:
        progress.finish()
    source = f"{examples.name} through {graph.path.name} in float32, overflow rate {rate:g}."
    write_calibrated(path, device, points, source)
    return points


def _points(points: Sequence[Point]) -> Table:
    columns = (
        Column("layer", "layer"),
        Column("role", "role"),
        Column("format", "format"),
        Column("was", "device_format"),
        Column("scale", "scale", "{:.4g}".format, is_number=True),
        Column("zero", "zero", is_number=True),
        Column("largest", "largest_exponent", lambda top: f"< 2**{top + 1}", "0"),
        Column("beyond", "overflow_share", percent, is_number=True),
    )
    rows = [
        (
            p.layer, p.role, p.format, p.before, p.points and p.points.scale, p.points and p.points.zero,
            p.largest_exponent, p.overflow,
        )
        for p in points
    ]  # fmt: skip
    # Only devices with integer elements have scales and zero points; of others, both columns are left out.
    if not any(p.points for p in points):
        columns, rows = (*columns[:4], *columns[6:]), [(*row[:4], *row[6:]) for row in rows]
    return Table(columns, rows, "points", {"keys": 2})


def _summary(result: GraphEvaluation) -> list[Any]:
    values = {
        "device": result.device,
        "examples": result.examples,
        "accuracy": result.accuracy,
        "float_accuracy": result.float_accuracy,
        "changed_answers": result.changed,
        "answers": result.answers,
        "largest_difference": result.largest_difference,
    }
    changed = f"{result.changed} of {result.answers} answers differ from float32's"
    if not result.answers:
        changed = "the output names no classes, so no answers are compared"
    if result.accuracy is None or result.float_accuracy is None:
        # A network without classes has no answers, so labels would not help.
        first = f"[bold]{changed}[/]" + ("   no labels, so no accuracy" if result.answers else "")
    else:
        points = 100 * (result.accuracy - result.float_accuracy)
        first = (
            f"accuracy [bold]{result.accuracy:.2%}[/] on {result.device}   {result.float_accuracy:.2%} in float32 "
            f"({points:+.2f} points)   {changed}"
        )
    second = f"{result.examples} examples   largest difference of outputs {result.largest_difference:.3g}"
    return [Text.from_markup(first), Text(second), Facts({}, values)]


def _decibels(value: float) -> str:
    return "equal" if value == math.inf else "-inf" if value == -math.inf else f"{value:.1f} dB"


def _steps(result: GraphEvaluation) -> Table:
    columns = [
        Column("layer", "layer"),
        Column("operator", "operator"),
        Column("SNR", "signal_to_noise_db", _decibels, is_number=True),
        Column("alone", "changed_alone", is_number=True),
        Column("accuracy", "accuracy_alone", "{:.2%}".format, is_number=True),
        Column("overflow", "overflow_share", percent, is_number=True),
        Column("underflow", "underflow_share", percent, is_number=True),
        Column("weights", "weights_overflow_share", percent, is_number=True),
    ]

    def row(step: StepError) -> tuple[Any, ...]:
        return (
            # A share of 0 of the weights becomes None, an empty cell.
            step.name, step.kind, step.signal_to_noise_db, step.alone_changed, step.alone_accuracy,
            step.overflow, step.underflow, step.weights_overflow or None,
        )  # fmt: skip

    # The last column and the last cell of each row go together.
    if not any(step.weights_overflow for step in result.steps):
        del columns[-1]
    return Table(columns, [row(step)[: len(columns)] for step in result.steps], "layers", {"keys": 2})


def _remarks(result: GraphEvaluation) -> list[Any]:
    """Return what a reader should know: what each column says, and which layers clip their weights."""
    says = (
        "SNR, overflow, underflow: the whole network on the device; alone, accuracy: answers that change, and the "
        "accuracy, if this layer is on the device and all others are in float32"
    )
    if any(step.weights_overflow for step in result.steps):
        says += "; weights: share beyond their format"
    lines = [says]
    if any(step.has_elements for step in result.steps):
        lines.append(
            "layers that compute with integers of the graph have no alone and no accuracy, because the device has no "
            "format for them; their overflow counts what saturates, also what a relu that is part of the quantiser cuts"
        )
    clipped = [step for step in result.steps if step.weights_overflow >= _MANY]
    if clipped:
        worst = max(clipped, key=lambda step: step.weights_overflow)
        lines.append(
            f"{percent(worst.weights_overflow)} of {worst.name}'s weights lie beyond the device's format: exporters "
            "fold normalisation into weights, which makes them larger"
        )
    return [Text(line) for line in lines]


def list_network(path: Path) -> Output:
    """Return what is in a network: its layers, with the shapes of their results, parameters, and what was folded."""
    graph = load(path)
    wired = graph.wired()
    shapes = graph.shapes()
    rows = [
        (
            step.name,
            step.type_name,
            # The first axis is that of the examples.
            shapes[step.name][1:],
            _parameters(step) + _elements(step) or None,
            _largest(step),
        )
        for step in wired.steps
        # Steps that only move values, such as a transpose, have no arithmetic to show.
        if not step.only_moves
    ]
    columns = (
        Column("layer", "layer"),
        Column("operator", "operator"),
        Column("output", "output_shape"),
        Column("parameters", "parameters", is_number=True),
        Column("largest", "largest_parameter", "{:.3g}".format, is_number=True),
    )
    # Integers of a quantised graph are constants and not parameters: they are counted apart.
    parameters, elements = (sum(map(count, wired.steps)) for count in (_parameters, _elements))
    about = {
        "inputs": ", ".join(graph.described_inputs()),
        "outputs": ", ".join(graph.outputs),
        "parameters": f"{parameters} and {elements} integers, which are not trained" if elements else str(parameters),
        **{name: str(number) for name, number in graph.facts.items()},
        "sha256": graph.sha256,
        **_folded(graph),
    }
    data = {"parameters": parameters, "integers": elements, **graph.facts, "sha256": graph.sha256}
    heading = Text(f"{path.name}: {len(rows)} layers that compute\n")
    return Output([heading, Table(columns, rows, "layers"), Text(), Facts(about, data)])


def _parameters(step: Step) -> int:
    return sum(step.values[p.part].size for p in step.held)


def _elements(step: Step) -> int:
    """Return how many integers a step has as constants."""
    constants = [operand for operand in step.operands if isinstance(operand, Constant)]
    return sum(operand.array.size for operand in constants) if step.has_elements else 0


def _largest(step: Any) -> float | None:
    sizes = [float(abs(step.values[p.part]).max()) for p in step.held if step.values[p.part].size]
    return max(sizes, default=None)


def _folded(graph: Graph) -> dict[str, str]:
    """Return a note if convolutions stand without normalisation: exporters fold it."""
    kinds = {step.type_name for step in graph.wired().steps}
    if "Conv" not in kinds or "BatchNormalization" in kinds:
        return {}
    return {
        "note": "no BatchNormalization: PyTorch's exporters fold it into the weights before it, which are then larger "
        "than those that were trained"
    }
