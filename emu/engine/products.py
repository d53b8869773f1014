"""Matrix products, through a multiply-accumulate unit and one output stage."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import namespace, on_host
from emu.backends.gathered import Gathered
from emu.backends.interface import EXACT_PATHS, FormatCode, Kernels, StageCode, encode_format, encode_mac
from emu.datapath import Flags, Mac, Overflow, RandomSource, Rounding, StatisticsRegister
from emu.datapath.stage import require_placed
from emu.engine.elementwise import require_options
from emu.engine.planner import Plan, may_gain_from_maxima, plan_product
from emu.engine.quantize import require_array, require_writable
from emu.engine.request import Request, as_operand
from emu.engine.sources import require_addressed, source_of
from emu.engine.work import WorkRecord
from emu.errors import FormatError, ShapeError
from emu.formats import Fixed, Format, parse

Array = NDArray[Any]
EXACT = Mac()
MAX_WIDTH_BITS = 64
#: The reference's path: it takes no shortcut that a proof allows, so that others can be compared with it.
DEFINITION = "definition"


def matmul(
    a: Any,
    b: Any,
    *,
    a_format: str | Format,
    b_format: str | Format,
    out_format: str | Format,
    addend: Any = None,
    addend_format: str | Format | None = None,
    mac: Mac = EXACT,
    rounding: str | Rounding = "nearest_even",
    overflow: str | Overflow | None = None,
    n_rbits: int = 24,
    rbits: Array | None = None,
    seed: int = 0,
    stream: int = 0,
    step: int = 0,
    random: RandomSource | None = None,
    register: StatisticsRegister | None = None,
    flags: Flags | None = None,
    out: Array | None = None,
    backend: str = "auto",
    check: bool = True,
) -> Array:
    """Return the matrix product a @ b + addend as a multiply-accumulate unit and its output stage compute it.

    Args:
        a: values of `a_format`, shape `(*batch, M, K)` or `(K,)`.
        b: values of `b_format`, shape `(*batch, K, N)` or `(K,)`; shapes as in numpy.matmul.
        a_format: format of `a`.
        b_format: format of `b`.
        out_format: format written.
        addend: values of `addend_format` that broadcast to the result: bias, C matrix.
        addend_format: format of the addend.
        mac: product and accumulator formats, order, rounding of each add.
        rounding: mode of the output stage.
        overflow: rule of the output stage; None is the format family's default.
        n_rbits: random bits of stochastic rounding.
        rbits: recorded random bits, shape of the result.
        seed: key of Philox.
        stream: stream of Philox.
        step: step of Philox.
        random: the source itself: `emu.Philox`, `emu.RecordedBits` or `emu.LFSR`, instead of the four above.
        register: observes the accumulator's final content, addend included.
        flags: counts per written element.
        out: where to write: carrier dtype of `out_format`, shape of the result.
        backend: "auto", "reference" or "numba".
        check: whether to check that operands hold values of their formats.

    Returns:
        Carrier array of `out_format`, shape `(*batch, M, N)`.

    Raises:
        FormatError: an operand holds a value outside its format; names the first one. A Mac that rounds stochastically
            has a source that is no `Philox`.
        ShapeError: the shapes do not fit together.

    Examples:
        >>> formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
        >>> matmul([[0.5, -1.0]], [[0.25], [0.125]], **formats, backend="reference")
        array([[0.]], dtype=float32)

    Source: docs/concepts/flags.md and docs/concepts/products.md.
    """
    return product(
        a,
        b,
        a_format=a_format,
        b_format=b_format,
        out_format=out_format,
        addend=addend,
        addend_format=addend_format,
        mac=mac,
        rounding=rounding,
        overflow=overflow,
        n_rbits=n_rbits,
        rbits=rbits,
        seed=seed,
        stream=stream,
        step=step,
        random=random,
        register=register,
        flags=flags,
        out=out,
        backend=backend,
        check=check,
    )


def product(
    a: Any,
    b: Any,
    *,
    a_format: str | Format,
    b_format: str | Format,
    out_format: str | Format,
    addend: Any = None,
    addend_format: str | Format | None = None,
    mac: Mac = EXACT,
    rounding: str | Rounding = "nearest_even",
    overflow: str | Overflow | None = None,
    n_rbits: int = 24,
    rbits: Array | None = None,
    seed: int = 0,
    stream: int = 0,
    step: int = 0,
    random: RandomSource | None = None,
    register: StatisticsRegister | None = None,
    flags: Flags | None = None,
    out: Array | None = None,
    backend: str = "auto",
    check: bool = True,
    divisor: int = 1,
    log: list[WorkRecord] | None = None,
) -> Array:
    """Return (a @ b + addend) / divisor, the quotient rounded once; see `write_product`.

    `log` is given a record of the work.
    """
    left, fa = _as_matrices(a, a_format, "a", check=check)
    right, fb = _as_matrices(b, b_format, "b", check=check)
    left, right, shape, batch_shape = as_batches(left, right)
    third, fc = _as_addend(addend, addend_format, shape, (*batch_shape, left.shape[1], right.shape[2]), check=check)
    if mac.rounding.draws:
        require_addressed(source_of(random, rbits, seed, stream, step), mac)
    request = Request.of(
        out_format, rounding, overflow, n_rbits, rbits, seed, stream, step, register, flags, backend, shape, random
    )
    values = write_product(left, right, third, (fa, fb, fc), mac, request, divisor, log).reshape(shape)
    return values if out is None else written_to(out, values)


def write_product(
    left: Array | Gathered,
    right: Array | Gathered,
    addend: Array | None,
    formats: tuple[Format, Format, Format | None],
    mac: Mac,
    request: Request,
    divisor: int,
    log: list[WorkRecord] | None,
) -> Array:
    """Write (left @ right + addend) / divisor as the request says.

    Args:
        left: (B or 1, M, K) carriers.
        right: (B or 1, K, N) carriers.
        addend: (B or 1, M or 1, N or 1) carriers, or None.
        formats: of the three.
        mac: the unit.
        request: stage, random bits, register, flags, backend.
        divisor: a positive integer; the register observes the accumulator's content, its point moved by the whole bits
            of the divisor: divided by a power of two; by another number, to less than twice the quotient.
        log: is given a record of the work.

    Returns:
        Carriers (B, M, N).

    Raises:
        ShapeError: the shapes do not fit together.
    """
    _require_fit(left.shape, right.shape, None if addend is None else addend.shape)
    recorded = request.random.recorded
    if recorded is not None:
        request = _with_recorded(
            request, recorded.reshape(max(left.shape[0], right.shape[0]), left.shape[1], right.shape[2])
        )
    lowered = divisor.bit_length() - 1
    place = request.place(accumulator_of(*formats, left.shape[2], mac), lowered)
    plan = _plan(request, formats, left, right, mac, divisor)
    if addend is not None and plan.addend is not None:
        addend = held_by(addend, formats[2], plan.addend, mac, request)
    outcome = request.kernels.product(
        left,
        right,
        addend,
        _planned_codes(formats, plan),
        encode_mac(plan.mac),
        request.stage_code,
        request.random,
        place,
        plan.path,
        divisor,
    )
    if log is not None:
        sizes = (max(left.shape[0], right.shape[0]), left.shape[1], left.shape[2], right.shape[2])
        log.append(WorkRecord(sizes, formats, plan))
    return request.account(outcome, lowered)


def held_by(addend: Array, fmt: Format | None, held: Fixed, mac: Mac, request: Request) -> Array:
    """Return an addend as a fixed accumulator holds it."""
    stage = encode_mac(mac).accumulator
    assert fmt is not None
    assert stage is not None
    stage = stage._replace(format=encode_format(held))
    return request.kernels.quantize(addend, encode_format(fmt), stage, request.random, None, None).values


@lru_cache(maxsize=1024)
def _require_fit(left: tuple[int, ...], right: tuple[int, ...], addend: tuple[int, ...] | None) -> None:
    """Raise ShapeError unless stacks of matrices fit together: compiled loops would read beyond their ends."""
    stacks = {left[0], right[0]} - {1}
    if left[2] != right[1] or len(stacks) > 1:
        raise ShapeError(f"matmul: (B or 1, M, K) must meet (B or 1, K, N), got shapes {left} and {right}")
    result = (*(stacks or {1}), left[1], right[2])
    if addend is not None and any(size not in (1, whole) for size, whole in zip(addend, result, strict=True)):
        raise ShapeError(f"matmul: the addend must broadcast to the result {result}, got shape {addend}")


def _as_matrices(x: Any, fmt: str | Format, name: str, *, check: bool) -> tuple[Array | Gathered, Format]:
    if isinstance(x, Gathered):
        return x, require_placed(parse(fmt))
    array, parsed = as_operand(x, fmt, name, check=check)
    assert parsed is not None
    return array, parsed


def written_to(out: Array, values: Array) -> Array:
    """Return `out` with `values` in it.

    Raises:
        ShapeError: another shape or dtype.
    """
    require_array(out)
    if out.shape != values.shape or out.dtype != values.dtype:
        expected = f"a {values.dtype} array of shape {values.shape}"
        raise ShapeError(f"`out` must be {expected}, got {out.dtype} of shape {out.shape}")
    require_writable(out)
    out[...] = values
    return out


def _with_recorded(request: Request, recorded: Array) -> Request:
    random = request.random._replace(recorded=recorded)
    return Request(request.stage, request.stage_code, random, request.kernels, request.register, request.flags)


def _plan(
    request: Request,
    formats: tuple[Format, Format, Format | None],
    left: Array | Gathered,
    right: Array | Gathered,
    mac: Mac,
    divisor: int,
) -> Plan:
    """Return the path of a product, and why the request's backend leaves it to the reference if it does."""
    mac.require_operands(*formats[:2])
    depth = left.shape[-1]
    plan = _plan_by_formats(request.kernels, request.stage_code, formats, depth, mac, divisor)
    if plan.path in (DEFINITION, *EXACT_PATHS) or not may_gain_from_maxima(*formats, mac):
        return plan
    dots = _dots(request.kernels, formats, divisor)
    measured = plan_product(*formats, depth, mac, lambda: _largest(request.kernels, left, right), dots=dots)
    return _as_computed(measured, request.kernels, request.stage_code, formats, depth, divisor)


@lru_cache(maxsize=1024)
def _plan_by_formats(
    kernels: Kernels,
    stage: StageCode,
    formats: tuple[Format, Format, Format | None],
    depth: int,
    mac: Mac,
    divisor: int,
) -> Plan:
    if kernels.name == "reference":
        return Plan(DEFINITION, "the reference runs the definition", mac)
    plan = plan_product(*formats, depth, mac, dots=_dots(kernels, formats, divisor))
    return _as_computed(plan, kernels, stage, formats, depth, divisor)


@lru_cache(maxsize=1024)
def _codes(formats: tuple[Format, Format, Format | None]) -> tuple[FormatCode, FormatCode, FormatCode | None]:
    fa, fb, fc = formats
    return encode_format(fa), encode_format(fb), None if fc is None else encode_format(fc)


def _planned_codes(
    formats: tuple[Format, Format, Format | None], plan: Plan
) -> tuple[FormatCode, FormatCode, FormatCode | None]:
    """Return the formats of what the kernel is given, the addend rounded if the plan says so."""
    return _codes(formats if plan.addend is None else (*formats[:2], plan.addend))


def _dots(kernels: Kernels, formats: tuple[Format, Format, Format | None], divisor: int) -> bool:
    return divisor == 1 and kernels.dots(_codes(formats))


def _as_computed(
    plan: Plan,
    kernels: Kernels,
    stage: StageCode,
    formats: tuple[Format, Format, Format | None],
    depth: int,
    divisor: int,
) -> Plan:
    """Return a plan with what the backend makes of it: left to the reference, or computed in its way."""
    codes, mac = _planned_codes(formats, plan), encode_mac(plan.mac)
    reason = kernels.declines(codes, mac, stage, plan.path, divisor)
    way = "" if reason else kernels.way(codes, mac, plan.path, depth)
    return replace(plan, fallback=reason, proof=f"{plan.proof}; {way}" if way else plan.proof)


#: Every option of `matmul`: a plan takes them all, and reads those it depends on.
PRODUCT_OPTIONS = tuple(inspect.signature(matmul).parameters)


def _plan_matmul(
    a: Any,
    b: Any,
    *,
    a_format: str | Format,
    b_format: str | Format,
    out_format: str | Format | None = None,
    addend_format: str | Format | None = None,
    mac: Mac = EXACT,
    rounding: str | Rounding = "nearest_even",
    overflow: str | Overflow | None = None,
    n_rbits: int = 24,
    backend: str = "auto",
    **others: Any,
) -> Plan:
    require_options("matmul", others, PRODUCT_OPTIONS)
    parsed = (parse(a_format), parse(b_format), None if addend_format is None else parse(addend_format))
    left, right, shape = as_batches(*(np.asarray(on_host(x)) for x in (a, b)))[:3]
    written = parsed[0] if out_format is None else out_format
    request = Request.of(written, rounding, overflow, n_rbits, None, 0, 0, 0, None, None, backend, shape)
    return _plan(request, parsed, left, right, mac, 1)


setattr(matmul, "plan", _plan_matmul)  # noqa: B010 - read by explain


def _largest(kernels: Kernels, left: Array | Gathered, right: Array | Gathered) -> tuple[float, float]:
    elements = [x.data if isinstance(x, Gathered) else x for x in (left, right)]
    a, b = kernels.largest_magnitudes(elements)
    return a, b


def as_batches(
    a: Array | Gathered, b: Array | Gathered
) -> tuple[Array | Gathered, Array | Gathered, tuple[int, ...], tuple[int, ...]]:
    """Return (B, M, K), (B, K, N), the result's shape and its batch shape, as numpy.matmul defines them.

    Of gathered matrices the other operand is gathered as well, or one matrix.
    """
    if isinstance(a, Gathered) or isinstance(b, Gathered):
        stacks = [x if isinstance(x, Gathered) else x.reshape(1, *x.shape[-2:]) for x in (a, b)]
        batch = (max(x.shape[0] for x in stacks),)
        return stacks[0], stacks[1], (*batch, stacks[0].shape[1], stacks[1].shape[2]), batch
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul: operands must have at least one dimension, got shapes {a.shape} and {b.shape}")
    wide_a = a[None, :] if a.ndim == 1 else a
    wide_b = b[:, None] if b.ndim == 1 else b
    if wide_a.shape[-1] != wide_b.shape[-2]:
        raise ShapeError(
            f"matmul: inner sizes must agree, got shapes {a.shape} and {b.shape}: "
            f"{wide_a.shape[-1]} against {wide_b.shape[-2]}"
        )
    try:
        batch = np.broadcast_shapes(wide_a.shape[:-2], wide_b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: batch dimensions must broadcast, got shapes {a.shape} and {b.shape}") from None
    m, n = wide_a.shape[-2], wide_b.shape[-1]
    if wide_a.ndim == wide_b.ndim == 2:
        whole = (*([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else []))
        return wide_a[None], wide_b[None], whole, ()
    shape = (*batch, *([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else []))
    count = math.prod(batch)
    flat_a = namespace(wide_a).broadcast_to(wide_a, (*batch, *wide_a.shape[-2:])).reshape(count, *wide_a.shape[-2:])
    flat_b = namespace(wide_b).broadcast_to(wide_b, (*batch, *wide_b.shape[-2:])).reshape(count, *wide_b.shape[-2:])
    return flat_a, flat_b, shape, batch


def _as_addend(
    addend: Any, fmt: str | Format | None, shape: tuple[int, ...], full: tuple[int, ...], *, check: bool
) -> tuple[Array | None, Format | None]:
    if addend is None:
        return None, None
    if fmt is None:
        raise FormatError("`addend_format` must be given with `addend`")
    array, parsed = as_operand(addend, fmt, "addend", check=check)
    return as_addend(array, shape, full), parsed


def as_addend(array: Array, shape: tuple[int, ...], full: tuple[int, ...]) -> Array:
    """Return an addend with three axes, (B or 1, M or 1, N or 1).

    Args:
        array: what broadcasts to the result.
        shape: of the result.
        full: the same, rows and columns of vectors kept.

    Raises:
        ShapeError: it does not broadcast.
    """
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"matmul: the addend must broadcast to the result {shape}, got shape {array.shape}")
    if len(shape) < len(full):
        array = namespace(array).broadcast_to(array, shape).reshape(full)
    if array.ndim <= 3 and len(full) <= 3:
        return array.reshape((1,) * (3 - array.ndim) + array.shape)
    return namespace(array).broadcast_to(array, full).reshape(math.prod(full[:-2]), *full[-2:])


@lru_cache(maxsize=1024)
def accumulator_of(a: Format, b: Format, addend: Format | None, depth: int, mac: Mac) -> Fixed | None:
    """Return the fixed-point accumulator a statistics register observes, None where the result is a float.

    An exact accumulator is as wide as the worst case needs, at most 64 bits; of unsigned operands alone, unsigned.
    """
    if mac.accumulator != "exact":
        return mac.accumulator if isinstance(mac.accumulator, Fixed) else None
    if mac.product != "exact":
        term = mac.product
    elif isinstance(a, Fixed) and isinstance(b, Fixed):
        term = Fixed(min(a.width_bits + b.width_bits, MAX_WIDTH_BITS), a.frac_bits + b.frac_bits, a.signed or b.signed)
    else:
        return None
    if not isinstance(term, Fixed) or not isinstance(addend, (Fixed, type(None))):
        return None
    signed = term.signed or (addend is not None and addend.signed)
    widened = signed and not term.signed  # a sign beside all bits of an unsigned term
    integer_bits = term.width_bits - term.frac_bits + max(depth, 1).bit_length() + widened
    frac_bits = term.frac_bits
    if addend is not None:
        integer_bits = max(integer_bits, addend.width_bits - addend.frac_bits + (signed and not addend.signed)) + 1
        frac_bits = max(frac_bits, addend.frac_bits)
    return Fixed(max(min(integer_bits + frac_bits, MAX_WIDTH_BITS), 1), frac_bits, signed)
