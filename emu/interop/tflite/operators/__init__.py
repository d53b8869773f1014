"""The table of TensorFlow Lite's operators: a row is a function that writes the steps of one, and returns its result.

    products.py     CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED
    arithmetic.py   ADD, SUB, MUL; pools and means; SOFTMAX
    tables.py       TANH, RELU6, QUANTIZE ...: what one element becomes
    moves.py        RESHAPE, PAD, CONCATENATION ...; shapes

A new operator is a function and a line in the `ROWS` of its family. docs/tflite.md has the arithmetic of each.

Sources: TensorFlow Lite, reference kernels; docs/tflite.md.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.interop.steps import Tensor
from emu.interop.tflite.node import Node
from emu.interop.tflite.operators import arithmetic, moves, products, tables

FAMILIES = (products, arithmetic, tables, moves)
#: What writes the steps of an operator, by its name.
ROWS: dict[str, Callable[[Node], Tensor]] = {name: row for family in FAMILIES for name, row in family.ROWS.items()}
#: Why some operators are refused, and what to do.
REFUSED = {
    **dict.fromkeys(
        (
            "LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
            "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "VAR_HANDLE", "READ_VARIABLE",
            "ASSIGN_VARIABLE", "CALL_ONCE",
        ),
        "networks with a state are not computed; unroll it before the conversion",
    ),
    **dict.fromkeys(("IF", "WHILE", "CALL"), "graphs are computed without branches and loops; convert one branch"),
    **dict.fromkeys(
        ("TOPK_V2", "WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "ARG_MAX", "ARG_MIN"),
        "its result is no tensor of elements; end the network before it",
    ),
    "DELEGATE": "the file was changed for a delegate; give the one that the converter wrote",
    "SUM": "its arithmetic in int8 is not written down here; use MEAN",
}  # fmt: skip
