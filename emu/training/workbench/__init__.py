"""What a recipe and a device are made into: the workbench of a run, with model, update and runners."""

from emu.training.workbench.workbench import Workbench

__all__ = ["Workbench"]
