"""Units, and plans of products."""

from __future__ import annotations

from emu.engine import Unit
from emu.engine.planner import Plan
from emu.notebook.datapath import mac_drawing
from emu.notebook.parts import column, facts, title
from emu.notebook.picture import picture
from emu.notebook.registers import histogram
from emu.report.html import Html
from emu.report.words import format_in_words


@picture.register
def _(unit: Unit) -> Html:
    stage, register = unit.stage, unit.register
    described = [
        ("writes", f"{stage.format}: {format_in_words(str(stage.format))}"),
        *([("plain operands are", str(unit.inputs))] if unit.inputs is not None else []),
        ("rounding", stage.rounding.value),
        ("overflow", stage.overflow.value),
        *([("random bits", f"{stage.n_rbits} of {unit.random!r}")] if stage.rounding.draws else []),
        ("adds", f"in the order {unit.mac.order}, {unit.mac.rounding.value}" if not unit.mac.is_exact else "exactly"),
        ("backend", unit.backend),
    ]
    drawing = histogram(register, stage.format) if register is not None and register.total else None
    counted = None if unit.flags is None else picture(unit.flags)
    return column(
        title("unit that writes", str(stage.format)), mac_drawing(unit.mac), facts(described), drawing, counted
    )


@picture.register
def _(plan: Plan) -> Html:
    described = [
        ("path", plan.path),
        ("proof", plan.proof),
        *([("left to the reference", plan.fallback)] if plan.fallback else []),
        *([] if plan.shown_time is None else [("takes about", plan.shown_time)]),
        *[("slow", str(faster)) for faster in plan.faster],
    ]
    return column(title("plan", plan.path), facts(described), mac_drawing(plan.mac))
