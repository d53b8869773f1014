"""The top of a run's report: model, device, outcome and diagnosis; and its last lines."""

from __future__ import annotations

import math
from collections.abc import Iterable

from emu.formats.numerals import number
from emu.report.diagnosis import (
    MOST_FINDINGS,
    OVERFLOW_NOTABLE,
    UNDERFLOW_NOTABLE,
    Finding,
    grouped,
    is_severe,
)
from emu.report.evidence import Evidence
from emu.report.html import Html, definitions, element, join, paragraph
from emu.report.outcome import Outcome
from emu.report.page import SELF_CONTAINED
from emu.report.words import accuracy, decibels, family_limit_in_words, percent, sentence_case
from emu.training.remarks import remarks

#: Most layers that are named after the worst one of a group.
MOST_NAMED = 5


def header(evidence: Evidence) -> Html:
    """Return title, outcome, key figures and diagnosis."""
    model, device = evidence.run.name()
    description = str(evidence.run.section("device").get("description") or "")
    title = element("h1", element("span", model, class_="model"), " on ", element("span", device, class_="device"))
    about = paragraph(description, class_="about") if description else ""
    notes = [paragraph(f"{remark[0].upper()}{remark[1:]}.", class_="about") for remark in remarks(evidence.run.info)]
    return join(
        [
            title,
            paragraph(evidence.outcome.sentence(), class_="outcome"),
            *notes,
            about,
            _figures(evidence),
            _diagnosis(evidence),
        ]
    )


def _figures(evidence: Evidence) -> Html:
    outcome = evidence.outcome
    pairs: list[tuple[str, str]] = []
    if outcome.test_accuracy is not None:
        pairs.append(("test accuracy", accuracy(outcome.test_accuracy)))
    if outcome.train_loss is not None:
        pairs.append(("training loss", number(outcome.train_loss, 3)))
    for flag in ("overflow", "underflow"):
        if evidence.flags:
            (layer, role), history = max(evidence.flags.items(), key=lambda item: item[1].share(flag))
            share = history.share(flag)
            pairs.append((f"worst {flag}" + (f": {role} of {layer}" if share else ""), percent(share)))
    # a NaN differs from itself: tensors without a ratio are left out
    measured = {tensor: noise.last for tensor, noise in evidence.noise.items() if noise.last == noise.last}
    if measured:
        (layer, role), worst = min(measured.items(), key=lambda item: item[1])
        pairs.append((f"lowest signal-to-noise: {role} of {layer}", decibels(worst)))
    return definitions(pairs, class_="figures") if pairs else Html("")


def first_finding(evidence: Evidence) -> str:
    """Return the first line of the diagnosis as plain text, and how many more there are."""
    groups = grouped(evidence.findings)
    if not groups:
        return _nothing_went_wrong(evidence)
    # a run that failed says so first, and then why
    shown = [groups[0], *([cause] if groups[0][0].tensor is None and (cause := _first_cause(groups)) else [])]
    more = f" {len(groups) - len(shown)} more in the report." if len(groups) > len(shown) else ""
    return " ".join(f"{worst.subject}: {worst.sentence}{_also(others)}" for worst, *others in shown) + more


def _nothing_went_wrong(evidence: Evidence) -> str:
    """Return a sentence, without its capital and its dot, about a run without findings."""
    # No finding may also mean that nothing was measured.
    if not (evidence.flags or evidence.noise):
        return "this run folder holds neither flags nor signal-to-noise, so nothing can be said about its arithmetic"
    return "no tensor overflowed, vanished or drowned in noise beyond the limits that the report watches"


def _first_cause(groups: list[list[Finding]]) -> list[Finding] | None:
    """Return the first group of findings about tensors."""
    return next((group for group in groups if group[0].tensor is not None), None)


def _diagnosis(evidence: Evidence) -> Html:
    groups = grouped(evidence.findings)
    shown, rest = groups[:MOST_FINDINGS], [finding for group in groups[MOST_FINDINGS:] for finding in group]
    if not shown:
        text = f"{sentence_case(_nothing_went_wrong(evidence))}."
        body = [element("h2", "Diagnosis"), paragraph(text), _harmless(evidence)]
        return element("section", *body, class_="diagnosis calm", aria_label="Diagnosis")
    items = (element("li", _item(group), class_="severe" if is_severe(group[0]) else None) for group in shown)
    more = paragraph(f"{len(rest)} more of the same kinds, smaller: {_subjects(rest)}.", class_="more") if rest else ""
    lead = paragraph(_lead(evidence))
    return element(
        "section",
        element("h2", "Diagnosis"),
        lead,
        element("ul", *items),
        more,
        _harmless(evidence),
        class_="diagnosis",
        aria_label="Diagnosis",
    )


def _harmless(evidence: Evidence) -> Html:
    """Return why the underflow among the key figures is no finding.

    Empty if it is a finding, if it hardly happened, or if the run failed.
    """
    if not evidence.flags or _failed(evidence.outcome):
        return Html("")
    tensor, history = max(evidence.flags.items(), key=lambda item: item[1].share("underflow"))
    share = history.share("underflow")
    # Below OVERFLOW_NOTABLE it hardly happened, and from UNDERFLOW_NOTABLE on it is a finding.
    if tensor in {finding.tensor for finding in evidence.findings} or not OVERFLOW_NOTABLE <= share < UNDERFLOW_NOTABLE:
        return Html("")
    datapath, noise = evidence.run.formats.get(tensor), evidence.noise.get(tensor)
    limit = family_limit_in_words(datapath.format if datapath else None)
    ratio = math.nan if noise is None else noise.last
    still = f", and its signal-to-noise is {decibels(ratio)}" if math.isfinite(ratio) else ""
    return paragraph(
        f"Underflow was most in {tensor[1]} of {tensor[0]}: {percent(share)} of its results were smaller than {limit} "
        f"and became 0. Under {percent(UNDERFLOW_NOTABLE)} this is harmless: each is off by less than that, as any "
        f"rounded result may be{still}.",
        class_="more",
    )


def _item(group: list[Finding]) -> Html:
    worst, *others = group
    return join([element("a", worst.subject, href=f"#{worst.section}"), ": ", worst.sentence, _also(others)])


def _also(others: list[Finding]) -> str:
    """Return the names of other layers with the same finding, at most `MOST_NAMED` of them."""
    if not others:
        return ""
    # Other findings of the group have the same kind and role, so the layer says it all.
    named = [f"{other.tensor[0]} ({other.amount})" for other in others[:MOST_NAMED] if other.tensor]
    rest = len(others) - len(named)
    return f" Likewise in {', '.join(named)}" + (f" and {rest} more." if rest else ".")


def _subjects(rest: Iterable[Finding]) -> str:
    names = list(dict.fromkeys(finding.subject for finding in rest))
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _lead(evidence: Evidence) -> str:
    outcome = evidence.outcome
    if _failed(outcome) or outcome.test_accuracy is None:
        return "What went wrong, worst first:"
    reached = accuracy(outcome.test_accuracy)
    return f"The network reached {reached} all the same. Where its arithmetic had the least room, worst first:"


def _failed(outcome: Outcome) -> bool:
    return outcome.at_chance or outcome.first_nonfinite_step is not None or outcome.collapsed_from is not None


def footer(evidence: Evidence) -> Html:
    """Return the version of emu that trained the run, and a sentence that the page needs no other file."""
    version = evidence.run.info.get("emu_version")
    wrote = f"Run by emu {version}. " if version else ""
    return paragraph(wrote + SELF_CONTAINED)
