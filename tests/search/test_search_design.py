"""Which values trial n has: the same for whoever draws it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest

from emu.search import Search, load_search
from emu.search.design import MIXTURES, MOST_VALUES, Design, Past
from emu.search.file import Variable
from searches import SEARCH


@pytest.fixture
def search(tmp_path: Path) -> Search:
    (tmp_path / "search.toml").write_text(SEARCH)
    return load_search(tmp_path / "search.toml")


def with_sampler(search: Search, name: str, **sampler: int) -> Search:
    changed = search.sampler.model_copy(update={"name": name, **sampler})
    return search.model_copy(update={"sampler": changed, "trials": 40})


def past_of(design: Design, count: int) -> list[Past]:
    """Trials with objectives that follow from their values."""
    past: list[Past] = []
    for number in range(count):
        values = design.values(number, past)
        width, is_bad = int(values["width"]), values["mode"] == "stochastic"
        lost = max(0.0, 9.0 - width) / 10 + 0.01 * is_bad
        past.append(Past(number, values, (float(width), -lost), {"lost": lost - 0.25}))
    return past


def test_the_first_trials_are_the_device_as_it_is_each_probe_alone_and_mixtures_of_those_that_held(search: Search):
    design = Design(search)
    found = [one.values for one in past_of(design, 3 + len(MIXTURES))]
    assert found[:3] == [
        {"width": 16, "mode": "nearest_even"},
        {"width": 4, "mode": "nearest_even"},  # breaks the constraint
        {"width": 16, "mode": "stochastic"},  # holds it
    ]
    assert found[3:] == [
        {"width": 13, "mode": "stochastic"},
        {"width": 10, "mode": "stochastic"},
        {"width": 7, "mode": "stochastic"},
        {"width": 4, "mode": "stochastic"},
    ]


def test_a_trial_waits_for_those_that_its_values_follow_from(search: Search):
    design = Design(search)  # batches of 2
    assert [design.waits_for(number) for number in range(13)] == [0, 0, 0, 3, 3, 3, 3, 7, 7, 9, 9, 11, 11]
    cold = Design(search.model_copy(update={"warm_start": False}))
    assert [cold.waits_for(number) for number in range(5)] == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("name", ["tpe", "nsga2", "random"])
def test_values_follow_from_the_seed_and_the_trials_before_the_batch_alone(search: Search, name: str):
    chosen = with_sampler(search, name)
    past = past_of(Design(chosen), 20)
    for number in (7, 8, 11, 14, 19):
        waited = Design(chosen).waits_for(number)
        alone = Design(chosen).values(number, past[:waited])
        late = Design(chosen).values(number, [*reversed(past), Past(30, past[0].values, None, {})])
        assert alone == late == past[number].values
    other = past_of(Design(with_sampler(search, name, seed=4)), 20)
    assert [one.values for one in other] != [one.values for one in past]


def test_a_sampler_is_told_the_constraints_and_the_generation_of_every_trial_before_the_batch(
    search: Search, monkeypatch: pytest.MonkeyPatch
):
    """Seven trials of the warm start are generation 0, each batch of two is one more, as Optuna itself counts on."""
    sampler, seen, drawn = optuna.samplers.NSGAIISampler, list[tuple[dict[str, float], int]](), list[int]()
    sample = sampler.sample_relative

    def watched(self: Any, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        known = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        seen[:] = [(one.constraints, self.get_trial_generation(study, one)) for one in known]
        drawn.append(self.get_trial_generation(study, trial))
        return sample(self, study, trial, search_space)

    design = Design(with_sampler(search, "nsga2"))
    past = past_of(design, 12)
    monkeypatch.setattr(sampler, "sample_relative", watched)
    design.values(12, past)
    generations = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert seen == [(one.violations, generation) for one, generation in zip(past[:11], generations, strict=True)]
    assert {one.violations["lost"] > 0 for one in past[:11]} == {False, True}
    assert set(drawn) == {3}


def test_a_trial_is_the_last_that_is_drawn_of_its_batch_and_optuna_says_nothing(
    search: Search, monkeypatch: pytest.MonkeyPatch
):
    design = Design(with_sampler(search, "random", batch=3))
    past, drawn = past_of(design, 13), list[int]()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    design.values(13, past)
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    monkeypatch.setattr(Design, "_drawn", lambda self, number, known, in_batch: drawn.append(number) or {"n": number})
    assert [design.values(number, past)["n"] for number in (7, 9, 11)] == [7, 9, 11]
    assert drawn == [7, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(("batch", "population"), [(1, 2), (2, 2), (5, 5)])
def test_a_generation_is_as_large_as_a_batch_and_has_two_at_least(search: Search, batch: int, population: int):
    sampler = Design(with_sampler(search, "nsga2", batch=batch))._sampler("nsga2", 1)
    assert isinstance(sampler, optuna.samplers.NSGAIISampler)
    assert sampler.population_size == population


@pytest.mark.parametrize("name", ["tpe", "nsga2", "random"])
def test_no_trial_is_drawn_twice_while_there_are_others(search: Search, name: str):
    past = past_of(Design(with_sampler(search, name, batch=3)), 19)
    drawn = [json.dumps(one.values, sort_keys=True) for one in past[7:]]
    assert len(set(drawn)) == len(drawn)
    assert not set(drawn) & {json.dumps(one.values, sort_keys=True) for one in past[:7]}


def small(search: Search, **variables: Any) -> Search:
    """The search with other variables: a name and its keys."""
    named = [Variable(name=name, **keys) for name, keys in variables.items()]
    return search.model_copy(update={"variable": named, "trials": 40})


def in_order(design: Design, count: int) -> list[dict[str, Any]]:
    past: list[Past] = []
    for number in range(count):
        past.append(Past(number, design.values(number, past), (1.0, 1.0), {}))
    return [dict(trial.values) for trial in past]


def test_a_small_space_is_tried_whole_before_anything_is_tried_twice(search: Search):
    modes = {"choices": ["floor", "up", "even"], "start": "even"}
    design = Design(small(search, mode=modes, width={"low": 4, "high": 6, "start": 6}))
    drawn = in_order(design, 12)
    assert len({json.dumps(values, sort_keys=True) for values in drawn[:9]}) == 9
    assert {json.dumps(values, sort_keys=True) for values in drawn[9:]} <= {
        json.dumps(values, sort_keys=True) for values in drawn[:9]
    }


def test_a_probe_or_mixture_that_was_tried_is_drawn_instead(search: Search):
    """Both probes of widths that start at their narrow end would be the device as it is."""
    same = {"low": 4, "high": 16, "start": 16, "probe": 16}
    drawn = in_order(Design(small(search, a=same, b=same)), 9)
    assert drawn[0] == {"a": 16, "b": 16}
    assert len({json.dumps(values, sort_keys=True) for values in drawn}) == 9


def test_only_possible_values_are_gone_through(search: Search):
    space = small(search, width={"low": 1, "high": 2000, "start": 2000, "probe": 1999})
    only = Design(space.model_copy(update={"warm_start": False}), lambda values: values["width"] == 1237)
    assert only.values(0, []) == {"width": 1237}


@pytest.mark.parametrize(("high", "is_listed"), [(MOST_VALUES, True), (MOST_VALUES + 1, False)])
def test_a_space_is_gone_through_up_to_a_size(search: Search, high: int, is_listed: bool):
    design = Design(small(search, width={"low": 1, "high": high, "start": 1}))
    assert len(list(design._all())) == (high if is_listed else 0)
    pair = {"low": 1, "high": 64, "start": 1}
    assert len(list(Design(small(search, a=pair, b=pair))._all())) == 4096
    assert not list(Design(small(search, a=pair, b={**pair, "high": 65}))._all())
    assert not list(Design(small(search, a=pair, b={"low": 0.0, "high": 1.0, "start": 0.0}))._all())


def test_what_cannot_hold_a_constraint_is_not_drawn(search: Search):
    design = Design(with_sampler(search, "random"), lambda values: int(values["width"]) % 2 == 0)
    assert {int(one.values["width"]) % 2 for one in past_of(design, 15)[7:]} == {0}


def test_a_trial_that_failed_takes_no_part(search: Search):
    design = Design(with_sampler(search, "tpe"))
    past = past_of(design, 9)
    failed = [one._replace(objectives=None, violations={}) if one.number == 5 else one for one in past]
    assert design.values(9, failed) != {}
    assert not failed[5].is_feasible


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_samplers_learn_from_the_trials_before(search: Search, name: str):
    """Six widths whose sum shall be small: the last trials are better than those drawn at random."""
    width = search.variable[0].model_copy(update={"high": 40, "start": 40})
    variables = tuple(width.model_copy(update={"name": f"width{i}"}) for i in range(6))
    wide = search.model_copy(update={"variable": variables, "objective": search.objective[:1], "warm_start": False})

    def last_sums(sampler: str) -> float:
        design, past = Design(with_sampler(wide, sampler, batch=8)), list[Past]()
        for number in range(80):
            values = design.values(number, past)
            past.append(Past(number, values, (float(sum(map(int, values.values()))),), {}))
        return sum(one.objectives[0] for one in past[-16:] if one.objectives) / 16

    assert last_sums(name) < last_sums("random") - 10
