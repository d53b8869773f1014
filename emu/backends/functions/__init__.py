"""Elementary functions: exp, log, tanh, sigmoid, erf, gelu, rsqrt.

    input of at most 16 bits    tables.py    the result for every code, correctly rounded once; all backends look it up
    wider input                 double.py    a fixed sequence of float64 operations, then the output stage
                                wide.py      results that float64 has not: finite where it has infinity, nonzero where
                                             it has 0; and where a NaN comes from a number

    pairs.py         sums and products carried as two doubles
    coefficients.py  constants of the polynomials, made by fitting.py
    grid.py          which bits of a value an output stage can tell apart
    evaluation.py    function values shortened to those bits; ziv.py computes with mpmath the few that need more digits
    store.py         tables on disk

Source: docs/concepts/functions.md.
"""

from emu.backends.functions.double import FUNCTIONS
from emu.backends.functions.tables import FunctionTable, flag_counts, function_table, is_tabled, register_places
from emu.backends.functions.wide import WideResult, beyond_doubles, completed, evaluate_wide, write_wide

__all__ = [
    "FUNCTIONS",
    "FunctionTable",
    "WideResult",
    "beyond_doubles",
    "completed",
    "evaluate_wide",
    "flag_counts",
    "function_table",
    "is_tabled",
    "register_places",
    "write_wide",
]
