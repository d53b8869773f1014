"""Controllers: each takes whole layers from all workers, averages them, updates, and returns parameters.

    worker i, layer a          code = Q(G + residual)                      to the controller of a
    controller of a            waits for all; mean = sum of workers in node order / their number; update
    every node                 the parameters of a, codes of their format

The backward pass of a worker uses the scale S, not S / K: the mean is taken here. A controller is a worker, or a node
that computes no gradients. Several controllers share the layers.

Source: US 2023/0169333.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Value
from emu.backends.arrays import on_host
from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.layout import Layout
from emu.cluster.observing import CodeCount, code_counts, norm
from emu.cluster.owner_rules import Plain, require_touchable
from emu.cluster.parcels import ReplicaError, compared, cut, swapped
from emu.cluster.transport import Transport
from emu.cluster.wires import Columns, Touched, count_of, header_bytes, header_of, places_of, wire_of
from emu.datapath import stream_of
from emu.errors import ConfigError
from emu.formats import Format
from emu.formats.arrays import code_dtype_for

Array = NDArray[Any]
Placement: TypeAlias = Literal["fixed", "least_loaded"]


def layer_of(tensor: str) -> str:
    """Return the layer of a parameter's name.

    Examples:
        >>> layer_of("block.fc1.weight")
        'block.fc1'
    """
    return tensor.rpartition(".")[0]


class Homes(NamedTuple):
    """Where layers are placed.

    Attributes:
        nodes: the controllers.
        placement: see `placed`.
    """

    nodes: Sequence[int] = (0,)
    placement: Placement = "fixed"


def placed(layer_bytes: Mapping[str, int], controllers: Sequence[int], placement: Placement) -> dict[str, int]:
    """Return the controller of every layer.

    Args:
        layer_bytes: bytes of each layer, in the order in which layers travel: the last layer of the network first.
        controllers: nodes.
        placement: "fixed" takes controllers in turn; "least_loaded" the one that has the fewest bytes so far, of
            equals the lowest node.

    Examples:
        >>> placed({"c": 10, "b": 70, "a": 40}, [0, 1], "fixed")
        {'c': 0, 'b': 1, 'a': 0}
        >>> placed({"c": 70, "b": 10, "a": 40}, [0, 1], "least_loaded")
        {'c': 0, 'b': 1, 'a': 1}
    """
    if placement == "fixed":
        return {layer: controllers[i % len(controllers)] for i, layer in enumerate(layer_bytes)}
    loads, found = dict.fromkeys(sorted(controllers), 0), dict[str, int]()
    for layer, size in layer_bytes.items():
        found[layer] = min(loads, key=lambda node: loads[node])
        loads[found[layer]] += size
    return found


def require_controllers(controllers: Sequence[int], nodes: int) -> None:
    """Refuse controllers that are no nodes, or none at all.

    Raises:
        ConfigError: they do not fit.
    """
    for node in controllers:
        if type(node) is not int or not 0 <= node < nodes:
            raise ConfigError(
                f"`controllers` must be nodes 0..{nodes - 1}, got {node!r}; name nodes of the cluster, or raise `nodes`"
            )
    if not controllers or len(set(controllers)) < len(controllers):
        raise ConfigError(f"`controllers` must be nodes, at least one, each once, got {list(controllers)}")


class Controllers:
    """Turns gradients of workers into their mean, where the controllers are, and returns what these make of it.

    Attributes:
        layout: nodes and workers.
        controller_of: node by layer.
        sent: bytes that all nodes have sent to others so far.
        divides: whether the mean is taken here, so that a worker's backward pass uses the scale S.
        scale: S that residuals carry, and gradients of the last exchange did.
    """

    divides = True

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, int]],
        formats: Mapping[str, Format],
        layout: Layout,
        codec: Codec,
        transport: Transport,
        *,
        homes: Homes = Homes(),  # noqa: B008 - frozen
        seed: int = 0,
        dtype: type[np.floating[Any]] = np.float32,
        feedback: bool = True,
        touched: Collection[str] = (),
    ) -> None:
        """Begin with residuals of 0.

        Args:
            shapes: columns and rows of every tensor `layer.part`, in the order of the network.
            formats: formats of the parameters that are returned, by tensor.
            layout: nodes and workers.
            codec: codec of gradients on their way.
            transport: moves bytes.
            homes: nodes that layers are placed on.
            seed: seed of random choices of codecs.
            dtype: dtype of gradients.
            feedback: whether what a message does not say is added to the next gradient, or lost.
            touched: tensors of whose columns a step touches some: these alone are returned.

        Raises:
            ConfigError: a controller is no node, or comes twice; or columns that come and go meet a codec that looks
                back at others.
        """
        require_controllers(homes.nodes, layout.nodes)
        self.layout, self._transport, self._codec = layout, transport, codec
        self._seed, self._dtype, self._formats = seed, dtype, dict(formats)
        if touched:
            require_touchable(codec, codec, Plain())
        self._touched = {name: np.arange(0) for name in touched}
        layers: dict[str, list[str]] = {}
        for name in shapes:
            layers.setdefault(layer_of(name), []).append(name)
        self._shapes = {name: shapes[name] for layer in reversed(layers) for name in layers[layer]}
        self._wires = {
            name: wire_of(codec, *shape, dtype, feedback=feedback, touched=name in touched)
            for name, shape in self._shapes.items()
        }
        sizes = {layer: sum(map(self._message_bytes, layers[layer])) for layer in reversed(layers)}
        self.controller_of = placed(sizes, *homes)
        self._memories = {
            (name, node): Memory.empty(*shape, dtype)
            for node in transport.local
            if node in layout.workers
            for name, shape in self._shapes.items()
        }
        self.sent, self._sending, self.scale = 0, 0, 1.0
        self._newest: dict[str, bytes] = {}

    def _message_bytes(self, name: str) -> int:
        return self._codec.message_bytes(*self._shapes[name])

    def _parameter_bytes(self, name: str) -> int:
        columns, rows = self._shapes[name]
        return columns * rows * code_dtype_for(self._formats[name].width_bits).itemsize

    def _of(self, controller: int) -> list[str]:
        """Return the tensors of a controller, in the order in which they travel."""
        return [name for name in self._shapes if self.controller_of[layer_of(name)] == controller]

    def _local(self) -> Iterator[str]:
        return (name for name in self._shapes if self.controller_of[layer_of(name)] in self._transport.local)

    def step_bytes(self) -> int:
        """Return how many bytes all nodes together send to others in one step of all columns: gradients, parameters."""
        total, workers = 0, self.layout.workers
        for name in self._shapes:
            senders = len(workers) - (self.controller_of[layer_of(name)] in workers)
            total += senders * self._message_bytes(name)
            total += (self.layout.nodes - 1) * self._parameter_bytes(name)
        return total

    # ---- gradients ----

    def exchange(
        self,
        gradients: Mapping[int, Mapping[str, Columns]],
        step: int,
        scale: float = 1.0,
        workers: Sequence[int] | None = None,
    ) -> dict[str, Columns]:
        """Return the mean gradient of every tensor whose controller is local: of the dtype, (columns, rows), by name.

        Args:
            gradients: (columns, rows) by name, of every local worker; some columns of tensors that are touched.
            step: training step, where random choices are drawn.
            scale: S that they carry; what is held back of earlier ones is brought to it.
            workers: those of the layout that take part; the others' residuals stay. None is all.
        """
        taking_part = self.layout.workers if workers is None else workers
        if scale != self.scale:
            for memory in self._memories.values():
                memory.rescale(scale / self.scale)
            self.scale = scale
        there = self._contributions(gradients, step, taking_part)
        return {name: self._mean(name, there, taking_part) for name in self._local()}

    @property
    def result_scale(self) -> float:
        """S that what came out of the last exchange carries."""
        return self.scale

    def _contributions(
        self, gradients: Mapping[int, Mapping[str, Columns]], step: int, workers: Sequence[int]
    ) -> dict[tuple[str, int], bytes]:
        """Encode, send, and return messages for local controllers, by tensor and worker."""
        there: dict[tuple[str, int], bytes] = {}
        parcels: dict[tuple[int, int], list[bytes]] = {}
        for (name, node), memory in self._memories.items():
            if node not in workers:
                continue
            controller = self.controller_of[layer_of(name)]
            at = Address(self._seed, stream_of(name, "contribution", node), step)
            data = self._wires[name].encoded(gradients[node][name], memory, at)
            if node == self._transport.local[0]:
                self._newest[name] = data
            if controller == node:
                there[name, node] = data
            else:
                parcels.setdefault((node, controller), []).append(data)
        for (sender, receiver), data in self._swap(parcels).items():
            names = self._of(receiver) if sender in workers else []
            for name, message in zip(names, cut(data, [self._wires[n].size_of for n in names]), strict=True):
                there[name, sender] = message
        return there

    def _mean(self, name: str, there: Mapping[tuple[str, int], bytes], workers: Sequence[int]) -> Columns:
        """Return the sum over workers in node order, divided once by their number."""
        total, count = self._wires[name].summed([there[name, worker] for worker in workers]), self._dtype(len(workers))
        if not isinstance(total, Touched):
            return total / count
        self._touched[name] = total.places
        return Touched(total.places, total.lines / count)

    def _swap(self, parcels: Mapping[tuple[int, int], list[bytes]]) -> dict[tuple[int, int], bytes]:
        arrived, sent = swapped(self._transport, parcels)
        self._sending += sent
        return arrived

    # ---- parameters ----

    def parameters_message(self, name: str, parameter: Value) -> bytes:
        """Return a parameter as bytes: codes of its format, each in whole bytes, little-endian.

        Of one that the step has touched, which columns, and these.
        """
        array, header = on_host(parameter.array), b""
        if name in self._touched:
            places = self._touched[name]
            array, header = array[places], header_of(places, self._shapes[name][0])
        codes = self._formats[name].encode(array)
        return header + codes.astype(codes.dtype.newbyteorder("<")).tobytes()

    def parameter_of(self, name: str, data: bytes, held: Value) -> Value:
        """Return the parameter of bytes, in place of the one that is held."""
        fmt = self._formats[name]
        words, (lines, numbers) = code_dtype_for(fmt.width_bits).newbyteorder("<"), self._shapes[name]

        def numbers_of(codes: bytes, shape: tuple[int, ...]) -> Array:
            found = np.frombuffer(codes, words).reshape(shape)
            return fmt.decode(found.astype(words.newbyteorder("="))).astype(fmt.carrier)

        if name not in self._touched:
            return held.with_array(numbers_of(data, held.shape))
        places = places_of(data, lines)
        array = on_host(held.array)
        array = array if array.flags.writeable else array.copy()
        array[places] = numbers_of(data[header_bytes(len(places), lines) :], (len(places), numbers))
        return held.with_array(array)

    def _parameter_size(self, name: str, data: memoryview) -> int:
        """Return the bytes of the message of a parameter that others follow."""
        if name not in self._touched:
            return self._parameter_bytes(name)
        (lines, numbers), count = self._shapes[name], count_of(data)
        word = code_dtype_for(self._formats[name].width_bits).itemsize
        return header_bytes(count, lines) + count * numbers * word

    def returned(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Send parameters from their controllers to all nodes; return what this process then has.

        Args:
            parameters: by tensor, updated where the controller is local.

        Raises:
            ReplicaError: nodes have received different bytes.
        """
        made = {name: self.parameters_message(name, parameters[name]) for name in self._local()}
        parcels: dict[tuple[int, int], list[bytes]] = {}
        for name, data in made.items():
            controller = self.controller_of[layer_of(name)]
            for node in range(self.layout.nodes):
                if node != controller:
                    parcels.setdefault((controller, node), []).append(data)
        held = {node: {name: made[name] for name in self._of(node)} for node in self._transport.local}
        for (sender, receiver), data in self._swap(parcels).items():
            names = self._of(sender)
            held[receiver] |= zip(names, cut(data, [partial(self._parameter_size, n) for n in names]), strict=True)
        self._require_replicas(held)
        first = held[self._transport.local[0]]
        return {
            name: value if name in made else self.parameter_of(name, first[name], value)
            for name, value in parameters.items()
        }

    def _require_replicas(self, held: Mapping[int, Mapping[str, bytes]]) -> None:
        """Compare what nodes have received: a hash of 8 bytes each; everything only where hashes differ."""
        apart = {node: [messages[name] for name in self._shapes] for node, messages in held.items()}
        node, sent = compared(self._transport, apart, self._sending)
        self.sent, self._sending = self.sent + sent, 0
        if node is None:
            return
        whole = self._transport.gather({n: b"".join(messages) for n, messages in apart.items()})
        sizes = [partial(self._parameter_size, name) for name in self._shapes]
        for name, first, other in zip(self._shapes, cut(whole[0], sizes), cut(whole[node], sizes), strict=True):
            if first != other:
                raise self._differing(name, node, first, other)

    def _differing(self, name: str, node: int, first: bytes, other: bytes) -> ReplicaError:
        """Return the error that names the first code that is another one."""
        lines, numbers = self._shapes[name]
        words, places = code_dtype_for(self._formats[name].width_bits), np.arange(lines)
        if name in self._touched:
            places = places_of(first, lines)
            begin = header_bytes(len(places), lines)
            if first[:begin] != other[:begin]:
                return ReplicaError(
                    f"all nodes must have the same parameters after a step, got other columns of {name!r} on node "
                    f"{node} than on node 0; the transport is damaged: resume from the last checkpoint"
                )
            first, other = first[begin:], other[begin:]
        mine, theirs = np.frombuffer(first, words), np.frombuffer(other, words)
        place = int(np.flatnonzero(mine != theirs)[0])
        column, row = divmod(place, numbers)
        return ReplicaError(
            "all nodes must have the same parameters after a step, got code "
            f"{int(theirs[place]):#x} on node {node} and {int(mine[place]):#x} on node 0 in {name!r}, column "
            f"{places[column]}, row {row}; the transport or the memory of a node is damaged: resume from the last "
            "checkpoint"
        )

    # ---- what people look at ----

    def code_counts(self) -> Iterator[tuple[str, CodeCount]]:
        """Yield what the newest codes of the first local node stood for, by tensor."""
        for name, data in self._newest.items():
            own, memory = self._wires[name].newest(data, self._memories[name, self._transport.local[0]])
            message = self._codec.message_of(own, *memory.residual.shape)
            for count in code_counts(self._codec, message, memory):
                yield name, count

    def residual_norms(self) -> Iterator[tuple[str, str, float]]:
        """Yield the norm of what the first local node holds back as worker, by tensor."""
        for (name, node), memory in self._memories.items():
            if node == self._transport.local[0]:
                yield name, "worker", norm(memory.residual)

    # ---- checkpoints ----

    def residuals(self) -> dict[str, Array]:
        """Return what local workers have not sent yet, (columns, rows) by tensor."""
        left = {name: np.zeros(shape, self._dtype) for name, shape in self._shapes.items()}
        for (name, _), memory in self._memories.items():
            left[name] += memory.residual
        return left

    def arrays(self) -> dict[str, Array]:
        """Return everything that local nodes remember, by name, as `load` takes it back."""
        found: dict[str, Array] = {"scale": np.array(self.scale)}
        for (name, node), memory in self._memories.items():
            found |= {f"worker/{name}@{node}/{part}": array for part, array in memory.arrays().items()}
        return found

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take what `arrays` returned, of the same nodes."""
        self.scale = float(arrays["scale"])
        for (name, node), memory in self._memories.items():
            own = f"worker/{name}@{node}/"
            memory.load({key.removeprefix(own): array for key, array in arrays.items() if key.startswith(own)})
