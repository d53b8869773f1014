"""A network beside results that were recorded elsewhere, on the command line."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from rich.text import Text

from emu.cli.output import Column, Facts, Output, Table
from emu.interop.against import TOLERANCE, Comparison, Difference, compare_with, read_recorded
from emu.interop.evaluation import Progress
from emu.interop.examples import examples_for
from emu.interop.graph import Graph
from emu.report.words import percent

#: Recorded arrays that are named if they are no tensors of the network.
_MOST_NAMED = 4


def compared(graph: Graph, device: str, data: Path, dump: Path, backend: str, progress: Progress) -> Output:
    """Return how a network's tensors compare with recorded ones, in the order in which they are computed.

    Args:
        graph: the network.
        device: name or path of the device.
        data: examples.
        dump: recorded arrays, `.npz`.
        backend: backend that computes.
        progress: receives how far it is.

    Raises:
        ConfigError: data or dump cannot be used.
    """
    recorded = read_recorded(dump)
    examples = examples_for(graph, data)
    result = compare_with(graph, device, examples.inputs, recorded, backend=backend, progress=progress)
    first = result.first
    values = {
        "examples": result.examples,
        "agrees": first is None,
        "first_layer": None if first is None else first.layer,
        "left_out": list(result.left_out),
    }
    lines = [*_verdict(result), Text(), _table(result), *map(Text, _remarks(result))]
    return Output([*lines, Facts({}, values)], exit_code=0 if first is None else 1)


def _verdict(result: Comparison) -> list[Text]:
    first = result.first
    what = f"{len(result.rows)} tensors of {result.examples} examples"
    if first is None:
        return [Text.from_markup(f"[bold]equal[/]: {what}")]
    how = f"{first.different} of {first.elements} {'elements' if first.is_integer else 'numbers'}"
    # no markup: names of layers may have brackets
    said = f" is the first layer that differs: {how}, by at most {first.largest:g}"
    lines = [Text.assemble((first.layer, "bold"), said)]
    # Layers that differ from what was recorded although they read what was recorded: there the difference is made.
    # Others only pass it on.
    begins = [row for row in result.rows if row.alone]
    if begins and all(row.causes for row in begins):
        # Requantisers that explain every one of these layers, in the order of the first.
        shared = reduce(lambda a, b: [cause for cause in a if cause in b], (list(row.causes) for row in begins))
        if shared:
            lines.append(
                Text(f"every recorded element is that of the requantiser {' or '.join(shared)}: {_remedy(shared)}")
            )
    elif first.alone == 0:
        lines.append(Text("of the inputs that were recorded it is equal: the difference comes from an earlier layer"))
    return lines


def _remedy(kinds: list[str]) -> str:
    return f'write requantiser = "{kinds[0]}" in [precision] of the device'


def _table(result: Comparison) -> Table:
    columns = (
        Column("layer", "layer"),
        Column("tensor", "tensor"),
        Column("operator", "operator"),
        Column("elements", "elements", is_number=True),
        Column("differ", "different", is_number=True),
        Column("share", "different_share", percent, is_number=True),
        Column("by", "largest_difference", "{:.3g}".format, is_number=True),
        Column("alone", "different_alone", is_number=True),
        Column("requantiser", "causes", lambda causes: ", ".join(causes)),
    )

    def cells(row: Difference) -> tuple[object, ...]:
        share = row.different / max(row.elements, 1)
        return (
            row.layer, row.tensor, row.operator, row.elements, row.different, share, row.largest, row.alone,
            list(row.causes),
        )  # fmt: skip

    # A column that would be empty is left out, of heads and cells alike.
    if not any(row.causes for row in result.rows):
        columns = columns[:-1]
    return Table(columns, [cells(row)[: len(columns)] for row in result.rows], "tensors", {"keys": 1})


def _remarks(result: Comparison) -> list[str]:
    lines = [
        "differ, by: the whole network on the device; alone: the layer computed from what was recorded of its inputs. "
        f"Integers must be equal, floats to {TOLERANCE:g} of the largest"
    ]
    if result.left_out:
        shown = ", ".join(result.left_out[:_MOST_NAMED])
        more = len(result.left_out) - _MOST_NAMED
        lines.append(
            f"not compared, because no tensor has the name: {shown}{f' and {more} others' if more > 0 else ''}"
        )
    return lines
