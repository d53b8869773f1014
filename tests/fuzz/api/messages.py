"""Whether a message says thing, rule, value and remedy: signs that a program can look for."""

from __future__ import annotations

import re

#: Text that only NumPy, Numba, Python or a validator writes.
RAW = re.compile(
    r"ufunc|dtype\('|could not be broadcast|not supported between|unsupported operand|has no attribute|object is not|"
    r"is not iterable|cannot reshape|invalid literal|Traceback|File \"|pydantic|validation error|"
    r"nopython|Numba|setting an array element|inhomogeneous|object of type|must be str|cannot convert|Cannot interpret|"
    r"only integers, slices|only size-1|only length-1|could not convert|'NoneType'|bad operand|int too large|"
    r"cannot be interpreted|not understood|buffer source|unhashable|Python integer|out of bounds for"
)
#: A rule: what must hold.
RULE = re.compile(
    r"\b(must|cannot|may not|needs?|has no|have no|is defined|belongs? to|only|no such|"
    r"say|says|takes?|does not|has one|are numbers|is frozen)\b"
)
#: The value that was given, or what is the case.
VALUE = re.compile(
    r"\b(got|says|beside|asks|not installed|has \d+|were given|and then|gave|is read-only|has none|terms of)\b"
)
#: What to do instead.
REMEDY = re.compile(
    r"; |did you mean|: (?:leave|give|write|choose|copy|name)|"
    r"\b(?:known|write|choose|leave|give|convert|quantize|pip install)\b|"
    r"\bone of [\w, ]+|True or False"
)
#: What the message is about: a name in backticks, or the subject of the sentence.
THING = re.compile(r"`[^`]+`|^\w+\(\) |^\w[\w ]{0,60}?\b(must|cannot|needs?|has|have|is|may|are)\b|^[\w. ]+: ")
SHORTEST, LONGEST = 25, 900
#: TypeErrors that Python itself raises for a call that does not fit a signature.
CALL = re.compile(
    r"unexpected keyword argument|required (positional|keyword-only) argument|positional arguments? but|"
    r"has no option|a unit has no "
)


def flaw(text: str) -> str:
    """What a message lacks; "" if nothing."""
    if found := RAW.search(text):
        return f"raw text {found[0]!r}"
    if not SHORTEST <= len(text) <= LONGEST:
        return "length " + ("below" if len(text) < SHORTEST else "above") + f" {SHORTEST}..{LONGEST}"
    for name, pattern in (("thing", THING), ("rule", RULE), ("value", VALUE), ("remedy", REMEDY)):
        if not pattern.search(text):
            return f"no {name}"
    return ""


def shape_of(text: str) -> str:
    """A message without its values: messages of one kind are one shape."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'..'", text)
    text = re.sub(r"0x[0-9a-fA-F]+", "0", text)
    text = re.sub(r"\[[^\]]*\]|\([^()]*\)", "(..)", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "0", text)
    return text[:160]
