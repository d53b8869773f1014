"""State dicts and safetensors for networks and modules of emu."""

from __future__ import annotations

from typing import Any

from emu import nn
from emu.errors import ConfigError
from emu.formats.numbers import nearest_floats
from emu.interop.states import COUNT, LoadedNetwork, arrays_in, fitting, own_name
from emu.interop.torch.applying import Name
from emu.interop.torch.modules import Layer, layers_of
from emu.interop.torch.package import load_torch

torch = load_torch()


def load_state(into: Any, state: Any) -> Any:
    """Return a network, or a model, with the weights of a state.

    Names and shapes must be those of `into`, all of them; PyTorch's names of running moments are understood, and its
    counts of batches are left out.

    Args:
        into: an `emu.nn.Network`, or what a recipe says of it (`emu.model("lenet").network`); or a module of PyTorch
            with modules of emu inside, which is changed.
        state: a state dict of tensors or arrays, a module that has one, or the path of a `.safetensors` file.

    Returns:
        A network that begins with these weights, for `emu.train(network=...)`; or the module.

    Raises:
        ConfigError: arrays are missing, unused or of another shape, names them; or a file is pickled.
    """
    if isinstance(into, torch.nn.Module):
        return _into_module(into, state)
    # what a recipe says of a network: `built` returns its layers
    if hasattr(into, "built") and hasattr(into, "loss"):
        into = nn.Network(into.built(), into.loss)
    if not isinstance(into, nn.Network):
        raise ConfigError(
            f"weights must be loaded into an emu.nn.Network or a module, got {type(into).__name__}; give "
            "emu.model(NAME).network"
        )
    return LoadedNetwork.of(into, state)


def _into_module(model: Any, state: Any) -> Any:
    """Fill the parameters and buffers of a module: those of emu's modules are written in formats of master weights."""
    targets: dict[str, Any] = {}
    # module and name of a parameter or moment of emu's, by its name in the state
    places: dict[str, tuple[Layer, Name]] = {}
    for path, module in layers_of(model).items():
        begin = f"{path}." if path else ""
        # by the module's place, not by the layer's name: state dicts have names of places
        for (layer, part), tensor in {**module.tensors(), **module.running()}.items():
            inner = "" if layer == module.layer.name else layer.removeprefix(f"{module.layer.name}.") + "."
            targets[f"{begin}{inner}{part}"] = tensor
            places[f"{begin}{inner}{part}"] = module, (layer, part)
    # `setdefault`: parameters of emu's modules are there already
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not name.endswith(COUNT):
            targets.setdefault(own_name(name), tensor)
    arrays = fitting(arrays_in(state), {name: tuple(tensor.shape) for name, tensor in targets.items()})
    # straight from the state, so that numbers are rounded once; all of them before any is put in its place
    kept = {name: module.as_kept(own, arrays[name]) for name, (module, own) in places.items()}
    # a copy, because PyTorch warns of arrays that are read-only
    others = {
        name: torch.as_tensor(nearest_floats(array) if array.dtype == object else array.copy())
        for name, array in arrays.items()
        if name not in places
    }
    with torch.no_grad():
        for name, tensor in others.items():
            targets[name].copy_(tensor)
        for name, (module, own) in places.items():
            module.put(own, kept[name])
    return model
