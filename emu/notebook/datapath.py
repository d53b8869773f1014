"""Flags, registers and Macs."""

from __future__ import annotations

from emu.datapath import FLAG_NAMES, Flags, Mac, StatisticsRegister
from emu.datapath.order import Blocks, Lanes, Order
from emu.notebook.parts import BLUE, GREEN, ORANGE, arrow, box, column, facts, numbers, path, sentence, svg, text, title
from emu.notebook.picture import picture
from emu.notebook.registers import histogram
from emu.report.html import Html, disclosure
from emu.report.words import integer
from emu.testing.order_tree import order_tree

#: Terms in the drawing of an order, by default and at most.
_TERMS, _MOST_TERMS = 8, 32


@picture.register
def _(flags: Flags) -> Html:
    raised = sum(map(bool, flags.counts()))
    summary = f"{raised} of {len(FLAG_NAMES)} raised" + (
        f", underflow: tiny {flags.tininess}" if flags.tininess else ""
    )
    rows = [[name, integer(count)] for name, count in zip(FLAG_NAMES, flags.counts(), strict=True)]
    return column(title("flags", summary), numbers(["flag", "elements"], rows))


@picture.register
def _(register: StatisticsRegister) -> Html:
    if register.lowest is None or register.bins is None:
        positions = "positions chosen at the first observation"
    else:
        positions = f"positions {register.lowest} .. {register.lowest + register.bins - 1}"
    top = register.max_exponent
    largest = "" if top is None else f"; largest exponent {top}"
    summary = f"{integer(register.total)} results; {positions}{largest}"
    return column(title("leading-bit register", summary), histogram(register) if register.total else None)


@picture.register
def _(mac: Mac) -> Html:
    return column(title("multiply-accumulate unit", str(mac.order)), mac_drawing(mac), _described(mac), _order(mac))


def mac_drawing(mac: Mac) -> Html:
    """Return a drawing of the unit: multiplier, adder, accumulator."""
    # Pixels, all of them. A character of the 12-pixel monospace font is taken as 7.6 wide, with 8 to either side.
    middle, product, accumulator = 44.0, str(mac.product), str(mac.accumulator)
    wide = [max(60.0, 7.6 * len(name) + 16) for name in (product, accumulator)]
    x_add = 108 + wide[0] + 34
    x_sum = x_add + 28 + 20
    end = x_sum + wide[1]
    # a and b ──► (x) ──► product ──► (+) ──► accumulator ──► output stage, and back from the accumulator to (+)
    shapes = [
        text(10, middle - 10, "a"), text(10, middle + 18, "b"),
        path(f"M18 {middle - 14}L50 {middle - 6}"), path(f"M18 {middle + 14}L50 {middle + 6}"),
        box(50, middle - 14, 28, 28, ORANGE), text(64, middle + 4, "\u00d7"),
        arrow(78, middle, 30), box(108, middle - 14, wide[0], 28, BLUE), text(108 + wide[0] / 2, middle + 4, product),
        arrow(108 + wide[0], middle, 34), box(x_add, middle - 14, 28, 28, ORANGE), text(x_add + 14, middle + 4, "+"),
        arrow(x_add + 28, middle, 20), box(x_sum, middle - 14, wide[1], 28, GREEN),
        text(x_sum + wide[1] / 2, middle + 4, accumulator),
        # The way back: from below the accumulator to below the adder.
        path(f"M{x_sum + wide[1] / 2:g} {middle + 14}V{middle + 34}H{x_add + 14:g}V{middle + 14}"),
        arrow(end, middle, 34), text(end + 40, middle + 4, "output stage", anchor="start"),
        text(108 + wide[0] / 2, middle - 22, "product"), text(x_sum + wide[1] / 2, middle - 22, "accumulator"),
    ]  # fmt: skip
    return svg(end + 140, 86, f"a times b, product {product}, added into accumulator {accumulator}", *shapes)


def _described(mac: Mac) -> Html:
    if mac.is_exact:
        return sentence("Nothing rounds or overflows before the output stage, so the order of the adds is irrelevant.")
    overflow = "each format's default" if mac.overflow is None else mac.overflow.value
    return facts([("rounding of every product and sum", mac.rounding.value), ("overflow", overflow)])


def _order(mac: Mac) -> Html | None:
    if mac.is_exact:
        return None
    terms = _terms_of(mac.order)
    drawing = Html(order_tree(mac.order, terms).to_svg())
    return disclosure(f"The order of the adds: {mac.order}, drawn for {terms} products", drawing)


def _terms_of(order: Order) -> int:
    """Return a number of products that is enough to show an order."""
    # Two blocks show how they follow each other; blocks with an adder behind show one whole period of indices.
    if isinstance(order, Blocks):
        return min(len(order.indices) if order.addend == "after" else 2 * order.n, _MOST_TERMS)
    return min(2 * order.count, _MOST_TERMS) if isinstance(order, Lanes) else _TERMS
