"""Compiled code that calls compiled code by its address, and arrays that are known by theirs.

A loop that is handed another one as an argument would be compiled again for each: an address serves all of them.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector.lanes import I64, IR, address, intrinsic

_CARRAY: Any = vars(numba)["carray"]


@intrinsic
def call_at(typing_context: Any, entry: Any, arguments: Any) -> Any:
    """Call code of int64 arguments (a tuple) and an int64 result where `entry_of` found it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = [builder.extract_value(args[1], i) for i in range(len(signature.args[1]))]
        function = IR.FunctionType(I64, [I64] * len(values))
        return builder.call(builder.inttoptr(args[0], IR.PointerType(function)), values)

    return types.int64(types.int64, arguments), generate


@intrinsic
def _pointer_to(typing_context: Any, kind: Any, place: Any) -> Any:
    """Return an address as a pointer to elements of a dtype."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(signature.return_type))

    return types.CPointer(kind.dtype)(kind, types.int64), generate


@kernel
def _address_in(array: Any) -> int:
    return address(array)


def address_of(array: Any) -> int:
    """Return the address of an array's first element; the array must outlive its use."""
    return int(_address_in(array))


@kernel
def array_at(kind: Any, place: int, count: int) -> Any:
    """Return `count` elements of a dtype that lie at an address as an array; for compiled code."""
    return _CARRAY(_pointer_to(kind, place), (count,))


def entry_of(function: Any, arguments: int) -> int:
    """Return where compiled code calls a kernel of that many int64 arguments and an int64 result.

    The kernel is compiled if it is not yet; it must stay referenced while it may be called.
    """
    signature = (types.int64,) * arguments
    function.compile(signature)
    compiled = function.overloads[signature]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))
