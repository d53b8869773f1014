"""Ways in which the compiled kernels can run here: vector code or plain loops, and how work is shared among threads.

alone           one thread; small arrays are written without questions (`emu.engine.small`), small products in kept room
two threads     every piece of work split, however small, among two threads
last first      split likewise, but the second part is done before the first: neither may need the other
generic         plain loops (`EMU_CPU=generic`), last first
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import emu
import emu.backends.numba
from emu.backends.numba import compiling, integers, machine, scaled, small_products, stage
from emu.backends.numba.vector import choosing
from emu.backends.numba.ways import blocks_in_tiles, in_tiles
from emu.backends.product import choose
from emu.engine import path as paths
from emu.engine import small
from emu.testing import assert_bits_equal


class Variant(NamedTuple):
    """A processor, by `EMU_CPU`, a number of threads, and whether they run one after the other, the last one first."""

    cpu: str
    threads: int
    in_turn: bool


VARIANTS = {
    "alone": Variant("native", 1, False),
    "two threads": Variant("native", 2, False),
    "last first": Variant("native", 2, True),
    "generic": Variant("generic", 2, True),
}
HAS_VECTORS, HAS_PAIRS, HAS_DOTS = machine.has_vectors(), machine.has_pair_products(), machine.has_dot_products()
HAS_HALVES = machine.has_half_arithmetic()
needs_vectors = pytest.mark.skipif(not HAS_VECTORS, reason="the processor has no such vector code")
needs_pairs = pytest.mark.skipif(not HAS_PAIRS, reason="the processor has no products of integer pairs")
needs_dots = pytest.mark.skipif(not HAS_DOTS, reason="the processor has no integer dot products")


class _InTurn:
    """A pool that does what it is given at once."""

    def submit(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(work(*arguments))
        return done


@lru_cache(maxsize=1)
def _sharing_modules() -> list[ModuleType]:
    names = [m.name for m in pkgutil.walk_packages(emu.backends.numba.__path__, "emu.backends.numba.")]
    return [m for m in map(importlib.import_module, names) if hasattr(m, "over_ranges")]


def _forget_choices() -> None:
    """Empty every cache of what depends on the processor or on the number of threads."""
    for cached in (
        machine.processor,
        machine.has_vectors,
        machine.has_long_vectors,
        machine.has_directed_rounding,
        machine.has_ternary_logic,
        machine.has_pair_products,
        machine.has_dot_products,
        machine.has_half_arithmetic,
        compiling.thread_count,
        stage.stage_writer,
        small._write_of,
        scaled._plan,
        choosing.shape_for,
        in_tiles.unit_for,
        blocks_in_tiles.unit_for,
        choose,
        paths._path_by_formats,
    ):
        cached.cache_clear()
    small._WRITES.clear()
    small_products._PRODUCTS.clear()


@contextmanager
def running(name: str) -> Generator[None, None, None]:
    """Run compiled kernels in one of the `VARIANTS`."""
    variant, share = VARIANTS[name], compiling.over_ranges
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMU_CPU", variant.cpu)
        patch.setenv("EMU_THREADS", str(variant.threads))
        if variant.threads > 1:
            for module in _sharing_modules():
                patch.setattr(module, "over_ranges", lambda work, size, align, _=1: share(work, size, align, 1))
            patch.setattr(integers, "GRAIN_MACS", 1)
            for module in (small, small_products):  # one thread writes small arrays and products
                patch.setattr(module, "MOST_ELEMENTS", 0)
            patch.setattr(stage, "MOST_AT_ONCE", 0)
        if variant.in_turn:
            patch.setattr(compiling, "_pool", _InTurn)
        _forget_choices()
        try:
            yield
        finally:
            _forget_choices()
    _forget_choices()


def assert_same_everywhere(
    call: Callable[..., np.ndarray], fmt: Any, note: Any = "", tininess: str | None = None, **positions: Any
) -> np.ndarray:
    """Run `call(backend=, register=, flags=)` as the reference and in every variant; return the reference's result.

    Values, registers (of these `positions`) and flags (with the underflow that `tininess` asks for) must be the same.
    """
    expected, register, flags = _run(call, "reference", positions, tininess)
    for name in VARIANTS:
        with running(name):
            actual, its_register, its_flags = _run(call, "numba", positions, tininess)
        try:
            assert actual.dtype == expected.dtype
            assert_bits_equal(actual, expected, fmt)
            assert its_flags == flags
            assert its_register == register
        except AssertionError as error:
            error.add_note(f"{name}: {note} {positions}")
            raise
    return expected


def _run(
    call: Callable[..., np.ndarray], backend: str, positions: dict[str, Any], tininess: str | None
) -> tuple[np.ndarray, Any, Any]:
    register, flags = emu.StatisticsRegister(**positions), emu.Flags(tininess=tininess)
    return call(backend=backend, register=register, flags=flags), register, flags


def answers_of(monkeypatch: pytest.MonkeyPatch, name: str, *modules: ModuleType) -> list[Any]:
    """Let a function that these modules call by a name note what it returns from now on; return the notes."""
    answered: list[Any] = []
    ask = getattr(modules[0], name)

    def asked(*given: Any) -> Any:
        answered.append(ask(*given))
        return answered[-1]

    for module in modules:
        monkeypatch.setattr(module, name, asked)
    return answered
