"""Examples: files and their forms, the split into training and test, and the examples of each mini-batch."""

from emu.training.data.dataset import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
