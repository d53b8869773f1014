"""Primitives of TensorFlow Lite's integers: each is one operation, and no gradient flows back through it."""

from __future__ import annotations

from emu.autodiff.context import Primitive
from emu.autodiff.integer_rules import alone
from emu.operations.reference_integers import ROWS

#: The primitives by name; `emu.operations.reference_integers` says what each computes.
REFERENCE_INTEGERS: dict[str, Primitive] = {row.name: Primitive(alone(row.name), ()) for row in ROWS}
