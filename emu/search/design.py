"""The values of trial n: a function of the search, n, and the trials that must have ended before it.

    n = 0                          the device as it is                       with a warm start
    n = 1 .. V                     each of V variables at its probe, alone   (sensitivity)
    n = V + 1 .. V + 4             variables whose probe held the constraints, and all others, at shares of the way to
                                   their probes
    from then on, in batches       drawn by a sampler of Optuna that is seeded with (seed, n), from all trials before
                                   the batch

So each process and machine that draws trial n gets the same values, and so does the same search at another time. If a
probe or a mixture has been tried, the sampler draws instead. Values are tried twice only if no others are possible.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.search.file import Search, Values, Variable

if TYPE_CHECKING:
    import optuna

#: Shares of the way to the probes: for variables whose probe held the constraints, and for all others.
MIXTURES = ((1.0, 0.25), (1.0, 0.5), (1.0, 0.75), (1.0, 1.0))
#: Most draws for a trial, until one is new and possible: by the sampler, then at random. Then all values are gone
#: through if there are no more than MOST_VALUES, else the last draw is taken.
MOST_DRAWS = 50, 50
MOST_VALUES = 4096
RANDOM = "random"
#: Attribute in which Optuna's NSGA-II keeps the generation of a trial.
_GENERATION = "NSGAIISampler:generation"
#: Word of the seed sequence that separates these draws from other uses of the same seed: "emu" in ASCII.
_SEPARATE = 0x656D75


class Past(NamedTuple):
    """A trial that has ended.

    Attributes:
        number: number of the trial.
        values: values of the variables.
        objectives: values of the objectives; None if it failed.
        violations: by how much each constraint is missed, by its name; 0 or less if it holds.
    """

    number: int
    values: Values
    objectives: tuple[float, ...] | None
    violations: dict[str, float]

    @property
    def is_feasible(self) -> bool:
        """Whether it was finished, and all constraints hold."""
        return self.objectives is not None and all(violation <= 0 for violation in self.violations.values())


class Design:
    """The design of a search: the values of its trials.

    Attributes:
        search: the search.
    """

    def __init__(self, search: Search, is_possible: Callable[[Values], bool] = lambda values: True) -> None:
        """Prepare the design.

        Args:
            search: the search.
            is_possible: returns whether values give a device that may hold the constraints; others are not drawn.
        """
        self.search = search
        self._is_possible = is_possible
        # trial 0 is the start; a probe for each variable follows
        probes = 1 + len(search.variable) if search.warm_start else 0
        self._probes, self._warm = probes, probes + (len(MIXTURES) if search.warm_start else 0)

    def waits_for(self, number: int) -> int:
        """Return the n for which trials 0 .. n - 1 must have ended before a trial can be drawn."""
        if number < self._probes:
            return 0
        if number < self._warm:
            return self._probes
        # the first trial of its batch
        batch = self.search.sampler.batch
        return self._warm + (number - self._warm) // batch * batch

    def values(self, number: int, past: Sequence[Past]) -> Values:
        """Return the values of a trial.

        Args:
            number: number of the trial.
            past: trials that have ended, at least those of `waits_for`.
        """
        # exactly these, even if more have ended: else values would depend on who was fast
        first = self.waits_for(number)
        known = sorted((trial for trial in past if trial.number < first), key=lambda trial: trial.number)
        taken = {_text(trial.values) for trial in known}
        values: Values = {}
        # all that wait for the same trials, up to this one, so that no values occur twice
        for n in range(first, number + 1):
            planned = self._planned(n, known)
            values = self._drawn(n, known, taken) if planned is None or _text(planned) in taken else planned
            taken.add(_text(values))
        return values

    def _planned(self, number: int, known: Sequence[Past]) -> Values | None:
        """Return the values of a trial of the warm start; None behind it."""
        if number < self._probes:
            return self._probe(number)
        return self._mixed(*MIXTURES[number - self._probes], known) if number < self._warm else None

    def _probe(self, number: int) -> Values:
        values = self.search.starts()
        if number:
            variable = self.search.variable[number - 1]
            values[variable.name] = variable.probed()
        return values

    def _mixed(self, share_if_feasible: float, share_if_not: float, known: Sequence[Past]) -> Values:
        # trial n, from 1 to V, is the probe of variable n alone
        feasible = {trial.number for trial in known if trial.is_feasible}
        return {
            variable.name: variable.between(share_if_feasible if index in feasible else share_if_not)
            for index, variable in enumerate(self.search.variable, 1)
        }

    def _drawn(self, number: int, known: Sequence[Past], taken: Container[str]) -> Values:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # a word for each draw: every sampler below is new and draws once
        words = np.random.SeedSequence([self.search.sampler.seed, _SEPARATE, number]).generate_state(sum(MOST_DRAWS))
        ranges = {variable.name: distribution(variable) for variable in self.search.variable}
        values: Values = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of Optuna that may change; their version is pinned
            study = self._study(known)
            # `ask` leaves a running trial behind in this study, which is in memory alone; without constant_liar, the
            # TPE ignores it
            for index, word in enumerate(words):
                study.sampler = self._sampler(self.search.sampler.name if index < MOST_DRAWS[0] else RANDOM, int(word))
                params = study.ask(ranges).params
                values = {variable.name: params[variable.name] for variable in self.search.variable}
                if _text(values) not in taken and self._is_possible(values):
                    return values
        # lazily: most searches have too many values to go through
        rest = (drawn for drawn in self._all() if _text(drawn) not in taken and self._is_possible(drawn))
        # the last draw, a repetition, if nothing else is left
        return next(rest, values)

    def _all(self) -> Iterator[Values]:
        """Yield all values in the order of the file; none if there are more than MOST_VALUES."""
        ranges = [variable.listed(MOST_VALUES) for variable in self.search.variable]
        # a variable without an end has an empty list, whose product is 0: nothing is yielded
        if math.prod(map(len, ranges)) <= MOST_VALUES:
            names = [variable.name for variable in self.search.variable]
            for combination in itertools.product(*ranges):
                yield dict(zip(names, combination, strict=True))

    def _sampler(self, name: str, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        if name == "nsga2":
            return optuna.samplers.NSGAIISampler(population_size=max(self.search.sampler.batch, 2), seed=seed)
        if name == RANDOM:
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(multivariate=True, constant_liar=False, seed=seed)

    def _study(self, known: Sequence[Past]) -> optuna.Study:
        """Return a study of Optuna in memory with exactly these trials."""
        import optuna

        study = optuna.create_study(directions=[objective.direction for objective in self.search.objective])
        ranges = {variable.name: distribution(variable) for variable in self.search.variable}
        for past in known:
            # a failed trial says nothing about its values
            if past.objectives is None:
                continue
            # the warm start is the first population, each batch the next population
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
    """Return Optuna's distribution of a variable."""
    import optuna

    if variable.choices is not None:
        return optuna.distributions.CategoricalDistribution(variable.choices)
    # `last`, because Optuna would cut a range that its steps do not end, with a warning
    low, high = variable.low, variable.last
    assert low is not None
    if variable.is_whole:
        step = 1 if variable.log else int(variable.grid or 1)
        return optuna.distributions.IntDistribution(int(low), int(high), log=variable.log, step=step)
    return optuna.distributions.FloatDistribution(low, high, log=variable.log, step=variable.grid)


def _text(values: Values) -> str:
    # as text, 1, 1.0 and true differ; as keys of Python they do not
    return json.dumps(values, sort_keys=True)
