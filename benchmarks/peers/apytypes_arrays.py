"""APyTypes: arrays of fixed- and floating-point words in C++; every word length, no statistics, no flags.

Its fixed-point accumulator context neither saturates nor wraps the running sum (0.5.1), so that the saturating row has
no figure of it.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Array, ProductWork, Side, StageWork, Task
from emu.formats import Fixed, Float, Format

PART = 1 << 20
#: Rows and columns of the product whose accumulator rounds; the inner size stays.
STEPWISE_EDGE = 64
#: A word that holds every float32 of the fixed rows: what reads them before the cast rounds and saturates.
WIDE_BITS, WIDE_FRACTION = 48, 24


def _library() -> Any:
    return importlib.import_module("apytypes")


def _array(x: Array, fmt: Format) -> Any:
    library = _library()
    if isinstance(fmt, Fixed):
        return library.APyFixedArray.from_array(x, bits=fmt.width_bits, frac_bits=fmt.frac_bits)
    return library.APyFloatArray.from_array(x, exp_bits=fmt.exponent_bits, man_bits=fmt.fraction_bits, bias=fmt.bias)


def sides(task: Task) -> list[Side]:
    """Return its conversions and its products."""
    if isinstance(task, StageWork):
        return _fixed_stage(task) if isinstance(task.format, Fixed) else _float_stage(task)
    if isinstance(task, ProductWork):
        return _product(task)
    return []


def _fixed_stage(task: StageWork) -> list[Side]:
    library, fmt = _library(), task.format
    assert isinstance(fmt, Fixed)
    modes = {"nearest_even": "RND_CONV", "stochastic": "STOCH_WEIGHTED"}
    mode = getattr(library.QuantizationMode, modes[task.rounding], None) if task.rounding in modes else None
    if mode is None or not fmt.signed:
        return []
    x, word = task.x[:PART], {"bits": fmt.width_bits, "frac_bits": fmt.frac_bits}
    options = {**word, "quantization": mode, "overflow": library.OverflowMode.SAT}
    read = library.APyFixedArray.from_array
    wide = read(x, bits=WIDE_BITS, frac_bits=WIDE_FRACTION)
    found = [
        Side(
            "apytypes",
            lambda: read(x, bits=WIDE_BITS, frac_bits=WIDE_FRACTION).cast(**options),
            x.size,
            "no statistics; float32 to a wide word, then round and saturate",
        ),
        Side("apytypes cast", lambda: wide.cast(**options), x.size, "no statistics; from its own wide word"),
    ]
    if task.rounding == "nearest_even":
        note = "no statistics; ties away from zero, wraps instead of saturating"
        found.append(Side("apytypes from_array", lambda: read(x, **word), x.size, note))
    return found


def _float_stage(task: StageWork) -> list[Side]:
    library, fmt = _library(), task.format
    if task.rounding != "nearest_even" or not isinstance(fmt, Float):
        return []
    x, narrow = task.x[:PART], {"exp_bits": fmt.exponent_bits, "man_bits": fmt.fraction_bits, "bias": fmt.bias}
    wide = library.APyFloatArray.from_array(x, exp_bits=8, man_bits=23)
    return [
        Side("apytypes", lambda: library.APyFloatArray.from_array(x, **narrow), x.size, "no statistics"),
        Side("apytypes cast", lambda: wide.cast(**narrow), x.size, "no statistics; from its own 32-bit word"),
    ]


def _product(task: ProductWork) -> list[Side]:
    if task.mac.is_exact and isinstance(task.out_format, Fixed):
        return _exact_product(task)
    accumulator = task.mac.accumulator
    if not isinstance(accumulator, Float):
        return []
    library = _library()
    edge = min(STEPWISE_EDGE, task.a.shape[0])
    a, b = _array(task.a[:edge].copy(), task.a_format), _array(task.b[:, :edge].copy(), task.b_format)
    context = library.APyFloatAccumulatorContext

    def run() -> Any:
        with context(exp_bits=accumulator.exponent_bits, man_bits=accumulator.fraction_bits):
            return a @ b

    return [Side("apytypes", run, edge * edge * task.a.shape[1], "no statistics; a part of the outputs")]


def _exact_product(task: ProductWork) -> list[Side]:
    library, out = _library(), task.out_format
    assert isinstance(out, Fixed)
    a, b = _array(task.a, task.a_format), _array(task.b, task.b_format)
    options = {
        "bits": out.width_bits,
        "frac_bits": out.frac_bits,
        "quantization": library.QuantizationMode.RND_CONV,
        "overflow": library.OverflowMode.SAT,
    }
    return [Side("apytypes", lambda: (a @ b).cast(**options), task.macs, "no statistics")]


PEER = Peer("apytypes", "apytypes", "apytypes", sides)
