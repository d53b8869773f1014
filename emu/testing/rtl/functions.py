"""A unit in RTL with the arguments of emu's own functions, which `check_backend` calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.datapath import Flags, Mac, OutputStage, Rounding
from emu.errors import FormatError, nearest_name
from emu.formats import Format, parse_number
from emu.testing.contract.case import ELEMENTWISE, OPERATIONS
from emu.testing.rtl.arrays import n_factors
from emu.testing.rtl.ports import FLAG_BITS, INFINITE

if TYPE_CHECKING:
    from emu.testing.rtl.unit import Unit

#: Operands of `matmul`, whose third one is an addend.
_PRODUCT = 2


def function_of(
    unit: Unit, operation: str, *, rounding: str | Rounding, overflow: str | None, mac: Mac | None
) -> Callable[..., Any]:
    """Return a function with emu's name and arguments; see `Unit.as_function`."""
    if operation not in OPERATIONS:
        raise FormatError(
            f"`operation` must be one of {', '.join(OPERATIONS)}, got {operation!r}"
            f"{nearest_name(operation, OPERATIONS)}"
        )
    bench = unit.bench
    ins = [port.format for port in bench.ins.values()]
    # quantize, with one operand, is not in the table
    wanted = {_PRODUCT, _PRODUCT + 1} if operation == "matmul" else {ELEMENTWISE.get(operation, 1)}
    if len(ins) not in wanted:
        raise FormatError(
            f"{operation} must have {' or '.join(map(str, sorted(wanted)))} operands, got {len(ins)} of {bench.top}"
        )
    # emu's functions return one array: of several results the first
    out = next(iter(bench.outs.values())).format
    stage, product = OutputStage.of(out, rounding, overflow), mac or Mac()
    several = len(bench.outs) > 1
    *named, written = _format_names(operation)
    # as many as their port has bits; none without a port
    random_widths = [row.width_bits for row in bench.inputs if row.file == "rbits"]

    def require(name: str, asked: Any, ours: Any) -> None:
        if asked is not None and asked != ours:
            # the contract's word for what is not offered
            raise NotImplementedError(f"`{name}` of {bench.top} is {ours}, not {asked}")

    def call(*operands: Any, **given: Any) -> Any:
        # a quantize is given reals in any format; whether they are operands of the unit is asked below, of the numbers
        formats = {} if operation == "quantize" else dict(zip(named, ins, strict=False))
        for name, ours in {**formats, written: out}.items():
            require(name, None if given.get(name) is None else parse_number(given[name]), ours)
        # parsed as the stage's own rule was, so that a word and a member compare equal
        require("overflow", _rule(out, given.get("overflow")), stage.overflow)
        require("mac", given.get("mac"), product)
        mode = Rounding.parse(given.get("rounding") or stage.rounding)
        if not bench.modes:
            require("rounding", mode, stage.rounding)
        elif not all(mode in port.codes for port in bench.modes.values()):
            raise NotImplementedError(f"no port of {bench.top} chooses {mode.value}")
        if mode.draws and not random_widths:
            raise NotImplementedError(f"no port of {bench.top} takes random bits")
        if random_widths:
            require("n_rbits", given.get("n_rbits"), random_widths[0])
        if operation == "quantize" and not _are_values(ins[0], operands[0]):
            raise NotImplementedError(f"operands of {bench.top} are {ins[0]}, and not every number asked for is one")
        if operation == "matmul":
            operands = _sums(unit, operands, given.get("addend"))
        flags: Flags | None = given.get("flags")
        result = unit(*operands, rounding=mode if bench.modes else None, flags=flags, rbits=given.get("rbits"))
        if flags is not None:
            _withhold(unit, flags)
        return result[0] if several else result

    # `check_backend` reads name and signature: it passes only what is listed, and takes a missing parameter for "not
    # offered"
    call.__name__ = operation
    names = [*named, written, "rounding", "overflow"]
    names += (["mac", "addend"] if operation == "matmul" else []) + (["flags"] if bench.flags else [])
    names += ["rbits", "n_rbits"] if random_widths else []
    kind = inspect.Parameter
    positional = [
        kind(name, kind.POSITIONAL_ONLY) for name in "abc"[: min(len(ins), 2 if operation == "matmul" else 3)]
    ]
    call.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [*positional, *(kind(name, kind.KEYWORD_ONLY, default=None) for name in names)]
    )
    return call


def _format_names(operation: str) -> tuple[str, ...]:
    if operation == "quantize":
        return ("x_format", "fmt")
    third = "addend_format" if operation == "matmul" else "c_format"
    count = _PRODUCT + 1 if operation == "matmul" else ELEMENTWISE[operation]
    return (*("a_format", "b_format", third)[:count], "out_format")


def _rule(out: Format, asked: Any) -> Any:
    return None if asked is None else OutputStage.of(out, None, asked).overflow


def _are_values(fmt: Format, x: Any) -> bool:
    array = np.asarray(x)
    return array.dtype.kind == "u" or bool(np.all(fmt.contains(array)))


def _sums(unit: Unit, operands: tuple[Any, ...], addend: Any) -> tuple[Any, ...]:
    """Return rows and columns such that each pair makes a sum; the terms are the last axis."""
    bench = unit.bench
    if (addend is not None) != (len(bench.ins) > _PRODUCT):
        raise NotImplementedError(f"{bench.top} has {'an' if addend is None else 'no'} addend")
    a, b = (np.asarray(x) for x in operands)
    # (..., K, N) becomes (..., N, K): the terms come last
    if b.ndim > 1:
        b = np.swapaxes(b, -1, -2)
    if a.ndim > 1 and b.ndim > 1:
        # (..., M, 1, K) and (..., 1, N, K): broadcasting pairs every row with every column
        a, b = a[..., :, None, :], b[..., None, :, :]
    terms = next(iter(bench.ins.values())).terms
    size = a.shape[-1]
    if n_factors(bench) == 0:
        if size != 1:
            raise NotImplementedError(f"{bench.top} adds no terms")
        a, b = a[..., 0], b[..., 0]
    elif size == 0 or (size % terms if bench.is_serial else size != terms):
        raise NotImplementedError(f"sums of {bench.top} have {terms} terms, not {size}")
    return (a, b) if addend is None else (a, b, addend)


def _withhold(unit: Unit, flags: Flags) -> None:
    """Set the flags that no port has to None: they are not offered."""
    for name, wire_bit in zip(FLAG_BITS, unit.bench.flag_bits, strict=True):
        if wire_bit is None:
            setattr(flags, "division_by_zero" if name == INFINITE else name, None)
