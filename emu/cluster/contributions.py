"""What workers send in each step, and the residuals that they keep for the next one.

    worker i, part p        code = Q(G + residual)        to the owner of p
    owner of p              sum of the workers' parts, in node order

The striped exchange and the controllers differ in the parts of a tensor, and in what an owner does with a sum. They
share contributions, residuals, the comparison of replicas, and checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.layout import Block, Layout
from emu.cluster.observing import CodeCount, code_counts, norm
from emu.cluster.parcels import Parcels, compared, cut, swapped
from emu.cluster.transport import Transport
from emu.cluster.wires import Columns, Wire, part_of
from emu.datapath import stream_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Part:
    """What a worker sends of one tensor in one message.

    Attributes:
        tensor: name of the tensor.
        label: name of the part in checkpoints.
        stream: name of its stream of random choices.
        owner: node that adds up the workers' messages.
        block: what it has of the tensor.
        wire: wire of the workers' messages.
    """

    tensor: str
    label: str
    stream: str
    owner: int
    block: Block
    wire: Wire

    def name(self, node: int) -> str:
        """Return the name of a node's memory of this part."""
        return f"{self.label}@{node}"


class Difference(NamedTuple):
    """Messages that differ between nodes.

    Attributes:
        node: the first node whose messages differ from node 0's.
        first: messages of node 0.
        other: messages of that node.
    """

    node: int
    first: list[bytes]
    other: list[bytes]


class Contributing(ABC):
    """Workers that send parts of their gradients to the owners of these parts, with residuals.

    Attributes:
        layout: nodes and workers.
        sent: bytes that all nodes have sent to others up to the last comparison of replicas.
        sending: bytes that local nodes have sent since then; controllers compare only after an update.
        scale: S of the residuals and of the gradients of the last exchange.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, int]],
        parts: Sequence[Part],
        layout: Layout,
        codec: Codec,
        transport: Transport,
        *,
        seed: int,
        dtype: type[np.floating[Any]],
    ) -> None:
        """Begin with residuals of 0.

        Args:
            shapes: columns and rows of each tensor, in the order in which tensors are sent.
            parts: what a worker sends, in this order.
            layout: nodes and workers.
            codec: codec of workers.
            transport: moves bytes.
            seed: seed of random choices of codecs.
            dtype: dtype of gradients.
        """
        self.layout, self._transport, self._codec = layout, transport, codec
        self._shapes, self._contributed = dict(shapes), parts
        self._seed, self._dtype = seed, dtype
        # by the name of a part and a node: a process remembers for its own nodes alone
        self._memories = {
            part.name(node): self._empty(part) for node in transport.local if node in layout.workers for part in parts
        }
        self.sent, self.sending, self.scale = 0, 0, 1.0
        # messages of the first local node, which a report decodes
        self._newest: dict[str, bytes] = {}

    def _empty(self, part: Part) -> Memory:
        return Memory.empty(*part.block.shape, self._dtype)

    def step_bytes(self) -> int:
        """Return how many bytes all nodes together send to others in a step that touches all columns."""
        total, workers = 0, self.layout.workers
        for part in self._contributed:
            # an owner sends nothing to itself
            senders = len(workers) - (part.owner in workers)
            total += senders * self._codec.message_bytes(*part.block.shape)
            # all nodes get the answer, also those that compute no gradients
            total += (self.layout.nodes - 1) * self._answer_bytes(part)
        return total

    @abstractmethod
    def _answer_bytes(self, part: Part) -> int:
        """Return the bytes that an owner sends to each other node after it has added up a part."""

    # ---- one exchange ----

    def _sums(
        self, gradients: Mapping[int, Mapping[str, Columns]], step: int, workers: Sequence[int]
    ) -> dict[str, Columns]:
        """Encode and send the workers' gradients; return the sums of the parts whose owner is local.

        Args:
            gradients: (columns, rows) by name, of each local worker.
            step: training step, part of the address of random choices.
            workers: workers that take part; their messages are added in this order.

        Returns:
            Sums by the label of the part.
        """
        contributions = self._contributions(gradients, step, workers)
        return {
            part.label: part.wire.summed([contributions[part.name(worker)] for worker in workers])
            for part in self._contributed
            if part.owner in self._transport.local
        }

    def _contributions(
        self, gradients: Mapping[int, Mapping[str, Columns]], step: int, workers: Sequence[int]
    ) -> dict[str, bytes | Columns]:
        """Encode and send; return the messages for local owners, or lines as they are, by part and worker."""
        contributions: dict[str, bytes | Columns] = {}
        parcels: Parcels = {}
        for node in self._transport.local:
            for part in self._contributed if node in workers else ():
                name = part.name(node)
                columns = part_of(gradients[node][part.tensor], part.block)
                # added as it is: nothing is lost, so there is no residual either
                if part.owner == node and not self.layout.quantise_own:
                    contributions[name] = columns
                    continue
                # tensor, part and node make the stream: each message of a step has random choices of its own
                at = Address(self._seed, stream_of(part.tensor, part.stream, node), step)
                data = part.wire.encoded(columns, self._memories[name], at)
                if node == self._transport.local[0]:
                    self._newest[name] = data
                if part.owner == node:
                    contributions[name] = data
                else:
                    parcels.setdefault((node, part.owner), []).append(data)
        # a parcel has the messages of one sender in the order of `_contributed`, in which it was filled above
        for (sender, receiver), data in self._swap(parcels).items():
            # a node that takes no part sends an empty parcel
            parts = [part for part in self._contributed if part.owner == receiver and sender in workers]
            for part, message in zip(parts, cut(data, [part.wire.size_of for part in parts]), strict=True):
                contributions[part.name(sender)] = message
        return contributions

    def _swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Send parcels, count their bytes, and return what arrives."""
        arrived, sent = swapped(self._transport, parcels)
        self.sending += sent
        return arrived

    def _rescale(self, scale: float) -> float:
        """Multiply residuals so that they carry S; return the ratio of S to the scale before."""
        ratio, self.scale = scale / self.scale, scale
        if ratio != 1.0:
            for memory in self._memories.values():
                memory.rescale(ratio)
        return ratio

    # ---- replicas ----

    def _difference(
        self, arrived: Mapping[int, Sequence[bytes]], sizes: Sequence[Callable[[memoryview], int]]
    ) -> Difference | None:
        """Compare what nodes have received, by a hash of 8 bytes each; gather the messages only if hashes differ.

        Args:
            arrived: messages of each local node, in the same order on all nodes.
            sizes: for each message, a function that returns its size.
        """
        # the hashes carry the bytes that each process has sent, so no further exchange adds them up
        node, sent = compared(self._transport, arrived, self.sending)
        self.sent, self.sending = self.sent + sent, 0
        if node is None:
            return None
        # all nodes have compared the same hashes, so all of them come here together
        whole = self._transport.gather({local: b"".join(messages) for local, messages in arrived.items()})
        return Difference(node, list(cut(whole[0], sizes)), list(cut(whole[node], sizes)))

    # ---- what a report shows ----

    def code_counts(self) -> Iterator[tuple[str, CodeCount]]:
        """Yield which values the newest codes of the first local node stood for, by tensor and part."""
        node = self._transport.local[0]
        for part in self._contributed:
            if data := self._newest.get(name := part.name(node)):
                own, memory = part.wire.newest(data, self._memories[name])
                message = self._codec.message_of(own, *memory.residual.shape)
                for count in code_counts(self._codec, message, memory):
                    yield part.tensor, count

    def residual_norms(self) -> Iterator[tuple[str, str, float]]:
        """Yield the norm of each tensor's residuals on the first local node, by the node's role."""
        node = self._transport.local[0]
        for tensor in self._shapes:
            for role, memories in self._kept(tensor, node).items():
                if memories:
                    yield tensor, role, norm(np.concatenate([memory.unsent.ravel() for memory in memories]))

    def _kept(self, tensor: str, node: int) -> dict[str, list[Memory]]:
        """Return a node's memories of a tensor, by the node's role."""
        names = [part.name(node) for part in self._contributed if part.tensor == tensor]
        return {"worker": [self._memories[name] for name in names if name in self._memories]}

    # ---- checkpoints ----

    def residuals(self) -> dict[str, Array]:
        """Return the sum of what local nodes have not sent yet, (columns, rows) by tensor."""
        left = {name: np.zeros(shape, self._dtype) for name, shape in self._shapes.items()}
        for part in self._contributed:
            for node in self._transport.local:
                if node in self.layout.workers:
                    # parts of workers overlap: all workers have a residual of the same lines
                    left[part.tensor][part.block.slices] += self._memories[part.name(node)].unsent
        return left

    def arrays(self) -> dict[str, Array]:
        """Return everything that local nodes remember, by name, as `load` takes it back."""
        arrays: dict[str, Array] = {"scale": np.array(self.scale)}
        for name, memory in self._memories.items():
            arrays |= arrays_of(f"worker/{name}", memory)
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take what `arrays` returned, of the same nodes."""
        self.scale = float(arrays.get("scale", 1.0))
        for name, memory in self._memories.items():
            memory.load(below(arrays, f"worker/{name}/"))


def arrays_of(prefix: str, memory: Memory) -> dict[str, Array]:
    """Return the arrays of a memory, their names preceded by `prefix`."""
    return {f"{prefix}/{name}": array for name, array in memory.arrays().items()}


def below(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
