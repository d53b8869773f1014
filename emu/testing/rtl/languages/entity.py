"""What the source of an entity says of its ports: their types, and their widths where these are numbers."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

# up to the first `end`; `_` is part of a word, so a port called end_of_sum does not count
_ENTITY = r"\bentity\s+{name}\s+is\b(.*?)\bend\b"
# greedy: up to the last `);`, because bounds have parentheses too; so it needs a text with no other clause behind it
# (`_split`)
_CLAUSE = r"\b{word}\s*\((.*)\)\s*;"
# groups: names, type, bounds, default value
_DECLARATION = re.compile(
    r"^\s*(?:signal\s+)?([\w\s,]+?)\s*:\s*(?:inout\b|in\b|out\b|buffer\b)?\s*([\w.]+)\s*(?:\((.*?)\))?\s*(?::=\s*(.*?))?\s*$",
    re.IGNORECASE | re.DOTALL,
)
#: Types of one bit. Any other without bounds has those of its own declaration, which stands elsewhere.
_BITS = frozenset(("std_logic", "std_ulogic", "bit", "boolean"))
_RANGE = re.compile(r"^(.*?)\b(downto|to)\b(.*)$", re.IGNORECASE | re.DOTALL)
# 16#20#: base and digits; underscores may be in both
_BASED = re.compile(r"\b(\d[\d_]*)#(\w+)#")


def _quotient(dividend: int, divisor: int) -> int:
    """Return a quotient rounded toward zero, as VHDL has it (IEEE 1076-2008 9.2.7)."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
}


@dataclass(frozen=True)
class EntityPort:
    """A port as an entity declares it.

    Attributes:
        type: name of its type, in small letters.
        width_bits: its bits; None if they are not known without elaborating the entity.
    """

    type: str
    width_bits: int | None


def ports_of_entity(text: str, entity: str, parameters: Mapping[str, object]) -> dict[str, EntityPort]:
    """Return the ports of an entity by their names in small letters; none if the text has no such entity.

    Args:
        text: of a source.
        entity: its name.
        parameters: generics that are given; others have the values of the source.

    Examples:
        >>> text = "entity e is generic (W : integer := 8); port (a, b : in signed(W - 1 downto 0)); end e;"
        >>> ports_of_entity(text, "e", {"w": 12})
        {'a': EntityPort(type='signed', width_bits=12), 'b': EntityPort(type='signed', width_bits=12)}
    """
    # comments may hold semicolons and parentheses
    text = re.sub(r"--.*", "", text)
    entities = re.search(_ENTITY.format(name=re.escape(entity)), text, re.DOTALL | re.IGNORECASE)
    if entities is None:
        return {}
    generics_text, ports_text = _split(entities[1])
    numbers: dict[str, int] = {}
    # in order: a default may use generics before it
    for names, _, _, value in _declared(generics_text, "generic"):
        numbers |= {name: number for name in names if (number := _number(value, numbers)) is not None}
    numbers |= {name.lower(): int(value) for name, value in parameters.items() if isinstance(value, int)}
    return {
        name: EntityPort(kind, _width(bounds, numbers) if bounds else 1 if kind in _BITS else None)
        for names, kind, bounds, _ in _declared(ports_text, "port")
        for name in names
    }


def _split(text: str) -> tuple[str, str]:
    """Return the text before and from the clause of ports."""
    match = re.search(r"\bport\s*\(", text, re.IGNORECASE)
    return (text, "") if match is None else (text[: match.start()], text[match.start() :])


def _declared(text: str, word: str) -> Iterator[tuple[list[str], str, str, str]]:
    """Yield names, type, bounds and value of each declaration of a clause."""
    clause = re.search(_CLAUSE.format(word=word), text, re.DOTALL | re.IGNORECASE)
    for part in _parts(clause[1]) if clause else ():
        if match := _DECLARATION.match(part):
            # VHDL's names know no case: all are kept in small letters
            names = [name.strip().lower() for name in match[1].split(",")]
            yield names, match[2].rpartition(".")[2].lower(), match[3] or "", match[4] or ""


def _parts(text: str) -> Iterator[str]:
    """Yield what semicolons outside of parentheses separate."""
    depth, part = 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == ";" and depth == 0:
            yield part
            part = ""
        else:
            part += character
    yield part


def _width(bounds: str, numbers: Mapping[str, int]) -> int | None:
    match = _RANGE.match(bounds)
    if match is None:
        return None
    left, right = _number(match[1], numbers), _number(match[3], numbers)
    # unknown as soon as one end is
    if left is None or right is None:
        return None
    # a range in the wrong direction is empty, such as W - 1 downto 0 of a generic that is 0
    return max((left - right if match[2].lower() == "downto" else right - left) + 1, 0)


def _number(text: str, numbers: Mapping[str, int]) -> int | None:
    """Return the number of a sum or product of numbers and generics; None of anything else."""
    try:
        plain = _BASED.sub(lambda literal: str(int(literal[2], int(literal[1]))), text.strip().lower())
        # Python would take the rest of the text for a comment
        if "#" in plain:
            return None
        # VHDL's sums and products read as Python's, apart from division, which `_OPERATORS` has
        return _computed(ast.parse(plain, mode="eval").body, numbers)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return None


def _computed(node: ast.expr, numbers: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return numbers[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_computed(operand, numbers)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_computed(left, numbers), _computed(right, numbers))
        case _:
            raise KeyError(ast.dump(node))
