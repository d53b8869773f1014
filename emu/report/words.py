"""Rounding modes, overflow rules and multiply-accumulate units in words; numbers with their units, rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from emu.datapath.format_facts import format_sentence
from emu.datapath.overflow import OVERFLOW_WORDS, default_rule
from emu.datapath.rounding import Rounding
from emu.errors import FormatError
from emu.formats import DynamicFixed, Fixed, Float, Format, parse_number
from emu.formats.numerals import number, two_digits

#: Roles in the order a reader meets them, forward, backward, update, and what each of them is.
ROLE_MEANINGS = {
    "weight": "weights as the forward and backward passes read them",
    "bias": "biases as the forward pass reads them",
    "activation": "results of the forward pass, handed to the next layer",
    "loss": "softmax, the loss and other statistics",
    "slope": "derivative of an activation function, by which errors are multiplied",
    "error": "derivative of the loss by a layer's values, handed to the layer before it",
    "gradient": "derivative of the loss by the parameters",
    "unscaled": "gradients from which the scale of the loss is taken out",
    "norm": "norms, by which gradients or matrices of an optimiser are divided",
    "clipped": "gradients that are clipped by their norm",
    "momentum": "the sum of gradients that an optimiser keeps from step to step",
    "moment": "means of gradients and of their squares that an optimiser keeps from step to step",
    "orthogonal": "matrices that the optimiser muon multiplies to make a momentum orthogonal",
    "update": "what the optimiser is about to add to the parameters",
    "master": "the parameters the optimiser keeps, rounded to role weight for the passes",
}

ROLES = tuple(ROLE_MEANINGS)

#: Text of a table's cell that has no number.
NO_NUMBER = "\u2013"


def percent(share: float) -> str:
    """Return a share of 1 in percent, with about two significant digits; it may be negative, or more than 1.

    Examples:
        >>> percent(0.97), percent(0.0834), percent(0.00004), percent(0.0), percent(0.9999)
        ('97%', '8.3%', '0.004%', '0%', '99.99%')
        >>> percent(2.0), percent(-0.03)
        ('200%', '-3%')
    """
    if not math.isfinite(share):
        return "not a number"
    if share < 0:
        return f"-{percent(-share)}"
    hundred = share * 100
    if hundred == 0:
        return "0%"
    # Never "100%" of a share that is less: a network that is nearly always right has the missing digits here.
    if 99 < hundred < 100:
        return f"{min(hundred, 99.99):.2f}".rstrip("0").rstrip(".") + "%"
    if hundred >= 10:
        return f"{hundred:.0f}%"
    if hundred >= 0.001:
        return f"{hundred:.2g}%"
    return "<0.001%"


def role_order(role: str) -> tuple[int, str]:
    """Return a key that sorts roles as a reader meets them; roles of another version of emu come last, by name.

    Examples:
        >>> sorted(["new", "update", "weight"], key=role_order)
        ['weight', 'update', 'new']
    """
    return (ROLES.index(role) if role in ROLES else len(ROLES), role)


def accuracy(share: float) -> str:
    """Return an accuracy in percent with one decimal."""
    return f"{share * 100:.1f}%" if math.isfinite(share) else "not a number"


def integer(value: int) -> str:
    """Return `value` with commas between groups of three digits, as the axes write them."""
    return f"{value:,}"


def byte_count(value: int) -> str:
    """Return bytes in decimal units.

    Examples:
        >>> byte_count(512), byte_count(10_380_000), byte_count(276_000_000_000), byte_count(999_999)
        ('512 B', '10.4 MB', '276 GB', '1 MB')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if is_a_unit(value / 10**power):
            return f"{value / 10**power:.3g} {unit}"
    return f"{value} B"


def is_a_unit(value: float) -> bool:
    """Return whether an amount is 1 or more in a unit, once it is rounded to three digits.

    Examples:
        >>> is_a_unit(0.9996), is_a_unit(0.9994)
        (True, False)
    """
    # Rounded first: 999.6 in the next smaller unit would be 1e+03.
    return float(f"{value:.3g}") >= 1


def decibels(value: float) -> str:
    """Return a ratio in dB; infinity means that nothing differs."""
    if math.isnan(value):
        return "not a number"
    return "identical" if math.isinf(value) and value > 0 else f"{value:.1f} dB"


def seconds(value: float) -> str:
    """Return a duration in everyday units.

    Examples:
        >>> seconds(0.25), seconds(74.2), seconds(8000)
        ('0.25 s', '74 s', '2 h 13 min')
    """
    if value < 10:
        return f"{value:.2g} s"
    if value < 120:
        return f"{value:.0f} s"
    # From two minutes on seconds are left out, from two hours on hours come first.
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def duration(value: float) -> str:
    """Return seconds with a unit from seconds to picoseconds.

    Examples:
        >>> duration(0.0061), duration(2.5e-7), duration(75.0), duration(0.0), duration(0.0009999)
        ('6.1 ms', '250 ns', '75 s', '0 s', '1 ms')
    """
    # From large to small: the first unit of which there is at least one.
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if is_a_unit(value / size):
            return f"{number(value / size, 3)} {unit}"
    return f"{number(value * 1e12, 3)} ps" if value else "0 s"


def energy(joules: float) -> str:
    """Return joules with a unit from joules to picojoules.

    Examples:
        >>> energy(2.958e-6), energy(0.000169), energy(3.2e-11), energy(0.0), energy(0.99999)
        ('2.96 uJ', '169 uJ', '32 pJ', '0 J', '1 J')
    """
    for size, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ")):
        if is_a_unit(joules / size):
            return f"{joules / size:.3g} {unit}"
    return f"{joules / 1e-12:.3g} pJ" if joules else "0 J"


def area(mm2: float | None) -> str:
    """Return square millimetres; "unknown" for an area that the cost table does not give.

    Examples:
        >>> area(0.0126), area(327.8), area(None)
        ('0.0126 mm2', '328 mm2', 'unknown')
    """
    return "unknown" if mm2 is None else f"{mm2:.3g} mm2"


def markdown_row(cells: Sequence[str]) -> str:
    r"""Return a row of a Markdown table; a bar within a cell is escaped.

    Examples:
        >>> print(markdown_row(["a", "b | c"]))
        | a | b \| c |
    """
    # Line breaks would end the row; a bar would end the cell.
    return "| " + " | ".join(" ".join(text.replace("|", "\\|").split()) for text in cells) + " |"


def sentence_case(text: str) -> str:
    """Return `text` with a capital first letter; names and acronyms within it are unchanged."""
    return text[:1].upper() + text[1:]


def parse_or_none(text: str | None) -> Format | DynamicFixed | None:
    """Return the format that `text` names; None if only another version of emu knows it."""
    if not text:
        return None
    try:
        return parse_number(text)
    except FormatError:
        return None


def format_in_words(text: str) -> str:
    """Return a sentence about a format's bits, range and steps.

    Examples:
        >>> format_in_words("fp16").split("; ")[1]
        '-65504 .. 65504, full precision (about 3 digits) down to 6.1e-5, smallest 6.0e-8'
    """
    fmt = parse_or_none(text)
    return "a format that this version of emu does not have" if fmt is None else format_sentence(fmt)


def rounding_in_words(name: str | None) -> str:
    """Return, in words, how a mode rounds a result between two values."""
    known = {mode.value: mode.meaning.words for mode in Rounding}
    return known.get(name or "nearest_even", str(name))


def overflow_in_words(name: str | None, text: str | None = None) -> str:
    """Return, in words, what an overflow rule writes; None stands for the default rule of the format `text`."""
    if name is None:
        fmt = parse_or_none(text)
        name = default_rule(fmt).value if isinstance(fmt, Fixed | Float) else "saturate"
    return OVERFLOW_WORDS.get(name, str(name))


def mac_in_words(mac: Mapping[str, Any] | str | None) -> str:
    """Return, in words, how a unit rounds the products and sums of a dot product.

    Examples:
        >>> mac_in_words({"product": "exact", "accumulator": "exact"})
        'products and sums are exact; only the result is rounded, once'
    """
    if not mac:
        return "none"
    if isinstance(mac, str):
        return "products and sums are exact; only the result is rounded, once" if mac == "exact" else mac
    product, accumulator = (str(mac.get(name) or "exact") for name in ("product", "accumulator"))
    if product == accumulator == "exact":
        return "products and sums are exact; only the result is rounded, once"
    rounding = rounding_in_words(mac.get("rounding"))
    products = "products are exact" if product == "exact" else f"each product is rounded to {product}"
    order = str(mac.get("order") or "sequential")
    sums = "summed exactly" if accumulator == "exact" else f"each sum is rounded to {accumulator}, in {order} order"
    return f"{products}, {sums}; rounding {rounding}"


def family_limit_in_words(text: str | None) -> str:
    """Return, in words, the smallest step of a fixed-point format, or the smallest value of a float format."""
    fmt = parse_or_none(text)
    if isinstance(fmt, Fixed):
        return f"the smallest step of {text} ({number(fmt.smallest_positive, 2)})"
    if isinstance(fmt, Float):
        return f"the smallest value of {text} ({two_digits(fmt.smallest_positive)})"
    return f"the smallest step of {text}" if text else "the smallest step of its format"
