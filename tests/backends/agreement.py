"""One comparison for every kernel: bits, flags and registers of a backend against the reference's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import emu
from emu.testing import assert_bits_equal

#: Backends that can compute here, beside the definition.
OTHERS = tuple(name for name, state in emu.backends().items() if state == "ready" and name != "reference")


def assert_same(call: Callable[..., np.ndarray], fmt: Any, note: Any = "") -> np.ndarray:
    """Run `call(backend=, register=, flags=)` on every backend; return the reference's result."""
    expected, register, flags = _run(call, "reference")
    for name in OTHERS:
        actual, its_register, its_flags = _run(call, name)
        try:
            assert actual.dtype == expected.dtype == emu.parse(fmt).carrier
            assert_bits_equal(actual, expected, fmt)
            assert its_flags == flags
            assert its_register == register
        except AssertionError as error:
            error.add_note(f"{name}: {note}")
            raise
    return expected


def _run(call: Callable[..., np.ndarray], name: str) -> tuple[np.ndarray, emu.StatisticsRegister, emu.Flags]:
    register, flags = emu.StatisticsRegister(), emu.Flags()
    return call(backend=name, register=register, flags=flags), register, flags
