"""How large the values of each tensor are: the leading-bit registers of a run, or of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from emu.datapath import StatisticsRegister
from emu.datapath.registers import SCALARS
from emu.nn.network import LOSS_LAYER
from emu.precision import CounterTable
from emu.training.folders.run_folder import RunFolder

#: A role of a layer.
Tensor = tuple[str, str]
Registers = dict[Tensor, StatisticsRegister]


def registers_of_run(folder: Path) -> Registers:
    """Return the registers of a run, summed over all its steps; none if it has no table of them.

    Raises:
        ConfigError: the table cannot be read.
    """
    home = RunFolder(folder)
    if not (folder / "registers.parquet").is_file():
        return {}
    table = home.read_table("registers")
    counts: dict[Tensor, dict[tuple[str, int | None], int]] = {}
    columns = (table[name] for name in ("layer", "role", "kind", "exponent", "count"))
    for layer, role, kind, exponent, count in zip(*columns, strict=True):
        own = counts.setdefault((layer, role), {})
        # rows of all steps add up; scalar counts have no exponent
        own[kind, exponent] = own.get((kind, exponent), 0) + (count or 0)
    return {tensor: _register(own) for tensor, own in counts.items()}


def registers_of(counters: CounterTable) -> Registers:
    """Return the registers of an evaluation: of tensors that were written."""
    # a tensor that only passes values on has counts of 0
    return {tensor: counts.register for tensor, counts in counters.items() if counts.elements}


def _register(counts: dict[tuple[str, int | None], int]) -> StatisticsRegister:
    exponents = [exponent for _, exponent in counts if exponent is not None]
    lowest = min(exponents, default=0)
    sides = {
        side: {str(exponent): count for (kind, exponent), count in counts.items() if kind == side}
        for side in ("positive", "negative")
    }
    scalars = {name: counts.get((name, None), 0) for name in SCALARS}
    # without positions one empty bin, for a register must have a place
    bins = max(exponents, default=0) - lowest + 1
    return StatisticsRegister.from_dict({"lowest": lowest, "bins": bins, "max_exponent": None, **scalars, **sides})


def passing_on(layer: str, role: str, names: Iterable[str], written: Iterable[Tensor]) -> tuple[str, ...]:
    """Return the layers that only pass a layer's values on: their format changes with it.

    A selection, such as relu or pooling, writes no new values as long as its format is that of its operand. If only
    the layer before it were narrowed, it would write its values into the wide format again.

    Args:
        layer: layer that writes the values.
        role: role of the values.
        names: tensors of the network in forward order, the input first and the loss last.
        written: tensors into which new values are written.
    """
    if role not in ("activation", "error"):
        return ()
    # activations flow forward, errors from the loss back to the first layer behind the input
    order = [name for name in names if name != LOSS_LAYER] if role == "activation" else list(names)[:0:-1]
    # the first layer with parameters writes no error, but it passes none on either
    writers = {name for name, of_role in written if of_role in (role, "activation")}
    behind: list[str] = []
    for name in order[order.index(layer) + 1 :]:
        if name in writers:
            break
        behind.append(name)
    return tuple(behind)
