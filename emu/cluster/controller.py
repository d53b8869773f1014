"""Controllers: each takes whole layers from all workers, averages them, updates, and returns parameters.

    worker i, layer a          code = Q(G + residual)                      to the controller of a
    controller of a            waits for all; mean = sum of workers in node order / their number; update
    all nodes                  the parameters of a, codes of their format

The backward pass of a worker uses the scale S, not S / K, because the mean is taken here. A controller is a worker, or
a node that computes no gradients. Several controllers share the layers.

Source: US 2023/0169333.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import Value
from emu.backends.arrays import on_host
from emu.cluster.codecs import Codec
from emu.cluster.contributions import Contributing, Part
from emu.cluster.layout import Block, Layout
from emu.cluster.owner_rules import Plain, require_touchable
from emu.cluster.parcels import Parcels, ReplicaError, cut
from emu.cluster.transport import Transport
from emu.cluster.wires import Columns, Touched, count_of, header_bytes, header_of, indices_of, wire_of
from emu.errors import ConfigError
from emu.formats import Format
from emu.formats.arrays import code_dtype_for

Array = NDArray[Any]
Placement: TypeAlias = Literal["fixed", "least_loaded", "least_busy"]


def layer_of(tensor: str) -> str:
    """Return the layer of a parameter's name.

    Examples:
        >>> layer_of("block.fc1.weight")
        'block.fc1'
    """
    return tensor.rpartition(".")[0]


class Homes(NamedTuple):
    """Which nodes are controllers, and how layers are assigned to them.

    Attributes:
        nodes: the controllers.
        placement: rule of the assignment, see `placed`.
        controller_of: the assignment itself, by layer, where it follows from simulated time ("least_busy"); empty if
            `placed` makes it.
    """

    nodes: Sequence[int] = (0,)
    placement: Placement = "fixed"
    controller_of: Mapping[str, int] = MappingProxyType({})


def placed(layer_bytes: Mapping[str, int], controllers: Sequence[int], placement: Placement) -> dict[str, int]:
    """Return the controller of each layer, by a rule that needs no clock.

    Args:
        layer_bytes: bytes of each layer, in the order in which layers travel: the last layer of the network first.
        controllers: nodes that are controllers.
        placement: "fixed" takes controllers in turn; "least_loaded" takes the one with the fewest bytes so far, of
            equals the lowest node.

    Raises:
        ConfigError: the rule is "least_busy", which asks the clock of a device (`emu.cluster.timing.controllers_of`).

    Examples:
        >>> placed({"c": 10, "b": 70, "a": 40}, [0, 1], "fixed")
        {'c': 0, 'b': 1, 'a': 0}
        >>> placed({"c": 70, "b": 10, "a": 40}, [0, 1], "least_loaded")
        {'c': 0, 'b': 1, 'a': 1}
    """
    if placement == "least_busy":
        raise ConfigError(
            "`placement` must be 'fixed' or 'least_loaded' if no times of layers are known, got 'least_busy'; choose "
            "another, or give `controller_of`"
        )
    if placement == "fixed":
        return {layer: controllers[i % len(controllers)] for i, layer in enumerate(layer_bytes)}
    # bytes weigh the same on every controller
    return least_loaded({layer: dict.fromkeys(controllers, size) for layer, size in layer_bytes.items()})


def least_loaded(loads: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """Return the controller of each layer: the one with the least load so far, of equals the lowest node.

    Args:
        loads: load of each layer on each controller, by layer, then node; layers in the order in which they travel.

    Examples:
        >>> least_loaded({"c": {0: 9, 1: 5}, "b": {0: 2, 1: 2}, "a": {0: 4, 1: 3}})
        {'c': 0, 'b': 1, 'a': 1}
    """
    so_far, controller_of = Counter[int](), dict[str, int]()
    for layer, by_node in loads.items():
        # `min` keeps the first of equals: the lowest node, since nodes are sorted
        controller = min(sorted(by_node), key=lambda node: so_far[node])
        controller_of[layer] = controller
        so_far[controller] += by_node[controller]
    return controller_of


def require_controllers(controllers: Sequence[int], nodes: int) -> None:
    """Check that controllers are nodes, each named once, and that there is one.

    Raises:
        ConfigError: they are not.
    """
    for node in controllers:
        # `type`, not `isinstance`: True is an int
        if type(node) is not int or not 0 <= node < nodes:
            raise ConfigError(
                f"`controllers` must be nodes 0..{nodes - 1}, got {node!r}; name nodes of the cluster, or raise `nodes`"
            )
    if not controllers or len(set(controllers)) < len(controllers):
        raise ConfigError(f"`controllers` must be nodes, at least one, each once, got {list(controllers)}")


class Controllers(Contributing):
    """Gives controllers the mean of workers' gradients, and all nodes the parameters that controllers make of it.

    Attributes:
        layout: nodes and workers.
        controller_of: node of the controller, by layer.
        sent: bytes that all nodes have sent to others so far.
        divides: whether the mean is taken here, so that a worker's backward pass uses the scale S.
        scale: S of the residuals and of the gradients of the last exchange.
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
            homes: controllers, and how layers are assigned to them.
            seed: seed of random choices of codecs.
            dtype: dtype of gradients.
            feedback: whether what a message does not express is added to the next gradient, or lost.
            touched: tensors of which a step touches some columns; these columns alone are returned.

        Raises:
            ConfigError: a controller is no node, or is named twice; layers are placed by time, and no times are given;
                or there are touched tensors and a codec that reads earlier mini-batches.
        """
        require_controllers(homes.nodes, layout.nodes)
        if touched:
            require_touchable(codec, codec, Plain())
        self._formats, self._touched = dict(formats), {name: np.arange(0) for name in touched}
        layers: dict[str, list[str]] = {}
        for name in shapes:
            layers.setdefault(layer_of(name), []).append(name)
        layers = dict(reversed(layers.items()))  # the last layer's gradients are complete first
        ordered = {name: shapes[name] for names in layers.values() for name in names}
        # of whole layers, also for touched tensors: how many columns a step touches is not known yet
        sizes = {layer: sum(codec.message_bytes(*shapes[name]) for name in names) for layer, names in layers.items()}
        self.controller_of = dict(homes.controller_of) or placed(sizes, homes.nodes, homes.placement)
        parts = [
            Part(
                name,
                name,
                "contribution",
                self.controller_of[layer_of(name)],
                Block.whole(shape),
                wire_of(codec, *shape, dtype, feedback=feedback, touched=name in touched),
            )
            for name, shape in ordered.items()
        ]
        super().__init__(ordered, parts, layout, codec, transport, seed=seed, dtype=dtype)

    def _parameter_bytes(self, name: str) -> int:
        # codes travel in whole bytes: a code of 5 bits takes one, of 12 bits two
        columns, rows = self._shapes[name]
        return columns * rows * code_dtype_for(self._formats[name].width_bits).itemsize

    def _of(self, controller: int) -> list[str]:
        """Return the tensors of a controller, in the order in which they travel."""
        return [name for name in self._shapes if self.controller_of[layer_of(name)] == controller]

    def _local(self) -> Iterator[str]:
        return (name for name in self._shapes if self.controller_of[layer_of(name)] in self._transport.local)

    @override
    def _answer_bytes(self, part: Part) -> int:
        return self._parameter_bytes(part.tensor)

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
            gradients: (columns, rows) by name, of each local worker; `Touched` columns of touched tensors.
            step: training step, part of the address of random choices.
            scale: S of the gradients; residuals of earlier steps are rescaled to it.
            workers: workers that take part; residuals of the others stay. None is all.
        """
        taking_part = self.layout.workers if workers is None else workers
        # before anything is encoded: residuals and gradients must carry the same S
        self._rescale(scale)
        sums = self._sums(gradients, step, taking_part)
        return {name: self._mean(name, total, len(taking_part)) for name, total in sums.items()}

    @property
    def result_scale(self) -> float:
        """S of the results of the last exchange."""
        return self.scale

    def _mean(self, name: str, total: Columns, workers: int) -> Columns:
        """Return the sum over workers divided once by their number."""
        count = self._dtype(workers)
        if not isinstance(total, Touched):
            return total / count
        # `parameters_message` sends these columns back, after the update
        self._touched[name] = total.indices
        return Touched(total.indices, total.lines / count)

    # ---- parameters ----

    def parameters_message(self, name: str, parameter: Value) -> bytes:
        """Return a parameter as bytes: codes of its format, each in whole bytes, little-endian.

        The message of a touched tensor begins with the indices of its touched columns, and has only these.
        """
        array, header = on_host(parameter.array), b""
        if name in self._touched:
            indices = self._touched[name]
            array, header = array[indices], header_of(indices, self._shapes[name][0])
        codes = self._formats[name].encode(array)
        # the byte order is fixed, so that processes on different machines compare equal bytes
        return header + codes.astype(codes.dtype.newbyteorder("<")).tobytes()

    def parameter_of(self, name: str, data: bytes, before: Value) -> Value:
        """Return the parameter of a message; columns that are not in it stay as before."""
        fmt = self._formats[name]
        words, (lines, numbers) = code_dtype_for(fmt.width_bits).newbyteorder("<"), self._shapes[name]

        def numbers_of(codes: bytes, shape: tuple[int, ...]) -> Array:
            raw_codes = np.frombuffer(codes, words).reshape(shape)
            # `astype` before decoding: `frombuffer` has the byte order of the wire
            return fmt.decode(raw_codes.astype(words.newbyteorder("="))).astype(fmt.carrier)

        if name not in self._touched:
            return before.with_array(numbers_of(data, before.shape))
        indices = indices_of(data, lines)
        array = on_host(before.array)
        array = array if array.flags.writeable else array.copy()
        array[indices] = numbers_of(data[header_bytes(len(indices), lines) :], (len(indices), numbers))
        return before.with_array(array)

    def _parameter_size(self, name: str, data: memoryview) -> int:
        """Return the length of the message of a parameter at the beginning of some bytes."""
        if name not in self._touched:
            return self._parameter_bytes(name)
        (lines, numbers), count = self._shapes[name], count_of(data)
        word = code_dtype_for(self._formats[name].width_bits).itemsize
        return header_bytes(count, lines) + count * numbers * word

    def returned(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Send parameters from their controllers to all nodes; return the parameters of this process afterwards.

        Args:
            parameters: by tensor, updated if the controller is local.

        Raises:
            ReplicaError: nodes have received different bytes.
        """
        # of local controllers only: this process has not updated the parameters of the others
        own = {name: self.parameters_message(name, parameters[name]) for name in self._local()}
        parcels: Parcels = {}
        for name, data in own.items():
            controller = self.controller_of[layer_of(name)]
            for node in range(self.layout.nodes):
                if node != controller:
                    parcels.setdefault((controller, node), []).append(data)
        # a controller does not send to itself: its own messages count as received, so that all nodes compare all bytes
        received = {node: {name: own[name] for name in self._of(node)} for node in self._transport.local}
        for (sender, receiver), data in self._swap(parcels).items():
            names = self._of(sender)
            received[receiver] |= zip(names, cut(data, [partial(self._parameter_size, n) for n in names]), strict=True)
        self._require_replicas(received)
        first = received[self._transport.local[0]]
        # the parameters of a controller stay the very arrays: decoding their codes would give the same numbers
        return {
            name: value if name in own else self.parameter_of(name, first[name], value)
            for name, value in parameters.items()
        }

    def _require_replicas(self, received: Mapping[int, Mapping[str, bytes]]) -> None:
        # all messages in one order, by which hashes of nodes can be compared
        arrived = {node: [messages[name] for name in self._shapes] for node, messages in received.items()}
        difference = self._difference(arrived, [partial(self._parameter_size, name) for name in self._shapes])
        if difference is None:
            return
        for name, first, other in zip(self._shapes, difference.first, difference.other, strict=True):
            if first != other:
                raise self._differing(name, difference.node, first, other)

    def _differing(self, name: str, node: int, first: bytes, other: bytes) -> ReplicaError:
        """Return the error that names the first code that differs."""
        lines, numbers = self._shapes[name]
        words, columns = code_dtype_for(self._formats[name].width_bits), np.arange(lines)
        if name in self._touched:
            columns = indices_of(first, lines)
            begin = header_bytes(len(columns), lines)
            if first[:begin] != other[:begin]:
                return ReplicaError(
                    f"all nodes must have the same parameters after a step, got other columns of {name!r} on node "
                    f"{node} than on node 0; the transport is damaged: resume from the last checkpoint"
                )
            first, other = first[begin:], other[begin:]
        # codes, not numbers: 0 and -0 are equal numbers
        mine, theirs = np.frombuffer(first, words), np.frombuffer(other, words)
        index = int(np.flatnonzero(mine != theirs)[0])
        column, row = divmod(index, numbers)
        return ReplicaError(
            "all nodes must have the same parameters after a step, got code "
            f"{int(theirs[index]):#x} on node {node} and {int(mine[index]):#x} on node 0 in {name!r}, column "
            f"{columns[column]}, row {row}; the transport or the memory of a node is damaged: resume from the last "
            "checkpoint"
        )
