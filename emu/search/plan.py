"""Which values trial n has: a function of the search, n, and the trials that must be finished before it.

    n = 0                          the device as it is                       with a warm start
    n = 1 .. V                     each of V variables at its probe, alone   (sensitivity)
    n = V + 1 .. V + 4             those that held, and those that did not, at shares of the way to their probes
    from then on, in batches       drawn by a sampler of Optuna that is seeded with (seed, n), from all trials before
                                   the batch

Whoever draws trial n gets the same values: another process, another machine, or the same search once more.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.search.file import Search, Values, Variable

if TYPE_CHECKING:
    import optuna

#: Shares of the way to the probes: of variables that held the constraints alone, and of those that did not.
MIXTURES = ((1.0, 0.25), (1.0, 0.5), (1.0, 0.75), (1.0, 1.0))
#: Draws of a trial until one is new and possible: by the sampler, then at random; then the last one is taken.
MOST_DRAWS = 50, 50
RANDOM = "random"
#: Where Optuna's NSGA-II finds the generation of a trial.
_GENERATION = "NSGAIISampler:generation"
#: Word of 32 bits that separates the draws of a trial from those of others.
_SEPARATE = 0x656D75


class Past(NamedTuple):
    """A trial that has ended.

    Attributes:
        number: its number.
        values: of the variables.
        objectives: of a finished one; None of one that failed.
        violations: by the name of the constraint; above 0 where it does not hold.
    """

    number: int
    values: Values
    objectives: tuple[float, ...] | None
    violations: dict[str, float]

    @property
    def is_feasible(self) -> bool:
        """Whether it was finished, and every constraint holds."""
        return self.objectives is not None and all(one <= 0 for one in self.violations.values())


class Plan:
    """The trials of a search.

    Attributes:
        search: the search.
    """

    def __init__(self, search: Search, is_possible: Callable[[Values], bool] = lambda values: True) -> None:
        """Run nothing.

        Args:
            search: the search.
            is_possible: whether values give a device that may hold the constraints; others are not drawn.
        """
        self.search = search
        self._is_possible = is_possible
        probes = 1 + len(search.variable) if search.warm_start else 0
        self._probes, self._warm = probes, probes + (len(MIXTURES) if search.warm_start else 0)

    def waits_for(self, number: int) -> int:
        """Return how many trials, from the first, must have ended before a trial can be drawn."""
        if number < self._probes:
            return 0
        if number < self._warm:
            return self._probes
        batch = self.search.sampler.batch
        return self._warm + (number - self._warm) // batch * batch

    def values(self, number: int, past: Sequence[Past]) -> Values:
        """Return the values of a trial.

        Args:
            number: of the trial.
            past: trials that have ended; those of `waits_for` are among them.
        """
        if number < self._probes:
            return self._probe(number)
        first = self.waits_for(number)
        known = sorted((one for one in past if one.number < first), key=lambda one: one.number)
        if number < self._warm:
            return self._mixed(*MIXTURES[number - self._probes], known)
        drawn: list[Values] = []  # the batch up to this trial, so that none is there twice
        for one in range(first, number + 1):
            drawn.append(self._drawn(one, known, drawn))
        return drawn[-1]

    def _probe(self, number: int) -> Values:
        found = self.search.starts()
        if number:
            variable = self.search.variable[number - 1]
            found[variable.name] = variable.probed()
        return found

    def _mixed(self, held: float, broke: float, known: Sequence[Past]) -> Values:
        feasible = {one.number for one in known if one.is_feasible}
        return {
            variable.name: variable.between(held if index in feasible else broke)
            for index, variable in enumerate(self.search.variable, 1)
        }

    def _drawn(self, number: int, known: Sequence[Past], beside: Sequence[Values]) -> Values:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        taken = {_text(values) for values in (*(one.values for one in known), *beside)}
        words = np.random.SeedSequence([self.search.sampler.seed, _SEPARATE, number]).generate_state(sum(MOST_DRAWS))
        ranges = {one.name: distribution(one) for one in self.search.variable}
        found: Values = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of Optuna that may change; their version is pinned
            study = self._study(known)
            for index, word in enumerate(words):
                study.sampler = self._sampler(self.search.sampler.name if index < MOST_DRAWS[0] else RANDOM, int(word))
                found = self._whole(study.ask(ranges).params)
                if _text(found) not in taken and self._is_possible(found):
                    break
        return found

    def _whole(self, params: dict[str, Any]) -> Values:
        return {one.name: params[one.name] for one in self.search.variable}

    def _sampler(self, name: str, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        if name == "nsga2":
            return optuna.samplers.NSGAIISampler(population_size=max(self.search.sampler.batch, 2), seed=seed)
        if name == RANDOM:
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(multivariate=True, constant_liar=False, seed=seed)

    def _study(self, known: Sequence[Past]) -> optuna.Study:
        """Return a study in memory that holds what is known, and nothing else."""
        import optuna

        study = optuna.create_study(directions=[one.direction for one in self.search.objective])
        ranges = {one.name: distribution(one) for one in self.search.variable}
        for past in known:
            if past.objectives is None:
                continue
            generation = 0 if past.number < self._warm else 1 + (past.number - self._warm) // self.search.sampler.batch
            study.add_trial(
                optuna.trial.create_trial(
                    params=dict(past.values),
                    distributions=ranges,
                    values=list(past.objectives),
                    constraints=past.violations,
                    system_attrs={_GENERATION: generation},
                )
            )
        return study


def distribution(variable: Variable) -> Any:
    """Return a variable as Optuna has it."""
    import optuna

    if variable.choices is not None:
        return optuna.distributions.CategoricalDistribution(variable.choices)
    low, high = variable.low, variable.high
    assert low is not None
    assert high is not None
    if variable.is_whole:
        step = 1 if variable.log else int(variable.grid or 1)
        return optuna.distributions.IntDistribution(int(low), int(high), log=variable.log, step=step)
    return optuna.distributions.FloatDistribution(low, high, log=variable.log, step=variable.grid)


def _text(values: Values) -> str:
    return json.dumps(values, sort_keys=True)
