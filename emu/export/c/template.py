"""Text of C from fragments: lines that a unit does not need are left out, and then the parts that nothing uses.

    @if wide_products        lines up to @else or @end stand only in a unit of which the condition holds;
    ...                      a condition has names, `not`, `and`, `or`
    $unpack_a                replaced by a text

A part is a run of lines without an empty one between: a type, a function, a constant. A part stays if a part that stays
uses a name that it defines; heads of sections stay with their parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from string import Template

TEXTS = Path(__file__).with_name("text")
_HEAD = "/* ----"
_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z_]\w*")
#: What a part defines: a function, a type, constants, a macro.
#: Anchored at the start of a line: calls and local names are indented.
_DEFINED = re.compile(
    r"^(?:static [\w ]+?\**(?P<function>\w+)\(|struct (?P<type>\w+) \{|enum (?P<constants>(?:\w+ )?\{[^}]*\})"
    r"|static const struct \w+ (?P<constant>\w+) =|#define (?P<macro>\w+))",
    re.MULTILINE,
)


def fragment(name: str, conditions: Collection[str], texts: Mapping[str, str]) -> str:
    """Return a fragment with the lines whose conditions hold, and with texts in place of `$` and their names.

    Args:
        name: path of a file of `text/`.
        conditions: those that hold.
        texts: by name.
    """
    # Lines are left out first, so a text is needed only if a line with its name stays; `substitute` raises for a name
    # without a text.
    kept = "\n".join(_kept((TEXTS / name).read_text(encoding="utf-8").splitlines(), conditions))
    return Template(kept).substitute(texts)


def _kept(lines: Iterable[str], conditions: Collection[str]) -> Iterable[str]:
    stack: list[bool] = []
    for line in lines:
        if line.startswith("@if "):
            stack.append(_holds(line.removeprefix("@if "), conditions))
        elif line == "@else":
            stack[-1] = not stack[-1]
        elif line == "@end":
            stack.pop()
        # A line stays only if every condition around it holds.
        elif all(stack):
            yield line
    assert not stack, "an @if without @end"


def _holds(condition: str, conditions: Collection[str]) -> bool:
    """Return whether a condition holds: `or` of `and` of names or `not` names."""

    def term(text: str) -> bool:
        return text.removeprefix("not ") not in conditions if text.startswith("not ") else text in conditions

    return any(all(term(text) for text in part.split(" and ")) for part in condition.split(" or "))


def used_parts(text: str, roots: Collection[str]) -> str:
    """Return the parts of a text that `roots` use, directly or by way of others, in their order.

    Args:
        text: parts, with empty lines between.
        roots: names that are used from outside, such as the unit's function.
    """
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    defined = [_names_defined(part) for part in parts]
    waiting, seen = list(roots), set(roots)
    # Reachability: `waiting` are names that are used and not yet looked up, `seen` are all that ever waited.
    stays = set[int]()
    while waiting:
        name = waiting.pop()
        for i in (i for i, names in enumerate(defined) if name in names and i not in stays):
            stays.add(i)
            # Comments name functions that the code does not call.
            more = set(_WORDS.findall(_COMMENTS.sub("", parts[i]))) - seen
            seen |= more
            waiting += more
    return "\n\n".join(_with_heads(parts, stays)) + "\n"


def _with_heads(parts: list[str], stays: Collection[int]) -> Iterable[str]:
    head = None
    for i, part in enumerate(parts):
        if part.startswith(_HEAD):
            head = part
        elif i in stays:
            if head is not None:
                yield head
            head = None
            yield part.strip("\n")


def _names_defined(part: str) -> set[str]:
    names = set[str]()
    plain = _COMMENTS.sub("", part)
    for match in _DEFINED.finditer(plain):
        groups = match.groupdict()
        names |= {groups[key] for key in ("function", "type", "constant", "macro") if groups[key]}
        names |= set(_WORDS.findall(groups["constants"] or ""))
    # The unit's function is the only one that is not static.
    public = re.search(r"^uint64_t (\w+)\(", plain, re.MULTILINE)
    return names | ({public[1]} if public else set())


def names_of(text: str) -> set[str]:
    """Return the words of a text of C, those of comments left out."""
    return set(_WORDS.findall(_COMMENTS.sub("", text)))
