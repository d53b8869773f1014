"""The checkpoint of a run: everything that its next step depends on, and what was counted so far.

Arrays: master parameters, the optimiser's slots, running moments of normalisation, arrays of systems (`key/name`).
Plain data: steps done, log, update, batches, systems by key.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from emu.training.folders.history import History
from emu.training.folders.identity import Identity
from emu.training.folders.run_folder import RunFolder
from emu.training.loop.log import Log
from emu.training.loop.steps import Steps
from emu.training.systems import System
from emu.training.workbench import Workbench

Array = NDArray[Any]


class Checkpoint:
    """Takes the state of a run between two steps, and puts it back."""

    def __init__(self, bench: Workbench, steps: Steps, systems: Sequence[System], log: Log) -> None:
        """Keep references to the parts of a run that have a state.

        Args:
            bench: model, update and batches.
            steps: number of steps done.
            systems: each keeps its state under its key.
            log: counts and losses.
        """
        self._bench, self._steps, self._systems, self._log = bench, steps, systems, log

    @property
    def identity(self) -> Identity:
        """Hash of everything that decides the bits of the run; a checkpoint with another one is refused."""
        bench = self._bench
        return Identity.of(bench.recipe, bench.device, bench.batches.data.sha256, bench.network)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays by name, which training may change in place, and plain data (JSON)."""
        bench = self._bench
        # runners keep some counts by tensor: without them, the state would lack the end of the interval
        bench.runners.flush()
        state = {
            "step": self._steps.done,
            **self._log.to_dict(),
            "update": bench.update.to_dict(),
            "batches": bench.batches.to_dict(),
            # after the log: a system's key must not be the name of another entry
            **{system.key: system.to_dict() for system in self._systems},
        }
        arrays = bench.model.arrays()
        for system in self._systems:
            arrays |= {f"{system.key}/{name}": array for name, array in system.arrays().items()}
        return arrays, state

    def load(self, arrays: dict[str, Array], state: dict[str, Any]) -> None:
        """Take what `state` returned."""
        bench = self._bench
        bench.runners.flush()  # counts that runners still keep would else be added to the loaded ones later
        bench.model.load(arrays)
        self._steps.done = state["step"]
        self._log.load(state)
        # older checkpoints hold neither the update's counts nor sizes of mini-batches
        bench.update.load(state.get("update", {"applied": self._steps.done, "slot_scale": 1.0}))
        bench.batches.load(state.get("batches", bench.batches.to_dict()))
        for system in self._systems:
            # None from a system that is not in use; nothing from a checkpoint older than the system
            if state.get(system.key) is not None:
                system.load(state[system.key])
            own = f"{system.key}/"
            system.load_arrays({key.removeprefix(own): array for key, array in arrays.items() if key.startswith(own)})
        # a run that a test ended stays over when it is resumed
        self._steps.are_stopped = any(system.is_over for system in self._systems)

    @contextmanager
    def undone(self) -> Generator[None]:
        """Undo, at the end, everything that happens inside: steps, counts, rows and times."""
        log, profile = self._log, self._bench.runners.profile
        arrays, state = self.state()
        # copies, because training changes arrays in place; the text is a deep copy of plain data
        arrays, text = {name: array.copy() for name, array in arrays.items()}, json.dumps(state)
        history, times = log.history, profile.snapshot()
        # rows of undone steps go into a history that is dropped
        log.history = History()
        try:
            yield
        finally:
            self.load(arrays, json.loads(text))
            # measured seconds are no part of `state`, which decides bits
            profile.put_back(times)
            log.history = history

    # ---- in a folder ----

    def save(self, folder: RunFolder) -> None:
        """Write the tables, then the checkpoint: a resumed run cuts newer tables, but could not extend older ones."""
        self._bench.runners.flush()
        self._log.write(folder)
        arrays, state = self.state()
        profile = {"profile": self._bench.runners.profile.rows()}
        folder.save_checkpoint(arrays, state | self.identity._asdict() | profile)

    def restore(self, folder: RunFolder) -> None:
        """Take everything from the checkpoint of a folder.

        Raises:
            ConfigError: the checkpoint is damaged, or belongs to another recipe, device, data or number of nodes.
        """
        arrays, state = folder.load_checkpoint()
        # before anything is loaded: a checkpoint of another run changes nothing
        self.identity.require(state, folder.path)
        self.load(arrays, state)
        self._bench.runners.profile.load(state.get("profile", ()))  # older checkpoints have none
        self._log.history = History.read(folder, self._steps.done)
