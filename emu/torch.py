"""`emu.torch`: emu inside of PyTorch, and PyTorch's networks in emu. Needs PyTorch, which emu never installs.

>>> network = emu.torch.convert(module, images)  # doctest: +SKIP
>>> [scores] = network(images, device="fixed16")  # doctest: +SKIP
"""

from emu.interop.torch import (
    SGD,
    AdaGrad,
    Adam,
    Conv2d,
    Layer,
    Linear,
    Loss,
    Machine,
    Muon,
    Optimiser,
    convert,
    load_state,
    matmul,
    place,
    quantize,
    sha256,
)

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "Conv2d",
    "Layer",
    "Linear",
    "Loss",
    "Machine",
    "Muon",
    "Optimiser",
    "convert",
    "load_state",
    "matmul",
    "place",
    "quantize",
    "sha256",
]
