"""Weights by name, from PyTorch and others: which array is which parameter, and which is missing or unused.

    PyTorch's name               emu's
    conv1.weight, conv1.bias     the same
    norm.running_mean            norm.mean
    norm.running_var             norm.variance
    norm.num_batches_tracked     none: emu's moments move by a constant share

Nothing is unpickled: a pickle runs whatever program is in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray
from typing_extensions import override

from emu import nn
from emu.checkpoints import read_checkpoint
from emu.errors import ConfigError, nearest_first
from emu.formats.numbers import as_floats, as_numbers

Array = NDArray[Any]
#: Ends of PyTorch's names, and emu's.
MOMENTS = {"running_mean": "mean", "running_var": "variance"}
#: End of the name of a count that emu has no use for.
COUNT = "num_batches_tracked"
#: Ends of files that PyTorch pickles.
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_SHOWN = 5


def own_name(name: str) -> str:
    """Return emu's name of an array of a state dict.

    Examples:
        >>> own_name("block.norm.running_var")
        'block.norm.variance'
    """
    layer, dot, part = name.rpartition(".")
    return f"{layer}{dot}{MOMENTS.get(part, part)}"


def arrays_in(state: Any) -> dict[str, Array]:
    """Return the arrays of a state by emu's names.

    Args:
        state: a mapping of names to tensors or arrays, or the path of a `.safetensors` file.

    Raises:
        ConfigError: a file of another kind, two arrays of one name, or a name that is no text.
        FormatError: something that is no array of real numbers.
    """
    given: Mapping[Any, Any] = _read(Path(state)) if isinstance(state, str | Path) else _mapping(state)
    arrays: dict[str, Array] = {}
    for name, tensor in given.items():
        if not isinstance(name, str):
            raise ConfigError(
                f"arrays of a state must have texts as names, got {name!r}; give what state_dict() of a module returns"
            )
        if name.rpartition(".")[2] == COUNT:
            continue
        own = own_name(name)
        if own in arrays:
            raise ConfigError(f"arrays of a state must have names of their own, got two for {own!r}; leave one out")
        arrays[own] = as_numbers(tensor, name)
    return arrays


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix in PICKLED:
        raise ConfigError(
            f"a state must be a .safetensors file or a state dict, got {str(path)!r}, which is pickled: reading it "
            "runs what is in it; give torch.load(path, weights_only=True), or save with safetensors.torch.save_file"
        )
    return read_checkpoint(path)


def _mapping(state: Any) -> Mapping[Any, Any]:
    if hasattr(state, "state_dict"):
        state = state.state_dict()
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"a state must be a state dict or the path of a .safetensors file, got {type(state).__name__}; give "
            "module.state_dict()"
        )
    return cast("Mapping[Any, Any]", state)


def fitting(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the arrays that parameters and moments of these shapes need, in their order.

    Raises:
        ConfigError: arrays are missing, unused, or of another shape; names all of them.
    """
    # all faults in one message: names of a foreign state seldom differ in one place only
    missing, unused = [n for n in shapes if n not in arrays], [n for n in arrays if n not in shapes]
    wrong = [
        f"{n} {arrays[n].shape} for {shape}" for n, shape in shapes.items() if n in arrays and arrays[n].shape != shape
    ]
    found = [
        f"{what} {_listed(names)}"
        for what, names in (("without", missing), ("unused", unused), ("of another shape", wrong))
        if names
    ]
    if not found:
        return {name: arrays[name] for name in shapes}
    hint = f"; the nearest to {missing[0]!r} is {nearest_first(missing[0], unused)[0]!r}" if missing and unused else ""
    raise ConfigError(
        f"a state must have an array for each parameter and moment, and no other, got one {', '.join(found)}{hint}; "
        "rename the arrays, or leave the others out"
    )


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def shapes_of(network: nn.Network) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter and moment of a network, by name."""
    known: Iterable[tuple[nn.Layer, Any]] = [*network.parameters(), *network.moments()]
    return {f"{layer.name}.{own.part}": own.shape for layer, own in known}


def _hashed(array: Array) -> bytes:
    """Return bytes that say which numbers an array has, whatever its dtype.

    Float64, little-endian on every processor; fractions as text where float64 would round a number.
    """
    if array.dtype.kind == "f":
        return array.astype("<f8").tobytes()
    numbers = array.ravel().tolist()
    floats = as_floats(numbers, array.shape)
    # integers and fractions of one value have one text
    return " ".join(map(str, numbers)).encode() if floats is None else floats.astype("<f8").tobytes()


@dataclass(frozen=True)
class LoadedNetwork(nn.Network):
    """A network whose parameters and moments begin with given arrays.

    Attributes:
        sha256: hash of the arrays, by which a run knows them when it is resumed.
        arrays: by name, as `layer.weight`.
    """

    sha256: str = ""
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False, compare=False)

    @classmethod
    def of(cls, network: nn.Network, state: Any) -> LoadedNetwork:
        """Return a network that begins with a state; see `arrays_in` and `fitting`.

        Raises:
            ConfigError: the state cannot be read, or does not fit.
            FormatError: something in it is no array of real numbers.
        """
        arrays = fitting(arrays_in(state), shapes_of(network))
        digest = hashlib.sha256()
        for name, array in arrays.items():
            # the shape as well: equal bytes of another shape are other weights
            digest.update(f"{name} {array.shape}".encode())
            digest.update(_hashed(array))
        return cls(network.layers, network.loss, digest.hexdigest(), arrays)

    @override
    def first_values(self, layer: nn.Layer, part: str) -> Array | None:
        return self.arrays[f"{layer.name}.{part}"]
