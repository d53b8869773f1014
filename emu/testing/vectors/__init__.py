"""Golden vectors out, dumps in: operands, results and flags in files that testbenches read, and what a wrong one means.

description.py   which operation, formats, stage and unit
definition.py    the definition's answer, element by element
files.py         hex for $readmemh with a JSON manifest; TestFloat's lines
making.py        operands that break hardware, and those that tell faults from the definition
steering.py      products whose sums go beyond an accumulator's limits and come back
faults.py        what else could give a code: other rules, and habits of hardware
check.py         a dump against the vectors, and its first difference explained
"""

from emu.testing.vectors.check import Finding, check_dump, what_they_tell
from emu.testing.vectors.description import Description, Vectors
from emu.testing.vectors.files import read_vectors, write_vectors
from emu.testing.vectors.making import make_vectors

__all__ = [
    "Description",
    "Finding",
    "Vectors",
    "check_dump",
    "make_vectors",
    "read_vectors",
    "what_they_tell",
    "write_vectors",
]
