"""What an operation's time and energy count as: the way forward, the way back, or the update.

It follows from the role of the result:

    forward    activation, slope, loss
    backward   error, gradient
    update     every other role: working copies of parameters, which follow from the update before; the loss scale that
               is taken out of gradients; clipping, norms, moments, master weights

A gradient that is only converted was computed elsewhere: an exchange has brought it, and the update begins with it.
"""

from __future__ import annotations

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
_KIND_OF = {"activation": FORWARD, "slope": FORWARD, "loss": FORWARD, "error": BACKWARD, "gradient": BACKWARD}
#: The operation that brings a value from one format to another.
CONVERSION = "quantize"


def kind_of(role: str, operation: str) -> str:
    """Return `FORWARD`, `BACKWARD` or `UPDATE`.

    Args:
        role: role of what the operation writes.
        operation: its name.

    Examples:
        >>> kind_of("activation", "matmul"), kind_of("gradient", "matmul"), kind_of("unscaled", "multiply")
        ('forward', 'backward', 'update')
        >>> kind_of("activation", "quantize"), kind_of("gradient", "quantize")
        ('forward', 'update')
    """
    if role == "gradient" and operation == CONVERSION:
        return UPDATE
    return _KIND_OF.get(role, UPDATE)
