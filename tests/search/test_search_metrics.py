"""What a trial is worth, against numbers worked out by hand, and quantiles against another library."""

from __future__ import annotations

from pathlib import Path

import mpmath
import pytest

from emu.errors import ConfigError
from emu.search import load_search
from emu.search.metrics import Metrics, of_run, of_shapes
from emu.search.space import Space
from emu.search.student import quantile
from searches import SEARCH

SHAPES = {"joules_per_step": 5e-5, "joules_per_inference": 1e-6, "area_mm2": 0.01}
BASE = {1: {"test_accuracy": 0.95}, 2: {"test_accuracy": 0.96}, 3: {"test_accuracy": 0.94}}


def metrics_of(folder: Path, constraint: str, metric: str = "test_accuracy_difference") -> Metrics:
    text = SEARCH.replace("seeds = [1, 2]", "seeds = [1, 2, 3]")
    path = folder / "search.toml"
    path.write_text(text[: text.index("[[constraint]]")] + f'[[constraint]]\nmetric = "{metric}"\n{constraint}\n')
    search = load_search(path)
    return Metrics(search, Space(search, str(path)), str(path))


def runs(*accuracies: float) -> dict[int, dict[str, float]]:
    return {seed: {"test_accuracy": accuracy} for seed, accuracy in enumerate(accuracies, 1)}


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 29, 100])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.95, 0.975, 0.999])
def test_quantiles_are_those_of_the_incomplete_beta_function(probability: float, freedom: int):
    t = quantile(probability, freedom)
    tail = mpmath.betainc(freedom / 2, 0.5, 0, freedom / (freedom + mpmath.mpf(t) ** 2), regularized=True) / 2
    assert abs(1 - tail - probability) < 1e-12


def test_objectives_are_means_over_seeds_paired_with_the_baseline(tmp_path: Path):
    verdict = metrics_of(tmp_path, "at_least = -0.005").verdict(SHAPES, runs(0.94, 0.97, 0.92), BASE)
    assert verdict.values == (5e-5, pytest.approx((-0.01 + 0.01 - 0.02) / 3))
    assert verdict.violations == {"test_accuracy_difference at least": pytest.approx(-0.005 + 0.02 / 3)}
    assert not verdict.is_feasible
    assert not verdict.pruned


def test_a_confidence_asks_the_bound_of_the_end_of_a_one_sided_interval(tmp_path: Path):
    metrics = metrics_of(tmp_path, "at_least = -0.005\nconfidence = 0.95")
    verdict = metrics.verdict(SHAPES, runs(0.951, 0.962, 0.943), BASE)  # differences 0.001, 0.002, 0.003
    lower = 0.002 - 2.919985580353722 * 0.001 / 3**0.5
    assert verdict.violations == {"test_accuracy_difference at least": pytest.approx(-0.005 - lower)}
    assert verdict.is_feasible
    upper = metrics_of(tmp_path, "at_most = 0.003\nconfidence = 0.95").verdict(SHAPES, runs(0.951, 0.962, 0.943), BASE)
    assert upper.violations == {"test_accuracy_difference at most": pytest.approx(0.004 - lower - 0.003)}


@pytest.mark.parametrize(
    ("constraint", "accuracies", "said"),
    [
        ("at_least = -0.005\nprune_margin = 0.02", (0.92,), "missed by more than prune_margin"),
        ("at_least = -0.005\nprune_margin = 0.02", (0.93,), ""),
        ("at_least = -0.005", (0.5,), ""),  # one seed has no interval
        ("at_least = -0.005", (0.91, 0.92), "its interval of 95% lies beyond"),
        ("at_least = -0.005", (0.90, 0.95), ""),  # the seeds spread too far
        ("at_least = -0.005", (0.5, 0.5, 0.5), ""),  # no seed is left to save
        ("at_most = -0.03", (0.95, 0.96), "its interval of 95% lies beyond"),
        ("at_least = -0.005\nconfidence = 0.99", (0.91, 0.919), "its interval of 99% lies beyond"),
        ("at_least = -0.005\nconfidence = 0.99", (0.91, 0.93), ""),
    ],
)
def test_a_trial_is_given_up_where_its_seeds_leave_no_hope(
    tmp_path: Path, constraint: str, accuracies: tuple[float, ...], said: str
):
    pruned = metrics_of(tmp_path, constraint).verdict(SHAPES, runs(*accuracies), BASE).pruned
    assert said in pruned
    assert bool(pruned) == bool(said)


def test_a_bound_on_what_shapes_decide_is_known_before_training(tmp_path: Path):
    metrics = metrics_of(tmp_path, "at_most = 4e-5", "joules_per_step")
    assert "joules_per_step is 5e-05 (at most 4e-05)" in metrics.before_training(SHAPES)
    assert metrics.before_training({**SHAPES, "joules_per_step": 4e-5}) == ""


def test_a_metric_that_is_no_number_fails_the_trial(tmp_path: Path):
    metrics = metrics_of(tmp_path, "at_most = 2.0", "test_loss")
    with pytest.raises(ConfigError, match="test_loss must be a number after every run, got nan with seed 1"):
        metrics.verdict(SHAPES, {1: {"test_accuracy": 0.1, "test_loss": float("nan")}}, BASE)
    with pytest.raises(ConfigError, match="test_loss must be a number"):
        metrics.verdict(SHAPES, {1: {"test_accuracy": 0.1}}, BASE)  # null in run.json


def test_numbers_of_a_run_are_its_metrics_and_its_simulated_time():
    info = {"metrics": {"test_accuracy": 0.5, "test_loss": None, "redos": 3}, "simulated_seconds": 2.5, "seconds": 9}
    assert of_run(info) == {"test_accuracy": 0.5, "redos": 3.0, "simulated_seconds": 2.5}
    assert of_run({"metrics": {"redos": 3}}) == {"redos": 3.0}


def test_numbers_of_shapes_are_those_of_the_cost(tmp_path: Path):
    import emu

    metrics = metrics_of(tmp_path, "at_most = 2.0", "test_loss")
    setup = Space(metrics.search, "search.toml").setup(metrics.search.starts())
    found = of_shapes(setup)
    cost = emu.cost_of(setup.recipe, setup.device)
    assert found["joules_per_step"] == cost.joules_per_step
    assert found["area_mm2"] == cost.area_mm2


def test_a_difference_of_times_needs_a_clock_of_the_baseline_too(tmp_path: Path):
    """Each trial would fail after it was trained: nothing minus a number is no number."""

    def metrics(baseline: str) -> Metrics:
        path = tmp_path / "search.toml"
        path.write_text(
            SEARCH.replace('device = "fixed16"', 'device = "v100"')
            .replace('baseline = "fixed16"', f'baseline = "{baseline}"')
            .replace("ap_fixed<{width}, 3>", "e5m{width}")
            .replace('metric = "joules_per_step"', 'metric = "simulated_seconds_difference"')
        )
        search = load_search(path)
        return Metrics(search, Space(search, str(path)), str(path))

    assert metrics("v100").needs_baseline
    with pytest.raises(ConfigError, match="its baseline has no clock, so no time is simulated"):
        metrics("float32")
