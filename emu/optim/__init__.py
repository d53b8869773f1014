"""Optimisers with master weights: each operation of the update goes through the datapath with its role.

    gradient -> (momentum | moments) -> update = -rate * direction -> master + update -> reduced copy

optimiser.py         the protocol of optimisers, and a parameter's state
gradient_descent.py  SGD, momentum
adaptive.py          AdaGrad, Adam
muon.py              Muon
clipping.py          gradients shortened to a norm, before the optimiser's step

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.1 (master weights).
"""

from emu.optim.adaptive import AdaGrad, Adam
from emu.optim.clipping import clip_by_norm
from emu.optim.gradient_descent import GradientDescent
from emu.optim.muon import Muon
from emu.optim.optimiser import Optimiser, ParameterState, rescale, scalar

__all__ = [
    "AdaGrad",
    "Adam",
    "GradientDescent",
    "Muon",
    "Optimiser",
    "ParameterState",
    "clip_by_norm",
    "rescale",
    "scalar",
]
