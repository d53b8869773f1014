"""What an operation is: one row of one table.

    row.py     the columns: on a datapath, in float64, its work, which part of a machine computes it, its energy
    table.py   OPERATIONS, gathered from the families
    asked.py   result shape, multiply-adds, passes of the host
    kinds.py   forward, backward or update: from the role of the result

Each family of operations has a file with its functions and rows:

    elementwise.py   functions.py   products.py    convolution.py     sums.py       selections.py   choices.py
    embedding.py     dropout.py     softmax.py     normalisation.py   losses.py     casts.py
    integers.py      reference_integers.py         (host.py, operands.py, fixed_point.py: shared)

Autodiff, precision, energy, simulated time and the report read the table; none has a list of operations of its own.
"""

from emu.operations.row import DoneBy, Row
from emu.operations.table import OPERATIONS

__all__ = ["OPERATIONS", "DoneBy", "Row"]
