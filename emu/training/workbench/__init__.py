"""The workbench of a run: recipe and device made into model, update and runners."""

from emu.training.workbench.workbench import Workbench

__all__ = ["Workbench"]
