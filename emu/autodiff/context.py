"""What rules receive: the runner, the layer, and what the forward pass saved for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from emu.autodiff.runner import Operation, Runner
from emu.formats import Value


class Context:
    """The context of a rule.

    Attributes:
        runner: runs operations.
        layer: layer whose results are written.
        options: options of the primitive.
        saved: arrays that the forward pass saves for the backward pass.
        training: whether this is a training pass, in which dropout drops values and moments are those of the batch.
        moments: moments for the next step, by operand; only in training.
        role: role of what is written.
    """

    def __init__(
        self, runner: Runner, layer: str, options: Mapping[str, Any], saved: Any = None, *, training: bool = True
    ) -> None:
        self.runner, self.layer, self.options, self.saved = runner, layer, options, saved
        self.training, self.role = training, "activation"
        # left empty by primitives without running moments, and outside training
        self.moments: tuple[Value, ...] = ()

    def run(self, name: str, *operands: Value, part: str = "", role: str | None = None, **options: Any) -> Value:
        """Run an operation in this context's role and layer."""
        return self.runner.run(Operation(name, operands, options, part), role or self.role, self.layer)

    def weigh(self, name: str, factors: tuple[str, str], *operands: Value, **options: Any) -> Value:
        """Run a product of a layer with weights; its first two operands have these roles, and may be cast for it."""
        return self.runner.run(Operation(name, operands, options, factors=factors), self.role, self.layer)


Forward = Callable[..., Value]
Backward = Callable[..., Value]


class Primitive(NamedTuple):
    """A way forward, and ways back.

    Attributes:
        forward: computes the result.
        backward: one rule for each operand, None if no gradient flows there; or, of a primitive with any number of
            operands, what returns the rule of an operand by its position.
    """

    forward: Forward
    backward: tuple[Backward | None, ...] | Callable[[int], Backward]

    def way_back(self, position: int) -> Backward | None:
        """Return the rule of the operand at a position; None if no gradient flows there."""
        rules = self.backward
        if callable(rules):
            return rules(position)
        # operands beyond the rules, such as running moments, have no way back
        return rules[position] if position < len(rules) else None


def elementwise(name: str) -> Forward:
    """Return the rule that runs an operation of that name on its operands."""

    def rule(c: Context, *operands: Value) -> Value:
        return c.run(name, *operands)

    return rule


def function(name: str) -> Forward:
    """Return the rule that computes an elementary function of its operand."""

    def rule(c: Context, x: Value) -> Value:
        return c.run("function", x, function=name)

    return rule


def summed_to(c: Context, g: Value, shape: tuple[int, ...], part: str) -> Value:
    """Return a gradient summed over the axes along which its operand was broadcast."""
    if g.shape == shape:
        return g
    # axes that broadcasting put in front, and those that had one element
    lead = len(g.shape) - len(shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and g.shape[lead + i] != 1)
    return reshaped(c.run("sum", g, part=part, axis=axes), shape)


def reshaped(x: Value, shape: tuple[int, ...]) -> Value:
    """Return the same values in another shape."""
    return x.with_array(x.array.reshape(shape))
