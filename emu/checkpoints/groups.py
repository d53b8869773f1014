"""Which tensors of a file belong together: the elements of a value and its scales, by a convention.

    name and dtype of a tensor ──► conventions whose elements it may be ──► names of scales beside it ──► their dtypes
    ──► their shapes ──► the first convention that is left

If none is left, the error says at which of these steps, and what the file would need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emu.checkpoints.conventions import CONVENTIONS, Convention
from emu.checkpoints.files import Stored
from emu.errors import ConfigError, FormatError

#: Names of scales that are in no convention, and why.
REFUSED = {
    "_global_scale": "compressed-tensors divides each scale by it and vLLM multiplies by its rounded reciprocal, so "
    "that the bits of its numbers differ"
}
#: Endings of the names of elements' tensors, after the value's name; "" is one of them.
ELEMENT_SUFFIXES = tuple(dict.fromkeys(row.elements for row in CONVENTIONS.values()))


@dataclass(frozen=True)
class Group:
    """The tensors of one value.

    Attributes:
        convention: which one they follow.
        elements: name of the elements in the file.
        scales: names of the scales of each level, the finest first.
        shape: of the value.
    """

    convention: Convention
    elements: str
    scales: tuple[str, ...]
    shape: tuple[int, ...]


def group_of(name: str, tensors: Mapping[str, Stored], elsewhere: Mapping[str, str]) -> tuple[str, Group] | None:
    """Return the value's name and the group whose elements a tensor is; None if it is no value's elements.

    Args:
        name: of the tensor.
        tensors: all that can be read.
        elsewhere: file names of tensors that are known to lie in other files.

    Raises:
        ConfigError: elements without their scales, or scales of other dtypes or shapes than any convention has.
    """
    dtype = tensors[name].dtype
    # a tensor of such a dtype may be elements of several conventions, or no value's elements at all
    rows = [row for row in CONVENTIONS.values() if row.dtype == dtype and name.endswith(row.elements)]
    for suffix in dict.fromkeys(row.elements for row in rows):
        base = name.removesuffix(suffix)
        near = [row for row in rows if row.elements == suffix]
        # with the refused endings: elements beside such scales must not be read as a plain array
        known = dict.fromkeys([s for row in near for s in row.suffixes] + [*REFUSED])
        beside = {s for s in known if base + s in tensors or base + s in elsewhere}
        # every name ends with "", so elements of that ending are known only by scales beside them; an ending such as
        # _blocks says enough, and scales that are missing are then an error
        if beside or suffix:
            return base, _group(base, suffix, _fitting_names(base, near, beside, tensors, elsewhere), tensors)
    return None


def _fitting_names(
    base: str, near: list[Convention], beside: set[str], tensors: Mapping[str, Stored], elsewhere: Mapping[str, str]
) -> list[Convention]:
    """Return the conventions whose scales have the names of those that are beside the elements."""
    place = tensors[base + near[0].elements].path
    for suffix in beside & REFUSED.keys():
        raise ConfigError(
            f"scales {base + suffix!r} must be of a convention that is read, got one in {place} whose meaning is open: "
            f"{REFUSED[suffix]}; name the entries that you want with `names`"
        )
    for suffix in sorted(beside):
        if base + suffix not in tensors:
            raise ConfigError(
                f"scales {base + suffix!r} must be read with their elements in {place}, got them in "
                f"{elsewhere[base + suffix]}; read the index of the files, or their folder"
            )
    # exactly these: nvfp4 has the scales of mxfp4 and another
    fitting = [row for row in near if set(row.suffixes) == beside]
    if not fitting:
        choices = dict.fromkeys(" and ".join(repr(base + s) for s in row.suffixes) for row in near)
        raise ConfigError(
            f"elements {base + near[0].elements!r} must have the scales {', or '.join(choices)} beside them, got "
            f"{', '.join(repr(base + s) for s in sorted(beside)) or 'none'} in {place}; read the file that has all of "
            "them"
        )
    return fitting


def _group(base: str, suffix: str, rows: list[Convention], tensors: Mapping[str, Stored]) -> Group:
    """Return the group of the first convention whose dtypes and shapes the scales have.

    Raises:
        ConfigError: there is none.
    """
    # all rows that are left have these endings
    names = tuple(base + s for s in rows[0].suffixes)
    parts, elements = [tensors[name] for name in names], tensors[base + suffix]
    dtypes = [part.dtype for part in parts]
    by_dtype = [row for row in rows if [dtype for _, dtype in row.scales] == dtypes]
    if not by_dtype:
        choices = dict.fromkeys(" and ".join(dtype for _, dtype in row.scales) for row in rows)
        raise ConfigError(
            f"scales {_listed(names)} must be {' or '.join(choices)} for elements of {elements.dtype}, got "
            f"{' and '.join(dtypes)} in {elements.path}; name the entries that you want with `names`, "
            "or convert the scales"
        )
    # why rows of the right dtypes do not fit: by the shape of the elements, and by that of the scales
    lacks, wanted = list[str](), list[str]()
    for row in by_dtype:
        try:
            shape = row.shape_of(elements.shape)
        except FormatError as error:
            lacks.append(str(error))
            continue
        needed = row.scale_shapes(shape)
        if all(_fits(part.shape, shape_of_part, row) for part, shape_of_part in zip(parts, needed, strict=True)):
            return Group(row, base + suffix, names, shape)
        wanted.append(" and ".join(map(str, needed)))
    if not wanted:
        raise ConfigError(
            f"elements {base + suffix!r} must have {' or '.join(dict.fromkeys(lacks))}, got the shape "
            f"{elements.shape} of {elements.dtype} in {elements.path}; store them so, or name "
            "other entries with `names`"
        )
    raise ConfigError(
        f"scales {_listed(names)} must have the shape {', or '.join(dict.fromkeys(wanted))} for elements "
        f"{elements.shape} of {elements.dtype}, got {' and '.join(str(part.shape) for part in parts)} in "
        f"{elements.path}; write one for each block"
    )


def _fits(given: tuple[int, ...], needed: tuple[int, ...], row: Convention) -> bool:
    """Return whether scales have a shape; a scale for the whole tensor may have one axis or none."""
    return given == needed or (needed == row.one_shape and given in ((), (1,)))


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(map(repr, names))
