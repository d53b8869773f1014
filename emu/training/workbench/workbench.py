"""The workbench of a run: everything that is made from recipe and device before the first step.

recipe ──► batches, network, optimiser ──┐
device ──► policy: formats ──────────────┴──► model, update, runners
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.backends.registry import load
from emu.hardware import Device
from emu.nn import Network
from emu.precision import Policy
from emu.precision.functions import require_functions
from emu.training.data.batches import Batches
from emu.training.recipe import Recipe
from emu.training.workbench.build import build_network, build_optimiser, require_rows
from emu.training.workbench.model import Model
from emu.training.workbench.ranks import Ranks
from emu.training.workbench.runners import Runners
from emu.training.workbench.update import Update


@dataclass(frozen=True, eq=False)
class Workbench:
    """Everything that the steps of a run use.

    Attributes:
        recipe: network, data, training.
        device: the machine, the recipe's `[precision]` laid over its own.
        network: the network, if it was given from Python; None if it is the recipe's.
        ranks: the processes that train together.
        batches: examples, sizes of mini-batches, and how many nodes share them.
        policy: formats of every tensor.
        model: layers and parameters.
        update: applies gradients, after all systems have changed them.
        runners: run operations, with counters and profile.
    """

    recipe: Recipe
    device: Device
    network: Network | None
    ranks: Ranks
    batches: Batches
    policy: Policy
    model: Model
    update: Update
    runners: Runners

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        device: Device,
        backend: str = "auto",
        network: Network | None = None,
        ranks: Ranks | None = None,
    ) -> Workbench:
        """Return the workbench of a run before its first step.

        Args:
            recipe: network, data, training.
            device: the machine, the recipe's `[precision]` laid over its own.
            backend: backend that computes.
            network: a network from Python that replaces the recipe's.
            ranks: the processes that train together; None for this process alone.

        Raises:
            ConfigError: data cannot be used, or network, optimiser and formats do not go together.
            BackendUnavailable: the backend cannot compute here.
        """
        # "auto" is replaced by what it stands for here, which run.json then names
        settings, name = recipe.training, load(backend).name
        batches, policy = Batches.of(recipe), Policy(device.precision)
        optimiser = build_optimiser(settings.optimiser)
        update = Update.of(recipe, optimiser)
        built = network or build_network(recipe.network)
        built.require_own_names()
        # sparse input: only the first layer may read it, and not every optimiser goes with it
        require_rows(built, optimiser)
        # formats may change at some steps: a function that could not be computed at one of them is refused now
        for formats in policy.every():
            require_functions(built, formats)
        model = Model.initial(built, policy, optimiser, settings.seed, name)
        runners = Runners(model, settings.seed, name)
        return cls(recipe, device, network, ranks or Ranks(), batches, policy, model, update, runners)
