"""Texts of testbenches, in which `@NAME@` stands for what a unit decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

#: Texts by the names of their files.
Files = dict[str, str]
_FOLDER = Path(__file__).parent
_MARK = re.compile(r"@([A-Z_]+)@")


def filled(name: str, marks: Mapping[str, object]) -> str:
    """Return the text of a file of this folder with its marks replaced; a list becomes lines."""

    def value(match: re.Match[str]) -> str:
        # a KeyError if a text has a mark that its language does not fill
        mark = marks[match[1]]
        return "\n".join(cast("list[str]", mark)) if isinstance(mark, list) else str(mark)

    text = _MARK.sub(value, (_FOLDER / name).read_text(encoding="utf-8"))
    # a mark without lines leaves an empty line
    return re.sub(r"\n\n\n+", "\n\n", text)
