"""Compiled code that calls compiled code by its address, and reads arrays at their addresses.

Numba compiles a loop again for each function that is its argument: an address serves all of them.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from emu.backends.numba.claims import CLAIMS
from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector.lanes import I64, IR, intrinsic

_CARRAY: Any = vars(numba)["carray"]


@intrinsic
def call_at(typing_context: Any, entry: Any, arguments: Any) -> Any:
    """Call the code at an address of `entry_of` with a tuple of int64 arguments; return its int64 result."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # A tuple becomes as many arguments: its length is known at compile time.
        values = [builder.extract_value(args[1], i) for i in range(len(signature.args[1]))]
        function = IR.FunctionType(I64, [I64] * len(values))
        return builder.call(builder.inttoptr(args[0], IR.PointerType(function)), values)

    return types.int64(types.int64, arguments), generate


@intrinsic
def _pointer_to(typing_context: Any, kind: Any, start: Any) -> Any:
    """Return an address as a pointer to elements of a dtype."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(signature.return_type))

    return types.CPointer(kind.dtype)(kind, types.int64), generate


@kernel
def array_at(kind: Any, start: int, count: int) -> Any:
    """Return `count` elements of a dtype at an address as an array; for compiled code."""
    return _CARRAY(_pointer_to(kind, start), (count,))


def entry_of(function: Any, arguments: int) -> int:
    """Return the address at which compiled code calls a kernel of that many int64 arguments and an int64 result.

    Compiles the kernel if need be. Keep a reference to it as long as it may be called.
    """
    # The kernel's C entry, which takes plain integers: Numba's own convention passes a status and a pointer to the
    # result.
    signature = (types.int64,) * arguments
    try:
        function.compile(signature)
    finally:
        CLAIMS.give_up_all()  # as after a call that compiles: see `cache.py`
    compiled = function.overloads[signature]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))
