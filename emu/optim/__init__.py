"""Optimisers with master weights: every step of the update goes through the datapath with its role.

    gradient -> (momentum) -> update = -rate * direction -> master + update -> reduced copy

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.1 (master weights).
"""

from emu.optim.gradient_descent import GradientDescent, ParameterState

__all__ = ["GradientDescent", "ParameterState"]
