"""Refuse tables for layers on which they would change nothing, and name the layers that were perhaps meant."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from emu.errors import ConfigError
from emu.nn import Layer, every

#: Roles of parameters. The other roles are of what every layer writes.
PARAMETER_ROLES = ("weight", "bias", "gradient", "update", "master", "orthogonal")


def require_parameters(glob: str, role: str, layers: Sequence[Layer], where: str) -> None:
    """Raise ConfigError if a role of parameters is set for layers none of which has them.

    Args:
        glob: pattern of the names of layers.
        role: the role that is set; a role that is not one of parameters is always accepted.
        layers: layers of the network.
        where: key or table, for the message.
    """
    if role not in PARAMETER_ROLES:
        return
    # a layer may have a weight and no bias, but a gradient, update or master belongs to either
    of_one_kind = role in ("weight", "bias")
    parts = {layer.name: [parameter.part for parameter in layer.parameters()] for layer in every(layers)}
    having = [name for name, own in parts.items() if (role in own if of_one_kind else own)]
    # `every` includes layers inside others: `block` matches the outer layer alone, `block.*` what is inside
    matching = [name for name in parts if fnmatchcase(name, glob)]
    if set(matching) & set(having):
        return
    none = f"{', '.join(matching) or glob} {'has' if len(matching) < 2 else 'have'} none"
    # if layers inside a matching layer have such a parameter, they were perhaps meant
    inside = [outer for outer in matching if any(name.startswith(f"{outer}.") for name in having)]
    hint = f"did you mean {inside[0]}.*?" if inside else f"those that have one are {', '.join(having)}"
    raise ConfigError(
        f"`{role}` must be set for layers that have a {role if of_one_kind else 'weight or bias'}, got {glob!r} in "
        f"{where}, which changes nothing: {none}; {hint}"
    )
