"""Striped exchange: workers send quantised stripes to owners, owners send quantised sums to all.

    worker i, stripe j    code = Q(G + residual)        to the owner of j
    owner of j            sum of all workers' stripes, in node order; its rule; code = Q2(sum + its residual)
    every node            all stripes, decoded: the gradient of the step, the same bits everywhere

An owner quantises its own part as well. A stripe's residual stays where it arose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Value
from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.layout import Layout, Stripe, stripes_of
from emu.cluster.observing import CodeCount, code_counts, norm
from emu.cluster.owner_rules import OwnerRule, Plain, apply_to, require_touchable
from emu.cluster.parcels import ReplicaError, compared, cut, swapped
from emu.cluster.transport import Transport
from emu.cluster.wires import Columns, Touched, Wire, part_of, put_together, wire_of
from emu.datapath import stream_of

Array = NDArray[Any]


class Piece(NamedTuple):
    """A stripe of one tensor.

    Attributes:
        tensor: its name.
        number: number of the stripe.
        owner: node that adds it up.
        stripe: its columns.
        wire: on which workers send it.
        owner_wire: on which its owner does.
    """

    tensor: str
    number: int
    owner: int
    stripe: Stripe
    wire: Wire
    owner_wire: Wire

    def name(self, node: int) -> str:
        """Return the name of what a node remembers of it."""
        return f"{self.tensor}/stripe{self.number}@{node}"


@dataclass
class Owned:
    """What an owner remembers of a stripe: what its codec does, and the state of its rule."""

    memory: Memory
    state: Array | None = None


class Exchange:
    """Turns gradients of workers into one gradient that every node has.

    Attributes:
        layout: nodes, workers, owners.
        sent: bytes that all nodes have sent to others so far.
        divides: whether the mean is taken here: no, a worker's gradient is that of its share of the loss.
        scale: S that residuals carry, and gradients of the last exchange did.
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
            shapes: columns and rows of every tensor, in the order in which they travel.
            layout: nodes, workers, owners.
            codec: codec of workers.
            transport: moves bytes.
            owner_codec: codec of owners; None is that of workers.
            rule: what owners do to sums; None leaves them.
            seed: seed of random choices of codecs.
            dtype: dtype of gradients.
            feedback: whether what a message does not express is added to the next gradient, or lost.
            touched: tensors of whose columns a step touches some.

        Raises:
            ConfigError: an owner would have no stripe; or columns that come and go meet a codec or a rule that moves
                what it does not get.
        """
        layout.require_stripes([columns for columns, _ in shapes.values()])
        self.layout, self._transport, self._seed, self._dtype = layout, transport, seed, dtype
        self._codec, self._owner_codec, self._rule = codec, owner_codec or codec, rule or Plain()
        self._shapes = dict(shapes)
        if touched:
            require_touchable(codec, self._owner_codec, self._rule)

        def wire(codec: Codec, name: str, stripe: Stripe) -> Wire:
            sizes = (stripe.width, self._shapes[name][1])
            return wire_of(codec, *sizes, dtype, feedback=feedback, touched=name in touched)

        self._pieces = [
            Piece(name, number, owner, stripe, wire(codec, name, stripe), wire(self._owner_codec, name, stripe))
            for name, (columns, _) in shapes.items()
            for number, (owner, stripe) in enumerate(
                zip(layout.owners, stripes_of(columns, len(layout.owners)), strict=True)
            )
            if stripe.width
        ]
        self._memories = {
            piece.name(node): self._empty(piece)
            for node in transport.local
            if node in layout.workers
            for piece in self._pieces
        }
        self._owned = {
            piece.name(piece.owner): Owned(self._empty(piece))
            for piece in self._pieces
            if piece.owner in transport.local
        }
        self.sent, self._sending, self.scale = 0, 0, 1.0
        self._newest: dict[str, bytes] = {}

    def _empty(self, piece: Piece) -> Memory:
        return Memory.empty(piece.stripe.width, self._shapes[piece.tensor][1], self._dtype)

    def step_bytes(self) -> int:
        """Return how many bytes all nodes together send to others in one exchange of all columns."""
        nodes, total = self.layout.nodes, 0
        for piece in self._pieces:
            rows = self._shapes[piece.tensor][1]
            senders = len(self.layout.workers) - (piece.owner in self.layout.workers)
            total += senders * self._codec.message_bytes(piece.stripe.width, rows)
            total += (nodes - 1) * self._owner_codec.message_bytes(piece.stripe.width, rows)
        return total

    # ---- one exchange ----

    def exchange(
        self,
        gradients: Mapping[int, Mapping[str, Columns]],
        step: int,
        scale: float = 1.0,
        workers: Sequence[int] | None = None,
    ) -> dict[str, Columns]:
        """Return the gradient that all nodes have after the exchange: float32 or the dtype, (columns, rows), by name.

        Args:
            gradients: (columns, rows) by name, of every local worker; some columns of tensors that are touched.
            step: training step, where random choices are drawn.
            scale: S that they carry; residuals of earlier ones are rescaled to it.
            workers: those of the layout that take part; the others' residuals stay. None is all.

        Raises:
            ReplicaError: nodes have received different bytes.
        """
        taking_part = self.layout.workers if workers is None else workers
        self._rescale(scale)
        contributions = self._contributions(gradients, step, taking_part)
        sums = {p.name(p.owner): self._sum(p, contributions, taking_part) for p in self._owned_pieces()}
        arrived = self._aggregates(sums, step)
        self._require_replicas(arrived)
        return self._assembled(arrived[self._transport.local[0]])

    def returned(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return parameters as they are after the update, which every node has made alike."""
        return dict(parameters)

    @property
    def result_scale(self) -> float:
        """S that what came out of the last exchange carries."""
        return self.scale if self._rule.carries_scale else 1.0

    def _rescale(self, scale: float) -> None:
        if scale == self.scale:
            return
        ratio, self.scale = scale / self.scale, scale
        for memory in self._memories.values():
            memory.rescale(ratio)
        for owned in self._owned.values():
            if self._rule.carries_scale:
                owned.memory.rescale(ratio)
            if owned.state is not None:
                owned.state = owned.state * owned.state.dtype.type(ratio**self._rule.state_power)

    def _owned_pieces(self) -> Iterator[Piece]:
        return (piece for piece in self._pieces if piece.owner in self._transport.local)

    def _contributions(
        self, gradients: Mapping[int, Mapping[str, Columns]], step: int, workers: Sequence[int]
    ) -> dict[str, bytes]:
        """Phase 1: encode, send, and return messages for local owners, by piece and worker."""
        made: dict[str, bytes] = {}
        parcels: dict[tuple[int, int], list[bytes]] = {}
        for node in self._transport.local:
            for piece in self._pieces if node in workers else ():
                name = piece.name(node)
                part = part_of(gradients[node][piece.tensor], piece.stripe)
                at = Address(self._seed, stream_of(piece.tensor, f"contribution{piece.number}", node), step)
                data = piece.wire.encoded(part, self._memories[name], at)
                if node == self._transport.local[0]:
                    self._newest[name] = data
                if piece.owner == node:
                    made[name] = data
                else:
                    parcels.setdefault((node, piece.owner), []).append(data)
        for (sender, receiver), data in self._swap(parcels).items():
            pieces = [piece for piece in self._pieces if piece.owner == receiver and sender in workers]
            for piece, message in zip(pieces, cut(data, [piece.wire.size_of for piece in pieces]), strict=True):
                made[piece.name(sender)] = message
        return made

    @staticmethod
    def _sum(piece: Piece, contributions: Mapping[str, bytes], workers: Sequence[int]) -> Columns:
        """Return the sum over workers, in node order: an owner's own in its place."""
        return piece.wire.summed([contributions[piece.name(worker)] for worker in workers])

    def _aggregates(self, sums: Mapping[str, Columns], step: int) -> dict[int, list[bytes]]:
        """Phase 2: encode sums, send them to all, and return the messages of all pieces that each local node has."""
        made: dict[str, bytes] = {}
        parcels: dict[tuple[int, int], list[bytes]] = {}
        for piece in self._owned_pieces():
            name = piece.name(piece.owner)
            owned = self._owned[name]
            ruled, owned.state = apply_to(self._rule, sums[name], owned.state, self.scale, piece.stripe.width)
            at = Address(self._seed, stream_of(piece.tensor, f"sum{piece.number}", piece.owner), step)
            made[name] = piece.owner_wire.encoded(ruled, owned.memory, at)
            for node in range(self.layout.nodes):
                if node != piece.owner:
                    parcels.setdefault((piece.owner, node), []).append(made[name])
        arrived = {
            node: {p.name(p.owner): made[p.name(p.owner)] for p in self._pieces if p.owner == node}
            for node in self._transport.local
        }
        for (sender, receiver), data in self._swap(parcels).items():
            pieces = [piece for piece in self._pieces if piece.owner == sender]
            for piece, message in zip(pieces, cut(data, [piece.owner_wire.size_of for piece in pieces]), strict=True):
                arrived[receiver][piece.name(sender)] = message
        return {node: [messages[p.name(p.owner)] for p in self._pieces] for node, messages in arrived.items()}

    def _swap(self, parcels: Mapping[tuple[int, int], list[bytes]]) -> dict[tuple[int, int], bytes]:
        arrived, sent = swapped(self._transport, parcels)
        self._sending += sent
        return arrived

    def _assembled(self, messages: list[bytes]) -> dict[str, Columns]:
        parts: dict[str, list[tuple[Stripe, Columns]]] = {name: [] for name in self._shapes}
        for piece, data in zip(self._pieces, messages, strict=True):
            parts[piece.tensor].append((piece.stripe, piece.owner_wire.decoded(data)))
        return {name: put_together(found) for name, found in parts.items()}

    # ---- replicas ----

    def _require_replicas(self, arrived: Mapping[int, list[bytes]]) -> None:
        """Compare what nodes have received: a hash of 8 bytes each; everything only where hashes differ."""
        node, sent = compared(self._transport, arrived, self._sending)
        self.sent, self._sending = self.sent + sent, 0
        if node is None:
            return
        held = self._transport.gather({node: b"".join(messages) for node, messages in arrived.items()})
        sizes = [piece.owner_wire.size_of for piece in self._pieces]
        whole = [self._assembled(list(cut(held[n], sizes))) for n in (0, node)]
        first, other = ({name: self._all_of(name, lines) for name, lines in found.items()} for found in whole)
        for name in self._shapes:
            word = f"u{np.dtype(self._dtype).itemsize}"
            differs = np.argwhere(first[name].view(word) != other[name].view(word))
            if len(differs):
                column, row = differs[0].tolist()
                raise ReplicaError(
                    f"all nodes must have the same gradients after an exchange, got {other[name][column, row]!s} on "
                    f"node {node} and {first[name][column, row]!s} on node 0 in {name!r}, column {column}, row {row}; "
                    "the transport or the memory of a node is damaged: resume from the last checkpoint"
                )
        raise ReplicaError(f"all nodes must have the same bytes after an exchange, got others on node {node}")

    def _all_of(self, name: str, lines: Columns) -> Array:
        return lines.whole(self._shapes[name][0]) if isinstance(lines, Touched) else lines

    # ---- what people look at ----

    def code_counts(self) -> Iterator[tuple[str, CodeCount]]:
        """Yield what the newest codes of the first local node stood for, by tensor and stripe."""
        node = self._transport.local[0]
        for piece in self._pieces:
            if data := self._newest.get(name := piece.name(node)):
                own, memory = piece.wire.newest(data, self._memories[name])
                message = self._codec.message_of(own, *memory.residual.shape)
                for count in code_counts(self._codec, message, memory):
                    yield piece.tensor, count

    def residual_norms(self) -> Iterator[tuple[str, str, float]]:
        """Yield the norm of what the first local node holds back as worker and as owner, by tensor."""
        node = self._transport.local[0]
        for tensor in self._shapes:
            mine = [piece for piece in self._pieces if piece.tensor == tensor]
            held = {
                "worker": [self._memories[p.name(node)] for p in mine if p.name(node) in self._memories],
                "owner": [self._owned[p.name(node)].memory for p in mine if p.owner == node],
            }
            for holder, memories in held.items():
                if memories:
                    yield tensor, holder, norm(np.concatenate([memory.residual.ravel() for memory in memories]))

    # ---- checkpoints ----

    def residuals(self) -> dict[str, Array]:
        """Return what local nodes have not sent yet, (columns, rows) by tensor: workers and owners together."""
        left = {name: np.zeros(shape, self._dtype) for name, shape in self._shapes.items()}
        for piece in self._pieces:
            for node in self._transport.local:
                if node in self.layout.workers:
                    left[piece.tensor][piece.stripe.columns] += self._memories[piece.name(node)].residual
            if piece.owner in self._transport.local:
                left[piece.tensor][piece.stripe.columns] += self._owned[piece.name(piece.owner)].memory.residual
        return left

    def arrays(self) -> dict[str, Array]:
        """Return everything that local nodes remember, by name, as `load` takes it back."""
        found: dict[str, Array] = {"scale": np.array(self.scale)}
        for name, memory in self._memories.items():
            found |= {f"worker/{name}/{part}": array for part, array in memory.arrays().items()}
        for name, owned in self._owned.items():
            found |= {f"owner/{name}/{part}": array for part, array in owned.memory.arrays().items()}
            if owned.state is not None:
                found[f"rule/{name}"] = owned.state
        return found

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take what `arrays` returned, of the same nodes."""
        self.scale = float(arrays.get("scale", 1.0))
        for name, memory in self._memories.items():
            memory.load(_below(arrays, f"worker/{name}/"))
        for name, owned in self._owned.items():
            owned.memory.load(_below(arrays, f"owner/{name}/"))
            owned.state = arrays.get(f"rule/{name}")


def _below(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
