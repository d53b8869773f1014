"""What mkdocs does besides building the pages: colours for sessions of Python, and a search that skips source code."""

from __future__ import annotations

import re
from typing import Any

#: A fenced block of a session. Pygments colours its prompts and results as such if the language is `pycon`.
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_SOURCE = '<details class="mkdocstrings-source"'


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let Python blocks with prompts be coloured, and copied, as sessions."""
    return _SESSION.sub("```pycon\n", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Keep source code out of the search: it holds every word many times."""
    return html.replace(_SOURCE, f'{_SOURCE} data-search-exclude="source code"')
