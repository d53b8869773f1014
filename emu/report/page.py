"""The page: sections under a title, with all scripts, styles and data inside it.

    head      policy that forbids every request, styles
    body      skip link, header, contents, sections (text, elements for charts, tables), footer
    end       data as JSON, the drawing library, the page's own script

A page does not depend on runs: it is a title, a header and a list of sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from emu.report.chart import Chart
from emu.report.html import Html, element, join, json_block, paragraph, script
from emu.report.vega import drawing_library

#: The browser refuses all requests of the page: this enforces that it needs no network. 'unsafe-eval' is there because
#: Vega compiles its expressions.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
#: What a reader of a page may rely on.
SELF_CONTAINED = "This page holds everything it shows: it makes no network request and needs no other file."
_WITHOUT_SCRIPT = (
    "The charts on this page are drawn by a script inside it; without scripts, the tables below each chart hold the "
    "numbers."
)


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
        identifier: target of links.
        title: heading.
        body: markup.
        charts: charts whose elements are in the body.
        data: identifier -> JSON data that the page's script reads.
    """

    identifier: str
    title: str
    body: Html
    charts: tuple[Chart, ...] = ()
    data: dict[str, Any] = field(default_factory=dict[str, Any])


def missing_section(identifier: str, title: str, why: str | None) -> Section | None:
    """Return a section that says why its data are missing; None without a reason, for a run that has no such data."""
    return Section(identifier, title, paragraph(why, class_="missing")) if why else None


def page(title: str, header: Html, sections: Sequence[Section], footer: Html) -> str:
    """Return the whole page as text.

    Args:
        title: title of the browser's tab.
        header: markup above the contents, with an `h1`.
        sections: sections in reading order.
        footer: the last lines.
    """
    head = join(
        [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            # Without this, browsers ask the server for /favicon.ico.
            Html('<link rel="icon" href="data:,">'),
            element("title", title),
            Html(f"<style>{asset('page.css')}</style>"),
        ],
        "\n",
    )
    body = join([*_body(header, sections, footer), *_scripts(sections)], "\n")
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _body(header: Html, sections: Sequence[Section], footer: Html) -> list[Html]:
    links = (element("li", element("a", section.title, href=f"#{section.identifier}")) for section in sections)
    return [
        element("a", "Skip to the report", class_="skip", href="#report"),
        element("header", header),
        element("nav", element("ul", *links), aria_label="Contents"),
        element(
            "main",
            element("noscript", element("p", _WITHOUT_SCRIPT)),
            *map(_section, sections),
            id="report",
            tabindex="-1",
        ),
        element("footer", footer),
    ]


def _section(section: Section) -> Html:
    heading = f"{section.identifier}-title"
    return element(
        "section",
        element("h2", section.title, id=heading),
        section.body,
        id=section.identifier,
        aria_labelledby=heading,
    )


def _scripts(sections: Sequence[Section]) -> list[Html]:
    specs = {chart.identifier: chart.spec for section in sections for chart in section.charts}
    data = [json_block(name, value) for section in sections for name, value in section.data.items()]
    # Without charts the drawing library is left out, which takes about 0.9 MB.
    if not specs:
        return data
    # In this order: the page's script runs when it is read, and needs the data and the library above it.
    return [*data, json_block("charts", specs), script(drawing_library()), script(asset("page.js"))]


def asset(name: str) -> str:
    """Return the text of a file that is laid into pages."""
    return resources.files("emu.report").joinpath("assets", name).read_text(encoding="utf-8")


def figure(title: str, *parts: str, reading: str) -> Html:
    """Return a picture with its title above, and below it how to read it unless `reading` is empty."""
    caption = [element("figcaption", element("strong", "How to read it. "), reading)] if reading else []
    return element("figure", element("h3", title), *parts, *caption)
