"""Units in a shared library, called through ctypes with the interface of emu_backend.h."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Mac, OutputStage, StatisticsRegister
from emu.datapath.flags import FLAG_NAMES
from emu.datapath.order import Blocks, Lanes, Pairwise, Promote
from emu.datapath.pending import NO_EXPONENT
from emu.datapath.registers import SCALARS
from emu.errors import ConfigError
from emu.formats import Fixed, Float, Format
from emu.formats.floating import NAN_CODES
from emu.testing.contract.case import ELEMENTWISE, Answer, Case, NotOffered

Array = NDArray[Any]
#: The interface, to be included by a library's source.
HEADER = Path(__file__).with_name("emu_backend.h")
# numbers of operations in the order of the header's enum EMU_QUANTIZE ...
NUMBERS = {name: number for number, name in enumerate(("quantize", *ELEMENTWISE))}
_DONE, _NOT_OFFERED = 0, 1
# The format of `quantize`'s reals. It is compared by identity: reals travel with their bits as they are, while a
# binary64 that was asked for is encoded like every other format.
_REALS = Float(11, 52)


# The structures repeat those of emu_backend.h, member by member; all integers there are int64_t.
def _fields(names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names.split()]


class _Format(ctypes.Structure):
    _fields_ = _fields(
        "is_float width_bits is_signed frac_bits exponent_bits fraction_bits bias infinities nans nan_code ftz daz"
    )


class _Stage(ctypes.Structure):
    _fields_ = [("format", _Format), *_fields("rounding overflow n_rbits")]


class _Mac(ctypes.Structure):
    _fields_ = [
        *_fields("exact_product exact_accumulator"),
        ("product", _Stage),
        ("accumulator", _Stage),
        *_fields("order n fraction_bits alternating_pairs addend_after has_min_exponent min_exponent"),
    ]


class _Statistics(ctypes.Structure):
    _fields_ = [
        *_fields("lowest bins"),
        ("counts", ctypes.POINTER(ctypes.c_int64)),
        *_fields("max_exponent raws"),
    ]


@dataclass(frozen=True)
class CUnit:
    """The functions of a loaded library."""

    library: ctypes.CDLL

    @classmethod
    def load(cls, path: Path) -> CUnit:
        """Return the unit of a shared library.

        Raises:
            ConfigError: it cannot be loaded, or has neither function.
        """
        try:
            library = ctypes.CDLL(str(path.resolve()))
        except OSError as error:
            raise ConfigError(
                f"`implementation` must be a shared library, got {path}: {error}; compile it with -shared"
            ) from None
        if not any(hasattr(library, name) for name in ("emu_elementwise", "emu_matmul")):
            raise ConfigError(f"a library must have emu_elementwise or emu_matmul, {path} has neither; see {HEADER}")
        return cls(library)

    def answer(self, case: Case, *, flags: bool = False) -> Answer:
        """Return the library's answer to a case.

        Raises:
            NotOffered: it does not claim to do this.
        """
        name = "emu_matmul" if case.operation == "matmul" else "emu_elementwise"
        if not hasattr(self.library, name):
            raise NotOffered(f"there is no `{name}`")
        # `None` marks the reals of `quantize`
        formats = [_REALS if fmt is None else fmt for fmt in case.formats]
        inner = [] if case.mac is None else [case.mac.product, case.mac.accumulator]
        for fmt in (*formats, case.stage.format, *inner):
            if isinstance(fmt, Float) and not fmt.has_subnormal_codes:
                raise NotOffered("`emu_format` describes no formats without zero, or whose hidden bit is always one")
            if isinstance(fmt, Fixed) and fmt.sign_magnitude:
                raise NotOffered("`emu_format` describes no formats of sign and magnitude")
        if case.mac is not None and isinstance(case.mac.order, Promote):
            raise NotOffered("`emu_mac` describes no promoted sums")
        operands = [_codes(x, fmt) for x, fmt in zip(case.operands, formats, strict=True)]
        # a library that leaves -1 among its counts does not count that flag
        codes, counts = np.zeros(case.shape, np.uint64), np.full(len(FLAG_NAMES), -1, np.int64)
        register, statistics, positions = _statistics(case)
        # No argument types are declared: integers must be c_int64, for ctypes would pass plain ones as 32-bit int, and
        # all pointers are void* or byref.
        arguments = [
            *(_product_arguments(case, operands) if case.mac else _elementwise_arguments(case, operands)),
            # the functions take three formats; those beyond the operands stay 0
            (_Format * 3)(*map(_format, formats)),
            *([ctypes.byref(_mac(case.mac))] if case.mac else []),
            ctypes.byref(_stage(case.stage)),
            None if case.rbits is None else case.rbits.astype(np.uint32).ctypes.data_as(ctypes.c_void_p),
            _pointer(codes),
            _pointer(counts),
            None if statistics is None else ctypes.byref(statistics),
        ]
        function = getattr(self.library, name)
        # ctypes reads a 32-bit int otherwise
        function.restype = ctypes.c_int64
        if (returned := function(*arguments)) == _NOT_OFFERED:
            raise NotOffered(f"`{name}` returns EMU_NOT_OFFERED")
        if returned != _DONE:
            raise ValueError(f"`{name}` must return 0 or 1, got {returned}")
        if register is not None and statistics is not None and positions is not None:
            # the last scalar, `total`, was set to -1 before the call
            if positions[-1] < 0:
                raise NotOffered(f"`{name}` counts no leading bits")
            register.add_counts(positions, statistics.max_exponent)
        elif flags and (counts < 0).all():
            raise NotOffered(f"`{name}` counts no flags")
        counted = {flag: int(count) for flag, count in zip(FLAG_NAMES, counts, strict=True) if count >= 0}
        return Answer(codes, counted, register)


def _codes(x: Array, fmt: Format) -> Array:
    plain = np.ascontiguousarray(x, np.float64).view(np.uint64) if fmt is _REALS else fmt.encode(x)
    return np.ascontiguousarray(plain, np.uint64)


def _pointer(array: Array) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def _elementwise_arguments(case: Case, operands: list[Array]) -> list[Any]:
    # plain addresses keep no reference: `operands` of the caller keeps the arrays alive during the call
    pointers = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in operands))
    return [ctypes.c_int64(NUMBERS[case.operation]), ctypes.c_int64(case.shape[0]), pointers]


def _product_arguments(case: Case, operands: list[Array]) -> list[Any]:
    m, n, k = case.axes
    addend = _pointer(operands[2]) if len(operands) == 3 else None
    return [*map(ctypes.c_int64, (m, k, n)), _pointer(operands[0]), _pointer(operands[1]), addend]


def _format(fmt: Format) -> _Format:
    if isinstance(fmt, Fixed):
        return _Format(width_bits=fmt.width_bits, is_signed=fmt.signed, frac_bits=fmt.frac_bits, nan_code=-1)
    return _Format(
        is_float=1,
        width_bits=fmt.width_bits,
        is_signed=fmt.signed,
        exponent_bits=fmt.exponent_bits,
        fraction_bits=fmt.fraction_bits,
        bias=fmt.bias,
        infinities=fmt.infinities,
        nans=NAN_CODES.index(fmt.nans),
        nan_code=-1 if fmt.nan_code is None else fmt.nan_code,
        ftz=fmt.ftz,
        daz=fmt.daz,
    )


def _stage(stage: OutputStage) -> _Stage:
    return _Stage(_format(stage.format), stage.rounding.number, stage.overflow.number, stage.n_rbits)


def _mac(mac: Mac) -> _Mac:
    order = mac.order
    # members that are not named are 0; n stays 1 if the order has neither lanes nor blocks
    unit = _Mac(exact_product=mac.product == "exact", exact_accumulator=mac.accumulator == "exact", n=1)
    if mac.product != "exact":
        unit.product = _stage(mac.stage_of(mac.product))
    if mac.accumulator != "exact":
        unit.accumulator = _stage(mac.stage_of(mac.accumulator))
    if isinstance(order, Lanes):
        # the enum EMU_SEQUENTIAL, EMU_PAIRWISE, EMU_LANES, EMU_BLOCKS: 0 to 3
        unit.order, unit.n = 2, order.count
    elif isinstance(order, Blocks):
        unit.order, unit.n, unit.fraction_bits = 3, order.n, order.fraction_bits
        unit.alternating_pairs = order.index_order == "alternating_pairs"
        unit.addend_after = order.addend == "after"
        unit.has_min_exponent, unit.min_exponent = order.min_exponent is not None, order.min_exponent or 0
    else:
        unit.order = int(isinstance(order, Pairwise))
    return unit


def _statistics(case: Case) -> tuple[StatisticsRegister | None, _Statistics | None, Array | None]:
    register = case.register()
    if register is None or case.positions is None:
        return None, None, None
    lowest, bins = case.positions
    # as `StatisticsRegister` keeps them: positive counts, negative counts, then the scalars, `total` last
    positions = np.zeros(2 * bins + len(SCALARS), np.int64)
    positions[-1] = -1
    pointer = positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
    return register, _Statistics(lowest, bins, pointer, NO_EXPONENT, case.accumulator is not None), positions
