"""Layers and networks. Layers name their parameters and apply primitives; they never see a format.

layers.py         Linear, SparseLinear, Conv2d, pooling, activations, dropout, tables
normalisation.py  BatchNorm, LayerNorm
blocks.py         layers made of layers: Residual, Attention
network.py        a sequence of layers and a loss
initialisers.py   seeded, the same bits on every machine
"""

from emu.nn.blocks import Attention, Residual
from emu.nn.initialisers import INITIALISERS, initialise
from emu.nn.layers import (
    Activation,
    AvgPool,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Moment,
    Parameter,
    Parameters,
    Position,
    SparseLinear,
    every,
)
from emu.nn.network import Network
from emu.nn.normalisation import BatchNorm, LayerNorm

__all__ = [
    "INITIALISERS",
    "Activation",
    "Attention",
    "AvgPool",
    "BatchNorm",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "Linear",
    "MaxPool",
    "Moment",
    "Network",
    "Parameter",
    "Parameters",
    "Position",
    "Residual",
    "SparseLinear",
    "every",
    "initialise",
]
