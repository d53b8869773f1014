"""A unit as C99: a file and a header, for DPI-C, Verilator and firmware.

unit.py        which parts a unit has, and their order
text/          the parts, in C: readable as they are, with lines that only some units need
template.py    leaves such lines and unused parts out
widths.py      how many words the exact results have
constants.py   formats, modes and stages as constants of C
header.py      the header: what the unit does in words, an example, the line for DPI-C
names.py       names that a function in C cannot have
"""

from emu.export.c.unit import files_of

__all__ = ["files_of"]
