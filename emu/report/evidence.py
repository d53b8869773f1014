"""Everything the sections of a run's report draw from, read and judged once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emu.report.diagnosis import Finding, findings
from emu.report.histories import (
    FlagCounts,
    LeadingBits,
    Noise,
    Trajectory,
    flag_counts,
    leading_bits,
    noises,
    trajectories,
)
from emu.report.outcome import Outcome, outcome_of
from emu.report.run_data import Run, Tensor, read_run
from emu.report.simulated_time import SimulatedTime, simulated_time
from emu.report.time_spent import TimeSpent, time_spent


@dataclass(frozen=True)
class Evidence:
    """A run, its histories per tensor in network order, and what they say.

    Attributes:
        run: the run folder.
        outcome: how it ended.
        bits: tensor -> its register over time.
        flags: tensor -> its flags over time.
        noise: tensor -> its signal-to-noise over time.
        points: tensor -> where the points of its parts stood over time; empty without dynamic fixed point.
        findings: what went wrong, worst first.
        time: where the time of the steps went; None if the run did not measure it.
        simulated: what they would have taken on the emulated machine; None if it has no clock.
    """

    run: Run
    outcome: Outcome
    bits: dict[Tensor, LeadingBits]
    flags: dict[Tensor, FlagCounts]
    noise: dict[Tensor, Noise]
    points: dict[Tensor, list[Trajectory]]
    findings: list[Finding]
    time: TimeSpent | None
    simulated: SimulatedTime | None


def gather(folder: Path) -> Evidence:
    """Return the evidence in a run folder.

    Raises:
        ConfigError: the folder or its `run.json` cannot be read.
    """
    run = read_run(folder)
    outcome, flags, noise = outcome_of(run), flag_counts(run), noises(run)
    found = findings(run, outcome, flags, noise)
    return Evidence(
        run, outcome, leading_bits(run), flags, noise, trajectories(run), found, time_spent(run), simulated_time(run)
    )
