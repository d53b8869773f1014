"""HTML that is safe from injection: all text is escaped unless it was built here.

element("p", "a < b", class_="note")  ->  <p class="note">a &lt; b</p>
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Markup built by this module: the only text that is not escaped again."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Return `text` as markup that shows it; markup passes through unchanged."""
    # The type says that text was built here: this is the only place where escaping is decided.
    return text if isinstance(text, Html) else Html(html.escape(text))


def join(parts: Iterable[str], separator: str = "") -> Html:
    """Return the concatenated parts, each escaped unless it is markup."""
    return Html(separator.join(escape(part) for part in parts))


def element(name: str, *children: str, **attributes: str | bool | None) -> Html:
    """Return an element holding `children`, each escaped unless it is markup.

    Args:
        name: the element's name.
        children: texts or markup.
        attributes: `class_` and `for_` lose their underscore, other underscores become hyphens; None and False leave
            the attribute out, True writes it without a value.

    Examples:
        >>> element("td", "1 < 2", data_label="a")
        '<td data-label="a">1 &lt; 2</td>'
    """
    return Html(f"<{name}{_attributes(attributes)}>{join(children)}</{name}>")


def _attributes(attributes: dict[str, str | bool | None]) -> str:
    written: list[str] = []
    for key, value in attributes.items():
        # `class` and `for` are words of Python, so they end in an underscore as arguments.
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {name}")
        # `is not False`: an empty text is a value.
        elif value is not None and value is not False:
            written.append(f' {name}="{html.escape(value)}"')
    return "".join(written)


def paragraph(*children: str, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *children, class_=class_)


def bullets(items: Iterable[str], class_: str | None = None) -> Html:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items), class_=class_)


def definitions(pairs: Iterable[tuple[str, str]], class_: str | None = None) -> Html:
    """Return a description list of terms with their descriptions."""
    rows = (element("div", element("dt", term), element("dd", meaning)) for term, meaning in pairs)
    return element("dl", *rows, class_=class_)


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric_from: int | None = 1,
    stacks: bool = False,
) -> Html:
    """Return a table whose first column has the headers of its rows, in a region that the keyboard can scroll.

    Args:
        caption: caption of the table.
        header: column names.
        rows: rows of cells, as many as column names.
        numeric_from: first column of numbers, which are aligned at the right; None if no column holds numbers alone.
        stacks: whether a narrow screen shows each row as a small card instead of scrolling sideways.
    """
    head = element(
        "tr", *(element("th", name, scope="col", class_=_side(i, numeric_from)) for i, name in enumerate(header))
    )
    body = (_row(header, row, numeric_from) for row in rows)
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_="stacks" if stacks else None,
    )
    # A wide table scrolls by itself instead of the page; `tabindex` lets the keyboard reach it.
    return element("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _row(header: Sequence[str], row: Sequence[str], numeric_from: int | None) -> Html:
    first = element("th", row[0], scope="row")
    rest = (
        element("td", cell, class_=_side(i, numeric_from), data_label=header[i])
        for i, cell in enumerate(row[1:], start=1)
    )
    return element("tr", first, *rest)


def _side(column: int, numeric_from: int | None) -> str | None:
    return "number" if numeric_from is not None and column >= numeric_from else None


def disclosure(summary: str, *children: str) -> Html:
    """Return a closed block that the reader can open."""
    return element("details", element("summary", summary), *children)


def json_block(identifier: str, data: Any) -> Html:
    """Return a script block holding `data` as JSON; no text in it can end the block or open another."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    # Inside a script block HTML escapes are not read, so JSON's own escapes keep "</script>" and "<!--" out of it.
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{html.escape(identifier)}">{safe}</script>')


def script(source: str) -> Html:
    """Return a script element holding `source`, a program of ours or of a library."""
    # In the strings of a program, where they occur, a backslash before / or ! changes nothing.
    safe = source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return Html(f"<script>{safe}</script>")
