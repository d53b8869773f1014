"""From the first step of a run to the last: the loop, its log, its checkpoints, and the ways into it."""

from emu.training.loop.loop import Loop

__all__ = ["Loop"]
