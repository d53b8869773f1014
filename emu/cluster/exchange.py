"""Striped exchange: workers send quantised stripes to owners, owners send quantised sums to all.

    worker i, stripe j    code = Q(G + residual)        to the owner of j
    owner of j            sum of all workers' stripes, in node order; its rule; code = Q2(sum + its residual)
    all nodes             all stripes, decoded: the gradient of the step, the same bits on all nodes

An owner quantises its own part as well, or adds it as it is. The residual of a stripe stays on the node that quantised
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import Value
from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.contributions import Contributing, Part, arrays_of, below
from emu.cluster.layout import Block, Layout, blocks_of
from emu.cluster.owner_rules import OwnerRule, Plain, apply_to, require_touchable
from emu.cluster.parcels import Parcels, ReplicaError, cut
from emu.cluster.transport import Transport
from emu.cluster.wires import Columns, Touched, Wire, put_together, wire_of
from emu.datapath import stream_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Piece(Part):
    """A stripe of one tensor, which its owner adds up and sends to all nodes.

    Attributes:
        number: number of the stripe.
        owner_wire: wire of the owner's message.
    """

    number: int
    owner_wire: Wire


@dataclass
class Owned:
    """An owner's memory of a stripe: that of its codec, and the state of its rule."""

    memory: Memory
    state: Array | None = None


class Exchange(Contributing):
    """Turns gradients of workers into their sum, with the same bits on all nodes.

    Attributes:
        layout: nodes, workers, owners.
        sent: bytes that all nodes have sent to others so far.
        divides: whether the mean is taken here: no, a worker's gradient is that of its share of the loss.
        scale: S of the residuals and of the gradients of the last exchange.
    """

    divides = False

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, int]],
        layout: Layout,
        codec: Codec,
        transport: Transport,
        *,
        owner_codec: Codec | None = None,
        rule: OwnerRule | None = None,
        seed: int = 0,
        dtype: type[np.floating[Any]] = np.float32,
        feedback: bool = True,
        touched: Collection[str] = (),
    ) -> None:
        """Begin with residuals of 0.

        Args:
            shapes: columns and rows of each tensor, in the order in which tensors are sent.
            layout: nodes, workers, owners.
            codec: codec of workers.
            transport: moves bytes.
            owner_codec: codec of owners; None is that of workers.
            rule: what owners do to sums; None leaves them.
            seed: seed of random choices of codecs.
            dtype: dtype of gradients.
            feedback: whether what a message does not express is added to the next gradient, or lost.
            touched: tensors of which a step touches some columns.

        Raises:
            ConfigError: an owner would have no stripe; or there are touched tensors and a codec or a rule that reads or
                changes other columns.
        """
        layout.require_stripes(shapes.values())
        self._owner_codec, self._rule = owner_codec or codec, rule or Plain()
        if touched:
            require_touchable(codec, self._owner_codec, self._rule)

        def wire(codec: Codec, name: str, block: Block) -> Wire:
            return wire_of(codec, *block.shape, dtype, feedback=feedback, touched=name in touched)

        self._pieces = [
            Piece(
                name,
                f"{name}/stripe{number}",
                f"contribution{number}",
                owner,
                block,
                wire(codec, name, block),
                number,
                wire(self._owner_codec, name, block),
            )
            # numbers count empty blocks, too, so that a stripe has one number, and one name in checkpoints, in every
            # tensor
            for name, shape in shapes.items()
            for number, (owner, block) in enumerate(
                zip(layout.owners, blocks_of(shape, len(layout.owners), by_lines=name in touched), strict=True)
            )
            # a tensor of fewer columns than owners has empty blocks, which travel nowhere
            if all(block.shape)
        ]
        super().__init__(shapes, self._pieces, layout, codec, transport, seed=seed, dtype=dtype)
        # local owners only
        self._owned = {piece.name(piece.owner): Owned(self._empty(piece)) for piece in self._owned_pieces()}

    @override
    def _answer_bytes(self, part: Part) -> int:
        return self._owner_codec.message_bytes(*part.block.shape)

    # ---- one exchange ----

    def exchange(
        self,
        gradients: Mapping[int, Mapping[str, Columns]],
        step: int,
        scale: float = 1.0,
        workers: Sequence[int] | None = None,
    ) -> dict[str, Columns]:
        """Return the gradient that all nodes have after the exchange, of dtype `dtype`, (columns, rows), by name.

        Args:
            gradients: (columns, rows) by name, of each local worker; `Touched` columns of touched tensors.
            step: training step, part of the address of random choices.
            scale: S of the gradients; residuals of earlier steps are rescaled to it.
            workers: workers that take part; residuals of the others stay. None is all.

        Raises:
            ReplicaError: nodes have received different bytes.
        """
        taking_part = self.layout.workers if workers is None else workers
        self._rescale(scale)
        sums = self._sums(gradients, step, taking_part)
        arrived = self._aggregates(sums, step)
        self._require_replicas(arrived)
        return self._assembled(arrived[self._transport.local[0]])

    def returned(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return the parameters as they are: every node has updated them with the same gradient."""
        return dict(parameters)

    @property
    def result_scale(self) -> float:
        """S of the results of the last exchange."""
        return self.scale if self._rule.carries_scale else 1.0

    @override
    def _rescale(self, scale: float) -> float:
        """Multiply residuals of workers and owners, and states of the rule, so that they carry S; return the ratio."""
        ratio = super()._rescale(scale)
        for owned in self._owned.values() if ratio != 1.0 else ():
            # what a rule such as AdaGrad sends does not grow with S, nor does the owner's residual of it
            if self._rule.carries_scale:
                owned.memory.rescale(ratio)
            if owned.state is not None:
                # a momentum grows like S, a sum of squares like S**2
                owned.state = owned.state * owned.state.dtype.type(ratio**self._rule.state_power)
        return ratio

    def _owned_pieces(self) -> Iterator[Piece]:
        return (piece for piece in self._pieces if piece.owner in self._transport.local)

    def _aggregates(self, sums: Mapping[str, Columns], step: int) -> dict[int, list[bytes]]:
        """Encode sums and send them to all; return the messages of all pieces, by local node."""
        own: dict[str, bytes] = {}
        parcels: Parcels = {}
        for piece in self._owned_pieces():
            name = piece.name(piece.owner)
            owned = self._owned[name]
            ruled, owned.state = apply_to(
                self._rule, sums[piece.label], owned.state, self.scale, piece.block.lines.width
            )
            at = Address(self._seed, stream_of(piece.tensor, f"sum{piece.number}", piece.owner), step)
            own[name] = piece.owner_wire.encoded(ruled, owned.memory, at)
            for node in range(self.layout.nodes):
                if node != piece.owner:
                    parcels.setdefault((piece.owner, node), []).append(own[name])
        arrived = {
            # an owner sends no message to itself: its own is there
            node: {p.name(p.owner): own[p.name(p.owner)] for p in self._pieces if p.owner == node}
            for node in self._transport.local
        }
        for (sender, receiver), data in self._swap(parcels).items():
            pieces = [piece for piece in self._pieces if piece.owner == sender]
            for piece, message in zip(pieces, cut(data, [piece.owner_wire.size_of for piece in pieces]), strict=True):
                arrived[receiver][piece.name(sender)] = message
        # in the order of `_pieces`, the same on all nodes, so that hashes can be compared
        return {node: [messages[p.name(p.owner)] for p in self._pieces] for node, messages in arrived.items()}

    def _assembled(self, messages: list[bytes]) -> dict[str, Columns]:
        parts: dict[str, list[tuple[Block, Columns]]] = {name: [] for name in self._shapes}
        for piece, data in zip(self._pieces, messages, strict=True):
            parts[piece.tensor].append((piece.block, piece.owner_wire.decoded(data)))
        return {name: put_together(stripes) for name, stripes in parts.items()}

    # ---- replicas ----

    def _require_replicas(self, arrived: Mapping[int, list[bytes]]) -> None:
        difference = self._difference(arrived, [piece.owner_wire.size_of for piece in self._pieces])
        if difference is None:
            return
        node = difference.node
        first, other = (
            {name: self._all_of(name, lines) for name, lines in self._assembled(messages).items()}
            for messages in (difference.first, difference.other)
        )
        for name in self._shapes:
            # the words of the numbers: NaN differ from NaN as numbers, and -0 equals 0
            word = f"u{np.dtype(self._dtype).itemsize}"
            differs = np.argwhere(first[name].view(word) != other[name].view(word))
            if len(differs):
                column, row = differs[0].tolist()
                raise ReplicaError(
                    f"all nodes must have the same gradients after an exchange, got {other[name][column, row]!s} on "
                    f"node {node} and {first[name][column, row]!s} on node 0 in {name!r}, column {column}, row {row}; "
                    "the transport or the memory of a node is damaged: resume from the last checkpoint"
                )
        # different bytes that decode to the same numbers: such as the unused bits of a last word
        raise ReplicaError(f"all nodes must have the same bytes after an exchange, got others on node {node}")

    def _all_of(self, name: str, lines: Columns) -> Array:
        return lines.whole(self._shapes[name][0]) if isinstance(lines, Touched) else lines

    # ---- memories of owners ----

    @override
    def _kept(self, tensor: str, node: int) -> dict[str, list[Memory]]:
        own = [piece for piece in self._pieces if piece.tensor == tensor and piece.owner == node]
        # by role: a report shows residuals of workers and of owners apart
        return super()._kept(tensor, node) | {"owner": [self._owned[piece.name(node)].memory for piece in own]}

    @override
    def residuals(self) -> dict[str, Array]:
        left = super().residuals()
        for piece in self._owned_pieces():
            left[piece.tensor][piece.block.slices] += self._owned[piece.name(piece.owner)].memory.unsent
        return left

    @override
    def arrays(self) -> dict[str, Array]:
        arrays = super().arrays()
        for name, owned in self._owned.items():
            arrays |= arrays_of(f"owner/{name}", owned.memory)
            if owned.state is not None:
                arrays[f"rule/{name}"] = owned.state
        return arrays

    @override
    def load(self, arrays: Mapping[str, Array]) -> None:
        super().load(arrays)
        for name, owned in self._owned.items():
            owned.memory.load(below(arrays, f"owner/{name}/"))
            owned.state = arrays.get(f"rule/{name}")
