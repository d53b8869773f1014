"""Sentences and cells that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Sequence

from emu.report.sensitivity.rows import Row, Sensitivity
from emu.report.study.difference import between, points
from emu.report.words import NO_NUMBER, accuracy, integer, percent

#: Most tensors that a sentence names.
_NAMED = 6
#: Cell of a change that could not be measured.
FAILED = "failed"


def headline(measured: Sensitivity) -> str:
    """Return what was measured, and the unchanged device's accuracy, in a sentence."""
    about = measured.about
    reached = f"{measured.baseline:.2%}"
    if measured.is_evaluation:
        of = f" of {integer(about['examples'])} test answers" if about["examples"] else ""
        return f"{about['network']} on {about['device']}: {reached}{of} are right in the unchanged formats."
    seeds = len(about["baseline"])
    return (
        f"{about['network']} on {about['device']}, trained for {integer(about['steps'])} steps with {seeds} "
        f"seed{'s' * (seeds > 1)}: {reached} test accuracy in the unchanged formats."
    )


def warning(measured: Sensitivity) -> str:
    """Return the warning that the unchanged device is no better than guessing; empty if it is better."""
    if not measured.is_at_chance:
        return ""
    remedy = "evaluate a network that has learned" if measured.is_evaluation else "train for more steps"
    chance = percent(measured.about["chance"])
    return (
        f"The unchanged device is at chance: {accuracy(measured.baseline)} are right, and guessing gets {chance}. No "
        f"loss means anything, so none is shown and nothing is ranked; {remedy}."
    )


def limits(measured: Sensitivity) -> list[str]:
    """Return what the analysis does not tell."""
    alone = "One role of one layer was narrowed at a time: what other combinations lose is not known from this."
    if measured.is_evaluation:
        return [
            alone,
            "The weights were trained in the unchanged formats: whether a network can be trained in the narrower ones "
            "is another question (--train STEPS, or a search).",
        ]
    short = f"The runs had {integer(measured.about['steps'])} steps: longer ones may lose less, or more."
    return [
        alone,
        short,
        *(["One seed is one seed: intervals need --seeds with two or more."] * (_seeds(measured) < 2)),
    ]


def _seeds(measured: Sensitivity) -> int:
    return len(measured.about["baseline"])


def conclusions(measured: Sensitivity) -> list[str]:
    """Return, for each width or format, which tensors tolerate it alone; none if the unchanged device is at chance."""
    if measured.is_at_chance:
        return []
    sentences: list[str] = []
    for column in measured.columns():
        rows = [row for row in measured.ranked() if measured.column_of(row) == column]
        if not rows:
            continue
        # Ranked, so the most sensitive are named first. A failed change counts as one that is not tolerated.
        others = [row for row in rows if not measured.is_tolerated(row)]
        together = _together(measured, column)
        most = f"{100 * measured.margin:g}"
        margin = f"at most {most} point{'s' * (most != '1')} alone"
        if not others:
            tolerant = "the only tensor loses" if len(rows) == 1 else f"all {len(rows)} tensors lose"
            sentences.append(f"{column}: {tolerant} {margin}.{together}")
            continue
        named = ", ".join(f"{row.role} of {row.layer} ({_points(row)})" for row in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        fine = len(rows) - len(others)
        tolerant = f"{fine} of {len(rows)} tensor{'s' * (len(rows) > 1)} lose{'s' * (fine == 1)}"
        sentences.append(f"{column}: {tolerant} {margin}. Not: {named}{more}.{together}")
    return sentences


def _together(measured: Sensitivity, column: str) -> str:
    """Return what the tolerated tensors of a column lose and save together; empty if that is not measured."""
    known = next((together for together in measured.together if together.column == column), None)
    if known is None:
        return ""
    # verbs of one tensor end in s
    s, those = ("s", "The tolerated tensor") if known.tensors == 1 else ("", f"Together these {known.tensors}")
    lose = f"lose{s} nothing"
    if known.lost:
        lose = f"{'lose' if known.lost > 0 else 'gain'}{s} {_magnitude(abs(known.lost))}"
    if known.saving is None:
        return f" {those} {lose}."
    energy = f"the energy of {measured.about['energy_of']}"
    share = percent(abs(known.saving))
    saved = f"save{s} {share} of {energy}" if known.saving >= 0 else f"add{s} {share} to {energy}"
    return f" {those} {lose}, and {saved}."


def _magnitude(difference: float) -> str:
    """Return a difference above 0 in points; one that would round to 0.00 is said to be less than the last digit."""
    text = points(difference).lstrip("+")
    return "less than 0.01 points" if text == "0.00" else f"{text} points"


def lost(row: Row) -> str:
    """Return the points of accuracy that a change loses; of several seeds with their interval."""
    if row.lost is None:
        return FAILED
    text = _points(row)
    if row.difference is None or row.difference.interval is None:
        return text
    low, high = row.difference.interval
    # A loss is minus a difference, so the ends change places.
    return f"{text} ({between(-high, -low) if row.difference.is_statement else 'no statement'})"


def _points(row: Row) -> str:
    """Return the points that a change loses, without an interval."""
    return FAILED if row.lost is None else f"{round(100 * row.lost, 2) + 0.0:.2f}"


def answers(row: Row) -> str:
    """Return how many test answers differ from the unchanged device's: "5 (-3 +1)".

    After the minus stands how many of these were right before and are wrong now, after the plus the reverse.
    """
    if row.answers is None:
        return NO_NUMBER
    changed = integer(row.answers.changed or 0)
    return f"{changed} (-{row.answers.spoilt} +{row.answers.mended})" if row.answers.changed else changed


def saving(row: Row) -> str:
    """Return the share of the energy that a change saves."""
    return NO_NUMBER if row.saving is None else percent(row.saving)


def events(row: Row) -> str:
    """Return the shares of the tensor's results that underflowed and overflowed; `none` if none did."""
    shares = {short: row.share(event) for event, short in (("underflow", "under"), ("overflow", "over"))}
    # Nothing was written, or the row failed: no share is known.
    if None in shares.values():
        return NO_NUMBER
    return ", ".join(f"{short} {percent(share)}" for short, share in shares.items() if share) or "none"


def layer(row: Row) -> str:
    """Return the layer, and how many layers pass its values on."""
    return f"{row.layer} +{len(row.passes)}" if row.passes else row.layer


def header(measured: Sensitivity) -> list[str]:
    """Return the heads of the table's columns."""
    lost_head = [] if measured.is_at_chance else ["points lost"]
    changed = ["changed"] if measured.is_evaluation else []
    return ["layer", "role", "format", *lost_head, *changed, "loss", "saved", "events"]


def cells(measured: Sensitivity, row: Row) -> list[str]:
    """Return the cells of a row, in the order of `header`."""
    lost_cell = [] if measured.is_at_chance else [lost(row)]
    changed = [answers(row)] if measured.is_evaluation else []
    increase = NO_NUMBER if row.loss_increase is None else f"{row.loss_increase:+.4f}"
    return [layer(row), row.role, row.format, *lost_cell, *changed, increase, saving(row), events(row)]


def failures(measured: Sensitivity) -> Sequence[str]:
    """Return why changes could not be measured."""
    return [f"{row.role} of {row.layer} in {row.format}: {row.failure}" for row in measured.rows if row.failure]
