"""The training loop: recipe and device in, a run folder out.

    for every step:  batch -> working copies -> forward -> backward -> update      all through the datapath
    every log point: metrics, registers and flags of the interval, checkpoint
    now and then:    test accuracy, signal-to-noise against float32

A step depends on (recipe, device, seed, step number) and the arrays of the checkpoint alone, so a run killed anywhere
and resumed ends in the same bits.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from emu.backends.registry import load
from emu.hardware import Device
from emu.nn import Network
from emu.precision import CounterTable, Policy, Profile
from emu.training.batches import Batches
from emu.training.build import (
    build_network,
    build_optimiser,
    require_functions,
    require_rows,
)
from emu.training.cost import cost_of
from emu.training.data_tables import SOURCE_BYTES, Inputs
from emu.training.history import History, rates
from emu.training.identity import Identity
from emu.training.log_point import log_point
from emu.training.model import Model, Pass, StepRunner
from emu.training.ranks import Ranks
from emu.training.recipe import Recipe
from emu.training.run import Progress, Run
from emu.training.run_folder import RunFolder
from emu.training.schedule import learning_rate
from emu.training.summary import described
from emu.training.systems import SYSTEMS, Attempt, Examples, PartAttempt, Row, Surroundings, System
from emu.training.update import Update

Array = NDArray[Any]
#: Log points of a run whose recipe does not say, and the fewest steps between two.
LOG_POINTS, LOG_STEPS = 40, 5
#: Seconds after which a checkpoint is written even between log points.
CHECKPOINT_SECONDS = 20.0
#: How long rates of the interval stand in the progress bar before they are asked for again.
SHOWN_SECONDS = 0.25


class Trainer:
    """One run: everything it holds between two steps.

    Attributes:
        recipe: network, data, training.
        device: the machine, the recipe's `[precision]` laid over its own.
        given: the network, where it is not the recipe's.
        ranks: the processes that train together.
    """

    def __init__(
        self, recipe: Recipe, device: Device, backend: str, network: Network | None = None, ranks: Ranks | None = None
    ) -> None:
        self.recipe, self.device, self.given, self.ranks = recipe, device, network, ranks or Ranks()
        self.backend = load(backend).name
        self.batches, settings = Batches.of(recipe), recipe.training
        self.data = self.batches.data
        self.policy = Policy(self.device.precision)
        optimiser = build_optimiser(settings.optimiser)
        self.update = Update.of(recipe, optimiser)
        network = network or build_network(recipe.network)
        network.require_own_names()
        require_rows(network, optimiser)
        for policy in self.policy.every():
            require_functions(network, policy)
        self.model = Model.initial(network, self.policy, optimiser, settings.seed, self.backend)
        self.batches_per_epoch = self.batches.per_epoch
        self.log_every = settings.log_every or max(LOG_STEPS, self.steps // LOG_POINTS)
        self.checkpoint_every = settings.checkpoint_every or self.log_every
        self.interval = CounterTable(self.policy.register)
        self.total = CounterTable(self.policy.register)
        self.profile = Profile()
        self.step, self.seconds, self.is_over = 0, 0.0, False
        self.runners: list[StepRunner] = []
        self.systems: list[System] = []
        self._begin_systems()
        self.runner, self.updating = self.runner_of_passes(), self.runner_of_updates()
        self.history = History()
        self.losses: list[float] = []
        self.correct: list[int] = []
        self.started = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def steps(self) -> int:
        """How many there are; of a run given in epochs, they depend on the sizes of mini-batches."""
        settings = self.recipe.training
        return settings.steps or self.batches.steps(settings.epochs or 1)

    def _begin_systems(self) -> None:
        numbers = self.data.train_inputs.size * self.recipe.training.batch // self.batches.examples
        found = Surroundings(
            self.recipe,
            self.device,
            self.policy,
            self.model,
            self.update,
            self.interval,
            self.profile,
            self.backend,
            batch_elements=numbers,
            batch_bytes=numbers * SOURCE_BYTES[self.recipe.data.kind],
            flush=self.flush,
            phase=self.phase,
            runner_of_passes=self.runner_of_passes,
            runner_of_updates=self.runner_of_updates,
            about=self.about,
            batches=self.batches,
            steps_left=lambda: self.steps - self.step,
            trial=self.trial,
            step_times=lambda: next((found for system in self.systems if (found := system.step_times())), None),
            ranks=self.ranks,
        )
        for system in SYSTEMS:
            self.systems.append(system(found))

    def runner_of_passes(self) -> StepRunner:
        """Return one more runner of passes, at the step in progress."""
        return self._runner(next((system.counters for system in self.systems if system.counters), self.interval))

    def runner_of_updates(self) -> StepRunner:
        """Return one more runner of what stands whether a pass does or not."""
        return self._runner(self.interval)

    def _runner(self, counters: CounterTable) -> StepRunner:
        options: dict[str, Any] = {"seed": self.recipe.training.seed, "backend": self.backend, "profile": self.profile}
        self.runners.append(self.model.runner(self.policy, counters=counters, **options))
        return self._at_step(self.runners[-1])

    def _at_step(self, runner: StepRunner) -> StepRunner:
        runner.step, runner.policy = self.step, self.policy.at(self.step)
        return runner

    # ---- one step ----

    def batch(self, step: int) -> Examples:
        """Return inputs and labels of a step."""
        return self.batches.batch(step)

    def advance(self) -> tuple[float, float]:
        """Run one step; return loss and accuracy of its batch."""
        for system in self.systems:
            system.begin_step(self.step)
        return self._advance(*self.batch(self.step))

    def trial(self, batches: Sequence[Examples]) -> list[float]:
        """Run steps on these mini-batches from here on; return their losses, and leave no trace."""
        (arrays, state), history, profile = self.state(), self.history, self.profile.snapshot()
        arrays = {name: array.copy() for name, array in arrays.items()}
        text, self.history = json.dumps(state), History()
        try:
            return [self._advance(*examples)[0] for examples in batches]
        finally:
            self.load(arrays, json.loads(text))
            self.profile.put_back(profile)
            self.history = history

    def _advance(self, images: Inputs, labels: Array) -> tuple[float, float]:
        self.profile.begin_step()
        for runner in self.runners:
            self._at_step(runner)
        on = self._attempt(images, labels)
        divided = (system.divided(on, len(images), self.step) for system in self.systems)
        attempt = next((found for found in divided if found), self._whole(on))
        repeated = any(system.repeats for system in self.systems)
        for system in self.systems:
            attempt = system.around(attempt, self.step, repeated=repeated)
        result = attempt(1.0)
        for system in self.systems:
            result = system.gradients(result)
        if result.is_applied:
            rate = self.rate_of(self.step, len(images))
            self.update.apply(self.model.states, result.gradients, rate, result.scale, self.updating)
            self.model.moments |= result.moments
        self.step += 1
        for system in self.systems:
            system.end_step(self.step)
        self.add_rows(system.events() for system in self.systems)
        self.losses.append(result.loss)
        self.correct.append(result.correct)
        self.profile.end_step()
        return result.loss, result.correct / labels.size

    def _whole(self, on: PartAttempt) -> Attempt:
        """Return the pass over a whole batch."""
        return lambda scale: on(scale, slice(None), self.runner)

    def _attempt(self, images: Inputs, labels: Array) -> PartAttempt:
        """Return the pass over a part of a batch."""

        def on(scale: float, part: slice, runner: StepRunner) -> Pass:
            return self.model.run(runner, images[part], labels[part], backward=True, scale=scale)

        return on

    def flush(self) -> None:
        """Take counts that runners hold by tensor into those of the interval."""
        for runner in self.runners:
            runner.flush()

    def phase(self, step: int) -> str:
        """Return what a step is part of, as a system says, else "training"."""
        return next((phase for system in self.systems if (phase := system.phase(step))), "training")

    @property
    def scale(self) -> float:
        """What the loss of the next pass is multiplied by."""
        return math.prod(system.scale for system in self.systems)

    def add_rows(self, rows: Iterable[Iterable[Row]]) -> None:
        """Add rows that systems give to their tables."""
        for table, row in chain.from_iterable(rows):
            self.history.add(table, step=self.step, **row)

    def rate(self, step: int) -> float:
        """Return the learning rate that the schedule gives a step; of a run given in epochs, it goes by these."""
        settings, planned = self.recipe.training, self.recipe.training.steps
        done = step if planned else self.batches.progress(step)
        steps = planned or (settings.epochs or 1) * self.batches_per_epoch
        return learning_rate(settings.optimiser.learning_rate, settings.schedule, done, steps)

    def rate_of(self, step: int, examples: int) -> float:
        """Return the learning rate of a step over a number of examples."""
        rate = self.rate(step)
        for system in self.systems:
            rate = system.rate(rate, examples)
        return rate

    # ---- the run ----

    def run(self, folder: RunFolder, progress: Progress | None) -> Run:
        """Run the steps that are left, and write everything."""
        folder.write_json("run.json", described(self, "running"))
        if progress:
            progress.start(self.step, self.steps)
        before, saved_at = time.perf_counter(), time.perf_counter()
        shown, shown_at = (0.0, 0.0), -math.inf
        while not self.has_ended:
            loss, accuracy = self.advance()
            if progress:
                if before - shown_at > SHOWN_SECONDS:  # a device's counts have a way to go
                    shown, shown_at = rates(self.interval)[:2], before
                progress.update(self.step, loss, accuracy, *shown)
            now = time.perf_counter()
            self.seconds, before = self.seconds + now - before, now
            logged = self.step % self.log_every == 0 or self.has_ended
            if logged:
                self.log()
            due = logged or self.step % self.checkpoint_every == 0
            if due or self.ranks.agree(now - saved_at > CHECKPOINT_SECONDS):
                self.save(folder)
                saved_at = time.perf_counter()
        if progress:
            progress.finish()
        self.write_tables(folder)
        info = described(self, "finished")
        folder.write_json("run.json", info)
        return Run(folder.path, info)

    @property
    def has_ended(self) -> bool:
        """Whether no step is left."""
        return self.is_over or self.step >= self.steps

    def log(self) -> None:
        """Write down the interval that ends here, and begin the next one."""
        log_point(self)

    def decide(self, row: dict[str, Any]) -> bool:
        """Return whether a system ends the run at a log point."""
        found = {"seconds": self.seconds} | self.about() | row
        for system in self.systems:
            system.logged(found)
        return any(system.is_over for system in self.systems)

    def evaluate(self) -> tuple[float, float]:
        """Return loss and accuracy on the test images."""
        options: dict[str, Any] = {"seed": self.recipe.training.seed, "backend": self.backend, "after": self.step - 1}
        return self.model.evaluate(self.data.test_inputs, self.data.test_labels, **options)

    # ---- what a killed run goes on from ----

    def identity(self) -> Identity:
        """Return what the run's checkpoints belong to."""
        return Identity.of(self.recipe, self.device, self.data.sha256, self.given)

    def write_tables(self, folder: RunFolder) -> None:
        """Write what is kept of the steps so far."""
        self.history.write(folder)
        for name, text in chain.from_iterable(system.files() for system in self.systems):
            folder.write_text(name, text)

    def save(self, folder: RunFolder) -> None:
        """Write tables, then the checkpoint."""
        self.flush()
        self.write_tables(folder)
        arrays, state = self.state()
        folder.save_checkpoint(arrays, state | self.identity()._asdict() | {"profile": self.profile.rows()})

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return all that the next step depends on, and what was counted: arrays, and plain data (JSON)."""
        self.flush()
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "correct": self.correct,
            "interval": self.interval.to_dict(),
            "total": self.total.to_dict(),
            "update": self.update.to_dict(),
            "batches": self.batches.to_dict(),
            **{system.key: system.to_dict() for system in self.systems},
        }
        arrays = self.model.arrays()
        for system in self.systems:
            arrays |= {f"{system.key}/{name}": array for name, array in system.arrays().items()}
        return arrays, state

    def restore(self, folder: RunFolder) -> None:
        """Take everything from a checkpoint.

        Raises:
            ConfigError: it is damaged, or belongs to another recipe, device, data or number of nodes.
        """
        arrays, state = folder.load_checkpoint()
        self.identity().require(state, folder.path)
        self.load(arrays, state)
        self.profile.load(state.get("profile", ()))  # older checkpoints have none
        self.history = History.read(folder, self.step)

    def load(self, arrays: dict[str, Array], state: dict[str, Any]) -> None:
        """Take what `state` returned."""
        self.flush()
        self.model.load(arrays)
        self.step, self.seconds = state["step"], state["seconds"]
        self.losses, self.correct = state["losses"], state["correct"]
        self.interval.load(state["interval"])
        self.total.load(state["total"])
        self.update.load(state.get("update", {"applied": self.step, "slot_scale": 1.0}))  # older ones have neither
        self.batches.load(state.get("batches", self.batches.to_dict()))
        for system in self.systems:
            if state.get(system.key) is not None:
                system.load(state[system.key])
            own = f"{system.key}/"
            system.load_arrays({n.removeprefix(own): array for n, array in arrays.items() if n.startswith(own)})
        self.is_over = any(system.is_over for system in self.systems)

    # ---- what came out ----

    @property
    def cost(self) -> dict[str, Any] | None:
        """Energy and area of a step, as `run.json` has them; None of a network that is not the recipe's."""
        return None if self.given else self._cost

    @cached_property
    def _cost(self) -> dict[str, Any]:
        return cost_of(self.recipe, self.device, data=self.data).described()

    def about(self) -> dict[str, Any]:
        """Return the entries of `run.json` that systems have."""
        return {name: value for system in self.systems for name, value in system.about().items()}

    def registers(self) -> CounterTable:
        """Return the counters of the whole run so far."""
        merged = CounterTable(self.policy.register)
        merged.merge(self.total)
        merged.merge(self.interval)
        return merged

    def metrics(self) -> dict[str, Any]:
        """Return the newest metrics, and the counts of systems, those not in use included."""
        shares = rates(self.registers())
        names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        newest = {name: self.history.last("metrics", name) for name in names}
        if self.has_ended and newest["test_accuracy"] is None:  # the table was lost after the last step
            newest["test_loss"], newest["test_accuracy"] = self.evaluate()
        counts: dict[str, Any] = {f"{name}_rate": share for name, share in shares._asdict().items()}
        for system in self.systems:
            counts |= system.metrics()
        return newest | counts
