"""Examples: files that are read, forms that they have, which are kept for the test, and which each mini-batch has."""

from emu.training.data.dataset import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
