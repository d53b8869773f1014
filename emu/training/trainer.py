"""The training loop: recipe and device in, a run folder out.

    for every step:  batch -> working copies -> forward -> backward -> update      all through the datapath
    every log point: metrics, registers and flags of the interval, checkpoint
    now and then:    test accuracy, signal-to-noise against float32

A step depends on (recipe, device, seed, step number) and the arrays of the checkpoint alone, so a run killed anywhere
and resumed ends in the same bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.philox import random_integers
from emu.backends.registry import load
from emu.datapath import stream_of
from emu.errors import ConfigError
from emu.hardware import Device
from emu.nn import Network
from emu.precision import CounterTable, Policy, Profile
from emu.training.build import (
    build_network,
    build_optimiser,
    require_functions,
)
from emu.training.data import Dataset, load_dataset
from emu.training.data_tables import SOURCE_BYTES
from emu.training.history import History, rates
from emu.training.model import Model, Pass, StepRunner
from emu.training.probe import probe
from emu.training.recipe import Recipe
from emu.training.run import Progress, Run
from emu.training.run_folder import RunFolder
from emu.training.schedule import learning_rate
from emu.training.summary import described
from emu.training.systems import SYSTEMS, Attempt, PartAttempt, Row, Surroundings, System
from emu.training.update import Update

Array = NDArray[Any]
#: What a batch is made of, by kind of data.
UNITS = {"images": "images", "text": "sequences", "frames": "frames"}
#: Log points of a run whose recipe does not say, and the fewest steps between two.
LOG_POINTS, LOG_STEPS = 40, 5
#: Log points between two measurements of test accuracy and noise.
LOG_POINTS_PER_TEST = 4
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
    """

    def __init__(self, recipe: Recipe, device: Device, backend: str, network: Network | None = None) -> None:
        self.recipe, self.device, self.given = recipe, device, network
        self.backend = load(backend).name
        self.data: Dataset = load_dataset(recipe.data, recipe.network.input, recipe.network.classes)
        settings = recipe.training
        if settings.batch > len(self.data.train_inputs):
            there = f"{len(self.data.train_inputs)} training {UNITS[recipe.data.kind]}"
            raise ConfigError(
                f"`training.batch` must be at most the {there}, "
                f"got {settings.batch}; choose a smaller batch, or keep fewer for the test"
            )
        self.policy = Policy(self.device.precision)
        optimiser = build_optimiser(settings.optimiser)
        self.update = Update.of(recipe, optimiser)
        network = network or build_network(recipe.network)
        network.require_own_names()
        for policy in self.policy.every():
            require_functions(network, policy)
        self.model = Model.initial(network, self.policy, optimiser, settings.seed, self.backend)
        self.batches_per_epoch = len(self.data.train_inputs) // settings.batch
        self.outputs_per_step = self.data.train_labels[: settings.batch].size
        self.steps = settings.steps or (settings.epochs or 1) * self.batches_per_epoch
        self.log_every = settings.log_every or max(LOG_STEPS, self.steps // LOG_POINTS)
        self.checkpoint_every = settings.checkpoint_every or self.log_every
        self.interval = CounterTable(self.policy.register)
        self.total = CounterTable(self.policy.register)
        self.profile = Profile()
        self.step, self.seconds = 0, 0.0
        self.runners: list[StepRunner] = []
        self.systems = self._begun()
        self.runner, self.updating = self.runner_of_passes(), self.runner_of_updates()
        self.history = History()
        self.losses: list[float] = []
        self.correct: list[int] = []
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._order: tuple[int, Array] = (-1, np.empty(0, np.int64))

    def _begun(self) -> list[System]:
        """Return every system at its beginning."""
        numbers = self.data.train_inputs[: self.recipe.training.batch].size
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
        )
        return [system(found) for system in SYSTEMS]

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

    def batch(self, step: int) -> tuple[Array, Array]:
        """Return inputs and labels of a step: a seeded permutation per epoch, the remainder left out."""
        epoch, position = divmod(step, self.batches_per_epoch)
        if self._order[0] != epoch:
            n = len(self.data.train_inputs)
            keys = random_integers(
                n, 32, seed=self.recipe.training.seed, stream=stream_of("data", "order"), step=epoch, draw=0
            )
            self._order = (epoch, np.argsort(keys, kind="stable"))
        size = self.recipe.training.batch
        chosen = self._order[1][position * size : (position + 1) * size]
        return self.data.train_inputs[chosen], self.data.train_labels[chosen]

    def advance(self) -> tuple[float, float]:
        """Run one step; return loss and accuracy of its batch."""
        self.profile.begin_step()
        images, labels = self.batch(self.step)
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
            self.update.apply(self.model.states, result.gradients, self.rate(self.step), result.scale, self.updating)
            self.model.moments |= result.moments
        self.step += 1
        for system in self.systems:
            system.end_step(self.step)
        self._write(system.events() for system in self.systems)
        self.losses.append(result.loss)
        self.correct.append(result.correct)
        self.profile.end_step()
        return result.loss, result.correct / labels.size

    def _whole(self, on: PartAttempt) -> Attempt:
        """Return the pass over a whole batch."""
        return lambda scale: on(scale, slice(None), self.runner)

    def _attempt(self, images: Array, labels: Array) -> PartAttempt:
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

    def _write(self, rows: Iterable[Iterable[Row]]) -> None:
        for table, row in chain.from_iterable(rows):
            self.history.add(table, step=self.step, **row)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        settings = self.recipe.training
        return learning_rate(settings.optimiser.learning_rate, settings.schedule, step, self.steps)

    # ---- the run ----

    def run(self, folder: RunFolder, progress: Progress | None) -> Run:
        """Run the steps that are left, and write everything."""
        folder.write_json("run.json", described(self, "running"))
        if progress:
            progress.start(self.step, self.steps)
        before, saved_at = time.perf_counter(), time.perf_counter()
        shown, shown_at = (0.0, 0.0), -math.inf
        while self.step < self.steps:
            loss, accuracy = self.advance()
            if progress:
                if before - shown_at > SHOWN_SECONDS:  # a device's counts have a way to go
                    shown, shown_at = rates(self.interval), before
                progress.update(self.step, loss, accuracy, *shown)
            now = time.perf_counter()
            self.seconds, before = self.seconds + now - before, now
            logged = self.step % self.log_every == 0 or self.step == self.steps
            if logged:
                self.log()
            if logged or self.step % self.checkpoint_every == 0 or now - saved_at > CHECKPOINT_SECONDS:
                self.save(folder)
                saved_at = time.perf_counter()
        if progress:
            progress.finish()
        self.write_tables(folder)
        info = described(self, "finished")
        folder.write_json("run.json", info)
        return Run(folder.path, info)

    def log(self) -> None:
        """Write down the interval that ends here, and begin the next one."""
        self.flush()
        overflow, underflow = rates(self.interval)
        point = self.step // self.log_every
        measured = point % LOG_POINTS_PER_TEST == 0 or self.step == self.steps
        test_loss, test_accuracy = self.evaluate() if measured else (None, None)
        outputs = len(self.losses) * self.outputs_per_step
        self.history.add(
            "metrics",
            step=self.step,
            epoch=self.step / self.batches_per_epoch,
            train_loss=sum(self.losses) / len(self.losses),
            train_accuracy=sum(self.correct) / outputs,
            test_accuracy=test_accuracy,
            test_loss=test_loss,
            overflow_rate=overflow,
            underflow_rate=underflow,
            learning_rate=self.rate(self.step - 1),
        )
        self.history.add_counts(self.step, self.interval, self.policy.table.register.counter_bits)
        self.history.add_profile(self.step, self.profile)
        self._write(system.interval() for system in self.systems)
        if measured:
            images_now, labels_now = self.batch(self.step - 1)
            seed, step = self.recipe.training.seed, self.step - 1
            where: dict[str, Any] = {"seed": seed, "step": step, "backend": self.backend, "scale": self.scale}
            found = probe(self.model, images_now, labels_now, **where)
            for layer, role, ratio in found.ratios:
                self.history.add("snr", step=self.step, layer=layer, role=role, snr_db=ratio)
            for role, exponent, count in found.exponents:
                row = {"role": role, "exponent": exponent, "count": count, "scale": self.scale}
                self.history.add("exponents", step=self.step, **row)
        self.total.merge(self.interval)
        self.interval.reset()
        self.profile.reset()
        self.losses, self.correct = [], []

    def evaluate(self) -> tuple[float, float]:
        """Return loss and accuracy on the test images."""
        options: dict[str, Any] = {"seed": self.recipe.training.seed, "backend": self.backend, "after": self.step - 1}
        return self.model.evaluate(self.data.test_inputs, self.data.test_labels, **options)

    # ---- what a killed run goes on from ----

    def identity(self) -> str:
        """Return the hash of what decides the bits: recipe, device and data."""
        parts: list[Any] = [self.recipe.model_dump(mode="json"), self.device.model_dump(mode="json"), self.data.sha256]
        if self.given is not None:
            parts.append(repr(self.given))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def write_tables(self, folder: RunFolder) -> None:
        """Write what is kept of the steps so far."""
        self.history.write(folder)
        for system in self.systems:
            system.write(folder)

    def save(self, folder: RunFolder) -> None:
        """Write tables, then the checkpoint."""
        self.flush()
        self.write_tables(folder)
        state = {
            "identity": self.identity(),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "correct": self.correct,
            "interval": self.interval.to_dict(),
            "total": self.total.to_dict(),
            "profile": self.profile.rows(),
            "update": self.update.to_dict(),
            **{system.key: system.to_dict() for system in self.systems},
        }
        arrays = self.model.arrays()
        for system in self.systems:
            arrays |= {f"{system.key}/{name}": array for name, array in system.arrays().items()}
        folder.save_checkpoint(arrays, state)

    def restore(self, folder: RunFolder) -> None:
        """Take everything from a checkpoint.

        Raises:
            ConfigError: it is damaged, or belongs to another recipe, device or data.
        """
        arrays, state = folder.load_checkpoint()
        if state.get("identity") != self.identity():
            raise ConfigError(
                f"a checkpoint must belong to the run's recipe, device and data, got another one's in {folder.path}; "
                "resume the run it came from, or start a new run with --out"
            )
        self.model.load(arrays)
        self.step, self.seconds = state["step"], state["seconds"]
        self.losses, self.correct = state["losses"], state["correct"]
        self.interval.load(state["interval"])
        self.total.load(state["total"])
        self.profile.load(state.get("profile", ()))  # older checkpoints have none of these
        if "update" in state:
            self.update.load(state["update"])
        else:
            self.update.applied = self.step
        for system in self.systems:
            if state.get(system.key) is not None:
                system.load(state[system.key])
            own = f"{system.key}/"
            system.load_arrays({n.removeprefix(own): array for n, array in arrays.items() if n.startswith(own)})
        self.history = History.read(folder, self.step)

    # ---- what came out ----

    def registers(self) -> CounterTable:
        """Return the counters of the whole run so far."""
        merged = CounterTable(self.policy.register)
        merged.merge(self.total)
        merged.merge(self.interval)
        return merged

    def metrics(self) -> dict[str, Any]:
        """Return the newest metrics, and the counts of systems, those not in use included."""
        overflow, underflow = rates(self.registers())
        names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        newest = {name: self.history.last("metrics", name) for name in names}
        if self.step == self.steps and newest["test_accuracy"] is None:  # the table was lost after the last step
            newest["test_loss"], newest["test_accuracy"] = self.evaluate()
        counts: dict[str, Any] = {"overflow_rate": overflow, "underflow_rate": underflow}
        for system in self.systems:
            counts |= system.metrics()
        return newest | counts
