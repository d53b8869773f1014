"""A recipe: a network, its data and how it is trained, in one TOML file.

    [network]      input, classes, loss, [[network.layers]]
    [data]         source, test_images, upsample, pad, scale
    [training]     steps or epochs, batch, seed, [training.optimiser], [training.schedule]
    [precision]    laid over the device's

Values from the command line (`--set`) are laid over the file before it is checked, so that both obey the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import Field, model_validator

from emu._config import FILE_NAME, Items, Table, apply_settings, checked, load_toml, parse_setting
from emu._paths import content_names, find_content, shown
from emu.errors import ConfigError, nearest_name
from emu.hardware import PrecisionTable
from emu.training.layers import Layer, Shape, named, output_shape

__all__ = ["Data", "Network", "Optimiser", "Recipe", "Schedule", "Training", "load_recipe", "model_names"]

#: Names that other tensors carry: the network's input (role activation) and the loss.
RESERVED_NAMES = ("input", "loss")


class Network(Table):
    """Layers in order.

    Attributes:
        input: shape of one image: channels, rows, columns.
        classes: number of classes, the width of the last layer.
        loss: what is minimised, a mean over the batch; `mse` takes one-hot targets.
        layers: each with a unique name; a layer without one gets its type and a running number.
    """

    input: Items[Annotated[int, Field(ge=1)]] = Field(min_length=3, max_length=3)
    classes: int = Field(ge=2)
    loss: Literal["softmax_cross_entropy", "mse"] = "softmax_cross_entropy"
    layers: Items[Layer] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Network:
        object.__setattr__(self, "layers", named(self.layers, RESERVED_NAMES))
        last, shape = self.layers[-1], self.shapes()[-1]
        if shape != (self.classes,):
            raise ConfigError(
                f"the last layer must give one value per class, shape ({self.classes},), got {shape} from layer "
                f"'{last.name}'; change its size or `classes`"
            )
        return self

    def shapes(self) -> tuple[Shape, ...]:
        """Return the shape of one image at the network's input and behind every layer, without the batch.

        Raises:
            ConfigError: a layer cannot take its input; names the layer and both shapes.
        """
        shapes: list[Shape] = [self.input]
        for layer in self.layers:
            shapes.append(output_shape(layer, shapes[-1]))
        return tuple(shapes)


class Data(Table):
    """Where images come from, and how they reach the network's input.

    Attributes:
        source: `digits` (bundled), or a path: a folder of IDX files, an `.npz`, or an `.npy` with labels beside it.
            A relative path starts at the current folder.
        test_images: images held out for testing, where the source has no test set of its own.
        upsample: each pixel is repeated this often in rows and columns; None: as often as fits the network's input.
        pad: zeros added on each side; None: as many as reach the network's input.
        scale: pixel values are divided by it; None: by 16 for `digits`, 255 for 8-bit images, 1 for others.
    """

    source: str = Field(default="digits", min_length=1)
    test_images: int = Field(default=450, ge=1)
    upsample: int | None = Field(default=None, ge=1)
    pad: int | None = Field(default=None, ge=0)
    scale: float | None = Field(default=None, gt=0)


class Sgd(Table):
    """Plain gradient descent: w -= learning_rate * (gradient + weight_decay * w)."""

    name: Literal["sgd"]
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(default=0.0, ge=0)


class Momentum(Table):
    """Gradient descent with momentum: v = momentum * v + gradient; w -= learning_rate * v."""

    name: Literal["momentum"]
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


Optimiser: TypeAlias = Annotated[Sgd | Momentum, Field(discriminator="name")]


class Constant(Table):
    """The learning rate stays.

    Attributes:
        warmup: fraction of the run over which the rate rises from 0.
    """

    name: Literal["constant"] = "constant"
    warmup: float = Field(default=0.0, ge=0, lt=1)


class Step(Table):
    """The learning rate is multiplied by `factor` at each milestone.

    Attributes:
        milestones: fractions of the run, ascending.
        factor: what the rate is multiplied by.
        warmup: fraction of the run over which the rate rises from 0.
    """

    name: Literal["step"]
    milestones: Items[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    factor: float = Field(default=0.1, gt=0, lt=1)
    warmup: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _ascending(self) -> Step:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"`milestones` must ascend, got {list(self.milestones)}; sort them")
        return self


class Cosine(Table):
    """The learning rate falls along half a cosine.

    Attributes:
        final_factor: what is left of the rate at the end.
        warmup: fraction of the run over which the rate rises from 0.
    """

    name: Literal["cosine"]
    final_factor: float = Field(default=0.0, ge=0, lt=1)
    warmup: float = Field(default=0.0, ge=0, lt=1)


Schedule: TypeAlias = Annotated[Constant | Step | Cosine, Field(discriminator="name")]


class Training(Table):
    """How long, how fast, from which seed.

    Attributes:
        steps: optimiser steps; or `epochs`, passes over the training images: exactly one of the two.
        batch: images per step.
        seed: of weights, order of images and stochastic rounding, 0..2**64-1 (TOML and JSON hold up to 2**63-1).
        log_every: steps between logged points; None leaves it to the trainer.
        checkpoint_every: steps between checkpoints; None leaves it to the trainer.
    """

    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    batch: int = Field(ge=1)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    log_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    optimiser: Optimiser
    schedule: Schedule = Constant()

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if (self.steps is None) == (self.epochs is None):
            got = f"steps = {self.steps} and epochs = {self.epochs}" if self.steps else "neither"
            raise ConfigError(f"exactly one of `steps` and `epochs` must be given, got {got}; keep one of them")
        return self


class Recipe(Table):
    """A network, its data and how it is trained.

    Attributes:
        name: what `emu train` calls it.
        description: one sentence.
        source: where network and numbers are from.
        network: layers and loss.
        data: images.
        training: length, optimiser, schedule, seed.
        precision: laid over the device's.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = ""
    source: str = ""
    network: Network
    data: Data = Data()
    training: Training
    precision: PrecisionTable = PrecisionTable()

    @model_validator(mode="after")
    def _globs_match(self) -> Recipe:
        names = [*(layer.name for layer in self.network.layers if layer.name), *RESERVED_NAMES]
        moving = {layer.name for layer in self.network.layers if layer.type == "flatten"}
        for tables in self.precision.layers:
            if not any(fnmatchcase(name, tables.match) for name in names):
                raise ConfigError(
                    f"`match` of [[precision.layers]] must match a layer of the network, got {tables.match!r}"
                    f"{nearest_name(tables.match, names)}"
                )
            if not any(fnmatchcase(name, tables.match) for name in names if name not in moving):
                raise ConfigError(
                    "`match` of [[precision.layers]] must match a layer that computes, got "
                    f"{tables.match!r}, which only moves values; remove it, or match the layer before it"
                )
        return self

    def with_settings(self, settings: Mapping[str, Any], *, file: str | None = None) -> Recipe:
        """Return the recipe with the values of some key paths replaced.

        Setting `training.steps` removes `training.epochs`, and the other way round.

        Args:
            settings: key path -> value, e.g. `{"training.steps": 20}`.
            file: what messages call the recipe.

        Raises:
            ConfigError: a key or value breaks a rule.
        """
        data = self.model_dump(mode="json", exclude_unset=True)
        return _checked(data, settings, file=file or f"model {self.name}")


def model_names() -> list[str]:
    """Return the names of the shipped models, sorted."""
    return content_names("models")


def load_recipe(name_or_path: str | Path, sets: Sequence[str] = ()) -> Recipe:
    """Return a shipped recipe by name, or the one a TOML file describes.

    Args:
        name_or_path: which.
        sets: settings laid over it, each `key.path=value` (see `emu._config.parse_setting`); the last one wins.

    Raises:
        ConfigError: no such recipe, or it or a setting breaks a rule.

    Example:
        >>> load_recipe("lenet", ["training.steps=20"]).training.steps
        20
    """
    path = find_content("models", name_or_path)
    return _checked(load_toml(path), dict(parse_setting(text) for text in sets), file=shown(path))


def _checked(data: Mapping[str, Any], settings: Mapping[str, Any], *, file: str) -> Recipe:
    merged = apply_settings(data, settings)
    training = merged.get("training")
    for given, other in (("steps", "epochs"), ("epochs", "steps")):
        if isinstance(training, dict) and f"training.{given}" in settings and f"training.{other}" not in settings:
            cast("dict[str, Any]", training).pop(other, None)
    return checked(Recipe, merged, file=file, settings=settings)
