"""What a number is: formats, their values and their codes.

A format is a finite set of values and its encoding. `Fixed` and `Float` are frozen and hashable; `parse` reads their
text form. The numbers themselves are ordinary NumPy arrays, in a dtype that holds every value of the format exactly:
the format's carrier. A `Value` is such an array with its format.

Source: docs/concepts/index.md and docs/concepts/formats.md.
"""

from emu.formats.fixed import DynamicFixed, Fixed
from emu.formats.floating import PRESETS, Float
from emu.formats.parse import Format, parse
from emu.formats.value import Value

__all__ = ["PRESETS", "DynamicFixed", "Fixed", "Float", "Format", "Value", "parse"]
