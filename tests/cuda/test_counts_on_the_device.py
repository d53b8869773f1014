"""Registers and flags add up on the device, and come to the host when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from device_arrays import WORK, DeviceArray, StrictDevice
from host_devices import GPU, as_backend, device_of

import emu
from emu.datapath.pending import MOST_PENDING


@pytest.fixture(autouse=True)
def strict_device(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    if request.node.get_closest_marker("gpu"):  # which brings its own
        yield
        return
    with as_backend(StrictDevice()):
        WORK.clear()
        yield


def arrays(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [np.ldexp(rng.normal(0, 1, 37), rng.integers(-12, 12, 37)).astype(np.float32) for _ in range(count)]


def observed(inputs: list[Any], backend: str, formats: tuple[str, ...] = ("fix8f4",)) -> tuple[Any, emu.Flags]:
    register, flags = emu.StatisticsRegister(-20, 40), emu.Flags()
    for i, x in enumerate(inputs):
        emu.quantize(x, formats[i % len(formats)], register=register, flags=flags, backend=backend)
    return register, flags


@pytest.mark.parametrize("count", [1, 2, MOST_PENDING - 1, MOST_PENDING, MOST_PENDING + 1, 3 * MOST_PENDING])
def test_many_operations_are_counted_with_one_copy_for_register_and_flags_together(count: int):
    inputs = arrays(count)
    register, flags = observed([DeviceArray(x) for x in inputs], "cuda", ("fix8f4", "fp8_e4m3"))
    assert WORK.sizes == []
    expected, raised = observed(inputs, "reference", ("fix8f4", "fp8_e4m3"))
    assert register == expected
    assert len(WORK.sizes) == 1
    assert flags == raised
    assert (register.max_exponent, flags.counts()) == (expected.max_exponent, raised.counts())
    assert len(WORK.sizes) == 1, "what was copied for one is there for the other, and is not collected again"


READS: dict[str, Callable[[Any, emu.Flags], Any]] = {
    "one side": lambda register, flags: register.positive,
    "a scalar": lambda register, flags: register.total,
    "largest exponent": lambda register, flags: register.max_exponent,
    "saved": lambda register, flags: register.to_dict(),
    "merged": lambda register, flags: merged(register),
    "text": lambda register, flags: repr(register),
    "one flag": lambda register, flags: flags.overflow,
    "all flags": lambda register, flags: flags.counts(),
    "text of flags": lambda register, flags: repr(flags),
    "merged flags": lambda register, flags: merged_flags(flags),
}


def merged(register: emu.StatisticsRegister) -> Any:
    other = emu.StatisticsRegister(-20, 40)
    other.merge(register)
    return other.to_dict()


def merged_flags(flags: emu.Flags) -> Any:
    other = emu.Flags(overflow=5)
    other.merge(flags)
    return other.counts()


@pytest.mark.parametrize("name", READS)
def test_every_look_collects_first(name: str):
    inputs = arrays(3)
    expected = READS[name](*observed(inputs, "reference"))
    assert READS[name](*observed([DeviceArray(x) for x in inputs], "cuda")) == expected


def test_counts_of_a_device_and_of_the_host_add_up():
    inputs = arrays(4)
    register, flags = observed([inputs[0], DeviceArray(inputs[1]), inputs[2], DeviceArray(inputs[3])], "cuda")
    emu.quantize(inputs[0], "fix8f4", register=register, flags=flags, backend="numba")
    assert (register, flags) == observed([*inputs, inputs[0]], "reference")


def test_what_is_counted_after_a_look_is_fetched_by_the_next_one():
    inputs, register, flags = arrays(3), emu.StatisticsRegister(-20, 40), emu.Flags()
    for i, x in enumerate(inputs, 1):
        emu.quantize(DeviceArray(x), "fix8f4", register=register, flags=flags, backend="cuda")
        expected, raised = observed(inputs[:i], "reference")
        assert (register, flags) == (expected, raised)
    assert len(WORK.sizes) == 3


def test_reset_forgets_what_is_still_pending():
    register, flags = observed([DeviceArray(x) for x in arrays(2)], "cuda")
    register.reset()
    flags.reset()
    assert (register.total, flags) == (0, emu.Flags())
    assert WORK.sizes == []


def test_flags_without_a_register_and_a_register_without_flags_are_counted():
    (x,) = arrays(1)
    register, flags = emu.StatisticsRegister(-20, 40), emu.Flags()
    emu.quantize(DeviceArray(x), "fix8f4", flags=flags, backend="cuda")
    emu.quantize(DeviceArray(x), "fix8f4", register=register, backend="cuda")
    assert (register, flags) == observed([x], "reference")


@pytest.mark.gpu
def test_counts_of_the_gpu_are_the_references_whatever_stream_they_are_read_on():
    gpu = device_of(GPU)
    inputs = arrays(2 * MOST_PENDING + 3)
    with as_backend(gpu):
        there = [gpu.xp.asarray(x) for x in inputs]
        with gpu.xp.cuda.Stream(non_blocking=True):
            found = observed(there[:MOST_PENDING], "cuda")
        for x in there[MOST_PENDING:]:
            emu.quantize(x, "fix8f4", register=found[0], flags=found[1], backend="cuda")
        assert found == observed(inputs, "reference")
