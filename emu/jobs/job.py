"""A training run as plain data, from which any process on any machine trains the same bits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from emu import _paths
from emu._config import checked
from emu.hardware import Device
from emu.training import Recipe


@dataclass(frozen=True)
class Job:
    """A run that is to be produced in a folder.

    Attributes:
        key: name of the run.
        recipe: recipe, with its seed, as plain data (JSON).
        device: device as plain data (JSON).
        folder: where the finished run is put: the path `.../runs/KEY` of a folder that all processes see, or the
            address of a store, such as `s3://bucket/study/runs/KEY`. `attempts` and `claims` are next to `runs`.
        backend: "auto", "reference", "numba" or "cuda": the bits are the same.
        cache: folder of the cache of runs; None uses no cache.
        sources: hash of the submitter's code; a worker with other code refuses the job; "" lets
            any code run it.
    """

    key: str
    recipe: dict[str, Any]
    device: dict[str, Any]
    folder: str
    backend: str = "auto"
    cache: str | None = None
    sources: str = ""

    @classmethod
    def of(cls, key: str, recipe: Recipe, device: Device, folder: str, **options: Any) -> Self:
        """Return the job of a recipe on a device; `options` are `backend` and `cache`."""
        # through JSON, so that nothing but plain data travels
        plain_recipe, plain_device = json.loads(recipe.model_dump_json()), json.loads(device.model_dump_json())
        return cls(key, plain_recipe, plain_device, folder, sources=_paths.sources_sha256(), **options)

    def plain(self) -> dict[str, Any]:
        """Return the job as plain data (JSON); `Job(**plain)` is the job again."""
        return asdict(self)

    def setup(self) -> tuple[Recipe, Device]:
        """Return recipe and device, the recipe's `[precision]` laid over the device's.

        Raises:
            ConfigError: they break a rule.
        """
        recipe = checked(Recipe, self.recipe, file=f"the recipe of {self.key}")
        return recipe, recipe.machine(checked(Device, self.device, file=f"the device of {self.key}"))
