"""Gradients clipped layer by layer on every worker, while backpropagation goes on.

rules.py     thresholds: constant, variance, momentum, parameter norm, several in turn
layer.py     input and result of a rule, and sums in the stated order
settings.py  `[clipping]` of a recipe
schedule.py  when layers are clipped and sent, on which processor

Source: US 2023/0169333.
"""

from emu.cluster.clipping.layer import Clipped, LayerGradients, Limits
from emu.cluster.clipping.rules import (
    ConstantThresholds,
    MomentumThresholds,
    ParameterNorm,
    Rule,
    VarianceThresholds,
    apply_rules,
)
from emu.cluster.clipping.schedule import schedule
from emu.cluster.clipping.settings import ClippingTable

__all__ = [
    "Clipped",
    "ClippingTable",
    "ConstantThresholds",
    "LayerGradients",
    "Limits",
    "MomentumThresholds",
    "ParameterNorm",
    "Rule",
    "VarianceThresholds",
    "apply_rules",
    "schedule",
]
