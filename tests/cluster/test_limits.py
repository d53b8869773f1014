"""No simulated step breaks a physical limit, whatever the settings."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_limits import broken, drawn

import emu
from emu.errors import EmuError


@settings(max_examples=12)  # a thousand are slow
@given(seed=st.integers(0, 2**32 - 1))
def test_no_step_is_shorter_than_what_happens_in_it_or_faster_than_its_devices(seed: int):
    chosen = drawn(random.Random(seed))
    try:
        (step,) = emu.simulate(**chosen).steps
    except EmuError:
        return  # settings that do not go together
    assert broken(step) == []


@pytest.mark.slow
def test_no_step_of_a_thousand_breaks_a_limit():
    judged = 0
    choose = random.Random(36)
    while judged < 1000:
        chosen = drawn(choose)
        try:
            (step,) = emu.simulate(**chosen).steps
        except EmuError:
            continue
        judged += 1
        assert broken(step) == [], chosen
