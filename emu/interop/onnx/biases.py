"""Sums that are the biases of products: exporters write `MatMul` and `Add` for a layer that has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from emu.nn.layer import Parameter
from emu.nn.wired import Own, Read, Step


def with_biases(steps: Sequence[Step], returns: Sequence[str]) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return steps, and names of outputs, in which a constant vector that is added to a product is the product's bias.

    Exporters write `MatMul` and `Add` for a layer with a bias. A unit adds the bias before it rounds.
    """
    renamed, own = joined_with(steps, returns), {step.name: step for step in steps}
    joined: dict[str, Step] = {}
    for name, of_product in renamed.items():
        product, bias = own[of_product], own[name].values["bias"]
        # the bias has the weight's fans, as that of a layer has
        held = (*product.held, Parameter("bias", bias.shape, "zero", product.held[0].fan_in, product.held[0].fan_out))
        operands = (*product.operands, Own("bias"))
        joined[product.name] = replace(product, operands=operands, held=held, values={**product.values, "bias": bias})
    kept = [joined.get(step.name, step) for step in steps if step.name not in renamed]
    return tuple(_reading(step, renamed) for step in kept), tuple(renamed.get(name, name) for name in returns)


def joined_with(steps: Sequence[Step], returns: Sequence[str]) -> dict[str, str]:
    """Return the sums that add a constant vector to a product which nothing else reads, and their products, by name."""
    # a product that something else reads as well must stay without the bias
    readers = Counter(name for step in steps for name in step.reads)
    # two operands: input and weight, no bias yet
    products = {step.name: step for step in steps if step.primitive == "linear" and len(step.operands) == 2}
    sums: dict[str, str] = {}
    for step in steps:
        read = step.reads
        product = products.get(read[0]) if step.primitive == "add" and len(read) == 1 and step.held else None
        if product is None or readers[product.name] > 1 or product.name in returns:
            continue
        # a vector of the outputs: any other shape would broadcast along other axes
        if step.values["bias"].shape == product.values["weight"].shape[:1]:
            sums[step.name] = product.name
    return sums


def _reading(step: Step, renamed: Mapping[str, str]) -> Step:
    """Return a step that reads tensors by their new names."""
    if renamed.keys().isdisjoint(step.reads):
        return step
    operands = [Read(renamed.get(o.name, o.name)) if isinstance(o, Read) else o for o in step.operands]
    return replace(step, operands=tuple(operands))
