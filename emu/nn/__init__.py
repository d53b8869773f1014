"""Layers and networks. Layers name their parameters and apply primitives; they never see a format.

layers.py         Linear, Conv2d, pooling, activations
network.py        a sequence of layers and a loss
initialisers.py   seeded, the same bits on every machine
"""

from emu.nn.initialisers import INITIALISERS, initialise
from emu.nn.layers import Activation, AvgPool, Conv2d, Flatten, Layer, Linear, MaxPool, Parameter
from emu.nn.network import Network

__all__ = [
    "INITIALISERS",
    "Activation",
    "AvgPool",
    "Conv2d",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "Network",
    "Parameter",
    "initialise",
]
