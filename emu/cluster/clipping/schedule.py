"""When layers are clipped and sent while backpropagation goes on.

    next        clip a layer when the gradient after it is ready; the last one after the loop      (published)
                grad   │ 1 │ 2 │ 3 │
                clip           │ 1 │ 2 │ 3 │              clip i begins at max(grad i+1, clip i-1)
                send               │ 1 │ 2 │ 3 │          send i begins at max(clip i, send i-1)
    own         clip a layer when its own gradient is ready
    after_all   send gradients as they are ready; the receiver clips them one by one when all are there
    serial      gradient, clip, send; then the next layer

Layers are numbered in the order of backpropagation. If each of L layers takes b for its gradient, c to clip and x to
send, and a separate processor clips, the ends are

    next        L*b + c + max(c, x) + x          for c, x <= b and L >= 2
    own         b + c + x + (L-1) * max(b, c, x)
    after_all   b + x + (L-1) * max(b, x) + L*c
    serial      L * (b + c + x)

Source: US 2023/0169333.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from emu.errors import ConfigError, nearest_name
from emu.hardware import Timeline

Trigger: TypeAlias = Literal["next", "own", "after_all", "serial"]
#: The processor that clips.
Processor: TypeAlias = Literal["worker", "separate"]
#: Tasks of a layer, which are also the kinds of events.
GRAD, CLIP, SEND = "grad", "clip", "send"
#: The resources of a worker.
PROCESSOR, CLIPPER, LINK = "processor", "clipper", "link"


class _Worker:
    """One worker's processors and link."""

    def __init__(
        self, durations: Sequence[tuple[int, int, int]], layers: Sequence[str], on: Processor, node: int
    ) -> None:
        self.timeline, self._durations, self._layers = Timeline(), durations, layers
        own = f"node {node}: "
        self._on = {
            GRAD: own + PROCESSOR,
            CLIP: own + (PROCESSOR if on == "worker" else CLIPPER),
            SEND: own + LINK,
        }

    def do(self, kind: str, layer: int, *, after: int = 0) -> int:
        """Book a task of a layer; return when it ends."""
        duration_ps = self._durations[layer][(GRAD, CLIP, SEND).index(kind)]
        name = self._layers[layer]
        # a resource does its tasks in the order of booking, so the order of calls below is part of the result
        return self.timeline.book(self._on[kind], f"{kind} {name}", duration_ps, after=after, kind=kind, layer=name)


def schedule(
    costs: Sequence[tuple[int, int, int]],
    trigger: Trigger = "next",
    on: Processor = "separate",
    *,
    layers: Sequence[str] = (),
    node: int = 0,
) -> Timeline:
    """Return the timeline of one worker in one backpropagation, which begins at 0.

    Args:
        costs: picoseconds of each layer, in the order of backpropagation: for gradient, clip, send.
        trigger: what a clip waits for.
        on: the processor that clips: a "separate" one, or the "worker", which also backpropagates.
        layers: names of the layers; without them, numbers from 1 on.
        node: number of the worker's node.

    Returns:
        events `grad`, `clip` and `send` of every layer, with the layer's name.

    Raises:
        ConfigError: no layer, a cost below 0, names that do not fit, or no such trigger or place.

    Examples:
        >>> [schedule([(1, 1, 1)] * 10, trigger).end_ps for trigger in ("next", "own", "after_all", "serial")]
        [13, 12, 21, 30]
    """
    names = list(layers) or [str(i + 1) for i in range(len(costs))]
    _require(costs, names, trigger, on)
    worker = _Worker(costs, names, on, node)
    {"next": _next, "own": _own, "after_all": _after_all, "serial": _serial}[trigger](worker, len(costs))
    return worker.timeline


def _next(worker: _Worker, layers: int) -> None:
    ready = worker.do(GRAD, 0)
    for layer in range(1, layers):
        # layer i - 1 is clipped when the gradient of layer i is there
        ready = worker.do(GRAD, layer)
        worker.do(SEND, layer - 1, after=worker.do(CLIP, layer - 1, after=ready))
    # no gradient comes after the last one: it is clipped when it is ready itself
    worker.do(SEND, layers - 1, after=worker.do(CLIP, layers - 1, after=ready))


def _own(worker: _Worker, layers: int) -> None:
    for layer in range(layers):
        worker.do(SEND, layer, after=worker.do(CLIP, layer, after=worker.do(GRAD, layer)))


def _after_all(worker: _Worker, layers: int) -> None:
    # the first message is booked when its gradient is ready, so sends still overlap backpropagation
    all_received = max(worker.do(SEND, layer, after=worker.do(GRAD, layer)) for layer in range(layers))
    for layer in range(layers):
        worker.do(CLIP, layer, after=all_received)


def _serial(worker: _Worker, layers: int) -> None:
    done = 0
    for layer in range(layers):
        ready = worker.do(GRAD, layer, after=done)
        done = worker.do(SEND, layer, after=worker.do(CLIP, layer, after=ready))


def _require(costs: Sequence[tuple[int, int, int]], names: Sequence[str], trigger: str, on: str) -> None:
    if not costs:
        raise ConfigError("a schedule of clipping must have layers, got none; give the costs of at least one")
    if len(names) != len(costs):
        raise ConfigError(
            f"there must be a name for each of {len(costs)} layers, got {len(names)}; give one name for each layer"
        )
    for name, cost in zip(names, costs, strict=True):
        if min(cost) < 0:
            raise ConfigError(f"costs of a layer must be 0 or more picoseconds, got {list(cost)} of layer {name!r}")
    for key, value, allowed in (("trigger", trigger, get_args(Trigger)), ("on", on, get_args(Processor))):
        if value not in allowed:
            raise ConfigError(
                f"`{key}` of [clipping] must be one of {', '.join(allowed)}, got {value!r}"
                f"{nearest_name(value, allowed)}"
            )
