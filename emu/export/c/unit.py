"""The file of a unit: its constants, the parts that it uses, and its function."""

from __future__ import annotations

from collections.abc import Collection

from emu.datapath.order import Blocks, Lanes, Order, Pairwise
from emu.errors import ConfigError
from emu.export.c.conditions import conditions_of
from emu.export.c.constants import format_constant, rounding_constant, stage_constant
from emu.export.c.header import header_text
from emu.export.c.names import require_name
from emu.export.c.stages import Unit
from emu.export.c.substitutes import texts_of
from emu.export.c.template import TEXTS, fragment, names_of, used_parts
from emu.testing.vectors import Description
from emu.testing.vectors.selection import SELECTIONS

#: Files of `text/`, in the order in which they stand in a unit's file; its constants follow the stages.
_NUMBERS = (
    "number.c", "fixed_format.c", "float_format.c", "rounding.c", "exact_of.c", "unpack_fixed.c", "unpack_float.c",
    "product.c", "special.c", "sum.c", "two_terms.c",
)  # fmt: skip
_STAGES = ("write_fixed.c", "write_float.c")
#: Folder of what operations compute, a file each.
_OPERATIONS = "operations"
#: Those of some operations, before the stages.
_OF_OPERATIONS = {
    "divide": "quotient.c",
    "sqrt": "root.c",
    "remainder": "remainder.c",
    **dict.fromkeys(SELECTIONS, "selection.c"),
}
_HEAD = f"/* ---- This unit's formats and stages {'-' * 78} */"
_WORDS = {
    "PRODUCT": "What rounds products.",
    "ACCUMULATOR": "What rounds sums.",
    "ADDER": "What rounds the sum of blocks and the accumulator.",
    "OUTPUT": "The output stage.",
}


def files_of(description: Description, name: str) -> dict[str, str]:
    """Return the texts of a unit's file and header, by file name.

    Raises:
        ConfigError: `name` cannot be that of a function in C, or the operation has no C.
        FormatError: operands that the unit does not multiply.
    """
    # Asked twice: here whether it can be a name at all; below, whether the finished file uses it for something else.
    # Which names it uses depends on the parts that the unit needs.
    require_name(name, ())
    known = sorted(path.stem for path in (TEXTS / _OPERATIONS).glob("*.c"))
    if description.operation not in known:
        raise ConfigError(f"`operation` of C must be one of {', '.join(known)}, got {description.operation!r}")
    if description.also:
        raise ConfigError("`also` must be left out of exported units, got further results; export each by itself")
    if description.requantise is not None:
        raise ConfigError(
            f"`requantise` must be left out of exported units, got {description.requantise.kind}; check it with emu "
            "vectors"
        )
    unit = Unit(description)
    unit.mac.require_operands(*description.operand_formats[:2])
    # The file is written under the name `unit`, which stands for the one that is asked about.
    require_name(name, names_of(_file_text(unit, "unit")) - {"unit"})
    return {f"{name}.c": _file_text(unit, name), f"{name}.h": header_text(description, name)}


def _file_text(unit: Unit, name: str) -> str:
    conditions, texts = conditions_of(unit), texts_of(unit, name)
    texts["body"] = fragment(f"{_OPERATIONS}/{unit.description.operation}.c", conditions, texts)
    first, last = ([fragment(path, conditions, texts) for path in paths] for paths in _paths(unit))
    # `head.c` is split at empty lines: the comment, the unit's header and <stdbool.h> stay; its enums are parts that
    # stay only if they are used.
    head, includes, library, *enums = fragment("head.c", conditions, texts).split("\n\n")
    # `last` follows the constants: accumulator, orders and unit name ACCUMULATOR, PRODUCT and OUTPUT.
    parts = used_parts("\n\n".join([*enums, *first, *_constants(unit), *last]), [name])
    return "\n\n".join([head, includes, library, parts])


def _paths(unit: Unit) -> tuple[list[str], list[str]]:
    """Return the files before and after a unit's constants."""
    operation = unit.description.operation
    first = [*_NUMBERS, *([_OF_OPERATIONS[operation]] if operation in _OF_OPERATIONS else []), *_STAGES]
    last = ["integral.c"] if operation == "round_to_integral" else []
    if not unit.mac.is_exact:
        last.append("accumulator.c")
    if unit.accumulator is not None:  # the order of exact sums is irrelevant
        last += _paths_of_order(unit.mac.order)
    return first, [*last, "unit.c"]


def _paths_of_order(order: Order) -> Collection[str]:
    if isinstance(order, Pairwise | Lanes):
        return ("tree.c",)
    return ("block.c",) if isinstance(order, Blocks) else ()


def _constants(unit: Unit) -> list[str]:
    parts = [_HEAD, *(format_constant(fmt, unit.options) for fmt in unit.formats)]
    for name, stage in unit.stages.items():
        # Underflow is a flag of results and of the stages they pass; products and sums inside the unit raise none.
        tininess = unit.tininess if name == "OUTPUT" or name in unit.passed else None
        words = _WORDS.get(name, "What results pass before the output stage.")
        parts.append(stage_constant(name, stage, unit.options, words, tininess))
    if unit.description.operation == "round_to_integral":
        words = "Toward which integer a number goes."
        parts.append(rounding_constant("TO_INTEGER", unit.description.stage, unit.options, words))
    return parts
