"""What is written down at a log point: metrics, registers, flags, times; now and then test accuracy and noise."""

from __future__ import annotations

from typing import Any

from emu.training.history import rates
from emu.training.probe import probe
from emu.training.running import Running

#: Log points between two measurements of test accuracy and noise.
LOG_POINTS_PER_TEST = 4


def log_point(run: Running) -> None:
    """Write down the interval that ends here, ask whether the run is over, and begin the next interval."""
    run.flush()
    measured = run.step // run.log_every % LOG_POINTS_PER_TEST == 0 or run.has_ended
    row = _metrics(run) | (_tested(run) if measured else {"test_loss": None, "test_accuracy": None})
    run.is_over = run.decide(row)
    if run.is_over and not measured:
        measured, row = True, row | _tested(run)
    run.history.add("metrics", step=run.step, **row)
    run.history.add_counts(run.step, run.interval, run.policy.table.register.counter_bits)
    run.history.add_profile(run.step, run.profile)
    run.add_rows(system.interval() for system in run.systems)
    if measured:
        _probe(run)
    run.total.merge(run.interval)
    run.interval.reset()
    run.profile.reset()
    run.losses, run.correct = [], []


def _metrics(run: Running) -> dict[str, Any]:
    shares = rates(run.interval)
    steps = range(run.step - len(run.losses), run.step)
    return {
        "epoch": run.batches.progress(run.step) / run.batches_per_epoch,
        "train_loss": sum(run.losses) / len(run.losses),
        "train_accuracy": sum(run.correct) / run.batches.outputs(steps),
        "overflow_rate": shares.overflow,
        "underflow_rate": shares.underflow,
        "learning_rate": run.rate_of(run.step - 1, run.batches.size_at(run.step - 1)),
    }


def _tested(run: Running) -> dict[str, float]:
    return dict(zip(("test_loss", "test_accuracy"), run.evaluate(), strict=True))


def _probe(run: Running) -> None:
    """Write down signal-to-noise of the newest batch, and where float32's errors and gradients lie."""
    images, labels = run.batch(run.step - 1)
    where: dict[str, Any] = {"seed": run.recipe.training.seed, "step": run.step - 1, "backend": run.backend}
    found = probe(run.model, images, labels, **where, scale=run.scale)
    for layer, role, ratio in found.ratios:
        run.history.add("snr", step=run.step, layer=layer, role=role, snr_db=ratio)
    for role, exponent, count in found.exponents:
        run.history.add("exponents", step=run.step, role=role, exponent=exponent, count=count, scale=run.scale)
