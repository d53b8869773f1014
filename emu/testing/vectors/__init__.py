"""Golden vectors out, dumps in: operands, results and flags in files that testbenches read, and what a wrong one means.

description.py   which operation, formats, stage and unit
definition.py    the definition's answer, element by element
files.py         columns for $readmemh with a JSON manifest, and TestFloat's lines
cells.py         what hardware gets wrong, and which vectors reach it (cell.py; origin_cells.py: zeros, infinities, NaN)
steps.py         how each result was rounded; evidence.py: where a zero, NaN or infinity came from
making.py        operands for each cell, that break hardware, and that tell faults from the definition
pool.py          what the vectors of the cells are chosen from (everything.py: all inputs of small operations)
aiming.py        operands whose results land in cells
steering.py      products whose sums go beyond an accumulator's limits and come back
blocks/          results that share scales, as those of MXFP8 and NVFP4
causes/          what else could give a code: other rules, and habits of hardware
check.py         codes against the vectors: the first difference (picture.py), and which faults explain them all
explanation.py   the sentences of a finding
dumps/           dumps of any format, read
alignment.py     which vector a line belongs to, if lines were lost, added or shifted (offset_path.py, shift_names.py)
columns.py       columns of a dump by what they are
dump_check.py    a dump against the vectors
given_operands.py  vectors of operands that somebody else drew
"""

from emu.testing.vectors.cells import vectors_by_cell
from emu.testing.vectors.check import Finding, what_they_tell
from emu.testing.vectors.description import Description, Vectors
from emu.testing.vectors.dump_check import DumpFinding, check_dump, judge
from emu.testing.vectors.dumps import Dump, Reading, read_dump
from emu.testing.vectors.files import read_vectors, write_vectors
from emu.testing.vectors.given_operands import vectors_of
from emu.testing.vectors.making import count_for_cells, make_vectors

__all__ = [
    "Description",
    "Dump",
    "DumpFinding",
    "Finding",
    "Reading",
    "Vectors",
    "check_dump",
    "count_for_cells",
    "judge",
    "make_vectors",
    "read_dump",
    "read_vectors",
    "vectors_by_cell",
    "vectors_of",
    "what_they_tell",
    "write_vectors",
]
