"""The data of all sections of a run's report, read and evaluated once."""

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
from emu.report.run_data import RunData, Tensor, read_run
from emu.report.simulated_time import SimulatedTime, simulated_time
from emu.report.time_spent import TimeSpent, time_spent


@dataclass(frozen=True)
class Evidence:
    """A run, the histories of its tensors in network order, and findings about them.

    Attributes:
        run: data of the run's folder.
        outcome: how the run ended.
        bits: tensor -> its register over time.
        flags: tensor -> its flags over time.
        noise: tensor -> its signal-to-noise over time.
        points: tensor -> the binary points of its parts over time; empty without dynamic fixed point.
        findings: what went wrong, worst first.
        time: time of the steps by operation; None if the run did not measure it.
        simulated: time of the steps on the emulated machine; None if it has no clock.
    """

    run: RunData
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
    outcome, bits, flags, noise = outcome_of(run), leading_bits(run), flag_counts(run), noises(run)
    return Evidence(
        run=run,
        outcome=outcome,
        bits=bits,
        flags=flags,
        noise=noise,
        points=trajectories(run),
        findings=findings(run, outcome, bits, flags, noise),
        time=time_spent(run),
        simulated=simulated_time(run),
    )
