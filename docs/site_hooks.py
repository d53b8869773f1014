"""What mkdocs does besides building the pages: sessions are coloured and copied as such, and search skips source code.

A session is a block with prompts: `>>> ` of Python, `$ ` of a shell. Its button copies what a reader types, without
prompts and results.
"""

from __future__ import annotations

import html as markup
import re
from typing import Any

#: A fenced block of a Python session. Pygments tells its prompts from its results if the language is `pycon`.
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
_PROMPT = re.compile(r'<span class="gp">.*?</span>')
_TAG = re.compile(r"<[^>]+>")
_SOURCE = '<details class="mkdocstrings-source"'


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name the language of Python blocks that have prompts."""
    return _SESSION.sub("```pycon\n", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Say what a session's button copies, and keep source code out of the search: it has every word many times."""
    html = _CODE.sub(_with_copy, html)
    return html.replace(_SOURCE, f'{_SOURCE} data-search-exclude="source code"')


def _with_copy(block: re.Match[str]) -> str:
    """Return a code block; one with prompts has what is typed after them in the attribute that the button reads."""
    typed = [_TAG.sub("", _PROMPT.sub("", line)) for line in block[1].split("\n") if _PROMPT.search(line)]
    if not typed:
        return block[0]
    copied = markup.escape(markup.unescape("\n".join(typed))).replace("\n", "&#10;")
    return f'<code data-copy="{copied}">{block[1]}</code>'
