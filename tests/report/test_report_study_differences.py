"""Differences of a study: every seed drawn, intervals that are no statement not drawn, how many more seeds."""

import math
from typing import Any

import pytest

from emu.report.study.comparison import Row
from emu.report.study.difference import Difference, seeds_for
from emu.report.study.difference_picture import difference_picture
from emu.report.study.seeds import remarks


def row(device: str, *differences: float, baseline: float = 0.965) -> Row:
    paired = dict(enumerate(differences, start=1))
    given: dict[str, Any] = {
        "model": "mlp",
        "setting": "plain",
        "device": device,
        "bits": 16,
        "accuracies": {seed: baseline + one for seed, one in paired.items()},
        "seeds": len(paired),
        "failures": {},
        "difference": Difference.of(differences, baseline) if differences else None,
        "loss": 0.1,
        "overflow": 0.0,
        "underflow": 0.0,
        "counts": {},
        "simulated_seconds": None,
        "first_run": None,
        "paired": paired,
    }
    return Row(**given)


def quantile(freedom: int) -> float:
    """Student's two-sided 95% quantile, from the integral of its density by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def within(t: float, pieces: int = 400) -> float:
        weights = (1 if i in {0, pieces} else 4 if i % 2 else 2 for i in range(pieces + 1))
        density = ((1 + (t * i / pieces) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(pieces + 1))
        return 2 * scale * t / pieces / 3 * sum(weight * one for weight, one in zip(weights, density, strict=True))

    low, high = 0.0, 15.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 0.95 else (low, middle)
    return low


@pytest.mark.parametrize("half", [0.005, 0.02])
@pytest.mark.parametrize("deviation", [0.0004, 0.001, 0.0025, 0.006, 0.0105, 0.019])
def test_the_seeds_that_settle_are_the_first_whose_interval_is_narrow_enough(deviation: float, half: float):
    """Counted up one by one, with quantiles that are integrated."""
    n = 2
    while quantile(n - 1) * deviation / math.sqrt(n) > half:
        n += 1
    assert seeds_for(half, deviation) == n


def test_a_row_that_leaves_it_open_says_how_many_more_seeds_would_narrow_it_to_the_margin():
    """Differences -1, 0 and +1 less 0.3: s = 1 point; half of 18 seeds is 2.110 / sqrt(18) = 0.4973, of 17 0.5142."""
    assert remarks([row("fp16", -0.013, -0.003, 0.007)]) == [
        "fp16: -0.30 (-2.78 .. +2.18) leaves open whether it is more than half a point worse. If more seeds have the "
        "mean and the spread of these 3, 15 more would narrow it to half a point on each side."
    ]


def test_a_row_far_from_the_limit_needs_fewer_seeds_to_lie_on_one_side_of_it():
    """s = 1 point, mean -1.5: on one side from 1 point on; 6 seeds give 2.571 / sqrt(6) = 1.0496, 7 give 0.9249."""
    [said] = remarks([row("fp16", -0.025, -0.015, -0.005)])
    assert said.endswith("the mean and the spread of these 3, 4 more would put it on one side of -0.50.")


def test_an_interval_beyond_what_is_possible_is_no_statement_and_its_bar_is_not_drawn():
    """Of five seeds one trained: mean -69.2, and an interval to -117.2 where -96.5 is the least there can be."""
    lost = row("fp16", -0.865, -0.865, -0.865, -0.865, 0.0)
    assert str(lost.difference) == "-69.20 (no statement)"
    assert not lost.fails
    [said] = remarks([lost])
    assert "its interval, -117.22 .. -21.18, reaches beyond what is possible, -96.50 .. +3.50: no statement." in said
    # s = 38.68 points, at most 27.3 + 0.5 to each side: 10 seeds give 2.262 * s / sqrt(10) = 27.67, 9 give 29.74
    assert said.endswith("of these 5, 5 more would put it within what is possible, on one side of -0.50.")
    html, [chart] = difference_picture("differences", [lost, row("fixed16", -0.002, 0.001, 0.002)])
    [beyond, drawn] = chart.spec["datasets"]["bars"]
    assert (beyond["note"], "low" in beyond, "high" in beyond) == ("no statement", False, False)
    assert (drawn["low"], drawn["high"], "note" in drawn) == (-0.4838, 0.5505, False)
    assert "No statement: fp16." in chart.label
    assert "seed by seed" in html


def test_an_interval_beyond_what_is_possible_by_less_than_the_margin_stays_a_statement():
    near = Difference.of([0.003, 0.005, 0.007], baseline=0.992)
    assert str(near) == "+0.50 (+0.00 .. +1.00)"
    assert near.is_statement
    assert not Difference.of([0.003, 0.005, 0.007], baseline=0.9956).is_statement


def test_every_seed_is_a_point_of_the_picture():
    _, [chart] = difference_picture("differences", [row("float32"), row("fixed16", -0.002, 0.001)])
    assert [(one["row"], one["seed"], one["points"]) for one in chart.spec["datasets"]["seeds"]] == [
        ("fixed16", 1, -0.2),
        ("fixed16", 2, 0.1),
    ]


def test_without_pairs_there_is_no_picture_and_no_remark():
    assert difference_picture("differences", [row("float32")]) == ("", ())
    assert remarks([row("float32")]) == []


def test_one_seed_and_equal_differences_make_no_statement():
    one, two = remarks([row("fp16", -0.01), row("fixed16", 0.978 - 0.98, 0.976 - 0.978), row("fixed8", 0.0, 0.0)])
    assert one == "fp16: -1.00 of one seed; an interval takes two at least."
    assert two.startswith("fixed16, fixed8: the differences of all seeds are equal, so that the interval has no width")
    _, [chart] = difference_picture("differences", [row("fixed16", 0.978 - 0.98, 0.976 - 0.978)])
    assert chart.spec["datasets"]["bars"][0]["note"] == "no statement"


@pytest.mark.parametrize("differences", [(-0.02, -0.021, -0.022), (0.01, 0.02, 0.015), (-0.006, -0.004, -0.005)])
def test_an_interval_on_one_side_of_the_limit_or_within_the_margin_is_settled(differences: tuple[float, ...]):
    [said] = remarks([row("fp16", *differences)])
    assert said.startswith("Settled: ")


def test_equal_differences_are_no_failure_and_print_no_interval():
    equal = Difference.of([0.958 - 0.978, 0.956 - 0.976, 0.957 - 0.977], baseline=0.977)
    assert str(equal) == "-2.00 (no statement)"
    assert not equal.is_failure


@pytest.mark.parametrize(("worse", "kind"), [(-0.21, "symlog"), (-0.19, None)])
def test_the_axis_bends_by_all_that_it_shows_the_baseline_too(worse: float, kind: str | None):
    """All seeds lie within two points of each other; the axis reaches from them to 0."""
    _, [chart] = difference_picture("differences", [row("fp16", worse, worse + 0.001, worse - 0.001)])
    scales = [layer["encoding"]["x"]["scale"] for layer in chart.spec["layer"] if "scale" in layer["encoding"]["x"]]
    assert {scale.get("type") for scale in scales} == {kind}
