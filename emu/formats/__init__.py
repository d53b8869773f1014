"""What a number is: formats, their values and their codes.

A format is a finite set of values and its encoding. `Fixed` and `Float` are frozen and hashable; `parse` reads their
text form. The numbers themselves are ordinary NumPy arrays, in a dtype that holds every value of the format exactly:
the format's carrier. A `Value` is such an array with its format. The elements of a `Scaled` format share scales; a
`ScaledValue` is its elements and scales.

Source: docs/concepts/index.md and docs/concepts/formats.md.
"""

from emu.formats.fixed import DynamicFixed, Fixed
from emu.formats.floating import PRESETS, Float
from emu.formats.parse import Format, parse, parse_number
from emu.formats.scaled import SCALED_PRESETS, Level, Scaled, Tiling
from emu.formats.scaled_value import ScaledValue
from emu.formats.value import Value

__all__ = [
    "PRESETS",
    "SCALED_PRESETS",
    "DynamicFixed",
    "Fixed",
    "Float",
    "Format",
    "Level",
    "Scaled",
    "ScaledValue",
    "Tiling",
    "Value",
    "parse",
    "parse_number",
]
