"""Format, rounding, overflow rule and multiply-accumulate unit of each tensor, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emu.report.comparison.runs import Compared
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section
from emu.report.run_data import Tensor, TensorFormat
from emu.report.words import NO_NUMBER, role_order

#: Parts of a datapath, in the order of `parts_of`.
_PARTS = ("format", "rounding", "overflow rule", "unit")
#: A tensor's datapath in each run; None where a run has no such tensor.
Datapaths = tuple[tuple[str, ...] | None, ...]


def datapaths_of(runs: Sequence[Compared]) -> dict[Tensor, Datapaths]:
    """Return tensor -> its datapath in each run, in the network order of the first run that has it."""
    order: dict[Tensor, None] = {}
    for run in runs:
        # A dict keeps the place of a key that it has: later runs add only tensors that are new.
        order.update(dict.fromkeys(run.evidence.run.in_order(run.evidence.run.formats)))
    formats = [run.evidence.run.formats for run in runs]
    return {tensor: tuple(parts_of(own[tensor]) if tensor in own else None for own in formats) for tensor in order}


def parts_of(tensor: TensorFormat) -> tuple[str, ...]:
    """Return the parts of a datapath as short texts; empty for a part that it does not have."""
    return tensor.format, tensor.rounding or "", tensor.overflow or "", unit_of(tensor.mac)


def unit_of(mac: Mapping[str, Any] | str | None) -> str:
    """Return products, accumulator, order and rounding of a unit as a short text; empty without one.

    Examples:
        >>> unit_of({"product": "exact", "accumulator": "fp32", "order": "pairwise", "rounding": "nearest_even"})
        'accumulator fp32, pairwise, nearest_even'
    """
    if not mac:
        return ""
    if isinstance(mac, str):
        return f"accumulator {mac}"
    product, accumulator = (str(mac.get(name) or "exact") for name in ("product", "accumulator"))
    texts = [f"products {product}"] if product != "exact" else []
    texts.append(f"accumulator {accumulator}")
    # Without rounding, order and mode of the adds do not matter.
    if (product, accumulator) != ("exact", "exact"):
        texts += [str(mac[name]) for name in ("order", "rounding") if mac.get(name)]
    return ", ".join(texts)


def datapaths_section(runs: Sequence[Compared]) -> Section:
    """Return the tensors whose datapaths differ, grouped, and all tensors folded away."""
    title, names = "Formats, rounding, accumulators", [run.name for run in runs]
    datapaths = datapaths_of(runs)
    if not datapaths:
        return Section("formats", title, paragraph("No run.json names formats.", class_="missing"))
    different = {tensor: paths for tensor, paths in datapaths.items() if len(set(paths)) > 1}
    parts = [paragraph(_sentence(different, len(datapaths)), class_="summary")]
    if different:
        head = ["role", "layers", *names]
        caption = "Tensors whose datapath differs; what differs from the first run is marked"
        parts.append(table(caption, head, _grouped(different, datapaths), numeric_from=None, stacks=True))
    rows = [[f"{layer} {role}", *_cells(paths)] for (layer, role), paths in datapaths.items()]
    whole = table("Datapath of every tensor", ["tensor", *names], rows, numeric_from=None)
    return Section("formats", title, join([*parts, disclosure(f"All {len(rows)} tensors as a table", whole)]))


def _sentence(different: Mapping[Tensor, Datapaths], count: int) -> str:
    if not different:
        return f"All {count} tensors have the same format, rounding, overflow rule and unit in all runs."
    kinds = [part for i, part in enumerate(_PARTS) if any(_part_differs(paths, i) for paths in different.values())]
    # A tensor that one run lacks differs, although no part of it does.
    only = sum(1 for paths in different.values() if None in paths)
    also = f" {only} of them are not in all runs." if only else ""
    what = f" They differ in {', '.join(kinds)}." if kinds else ""
    return f"{len(different)} of {count} tensors differ.{what}{also}"


def _part_differs(paths: Datapaths, part: int) -> bool:
    return len({path[part] for path in paths if path is not None}) > 1


def _grouped(different: Mapping[Tensor, Datapaths], all_of: Mapping[Tensor, Datapaths]) -> list[list[str]]:
    """Return a row for each role and set of equal datapaths, with the layers that have them."""
    groups: dict[tuple[str, Datapaths], list[str]] = {}
    for (layer, role), paths in different.items():
        groups.setdefault((role, paths), []).append(layer)
    ordered = sorted(groups.items(), key=lambda group: role_order(group[0][0]))
    # Of all tensors, equal ones included: only then is "every layer that has one" true.
    counts = {role: sum(own == role for _, own in all_of) for role, _ in groups}
    return [
        [role, "every layer that has one" if len(layers) == counts[role] else ", ".join(layers), *_cells(paths)]
        for (role, paths), layers in ordered
    ]


def _cells(paths: Datapaths) -> list[Html | str]:
    # Of the first run that has the tensor: it may not be the first run.
    first = next(path for path in paths if path is not None)
    return [NO_NUMBER if path is None else _cell(path, first) for path in paths]


def _cell(path: tuple[str, ...], first: tuple[str, ...]) -> Html:
    texts = (element("mark", own) if own != other else own for own, other in zip(path, first, strict=True) if own)
    return join(texts, "; ")
