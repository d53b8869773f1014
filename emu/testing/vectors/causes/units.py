"""Another unit of products and sums: other orders, roundings, overflow rules, widths; terms that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from emu.backends.reference.exact import FINITE
from emu.datapath import Rounding
from emu.datapath.order import parse_order
from emu.errors import EmuError
from emu.formats import Fixed
from emu.testing.contract.clauses import rules_of
from emu.testing.contract.finding import KNOWN_ORDERS
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.definition import written
from emu.testing.vectors.description import Description, MacTable
from emu.testing.vectors.evidence import Evidence

#: Bits by which an accumulator is too wide or too narrow.
OFF_BY_BITS = (-1, -2, 1, 2)
#: Products that are added before they are bounded, and bits of a factor, at most.
MOST_IN_GROUP, MOST_WORD = 4, 9


def other_units(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit whose products or sums are otherwise."""
    if not e.is_product_sum:
        return
    unit = MacTable.of(e.description.mac.mac())  # with all defaults in words, which a change then leaves alone
    for name, changes in _changed_units(e.description):
        try:
            mac = unit.model_copy(update=changes).mac()
            codes = e.answered(mac=mac)
        except EmuError:  # such a unit cannot be
            continue
        yield name, codes


def _changed_units(description: Description) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield units unlike the one described: other orders, roundings, overflow rules, formats of products and sums."""
    mac, written = description.mac.mac(), str(description.stage.format)
    if mac.accumulator == "exact":
        yield f"an accumulator of {written}", {"accumulator": written}
    if mac.product == "exact":
        for name in sorted({str(mac.accumulator), written} - {"exact"}):
            yield f"products rounded to {name}", {"product": name}
    else:
        yield "products that are never rounded", {"product": "exact"}
    # of exact products and sums neither order nor mode nor rule changes anything
    if mac.is_exact:
        return
    part, fmt = ("an accumulator", mac.accumulator) if mac.accumulator != "exact" else ("products", mac.product)
    if fmt != "exact":
        own_rule = mac.stage_of(fmt).overflow
        for rule in rules_of(fmt):
            if rule is not own_rule:
                yield f"{part} with overflow rule {rule.value}", {"overflow": rule.value}
    yield "an accumulator that never rounds", {"accumulator": "exact"}
    for order in KNOWN_ORDERS:
        if parse_order(order) != mac.order:
            yield f"adds in the order {order}", {"order": order}
    for mode in Rounding:
        if mode is not mac.rounding and not mode.draws:
            yield f"adds rounded {mode.value}", {"rounding": mode.value}
    if isinstance(mac.accumulator, Fixed):
        accumulator, frac_bits = mac.accumulator, mac.accumulator.frac_bits
        prefix = "sm" if accumulator.sign_magnitude else "" if accumulator.signed else "u"
        for bits in OFF_BY_BITS:
            name = f"{prefix}fix{mac.accumulator.width_bits + bits}f{frac_bits}"
            yield f"an accumulator of {name} instead of {mac.accumulator}", {"accumulator": name}


def bounded_groups(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of an exact sum of words whose products saturate or wrap in groups before they are added."""
    d = e.description
    formats = d.operand_formats
    if not e.adds_exactly or d.depth < MOST_IN_GROUP // 2:
        return
    if not all(isinstance(f, Fixed) and f.width_bits <= MOST_WORD for f in formats[:2]):
        return
    a, b = (f.decode(codes) for f, codes in zip(formats[:2], e.vectors.operands[:2], strict=True))
    last = -sum(f.frac_bits for f in formats[:2] if isinstance(f, Fixed))
    # factors of 9 bits at most have products that float64 holds, as raws with the last digit 2**last
    products = np.ldexp(a.astype(np.float64) * b.astype(np.float64), -last).astype(np.int64)
    own = products.sum(axis=1)
    exact = e.exact.as_object()
    # the right sums in the same unit, addends included
    rest = (exact.signed() << np.maximum(exact.exponent - last, 0).astype(object)) >> np.maximum(
        last - exact.exponent, 0
    ).astype(object)
    for group in (1, 2, MOST_IN_GROUP):
        # (count, groups): the last group is filled with products of 0
        padded = np.pad(products, ((0, 0), (0, -d.depth % group))).reshape(d.count, -1, group).sum(axis=2)
        # around 16: two products of -128 times -128 are 2**15, one more than 16 bits hold
        for bits in (15, 16, 17, 18):
            top = 1 << (bits - 1)
            for how, parts in (
                ("saturate", np.clip(padded, -top, top - 1)),
                ("wrap", ((padded + top) & (2 * top - 1)) - top),
            ):
                # an addend is no part of a group: only what the bounds change is added
                total = rest + (parts.sum(axis=1) - own).astype(object)
                changed = replace(
                    exact,
                    negative=(total < 0).astype(bool),
                    significand=np.abs(total),
                    exponent=np.full(total.shape, last, np.int64),
                )
                each = "products" if group == 1 else f"sums of {group} products"
                yield f"{each} that {how} at {bits} bits", written(d, changed, e.vectors.rbits).codes


def missing_terms(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that misses its first or last term or the addend, or never clears its accumulator."""
    d, operands = e.description, list(e.vectors.operands)
    if not e.is_product_sum:
        return
    for name, term in (("first", 0), ("last", -1)) if d.depth > 1 else ():
        without = operands[0].copy()
        without[:, term] = 0
        yield f"the {name} term left out", e.answered(operands=(without, *operands[1:]))
    if len(operands) > 2:
        yield "the addend left out", e.answered(operands=(*operands[:2], np.zeros_like(operands[2])))
    if d.depth > 1 or len(operands) > 2:
        first = operands[0].copy()
        first[:, 1:] = 0
        nothing = tuple(np.zeros_like(x) for x in operands[2:])
        yield "the first term alone", e.answered(operands=(first, operands[1], *nothing))
    sums = e.exact.as_object()
    # a running sum over vectors needs sums that nothing has bounded
    if e.adds_exactly and (sums.kind == FINITE).all():
        exponent = int(sums.exponent.min())
        raws = sums.signed() << (sums.exponent - exponent).astype(object)
        total = np.cumsum(raws)
        running = replace(
            sums,
            negative=(total < 0).astype(bool),
            significand=np.abs(total),
            exponent=np.full(total.shape, exponent, np.int64),
        )
        yield "an accumulator that is never cleared", written(d, running, e.vectors.rbits).codes
