"""Forward, backward or update: two questions about an operation, answered by the role of its result.

    kind_of    what its time and energy count as, in the simulation and the cost of a device
    pass_of    in which pass a device of a cluster runs it: operations of one layer and pass run as one task

They differ for operations that run during a pass and belong to the update: the writing of working copies, and the
removal of the loss scale from gradients, as soon as those of a layer are complete.
"""

from __future__ import annotations

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
_KIND_OF = {"activation": FORWARD, "slope": FORWARD, "loss": FORWARD, "error": BACKWARD, "gradient": BACKWARD}
_BACKWARD_ROLES = ("error", "gradient", "unscaled")


def kind_of(role: str) -> str:
    """Return what the time and energy of an operation count as, by the role of its result.

    Examples:
        >>> kind_of("activation"), kind_of("gradient"), kind_of("unscaled")
        ('forward', 'backward', 'update')
    """
    return _KIND_OF.get(role, UPDATE)


def pass_of(role: str) -> str:
    """Return the pass in which an operation runs that does not wait for an exchange.

    Examples:
        >>> pass_of("weight"), pass_of("unscaled")
        ('forward', 'backward')
    """
    return BACKWARD if role in _BACKWARD_ROLES else FORWARD
