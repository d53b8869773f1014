"""Dumps of any format, read into columns of codes and masks of what was never driven.

dump.py      what a dump is, and what a reader is told
readers.py   the list of formats, and which of them a file has
words.py     one word: hexadecimal, decimal, binary, with or without its size
memory.py    text as $readmemh reads it, and TestFloat's lines
questa.py    memory files of Questa and ModelSim
mif.py       those of Quartus
coe.py       those of Xilinx
table.py     tables with commas, semicolons or tabs
sampling.py  a waveform's signals at the rising edges of a clock
vcd.py       waveforms of IEEE 1800's text format
fst.py       those of FST and GHW, through pywellen

A format more is a file with a function that returns a `Dump`, and its line in `READERS`.
"""

from emu.testing.vectors.dumps.dump import Dump, Reading
from emu.testing.vectors.dumps.readers import READERS, Reader, read_dump

__all__ = ["READERS", "Dump", "Reader", "Reading", "read_dump"]
