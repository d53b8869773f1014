"""PyTorch, where it is installed: networks converted, weights loaded, loops of PyTorch on a device's arithmetic.

package.py      PyTorch, or the error that it is missing
machine.py      the device that modules share
tensors.py      tensors become values and values tensors
applying.py     one call of a module, forward and backward
modules.py      `Layer`, `Linear`, `Conv2d`; `place`, `sha256` of whole models
losses.py       `Loss`
optimisers.py   `SGD`, `AdaGrad`, `Adam`, `Muon`
functions.py    `matmul`, `quantize` on units that are described in place
converting.py   `convert`: any module becomes a graph
loading.py      `load_state`: state dicts and safetensors
"""

from emu.interop.torch.converting import convert
from emu.interop.torch.functions import matmul, quantize
from emu.interop.torch.loading import load_state
from emu.interop.torch.losses import Loss
from emu.interop.torch.machine import Machine
from emu.interop.torch.modules import Conv2d, Layer, Linear, place, sha256
from emu.interop.torch.optimisers import SGD, AdaGrad, Adam, Muon, Optimiser

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
