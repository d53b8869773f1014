"""The top of a run's report: model, device, outcome and diagnosis; and its last lines."""

from __future__ import annotations

from collections.abc import Iterable

from emu.formats.numerals import number
from emu.report.diagnosis import MOST_FINDINGS, Finding, grouped, is_severe
from emu.report.evidence import Evidence
from emu.report.html import Html, definitions, element, join, paragraph
from emu.report.words import accuracy, decibels, percent
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


def _diagnosis(evidence: Evidence) -> Html:
    groups = grouped(evidence.findings)
    shown, rest = groups[:MOST_FINDINGS], [finding for group in groups[MOST_FINDINGS:] for finding in group]
    if not shown:
        text = "No tensor overflowed, vanished or drowned in noise beyond the limits this report watches."
        if not (evidence.flags or evidence.noise):
            text = (
                "This run folder holds neither flags nor signal-to-noise, so nothing can be said about its arithmetic."
            )
        return element(
            "section", element("h2", "Diagnosis"), paragraph(text), class_="diagnosis calm", aria_label="Diagnosis"
        )
    items = (element("li", _item(group), class_="severe" if is_severe(group[0]) else None) for group in shown)
    more = paragraph(f"{len(rest)} more of the same kinds, smaller: {_subjects(rest)}.", class_="more") if rest else ""
    lead = paragraph(_lead(evidence))
    return element(
        "section",
        element("h2", "Diagnosis"),
        lead,
        element("ul", *items),
        more,
        class_="diagnosis",
        aria_label="Diagnosis",
    )


def _item(group: list[Finding]) -> Html:
    worst, *others = group
    return join([element("a", worst.subject, href=f"#{worst.section}"), ": ", worst.sentence, _also(others)])


def _also(others: list[Finding]) -> str:
    """Return the names of other layers with the same finding, at most `MOST_NAMED` of them."""
    if not others:
        return ""
    named = [f"{other.tensor[0]} ({other.amount})" for other in others[:MOST_NAMED] if other.tensor]
    rest = len(others) - len(named)
    return f" Likewise in {', '.join(named)}" + (f" and {rest} more." if rest else ".")


def _subjects(rest: Iterable[Finding]) -> str:
    names = list(dict.fromkeys(finding.subject for finding in rest))
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _lead(evidence: Evidence) -> str:
    outcome = evidence.outcome
    failed = outcome.at_chance or outcome.first_nonfinite_step is not None or outcome.collapsed_from is not None
    if failed or outcome.test_accuracy is None:
        return "What went wrong, worst first:"
    reached = accuracy(outcome.test_accuracy)
    return f"The network reached {reached} all the same. Where its arithmetic had the least room, worst first:"


def footer(evidence: Evidence) -> Html:
    """Return the version of emu that trained the run, and a sentence that the page needs no other file."""
    version = evidence.run.info.get("emu_version")
    wrote = f"Run by emu {version}. " if version else ""
    return paragraph(
        wrote + "This page holds everything it shows: it makes no network request and needs no other file."
    )
