"""Drawings of an accumulation tree: text, and SVG, which no other tool draws.

Leaves stand below each other in the order in which a walk through the tree meets them; a node joins its children in one
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: Pixels of the SVG drawing.
ROW, COLUMN, LABEL, MARGIN = 18, 22, 34, 8


Nodes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Join:
    """A node: the column it stands in, the rows and columns its children come from; it leaves at the last row."""

    column: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def _layout(nodes: Nodes, n_terms: int) -> tuple[list[int], list[_Join]]:
    """Return the leaves from top to bottom, and the joins."""
    leaves = _walk(nodes, n_terms)
    row = {leaf: i for i, leaf in enumerate(leaves)}
    column = dict.fromkeys(leaves, 0)
    joins: list[_Join] = []
    for i, children in enumerate(nodes):
        ordered = sorted(children, key=row.__getitem__)
        node = n_terms + i
        column[node] = 1 + max(column[child] for child in ordered)
        # the sum leaves on the line of its last child
        row[node] = row[ordered[-1]]
        joins.append(
            _Join(column[node], tuple(row[child] for child in ordered), tuple(column[child] for child in ordered))
        )
    return leaves, joins


def _walk(nodes: Nodes, n_terms: int) -> list[int]:
    """Return the leaves in the order of their subtrees' first terms."""
    leaves: list[int] = []
    # a stack instead of recursion: a chain of terms is as deep as it is long
    waiting = [n_terms + len(nodes) - 1]
    while waiting:
        node = waiting.pop()
        if node < n_terms:
            leaves.append(node)
        else:
            # reversed, because the last one on the stack is taken first
            waiting.extend(reversed(nodes[node - n_terms]))
    return leaves


def draw_text(nodes: Nodes, labels: Sequence[str]) -> str:
    """Return the drawing in box characters, one line per leaf.

    Args:
        nodes: the children of every inner node; leaves are 0 .. n-1, inner nodes n, n+1 .., the root is the last.
        labels: of the n leaves.
    """
    leaves, joins = _layout(nodes, len(labels))
    # a column is two characters wide: the join of column c stands at character 2 * c - 1, its line to the right follows
    width = 2 * max((join.column for join in joins), default=0) + 1
    canvas = [[" "] * width for _ in leaves]
    for row in canvas:
        row[0:1] = "─"
    for join in joins:
        at = 2 * join.column - 1
        for row, column in zip(join.rows, join.columns, strict=True):
            canvas[row][2 * column : at] = "─" * (at - 2 * column)
        for row in range(join.rows[0], join.rows[-1] + 1):
            canvas[row][at] = "┤" if row in join.rows else "│"
        canvas[join.rows[0]][at] = "┐"
        canvas[join.rows[-1]][at : at + 2] = "┴─"
    shown = [labels[leaf] for leaf in leaves]
    margin = max(map(len, shown))
    return "\n".join(f"{label:>{margin}} {''.join(row).rstrip()}" for label, row in zip(shown, canvas, strict=True))


def draw_svg(nodes: Nodes, labels: Sequence[str]) -> str:
    """Return the drawing as SVG text that takes the colour of the text around it; arguments as of `draw_text`."""
    leaves, joins = _layout(nodes, len(labels))
    width = MARGIN + LABEL + COLUMN * (max((join.column for join in joins), default=0) + 1) + MARGIN
    height = 2 * MARGIN + ROW * len(leaves)
    shapes = [
        f'<text x="{MARGIN + LABEL - 8}" y="{_y(i) + 4}" text-anchor="end">{escape(labels[leaf])}</text>'
        for i, leaf in enumerate(leaves)
    ]
    shapes += [shape for join in joins for shape in _shapes_of(join)]
    root = joins[-1].column if joins else 0
    shapes.append(_line(root, root + 1, len(leaves) - 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="accumulation tree" font-family="monospace" font-size="12" fill="currentColor" '
        f'stroke-width="1.5">{"".join(shapes)}</svg>'
    )


def _shapes_of(join: _Join) -> list[str]:
    lines = [_line(column, join.column, row) for row, column in zip(join.rows, join.columns, strict=True)]
    x, top, bottom = _x(join.column), _y(join.rows[0]), _y(join.rows[-1])
    bar = f'<path d="M{x} {top}V{bottom}" stroke="currentColor" fill="none"/>'
    return [*lines, bar, f'<circle cx="{x}" cy="{bottom}" r="3"/>']


def _line(start: int, end: int, row: int) -> str:
    return f'<path d="M{_x(start)} {_y(row)}H{_x(end)}" stroke="currentColor" fill="none"/>'


def _x(column: int) -> int:
    return MARGIN + LABEL + COLUMN * column


def _y(row: int) -> int:
    return MARGIN + ROW * row + ROW // 2
