"""TensorFlow Lite's schema, as far as it is read: which field of which table is what.

Fields of a table are numbered; a table that lacks one has its default. Numbers of operators and types are the schema's.

Source: TensorFlow Lite, `schema.fbs`, version 3.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
IDENTIFIER = b"TFL3"
VERSION = 3
_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH
SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN
GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM
STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN
FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV
REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE
MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG
QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO
RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE
RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1
"""
#: Names of the operators, by number.
OPERATORS = tuple(_NAMES.split())
#: Names and dtypes of the types of tensors, by number; None of those that are not read.
TYPES: dict[int, tuple[str, Any]] = {
    0: ("float32", np.float32), 1: ("float16", None), 2: ("int32", np.int32), 3: ("uint8", np.uint8),
    4: ("int64", np.int64), 5: ("string", None), 6: ("bool", None), 7: ("int16", None), 8: ("complex64", None),
    9: ("int8", np.int8), 10: ("float64", None), 17: ("int4", None), 18: ("bfloat16", None),
}  # fmt: skip
#: Names of fused activations, by number.
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")


class Damaged(Exception):  # noqa: N818 - says what happened to the file
    """A file is damaged: it has something that no valid file has."""


class Fields:
    """A table of a file, its fields by number.

    Every read is checked to lie in the file.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def number(self, field: int, kind: str, default: float = 0) -> Any:
        """Return a number, of a kind as `flatbuffers.number_types` calls it: "Int32", "Float32" ..."""
        place = self._place(field)
        types = import_module("flatbuffers.number_types")
        return default if place is None else self._table.Get(getattr(types, f"{kind}Flags"), place)

    def text(self, field: int) -> str:
        """Return a text; "" if it is left out."""
        place = self._place(field)
        if place is None:
            return ""
        return bytes(self._vector_at(self._table.Indirect(place), np.dtype(np.uint8))).decode("utf-8", "replace")

    def array(self, field: int, dtype: Any) -> Array | None:
        """Return a vector of numbers; None if it is left out."""
        place = self._place(field)
        return None if place is None else self._vector_at(self._table.Indirect(place), np.dtype(dtype))

    def table(self, field: int) -> Fields | None:
        """Return a table; None if it is left out."""
        place = self._place(field)
        return None if place is None else self._at(self._table.Indirect(place))

    def tables(self, field: int) -> list[Fields]:
        """Return a vector of tables; none if it is left out."""
        place = self._place(field)
        if place is None:
            return []
        # a vector of offsets, after its count of 4 bytes
        first = self._table.Indirect(place) + 4
        count = self._vector_at(first - 4, np.dtype(np.uint32)).size
        return [self._at(self._table.Indirect(first + 4 * i)) for i in range(count)]

    def _place(self, field: int) -> int | None:
        # the first two words (16 bits) of a vtable are sizes; the word of field k is the k-th after them
        offset = self._table.Offset(4 + 2 * field)
        return self._table.Pos + offset if offset else None

    def _at(self, place: int) -> Fields:
        if not 0 <= place < len(self._table.Bytes):
            raise Damaged(f"a table at byte {place} of {len(self._table.Bytes)}")
        return Fields(type(self._table)(self._table.Bytes, place))

    def _vector_at(self, place: int, dtype: np.dtype[Any]) -> Array:
        content = self._table.Bytes
        if not 0 <= place <= len(content) - 4:
            raise Damaged(f"a vector at byte {place} of {len(content)}")
        # checked before reading: the count of a damaged file may lead beyond its end
        count = int.from_bytes(content[place : place + 4], "little")
        if place + 4 + count * dtype.itemsize > len(content):
            raise Damaged(f"a vector of {count} elements at byte {place} of {len(content)}")
        return np.frombuffer(content, dtype.newbyteorder("<"), count, place + 4).astype(dtype)
