"""What is asked: a trained network or a recipe, a device, and the formats that are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from emu.errors import ConfigError, FormatError, nearest_name
from emu.formats import DynamicFixed, parse_number
from emu.hardware import Device, PrecisionTable, load_device
from emu.hardware.precision_table import ROLES
from emu.jobs.engine import LOCAL
from emu.precision import Policy
from emu.sensitivity.change import Change, own_format
from emu.sensitivity.narrower import narrower, range_of
from emu.sensitivity.ranges import Registers, Tensor, passing_on
from emu.training import Recipe, load_recipe
from emu.training.evaluation import Trained
from emu.training.folders.run_folder import RUN, RunFolder

#: Roles that an evaluation writes, and those that a training writes besides and that are narrowed unless others are
#: asked for. Updates and master weights are narrowed only if they are asked for.
FORWARD_ROLES = ("weight", "bias", "activation")
TRAINING_ROLES = (*FORWARD_ROLES, "error", "gradient")
BITS = (8, 6, 4)
#: Loss of accuracy, as a share of 1, up to which a change counts as tolerated.
MARGIN = 0.005
DEFAULT_DEVICE = "float32"


@dataclass(frozen=True)
class SensitivityOptions:
    """What is tried, and how it is measured.

    Attributes:
        bits: widths; the format of each follows from the tensor's own.
        formats: texts of formats that are tried instead of widths.
        roles: roles that are narrowed; empty for those that are written.
        layers: globs of the layers; empty for all.
        steps: steps of a training; None evaluates a trained network.
        seeds: seeds of the training; empty for the recipe's own.
        margin: loss of accuracy that is tolerated, as a share of 1.
        backend: backend that computes.
        on: name of the engine; see `emu.jobs.open_engine`.
        workers: processes of this machine; None evaluates in this process, and trains in one per processor.
        cache: whether trained runs are taken from the cache of runs, and kept there.
        store: address of an object store to which workers bring trained runs.
    """

    bits: Sequence[int] = BITS
    formats: Sequence[str] = ()
    roles: Sequence[str] = ()
    layers: Sequence[str] = ()
    steps: int | None = None
    seeds: Sequence[int] = ()
    margin: float = MARGIN
    backend: str = "auto"
    on: str = LOCAL
    workers: int | None = None
    cache: bool = True
    store: str | None = None

    def require_sound(self) -> None:
        """Raise ConfigError if an option breaks a rule."""
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {self.workers}; leave it out")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"--train must be at least 1 step, got {self.steps}; give more")
        if not 0 <= self.margin < 1:
            raise ConfigError(f"--margin must be 0 to 100 points, got {100 * self.margin:g}; e.g. 0.5")
        if self.seeds and self.steps is None:
            raise ConfigError("--seeds must be given with --train: an evaluation has the weights of one seed; add it")
        written = FORWARD_ROLES if self.steps is None else tuple(role for role in ROLES if role != "loss")
        for role in self.roles:
            if role not in written:
                how = "an evaluation writes" if self.steps is None else "a training writes"
                hint = "; add --train STEPS" if self.steps is None and role in ROLES else nearest_name(role, written)
                raise ConfigError(f"--roles must be roles that {how}, {', '.join(written)}, got {role!r}{hint}")
        for text in self.formats:
            try:
                fmt = parse_number(text)
            except FormatError as error:
                raise ConfigError(f"--formats must be formats, got {text!r}: {error}") from None
            if isinstance(fmt, DynamicFixed):
                raise ConfigError(
                    f"--formats must have a binary point, got {text!r}; write it, as fix8f4, or use --bits"
                )


@dataclass(frozen=True, eq=False)
class Question:
    """A network on a device, complete.

    Attributes:
        name: name of the network: that of the run, of the file of weights, or of the recipe.
        recipe: the recipe, without tables that are laid over the device; of a training with its steps.
        device: the device, with the recipe's tables laid over it.
        trained: weights and test data; None if networks are trained.
        asked: the device and the recipe by the names that they were given.
    """

    name: str
    recipe: Recipe
    device: Device
    trained: Trained | None
    asked: dict[str, str] = field(default_factory=dict[str, str])

    def identity(self) -> dict[str, Any]:
        """Return what measured rows belong to, as plain data (JSON)."""
        # trained rows have a result for each seed, so a seed more is no other analysis
        seedless = self.recipe.with_settings({"training.seed": 0}) if self.trained is None else self.recipe
        recipe, device = (table.model_dump(mode="json") for table in (seedless, self.device))
        return {"recipe": recipe, "device": device}

    def first_policy(self) -> Policy:
        """Return the policy whose formats count as the device's own: of the evaluation, or of the first step."""
        # a policy may change formats with the steps
        return Policy(self.device.precision).at(0 if self.trained is None else self.trained.last)


def question_of(
    target: str, model: str | None, device: str | None, settings: Sequence[str], options: SensitivityOptions
) -> Question:
    """Return the question that a command line asks.

    Args:
        target: a run folder, a file of weights, or, if networks are trained, a recipe's name or path.
        model: recipe of a file of weights.
        device: name or path of a device; None for that of the run, or float32.
        settings: `KEY=VALUE` laid over the recipe.
        options: what is tried.

    Raises:
        ConfigError: these do not fit together, or a file breaks a rule.
    """
    options.require_sound()
    path = Path(target)
    is_run = (path / RUN).is_file()
    is_weights = path.suffix in (".npz", ".safetensors")
    if options.steps is None and not (is_run or is_weights):
        raise ConfigError(
            f"without --train, a trained network must be given, got {target!r}, which is neither the folder of a run "
            f"nor a .safetensors or .npz file; train one with `emu train {target}`, or add --train STEPS"
        )
    if options.steps is not None and is_weights:
        raise ConfigError(f"--train must be given a model or a run, got weights, {target!r}; leave --train out")
    if model is not None and not is_weights:
        raise ConfigError(f"--model must be given with a file of weights alone, got {target!r}; leave it out")
    if settings and is_run:
        raise ConfigError(f"--set must not be laid over the recipe of a run, got {settings[0]!r}; name a model instead")
    given = None if device is None else load_device(device)
    if options.steps is None:
        recipe = None if model is None else load_recipe(model, settings)
        trained = Trained.read(path, recipe, given)
        plain = _without_tables(trained.recipe)
        # a folder named `.` or `..` has its name only when it is resolved
        name = path.resolve().name if is_run else path.stem
        return Question(name, plain, trained.device, trained, _names(model, device))
    if is_run:
        recipe, own = RunFolder(path).read_setup()
        # the run's own device has the recipe's tables already
        machine = own if given is None else recipe.machine(given)
    else:
        recipe, machine = load_recipe(target, settings), given or load_device(DEFAULT_DEVICE)
        machine = recipe.machine(machine)
    recipe = _without_tables(recipe).with_settings({"training.steps": options.steps})
    return Question(recipe.name, recipe, machine, None, _names(None if is_run else target, device))


def _names(recipe: str | None, device: str | None) -> dict[str, str]:
    return {kind: name for kind, name in (("model", recipe), ("device", device)) if name is not None}


def _without_tables(recipe: Recipe) -> Recipe:
    """Return a recipe whose device already has its tables: laid over once more, they would hide changes."""
    return recipe.model_copy(update={"precision": PrecisionTable(), "dynamic_point": None})


def changes_of(
    question: Question, options: SensitivityOptions, names: Sequence[str], written: Sequence[Tensor], seen: Registers
) -> list[Change]:
    """Return the changes to measure: layer by layer in the network's order, the widest format first.

    Args:
        question: network and device.
        options: what is tried.
        names: tensors of the network in forward order.
        written: tensors into which the unchanged device writes new values.
        seen: their registers, as far as they are known.

    Raises:
        ConfigError: a glob matches no layer, no format is narrower than the device's, or two layers have one name
            in files.
    """
    policy = question.first_policy()
    roles = options.roles or (FORWARD_ROLES if options.steps is None else TRAINING_ROLES)
    for glob in options.layers:
        if not any(_is_chosen(layer, [glob]) for layer, _ in written):
            layers = ", ".join(dict.fromkeys(layer for layer, _ in written))
            raise ConfigError(f"--layers must match layers of the network, got {glob!r}; there are {layers}")
    changes: list[Change] = []
    chosen = [(layer, role) for layer, role in written if role in roles and _is_chosen(layer, options.layers)]
    for layer, role in sorted(chosen, key=lambda tensor: (names.index(tensor[0]), ROLES.index(tensor[1]))):
        own = own_format(policy, layer, role)
        passes = passing_on(layer, role, names, written)
        texts = _formats(own, options, range_of(seen.get((layer, role))), in_training=question.trained is None)
        changes += [Change(layer, role, passes, str(own), text) for text in texts]
    if not changes:
        raise ConfigError(
            "there must be a tensor whose format can be narrowed, got none: the device's formats have at most as many "
            "bits as --bits, or no layer has these roles; give fewer bits"
        )
    _require_own_keys(changes)
    return changes


def _require_own_keys(changes: Sequence[Change]) -> None:
    """Raise ConfigError if two layers have one name in files: their rows and their runs would be one, too."""
    first: dict[str, Change] = {}
    for change in changes:
        other = first.setdefault(change.key, change)
        if other != change:
            raise ConfigError(
                "layers must have different names in files, where all that is no letter, digit or point becomes one _, "
                f"got {other.layer!r} and {change.layer!r}, both in {change.key!r}; rename one, or measure one alone "
                "with --layers"
            )


def _is_chosen(layer: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(layer, glob) for glob in globs)


def _formats(own: Any, options: SensitivityOptions, measured: int | None, *, in_training: bool) -> list[str]:
    """Return the texts of the formats that are tried for a tensor, the widest first."""
    if options.formats:
        texts = [str(parse_number(text)) for text in options.formats]
        # given formats are tried even if they are wider
        return [text for text in dict.fromkeys(texts) if text != str(own)]
    widths = sorted({width for width in options.bits if width < own.width_bits}, reverse=True)
    if isinstance(own, DynamicFixed) and in_training:
        # in a training the control loop places the point; an evaluation has none, and the point is taken from the
        # registers
        return [str(replace(own, width_bits=width)) for width in widths]
    return [str(narrower(own, width, measured)) for width in widths]
