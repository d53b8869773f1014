"""A run from its first step to its last: the loop, its log, its checkpoints, and how it is started or resumed."""

from emu.training.loop.loop import Loop

__all__ = ["Loop"]
