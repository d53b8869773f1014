"""What a number is: formats, their values and their codes.

A format is a finite set of values and its encoding. `Fixed` and `Float` are frozen and hashable; `parse` reads their
text form. Values travel in carriers, ordinary NumPy arrays that hold every value of the format exactly.

Source: docs/concepts/index.md and docs/concepts/formats.md.
"""

from emu.formats.fixed import DynamicFixed, Fixed
from emu.formats.floating import PRESETS, Float
from emu.formats.parse import Format, parse

__all__ = ["PRESETS", "DynamicFixed", "Fixed", "Float", "Format", "parse"]
