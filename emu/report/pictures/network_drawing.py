"""Layers as boxes, residual blocks as frames with their branch: a drawing for each top layer, which flow like text.

box         name, number of the chosen column
            type
frame       a block's layers from top to bottom; beside them the branch, with its layers; the sum below
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.report.html import Html, element, join
from emu.report.pictures.network_columns import Box
from emu.report.run_data import RunData, table_of, tables_of

#: Sizes in pixels.
BOX_WIDTH, BOX_HEIGHT = 142, 40
#: Distances: from a box to the next one below, an arrow between top layers, from a frame to its boxes, body to branch.
_GAP, _ARROW, _PAD, _BRANCH = 16, 20, 10, 18
#: Most characters of a name in a box.
MOST_CHARACTERS = 19
_SUM = "sum"


@dataclass(frozen=True)
class Node:
    """A layer of the drawing.

    Attributes:
        name: name of the layer; of a block, also that of its sum.
        kind: type of the layer; empty if it is not known.
        body: layers of a block; empty for a plain layer.
        branch: layers of the residual branch of a block; empty if it carries the input unchanged.
    """

    name: str
    kind: str = ""
    body: tuple[Node, ...] = ()
    branch: tuple[Node, ...] = ()

    def every(self) -> Iterator[Node]:
        """Yield the layers in the order in which they compute; a block itself is its sum."""
        for node in (*self.body, *self.branch):
            yield from node.every()
        yield self

    def names(self) -> list[str]:
        """Return the names of all layers, in the order in which they compute."""
        return [node.name for node in self.every()]


def nodes_of(run: RunData) -> list[Node]:
    """Return the layers of a run's network; without a recipe, those that its tables name."""
    listed = tables_of(table_of(run.section("recipe").get("network")).get("layers"))
    if run.info.get("network") or not listed:  # given from Python: the recipe's network is another one
        return [Node(name) for name in run.layers]
    inner = [_node(layer) for layer in listed]
    first = [Node(INPUT_LAYER)] if INPUT_LAYER in run.layers else []
    last = [Node(LOSS_LAYER)] if LOSS_LAYER in run.layers else []
    return [*first, *inner, *last]


def _node(layer: Mapping[str, object]) -> Node:
    kind = str(layer.get("type") or "")
    name = str(layer.get("name") or kind)
    inside = (tuple(_node(each) for each in tables_of(layer.get(key))) for key in ("layers", "shortcut"))
    return Node(name, kind, *inside)


def drawing(nodes: Sequence[Node], boxes: Mapping[str, Box]) -> Html:
    """Return the drawings of all layers as a list.

    Args:
        nodes: layers in order.
        boxes: layer -> colour, ink and text of its box.
    """
    items = (element("li", _top(node, boxes, has_arrow=i > 0)) for i, node in enumerate(nodes))
    return element("ol", *items, class_="network", aria_label="Layers of the network, in order")


@dataclass(frozen=True)
class _Piece:
    """A part of a drawing: a box, a frame, or a column of these.

    Attributes:
        markup: elements.
        width: pixels to the right of its left edge.
        height: pixels from its top to its bottom.
    """

    markup: Html
    width: int
    height: int


def _top(node: Node, boxes: Mapping[str, Box], *, has_arrow: bool) -> Html:
    """Return the drawing of a top layer, with the arrow that leads to it."""
    # 1 pixel of room for the border of the box.
    left = _ARROW if has_arrow else 1
    piece = _frame(node, boxes, left, 1, "") if node.body else _box(node, boxes, left, 1, "")
    arrow = _arrow(f"M1 {1 + BOX_HEIGHT // 2}", (left, 1 + BOX_HEIGHT // 2), "right") if has_arrow else Html("")
    width, height = left + piece.width + 1, piece.height + 2
    inner = ", ".join(node.names()[:-1])
    label = f"{node.name}: {node.kind} of {inner}" if node.body else f"{node.name}: {node.kind or 'layer'}"
    size = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    drawn = element("svg", arrow, piece.markup, **size, aria_hidden="true")
    return join([element("span", label), drawn])  # the span is read aloud; the table below has the numbers


def _box(node: Node, boxes: Mapping[str, Box], x: int, y: int, inside: str) -> _Piece:
    """Return the box of a layer, or of a block's sum, with its left top corner at x, y.

    In a block, names begin with the block's and a dot: this is `inside`, and left out; "" for a top layer.
    """
    colour, ink, text = boxes[node.name]
    short = node.name.removeprefix(inside)
    short = short if len(short) <= MOST_CHARACTERS else f"{short[: MOST_CHARACTERS - 1]}\u2026"
    kind = _SUM if node.body else node.kind
    markup = element(
        "g",
        element("title", f"{node.name}{f', {kind}' if kind else ''}"),
        element("rect", x=str(x), y=str(y), width=str(BOX_WIDTH), height=str(BOX_HEIGHT), rx="5"),
        element("text", short, x=str(x + 8), y=str(y + 16), class_="name"),
        element("text", kind, x=str(x + 8), y=str(y + 32)),
        element("text", text, x=str(x + BOX_WIDTH - 8), y=str(y + 32), class_="value", text_anchor="end"),
        data_layer=node.name,
        style=f"--box:{colour};--ink-of-box:{ink}",
    )
    return _Piece(markup, BOX_WIDTH, BOX_HEIGHT)


def _column(nodes: Sequence[Node], boxes: Mapping[str, Box], x: int, y: int, inside: str) -> _Piece:
    """Return layers from top to bottom, with arrows between them; x, y and `inside` as of `_box`."""
    parts, bottom, width, axis = list[Html](), y, BOX_WIDTH, x + BOX_WIDTH // 2
    for i, node in enumerate(nodes):
        if i:
            parts.append(_arrow(f"M{axis} {bottom}", (axis, bottom + _GAP), "down"))
            bottom += _GAP
        piece = _frame(node, boxes, x, bottom, inside) if node.body else _box(node, boxes, x, bottom, inside)
        parts.append(piece.markup)
        bottom, width = bottom + piece.height, max(width, piece.width)
    return _Piece(join(parts), width, bottom - y)


def _frame(node: Node, boxes: Mapping[str, Box], x: int, y: int, outside: str) -> _Piece:
    """Return a residual block: its layers, its branch beside them, and the sum below.

    `outside` is what names begin with in the block around this one; "" if it is a top layer.
    """
    inside = f"{node.name}."
    # The fork is as high as the middle of a plain box, where the arrow from the layer before arrives.
    left, fork = x + _PAD, y + BOX_HEIGHT // 2
    axis, top = left + BOX_WIDTH // 2, fork + _GAP
    body = _column(node.body, boxes, left, top, inside)
    beside = left + body.width + _BRANCH
    branch = _column(node.branch, boxes, beside, top, inside)
    # The sum lies below the longer of the two columns.
    sum_top = top + max(body.height, branch.height if node.branch else 0) + _GAP
    sum_box = _box(node, boxes, left, sum_top, outside)
    middle = sum_top + BOX_HEIGHT // 2
    lines = [
        _line(f"M{axis} {y}V{fork}" if outside else f"M{x} {fork}H{axis}"),  # from above in a block, else from the left
        _arrow(f"M{axis} {fork}", (axis, top), "down"),
        _arrow(f"M{axis} {top + body.height}", (axis, sum_top), "down"),
        *_branch(node, branch, (axis, fork, top), (left + BOX_WIDTH, middle), beside),
    ]
    # Without layers the branch is a line at `beside`.
    width = beside - x + (branch.width if node.branch else 0) + _PAD
    height = sum_top + BOX_HEIGHT + _PAD - y
    border = element("rect", x=str(x), y=str(y), width=str(width), height=str(height), rx="8", class_="frame")
    return _Piece(join([border, *lines, body.markup, branch.markup, sum_box.markup]), width, height)


def _branch(
    node: Node, branch: _Piece, start: tuple[int, int, int], end: tuple[int, int], beside: int
) -> Iterator[Html]:
    """Yield the lines of a residual branch, from the fork above the body to the right side of the sum.

    Args:
        node: the block.
        branch: its layers, drawn.
        start: axis of the body, height of the fork, top of the layers.
        end: right edge of the sum, and the height of its middle.
        beside: left edge of the branch.
    """
    (axis, fork, top), (right, middle) = start, end
    # The axis of the branch: through its boxes, or a plain line beside the body.
    lane = beside + BOX_WIDTH // 2 if node.branch else beside
    # A quarter circle of 6 pixels at each corner, as a quadratic curve.
    down = f"M{axis} {fork}H{lane - 6}Q{lane} {fork} {lane} {fork + 6}"
    if node.branch:
        yield _arrow(down, (lane, top), "down")
        down = f"M{lane} {top + branch.height}"
    yield _arrow(f"{down}V{middle - 6}Q{lane} {middle} {lane - 6} {middle}", (right, middle), "left")


def _line(path: str) -> Html:
    return element("path", d=path, class_="wire")


#: Direction of an arrow -> how its head goes on from its tip.
_HEADS = {"right": "l-7 -4v8z", "left": "l7 -4v8z", "down": "l-4 -7h8z"}


def _arrow(path: str, tip: tuple[int, int], direction: str) -> Html:
    """Return a line along a path to a tip, with a head there."""
    x, y = tip
    return join([_line(f"{path}L{x} {y}"), element("path", d=f"M{x} {y}{_HEADS[direction]}", class_="head")])
