"""Layers and networks. Layers name their parameters and apply primitives; they have no formats.

layers.py         Linear, SparseLinear, Conv2d, pooling, activations, dropout, tables
normalisation.py  BatchNorm, LayerNorm
blocks.py         layers made of layers: Residual, Attention
network.py        a sequence of layers and a loss
initialisers.py   seeded, the same bits on every machine

The names in each module's `__all__` are names of this package, too.
"""

from emu.nn import blocks, initialisers, layers, network, normalisation
from emu.nn.blocks import *
from emu.nn.initialisers import *
from emu.nn.layers import *
from emu.nn.network import *
from emu.nn.normalisation import *

__all__: list[str] = []
__all__ += blocks.__all__
__all__ += initialisers.__all__
__all__ += layers.__all__
__all__ += network.__all__
__all__ += normalisation.__all__
