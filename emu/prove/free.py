"""Whether a unit's outputs depend on more than its operands: on undefined bits, other cycles, registers.

Gates that read such a bit need not depend on it: the arm of an `if` that is not taken has undefined bits, and a
pipeline with a valid bit reads registers that it then ignores. SAT tells: two copies of the unit, in one of which all
these bits are 0, have the same outputs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emu.prove.circuit import Builder
from emu.prove.sat import Undecided, model_of
from emu.prove.unit import Unrolled

#: Words of 64 random inputs that are tried before the solver is asked.
_TRIED = 64


def without_needless(unrolled: Unrolled, limit_s: float) -> Unrolled:
    """Return a unit without its free inputs if its outputs do not depend on them, else unchanged.

    If the solver does not decide within `limit_s` seconds, they stay: a proof is then for all their values, too.
    """
    if not unrolled.free:
        return unrolled
    rest = _without(unrolled)
    # cheap, and enough where outputs depend on free inputs often
    if _differs_at_random(unrolled, rest):
        return unrolled
    count = unrolled.circuit.n_inputs
    builder, inputs = Builder(count), [2 * (1 + i) for i in range(count)]
    ours = builder.copied(unrolled.circuit, inputs)
    # free inputs are the first ones of the unit's circuit; both copies share the others
    theirs = builder.copied(rest.circuit, inputs[len(unrolled.free) :])
    same = 1
    for name, bits in ours.items():
        for x, y in zip(bits, theirs[name], strict=True):
            # two gates and one more are an XNOR
            same = builder.both(same, builder.both(builder.both(x, y ^ 1) ^ 1, builder.both(x ^ 1, y) ^ 1))
    miter = builder.built({"bad": (same ^ 1,)})
    try:
        model = model_of(miter, miter.outputs["bad"][0], limit_s)
    except Undecided:
        return unrolled
    # a model is an input for which both copies differ
    return rest if model is None else unrolled


def _without(unrolled: Unrolled) -> Unrolled:
    """Return the unit with all free inputs 0."""
    rest = unrolled.circuit.n_inputs - len(unrolled.free)
    builder = Builder(rest)
    outputs = builder.copied(unrolled.circuit, [0] * len(unrolled.free) + [2 * (1 + i) for i in range(rest)])
    return replace(unrolled, circuit=builder.built(outputs), free=())


def _differs_at_random(unrolled: Unrolled, rest: Unrolled) -> bool:
    words = np.random.default_rng(0).integers(0, 1 << 64, (unrolled.circuit.n_inputs, _TRIED), np.uint64)
    ours, theirs = unrolled.circuit.evaluated(words), rest.circuit.evaluated(words[len(unrolled.free) :])
    return any(not np.array_equal(ours[name], theirs[name]) for name in ours)
