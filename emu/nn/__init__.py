"""Layers and networks. Layers name their parameters and apply primitives; they have no formats.

layer.py          what every layer is: keys of a recipe, shapes, parameters, and what is asked about it
layers.py         Linear, SparseLinear, Conv2d, pooling, activations
normalisation.py  BatchNorm, LayerNorm, Dropout
sequences.py      Embedding, Position, Attention
blocks.py         Residual: two ways that are added
wired.py          steps that a graph connects, for networks from elsewhere
network.py        a sequence of layers and a loss
initialisers.py   seeded, the same bits on every machine

The names in each module's `__all__` are names of this package, too.
"""

from emu.nn import blocks, initialisers, layer, layers, network, normalisation, sequences
from emu.nn.blocks import *
from emu.nn.initialisers import *
from emu.nn.layer import *
from emu.nn.layers import *
from emu.nn.network import *
from emu.nn.normalisation import *
from emu.nn.sequences import *

__all__: list[str] = []
__all__ += blocks.__all__
__all__ += initialisers.__all__
__all__ += layer.__all__
__all__ += layers.__all__
__all__ += network.__all__
__all__ += normalisation.__all__
__all__ += sequences.__all__

#: Layers that a recipe can name, module by module, in the order in which they are written: messages list them so.
LAYERS = tuple(
    kind
    for module in (layers, normalisation, sequences, blocks)
    for name, kind in vars(module).items()
    if name in module.__all__ and kind.type_names
)
