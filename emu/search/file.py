"""A search as a TOML file: the values of device and recipe that are tried, objectives and constraints.

    name, description, model, device, baseline, seeds, trials, warm_start, settings
    [sampler]        name, seed, batch
    [[variable]]     name; low, high, step, log, or choices; start, probe
    [[set]]          keys of device or recipe, and the value they get, with variables in braces
    [[objective]]    metric, direction
    [[constraint]]   metric, at_least or at_most, confidence, prune_margin

Misspelt names are refused before anything runs.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from emu._config import FILE_NAME, Items, Table, checked, load_toml
from emu.errors import ConfigError, nearest_name

#: A value of a variable.
Value = int | float | str | bool
#: Values of all variables, by name.
Values = dict[str, Value]
_NAME = r"^[a-z_][a-z0-9_]*$"
#: How far `start` and `probe` may be from a value of their range, in steps: doubles round decimals. It counts in steps
#: because values may be 0 or near it, and it is Optuna's own, so that Optuna takes each value that a file may name.
_OFF_GRID = 1e-8
#: A variable in braces.
IN_BRACES = re.compile(r"\{([^{}]*)\}")


class Sampler(Table):
    """The sampler, which proposes trials.

    Attributes:
        name: `tpe` (tree-structured Parzen estimators), `nsga2` (a genetic algorithm) or `random`.
        seed: seed of the sampler: trial n is drawn by a sampler that is seeded with this and n.
        batch: number of trials that are drawn from the same history, and can therefore run at the same time.
    """

    name: Literal["tpe", "nsga2", "random"] = "tpe"
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    batch: int = Field(default=4, ge=1)


class Variable(Table):
    """A variable of a search: a range, or a list of choices.

    Attributes:
        name: name in `value` of a `[[set]]`.
        low: least value of a range. If `low`, `high` and `step` are written as whole numbers, so are all values.
        high: largest value of a range.
        step: distance between values; None is 1 for whole numbers, and allows every number between for others.
        log: whether the logarithm of the range is searched.
        choices: the values of a variable that is not a range.
        start: the device's own value; the first trial of a warm start has it.
        probe: value that one trial of a warm start has, while all other variables are at `start`; None for the first or
            last value of a range, at the end that is farther from `start`, or for the choice after `start`.
    """

    name: str = Field(pattern=_NAME)
    low: int | float | None = None
    high: int | float | None = None
    step: int | float | None = Field(default=None, gt=0)
    log: bool = False
    choices: Items[Value] | None = None
    start: Value
    probe: Value | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        # both given or neither
        if (self.choices is None) == (self.low is None or self.high is None):
            raise ConfigError(
                f"variable `{self.name}` must have either `low` and `high` or `choices`, got "
                f"{'both' if self.choices else 'neither'}; give one of them"
            )
        if self.choices is not None:
            # 1, 1.0 and true are equal to Python, and so to Optuna, which would take one of them for another
            if len(set(self.choices)) < max(len(self.choices), 2):
                raise ConfigError(
                    f"`choices` of variable `{self.name}` must be at least two different values, of which 1, 1.0 and "
                    f"true are one, got {list(self.choices)}; add or remove some"
                )
        elif not self._low < self._high:
            raise ConfigError(
                f"`low` of variable `{self.name}` must be below `high`, got {self.low} and {self.high}; exchange them"
            )
        elif self.log and (self._low <= 0 or self.step is not None):
            raise ConfigError(
                f"variable `{self.name}` with `log` must have `low` above 0 and no `step`, got low = {self.low} and "
                f"step = {self.step}; change them, or remove `log`"
            )
        for key, value in (("start", self.start), ("probe", self.probe)):
            if value is not None and not self.has(value):
                raise ConfigError(
                    f"`{key}` of variable `{self.name}` must be one of its values, got {value!r}; choose from "
                    f"{self.described()}"
                )
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the range has whole numbers only; also true of choices, for which it means nothing."""
        # TOML keeps 1 and 1.0 apart; None, of a step that is not given, is no float
        return all(not isinstance(end, float) for end in (self.low, self.high, self.step))

    @property
    def _low(self) -> int | float:
        assert self.low is not None
        return self.low

    @property
    def _high(self) -> int | float:
        assert self.high is not None
        return self.high

    @property
    def grid(self) -> int | float | None:
        """Distance between values of a range; None if all numbers between `low` and `high` are values."""
        return 1 if self.step is None and self.is_whole else self.step

    @property
    def last(self) -> int | float:
        """Largest value of a range: `high`, or less if no step from `low` on ends there.

        Numbers count as they are written: 3 steps of 0.1 end at 0.3.
        """
        if self.grid is None:
            return self._high
        # decimals as they are written: in doubles, 0.3 is no multiple of 0.1
        low, high, grid = (Fraction(str(x)) for x in (self._low, self._high, self.grid))
        if (high - low) % grid == 0:
            return self._high
        last = low + (high - low) // grid * grid
        return int(last) if self.is_whole else float(last)

    def has(self, value: Value) -> bool:
        """Return whether `value` is a value of the variable."""
        if self.choices is not None:
            return any(type(value) is type(choice) and value == choice for choice in self.choices)
        # a bool would count as 0 or 1
        if isinstance(value, bool | str) or not self._low <= value <= self.last:
            return False
        if self.is_whole:
            return isinstance(value, int) and (value - self._low) % (self.grid or 1) == 0
        # 0: without a grid, every number of the range is a value
        steps = 0 if self.grid is None else (value - self._low) / self.grid
        return abs(steps - round(steps)) < _OFF_GRID

    def described(self) -> str:
        """Return the values in words."""
        if self.choices is not None:
            return ", ".join(map(str, self.choices))
        step = f" in steps of {self.grid}" if self.grid not in (None, 1) else ""
        return f"{self.low} .. {self.high}{step}"

    def _on_grid(self, value: float) -> float:
        """Return the value of the range that is nearest to a number between `low` and `high`."""
        if self.grid is None:
            return value
        # 0.0 + 3 * 0.1 is above 0.3 in doubles
        return min(self._low + round((value - self._low) / self.grid) * self.grid, self.last)

    def listed(self, most: int) -> list[Value]:
        """Return all values in their order; none if there are more than `most`, or no end of them.

        Examples:
            >>> Variable(name="scale", low=0.0, high=0.3, step=0.1, start=0.0).listed(10)
            [0.0, 0.1, 0.2, 0.3]
            >>> [len(Variable(name="bits", low=1, high=4, start=1).listed(most)) for most in (3, 4)]
            [0, 4]
        """
        if self.choices is not None:
            return list(self.choices) if len(self.choices) <= most else []
        if self.grid is None or (steps := round((self.last - self._low) / self.grid)) >= most:
            return []
        values = [
            self._on_grid(self._low + step * self.grid) for step in range(steps + 1)
        ]  # the sums that Optuna makes
        return [round(value) for value in values] if self.is_whole else [*values]

    def probed(self) -> Value:
        """Return the value of the trial of a warm start in which all other variables are at `start`."""
        if self.probe is not None:
            return self.probe
        if self.choices is not None:
            # cyclic: after the last comes the first
            return self.choices[(self.choices.index(self.start) + 1) % len(self.choices)]
        assert not isinstance(self.start, str)
        return self._low if self.start - self._low >= self._high - self.start else self.last

    def between(self, share: float) -> Value:
        """Return the value at a share of the way from `start` to the probed value.

        Examples:
            >>> width = Variable(name="width", low=4, high=16, start=16)
            >>> [width.between(share) for share in (0.0, 0.25, 0.5, 1.0)]
            [16, 13, 10, 4]
            >>> Variable(name="mode", choices=["floor", "stochastic"], start="floor").between(0.5)
            'floor'
        """
        start, end = self.start, self.probed()
        if share in (0.0, 1.0) or isinstance(start, str | bool) or isinstance(end, str | bool) or self.choices:
            return end if share == 1.0 else start
        # geometric on a logarithmic range, whose numbers are above 0
        exact = start * (end / start) ** share if self.log else start + share * (end - start)
        value = self._on_grid(exact)
        return round(value) if self.is_whole else value


class Assignment(Table):
    """A value for keys of device or recipe.

    Attributes:
        keys: key paths such as `device.precision.weight.format`, `device.precision.layers[conv*].error.rounding`, or
            `recipe.training.optimiser.learning_rate`.
        value: text with variables in braces, such as `ap_fixed<{width},{integer}>`. A text that is only a variable
            becomes that variable's value: `{rate}` is a number.
    """

    keys: Items[str] = Field(min_length=1)
    value: Value

    def filled(self, values: Values) -> Value:
        """Return the value with its variables replaced."""
        if not isinstance(self.value, str):
            return self.value
        # kept in its type: as part of a text, a number becomes its digits
        alone = IN_BRACES.fullmatch(self.value)
        return values[alone[1]] if alone else IN_BRACES.sub(lambda name: str(values[name[1]]), self.value)


class Objective(Table):
    """A metric to minimise or maximise; a trial has its mean over the seeds.

    Attributes:
        metric: name of the metric; docs/search.md lists them.
        direction: `minimize` or `maximize`.
    """

    metric: str
    direction: Literal["minimize", "maximize"]


class Constraint(Table):
    """A bound that a feasible trial must hold.

    Attributes:
        metric: name of the metric, as of an objective.
        at_least: lower bound.
        at_most: upper bound.
        confidence: probability with which the mean over all possible seeds must hold the bound, by a one-sided interval
            of Student's t; None requires it of the mean over the trial's own seeds.
        prune_margin: a trial whose mean misses the bound by more than this after any seed is not trained further; None
            leaves the decision to the interval of the mean, from two seeds on.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    confidence: float | None = Field(default=None, gt=0.5, lt=1.0)
    prune_margin: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ConfigError(
                f"a constraint on `{self.metric}` must have either `at_least` or `at_most`, got "
                f"{'neither' if self.at_least is None else 'both'}; write two constraints for two bounds"
            )
        return self

    @property
    def name(self) -> str:
        """Name of the constraint in the storage of trials, which is a study of Optuna."""
        return f"{self.metric} at least" if self.at_least is not None else f"{self.metric} at most"


class Search(Table):
    """Variables, objectives and constraints of a search.

    Attributes:
        name: name of the search: its folder, unless another is given.
        description: one sentence.
        model: name or path of the recipe.
        device: name or path of the device that `[[set]]` changes.
        baseline: name or path of the device that trials are compared with.
        seeds: seeds of the runs of each trial.
        trials: number of trials.
        warm_start: whether the first trials are these: the device as it is; each variable's probe alone; and four in
            which the variables whose probe held all constraints are at it, and the others 25 to 100 % of the way there.
        settings: key path -> value, laid over the recipe, also for the baseline.
        sampler: proposes trials after the warm start.
        variable: what the search varies.
        set: the keys that variables change.
        objective: metrics to minimise or maximise.
        constraint: bounds of feasible trials.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = ""
    model: str
    device: str
    baseline: str = "float32"
    seeds: Items[Annotated[int, Field(ge=0, le=2**63 - 1)]] = Field(min_length=1)
    trials: int = Field(ge=1)
    warm_start: bool = True
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    sampler: Sampler = Sampler()
    variable: Items[Variable] = Field(min_length=1)
    set: Items[Assignment] = Field(min_length=1)
    objective: Items[Objective] = Field(min_length=1)
    constraint: Items[Constraint] = ()

    @model_validator(mode="after")
    def _sound(self) -> Self:
        names = [variable.name for variable in self.variable]
        # a constraint's name has its side: one metric may have a bound at either end
        for what, listed in (
            ("variable", names),
            ("objective", [objective.metric for objective in self.objective]),
            ("constraint", [constraint.name for constraint in self.constraint]),
            ("seed", list(map(str, self.seeds))),
        ):
            for name in listed:
                if listed.count(name) > 1:
                    raise ConfigError(f"every {what} must be listed once, got {name!r} twice; remove one of them")
        texts = [assignment.value for assignment in self.set if isinstance(assignment.value, str)]
        used: list[str] = [name for text in texts for name in IN_BRACES.findall(text)]
        for name in used:
            if name not in names:
                raise ConfigError(
                    f"a name in braces must be that of a [[variable]], got {{{name}}}{nearest_name(name, names)}"
                )
        for name in names:
            if name not in used:
                raise ConfigError(
                    f"every variable must be used by a [[set]], got {name!r}, which none has in braces; use it, or "
                    "remove it"
                )
        for constraint in self.constraint:
            if constraint.confidence is not None and len(self.seeds) < 2:
                raise ConfigError(
                    f"a constraint with `confidence` must have at least two `seeds` to see how they spread, got one "
                    f"({constraint.name}); add seeds, or remove `confidence`"
                )
        return self

    def starts(self) -> Values:
        """Return the value that each variable has in the device as it is."""
        return {variable.name: variable.start for variable in self.variable}


def load_search(path: Path) -> Search:
    """Return the search that a TOML file describes.

    Raises:
        ConfigError: the file breaks a rule; keys of devices and recipes, and metrics, are checked by `Space` and
            `Metrics`.
    """
    return checked(Search, load_toml(path), file=str(path))
