"""Sums of columns in the stated order, as every backend computes them: `lanes(64)`."""

from emu.backends.reference.column_sums import LANES, column_means, column_sums

__all__ = ["LANES", "column_means", "column_sums"]
