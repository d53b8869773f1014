"""A recipe: a network, its data and how it is trained, in one TOML file.

    [network]      input, classes, loss, [[network.layers]]; or graph, an ONNX file
    [data]         kind: images, text, frames, svmlight or ngrams, and what each needs
    [training]     steps or epochs, batch, seed, [training.optimiser], [training.schedule], [training.stop]
    [precision]    laid over the device's
    [loss_scaling] policy, and its options
    [dynamic_point] laid over the device's
    [cluster]      nodes, and how their gradients travel
    [clipping]     thresholds that gradients are clipped at, layer by layer
    [systems.KEY]  systems that this file does not know (docs/howto/system.md)

Values from the command line (`--set`) are laid over the file before it is checked, so that both obey the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import override

from emu import nn, optim
from emu._config import FILE_NAME, Items, Table, apply_settings, checked, load_toml, parse_setting
from emu._paths import content_names, find_content, shown
from emu.cluster.clipping import ClippingTable
from emu.cluster.settings import ClusterTable
from emu.errors import ConfigError, nearest_name
from emu.hardware import Device, DynamicPoint, PrecisionTable
from emu.interop.onnx.trace import Source
from emu.nn import every
from emu.nn.layer import Shape, shapes_along
from emu.precision.loss_scaling import LossScaling, NoScaling
from emu.training.data_tables import Data, Frames, Images, Ngrams, SvmLight, Text
from emu.training.layer_globs import PARAMETER_ROLES, require_parameters
from emu.training.layers import AnyLayer, build_layers, named
from emu.training.stop_tests import StopTests

__all__ = [
    "AdaGrad",
    "Adam",
    "Data",
    "Frames",
    "Images",
    "Network",
    "Ngrams",
    "Optimiser",
    "Recipe",
    "Schedule",
    "SvmLight",
    "Text",
    "Training",
    "load_recipe",
    "model_names",
]

#: Names of tensors that are no layer's result: the network's input (role activation) and the loss.
RESERVED_NAMES = ("input", "loss")


def _is_idle(value: object) -> bool:
    """Return whether a table is not in use: then `run.json` and the hash of a run do not contain it."""
    return value is None or isinstance(value, NoScaling)


def _is_empty(items: Sequence[object]) -> bool:
    return not items


def _source_of(path: str) -> Source:
    """Return an ONNX file, read once as long as it stays as it is."""
    file = Path(path)
    # part of the cache's key: a file that was edited is read again
    state = file.stat() if file.is_file() else None
    return _read_source(file, state and (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=8)
def _read_source(path: Path, state: object) -> Source:
    if path.suffix == ".tflite":
        raise ConfigError(
            f"`graph` of [network] must be an ONNX file, got {path}: networks of TFLite are integers, which are not "
            "trained; measure it with `emu evaluate`"
        )
    source = Source(path)
    if len(source.inputs) != 1:
        raise ConfigError(
            f"`graph` of [network] must have one input, got {', '.join(item.name for item in source.inputs)} in "
            f"{path}; export the network with one"
        )
    return source


class Network(Table):
    """Layers in order, or a graph.

    Attributes:
        input: shape of one input: channels, rows, columns of an image; length of a sequence of tokens; features.
        classes: number of classes, the width of the last layer.
        loss: what is minimised, a mean over the batch; `mse` and `euclidean` take one-hot targets.
        layers: layers with unique names; a layer without a name gets its type and a running number.
        graph: an ONNX file in place of layers; its weights are where training begins. It says `input` and `classes`.
        graph_sha256: hash of the file and its external data, which a run notes and then insists on.
    """

    input: Items[Annotated[int, Field(ge=1)]] = Field(min_length=1, max_length=3)
    classes: int = Field(ge=2)
    loss: Literal["softmax_cross_entropy", "mse", "euclidean"] = "softmax_cross_entropy"
    layers: Items[AnyLayer] = Field(default=(), exclude_if=_is_empty)
    graph: str | None = Field(default=None, exclude_if=_is_idle)
    graph_sha256: str | None = Field(default=None, exclude_if=_is_idle)

    @model_validator(mode="before")
    @classmethod
    def _of_graph(cls, data: Any) -> Any:
        # before the fields are checked: a graph fills in `input` and `classes`, which are required
        table = dict(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else {}
        if not isinstance(table.get("graph"), str):
            return cast(object, data)
        if table.get("layers"):
            raise ConfigError("[network] must have `graph` or `layers`, got both; remove one of them")
        source = _source_of(table["graph"])
        if table.get("graph_sha256") not in (None, source.sha256):
            raise ConfigError(
                f"`graph` of [network] must be the file that the run was begun with, got {source.path} with the hash "
                f"{source.sha256} in place of {table['graph_sha256']}; restore the file"
            )
        wired = source.wired()
        # the first axis of a graph's input is the batch
        own: dict[str, Any] = {"input": list(wired.shapes[0][1:]), "classes": wired.result[-1] if wired.result else 0}
        for key, value in own.items():
            given: Any = table.setdefault(key, value)
            if (list(cast("tuple[int, ...]", given)) if isinstance(given, tuple) else given) != value:
                raise ConfigError(
                    f"`{key}` of [network] must be {value}, which {source.path} says, got {given}; remove it"
                )
        # resolved, so that a run can be resumed from another folder; the hash refuses a changed file then
        return {**table, "graph": str(source.path.resolve()), "graph_sha256": source.sha256}

    @model_validator(mode="after")
    def _consistent(self) -> Network:
        if self.graph is not None:
            nn.Network(self.built()).require_own_names()
            return self
        if not self.layers:
            raise ConfigError(
                "[network] must have `layers`, or an ONNX file as `graph`, got neither; add [[network.layers]]"
            )
        # tables are frozen; names are filled in before anybody can see this table
        object.__setattr__(self, "layers", named(self.layers, RESERVED_NAMES))
        # (classes,), or (length, classes) for a sequence
        last, shape = self.layers[-1], self.shapes()[-1]
        if shape[-1] != self.classes or len(shape) > 2:
            raise ConfigError(
                f"the last layer must give one value per class, shape ({self.classes},), got {shape} from layer "
                f"'{last.name}'; change its size or `classes`"
            )
        nn.Network(self.built()).require_own_names()
        return self

    def built(self) -> tuple[nn.Layer, ...]:
        """Return the layers that the tables describe.

        Raises:
            ConfigError: a layer cannot take its input; names the layer and both shapes.
        """
        if self.graph is not None:
            return (_source_of(self.graph).wired(),)
        return build_layers(self.layers, self.input)

    def shapes(self) -> tuple[Shape, ...]:
        """Return the shape of one input at the network's input and after every layer, without the batch."""
        return shapes_along(self.built(), self.input)


class _OptimiserTable(Table):
    """What all optimisers have.

    Attributes:
        fused: whether simulated time counts the update of a parameter as one pass over memory; bits stay.
        moves_parts: whether a part of a parameter can be moved without the rest of it.
        decays_gradient: whether decay is added to the gradient, and so meets the loss scale.
    """

    moves_parts: ClassVar[bool] = True
    decays_gradient: ClassVar[bool] = True
    # while it is false, it is left out of run.json, and so of the hash of a run
    fused: bool = Field(default=False, exclude_if=lambda fused: not fused)

    @property
    def has_momentum(self) -> bool:
        """Whether every parameter has momentum."""
        return False

    def built(self) -> optim.Optimiser:
        """Return the optimiser."""
        raise NotImplementedError


class Sgd(_OptimiserTable):
    """Plain gradient descent: w -= learning_rate * (gradient + weight_decay * w)."""

    name: Literal["sgd"]
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    @override
    def built(self) -> optim.Optimiser:
        return optim.GradientDescent(weight_decay=self.weight_decay)


class Momentum(_OptimiserTable):
    """Gradient descent with momentum, decay added to the gradient: v = momentum * v + g; w -= learning_rate * v."""

    name: Literal["momentum"]
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)

    @property
    @override
    def has_momentum(self) -> bool:
        return self.momentum > 0

    @override
    def built(self) -> optim.Optimiser:
        return optim.GradientDescent(self.momentum, self.weight_decay)


class AdaGrad(_OptimiserTable):
    """Gradients divided by the root of the sum of their squares so far."""

    name: Literal["adagrad"]
    learning_rate: float = Field(gt=0)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    @override
    def built(self) -> optim.Optimiser:
        return optim.AdaGrad(self.eps, self.weight_decay)


class Adam(_OptimiserTable):
    """Running means of gradients over the root of those of their squares; weight decay apart from the gradient."""

    decays_gradient = False
    name: Literal["adam"]
    learning_rate: float = Field(gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    @override
    def built(self) -> optim.Optimiser:
        return optim.Adam(self.beta1, self.beta2, self.eps, self.weight_decay)


class Muon(_OptimiserTable):
    """Momentum of matrices made orthogonal by products; Adam for everything else; weight decay apart from the gradient.

    Attributes:
        learning_rate: rate of matrices.
        momentum: share of a matrix's previous direction.
        iterations: of the products.
        adam_layers: globs of layers whose matrices Adam moves, such as the first and the last.
        adam_learning_rate: rate of Adam; the schedule changes it as it changes `learning_rate`.
        beta1: of Adam.
        beta2: of Adam.
        eps: of Adam.
    """

    moves_parts = False
    decays_gradient = False
    name: Literal["muon"]
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.95, ge=0, lt=1)
    iterations: int = Field(default=5, ge=1, le=100)
    weight_decay: float = Field(default=0.0, ge=0)
    adam_layers: Items[Annotated[str, Field(min_length=1)]] = ()
    adam_learning_rate: float = Field(default=3e-4, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)

    @model_validator(mode="after")
    def _is_not_fused(self) -> Muon:
        if self.fused:
            raise ConfigError(
                "`fused` of optimiser 'muon' must be false, got true: a matrix is multiplied again and again, which is "
                "not one pass over memory; remove it"
            )
        return self

    @override
    def built(self) -> optim.Optimiser:
        # for all that is no matrix, and for matrices of `adam_layers`
        adam = optim.Adam(self.beta1, self.beta2, self.eps, self.weight_decay)
        own = (self.learning_rate, self.momentum, self.weight_decay, self.iterations)
        return optim.Muon(*own, self.adam_layers, self.adam_learning_rate, adam)


Optimiser: TypeAlias = Annotated[Sgd | Momentum | AdaGrad | Adam | Muon, Field(discriminator="name")]


class Constant(Table):
    """The learning rate stays constant.

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
        # strictly: a milestone that is listed twice would multiply twice
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"`milestones` must ascend, got {list(self.milestones)}; sort them")
        return self


class Cosine(Table):
    """The learning rate falls along half a cosine.

    Attributes:
        final_factor: share of the rate that is left at the end.
        warmup: fraction of the run over which the rate rises from 0.
    """

    name: Literal["cosine"]
    final_factor: float = Field(default=0.0, ge=0, lt=1)
    warmup: float = Field(default=0.0, ge=0, lt=1)


Schedule: TypeAlias = Annotated[Constant | Step | Cosine, Field(discriminator="name")]


class Training(Table):
    """Length, batch, seed, optimiser and schedule of the training.

    Attributes:
        steps: optimiser steps; or `epochs`, passes over the training data: exactly one of the two.
        batch: examples per step: images, sequences, frames ....
        seed: seed of weights, order of inputs, dropout and stochastic rounding, 0..2**63-1, as TOML and JSON hold them.
        log_every: steps between log points; None is a fortieth of the run, at least 5 steps.
        checkpoint_every: steps between checkpoints; None writes them at log points. After the last step, and when the
            newest is 20 s old, there is a checkpoint in any case.
        clip_norm: gradients whose norm, of all parameters together, is above it are shortened to it.
        optimiser: moves parameters.
        schedule: schedule of the learning rate, over all planned steps.
        stop: tests that end a run before its last planned step.
    """

    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    batch: int = Field(ge=1)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    log_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    clip_norm: float | None = Field(default=None, gt=0, exclude_if=_is_idle)
    optimiser: Optimiser
    schedule: Schedule = Constant()
    stop: StopTests | None = Field(default=None, exclude_if=_is_idle)

    @model_validator(mode="after")
    def _has_length(self) -> Training:
        # both or neither
        if (self.steps is None) == (self.epochs is None):
            got = f"steps = {self.steps} and epochs = {self.epochs}" if self.steps else "neither"
            raise ConfigError(f"exactly one of `steps` and `epochs` must be given, got {got}; keep one of them")
        return self


class SystemTables(Table):
    """`[systems]`: a table for each system that reads one, by its key. Systems check theirs before a run begins."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        # in place of the check of `Table`, which knows the fields only: any key may be that of a system
        for key, table in cast("Mapping[str, Any]", data).items() if isinstance(data, Mapping) else ():
            if not isinstance(table, Mapping):
                raise ConfigError(f"`systems.{key}` must be a table, got {table!r}; write [systems.{key}]")
        return cast(object, data)

    @property
    def by_key(self) -> Mapping[str, Mapping[str, Any]]:
        """Tables as TOML has them."""
        # the table has no fields of its own: pydantic keeps all keys here
        return self.model_extra or {}


class Recipe(Table):
    """A network, its data and how it is trained.

    Attributes:
        name: name for `emu train`.
        description: one sentence.
        source: origin of the network and its numbers.
        network: layers and loss.
        data: images, text, frames, or sparse examples: svmlight, ngrams.
        training: length, optimiser, schedule, seed.
        precision: laid over the device's.
        loss_scaling: factor of the loss before the backward pass, and how it changes.
        dynamic_point: laid over the device's, if that has open binary points.
        cluster: nodes that train together; None for one node alone.
        clipping: how gradients are clipped, layer by layer, before they leave a worker; None clips nothing.
        systems: tables of other systems; None if there are none.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = ""
    source: str = ""
    network: Network
    data: Data = Images()
    training: Training
    precision: PrecisionTable = PrecisionTable()
    loss_scaling: LossScaling = Field(default=NoScaling(), exclude_if=_is_idle)
    dynamic_point: DynamicPoint | None = Field(default=None, exclude_if=_is_idle)
    cluster: ClusterTable | None = Field(default=None, exclude_if=_is_idle)
    clipping: ClippingTable | None = Field(default=None, exclude_if=_is_idle)
    systems: SystemTables | None = Field(default=None, exclude_if=_is_idle)

    @model_validator(mode="after")
    def _compensated(self) -> Recipe:
        compensation = self.loss_scaling.compensation
        # S is divided out of the gradients before clipping or decay meets them
        if "gradient" in compensation:
            return self
        # decay that is added to a gradient which carries S must carry S as well
        decays = self.training.optimiser.decays_gradient and self.training.optimiser.weight_decay > 0
        # what meets gradients before the update, and so meets S as long as it is in them
        for target, used, key in (
            ("clip_threshold", self.training.clip_norm is not None, "training.clip_norm"),
            ("clip_threshold", self.clipping is not None, "clipping"),
            ("weight_decay", decays, "training.optimiser.weight_decay"),
        ):
            if used and target not in compensation:
                raise ConfigError(
                    f"`compensation` of [loss_scaling] must have {target!r} if `{key}` is set, got "
                    f"{list(compensation)}: `{key}` meets gradients that carry S; add it"
                )
        return self

    @model_validator(mode="after")
    def _has_momentum(self) -> Recipe:
        optimiser = self.training.optimiser
        if self.clipping and self.clipping.reads_momentum and not optimiser.has_momentum:
            raise ConfigError(
                "rule 'momentum' of [clipping] must be used with an optimiser that has momentum of every parameter, "
                f"got {optimiser.name!r}; choose `training.optimiser.name` 'momentum', or another rule"
            )
        return self

    @model_validator(mode="after")
    def _updates_are_whole(self) -> Recipe:
        optimiser, cluster = self.training.optimiser, self.cluster
        if optimiser.moves_parts or cluster is None or cluster.model_parallel == 1 or cluster.model_split == "layers":
            return self
        raise ConfigError(
            f"optimiser {optimiser.name!r} must have each parameter whole on one device, got `model_parallel` "
            f"{cluster.model_parallel} of [cluster], whose devices each move the stripe of a parameter that they have; "
            "set `model_split` to 'layers', or choose another optimiser"
        )

    @model_validator(mode="after")
    def _globs_match(self) -> Recipe:
        layers = self.network.built()
        # results, not layers: a layer with layers inside it writes several
        names = [*(name for layer in layers for name in layer.results()), *RESERVED_NAMES]
        # such a layer writes nothing, so no format of it is ever used
        moving = {layer.name for layer in every(layers) if layer.only_moves}
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
            for role in PARAMETER_ROLES:
                if getattr(tables, role) is not None:
                    require_parameters(tables.match, role, layers, "[[precision.layers]]")
        return self

    @model_validator(mode="after")
    def _data_fits(self) -> Recipe:
        self.data.check_network(self.network.input, self.network.classes, self.network.built())
        return self

    def machine(self, device: Device) -> Device:
        """Return a device with the recipe's tables laid over its own.

        Raises:
            ConfigError: the two cannot be combined.
        """
        origin = f"model {self.name}"
        return device.with_precision(self.precision, origin=origin).with_dynamic_point(
            self.dynamic_point, origin=origin
        )

    def decisive(self) -> dict[str, Any]:
        """Return, as plain data (JSON), what decides the bits of a run."""
        # transport and patience change no bit; a graph counts by its hash, not by its path
        return self.model_dump(mode="json", exclude={"cluster": {"transport", "timeout_s"}, "network": {"graph"}})

    def with_settings(self, settings: Mapping[str, Any], *, file: str | None = None) -> Recipe:
        """Return the recipe with the values of some key paths replaced.

        Setting `training.steps` removes `training.epochs`, and the other way round.

        Args:
            settings: key path -> value, e.g. `{"training.steps": 20}`.
            file: what messages call the recipe.

        Raises:
            ConfigError: a key or value breaks a rule.
        """
        # only what was given: a default of one optimiser or policy would be an unknown key of another
        data = self.model_dump(mode="json", exclude_unset=True)
        return _checked(data, settings, file=file or f"model {self.name}")


def model_names() -> list[str]:
    """Return the names of the shipped models, sorted."""
    return content_names("models")


def load_recipe(name_or_path: str | Path | Recipe, sets: Sequence[str] = ()) -> Recipe:
    """Return a shipped recipe by name, or the recipe that a TOML file describes; a `Recipe` is returned unchanged.

    Args:
        name_or_path: name of the recipe, path of its file, or the recipe.
        sets: settings laid over it, each `key.path=value` (see `emu._config.parse_setting`); the last one wins.

    Raises:
        ConfigError: no such recipe, or it or a setting breaks a rule.

    Examples:
        >>> load_recipe("lenet", ["training.steps=20"]).training.steps
        20
    """
    # of a key that is given twice, dict keeps the last value
    settings = dict(parse_setting(text) for text in sets)
    if isinstance(name_or_path, Recipe):
        return name_or_path.with_settings(settings) if settings else name_or_path
    path = find_content("models", name_or_path)
    return _checked(load_toml(path), settings, file=shown(path))


def _checked(data: Mapping[str, Any], settings: Mapping[str, Any], *, file: str) -> Recipe:
    merged = apply_settings(data, settings)
    training = merged.get("training")
    # exactly one of the two may be there: setting one drops the file's other
    for given, other in (("steps", "epochs"), ("epochs", "steps")):
        if isinstance(training, dict) and f"training.{given}" in settings and f"training.{other}" not in settings:
            cast("dict[str, Any]", training).pop(other, None)
    return checked(Recipe, merged, file=file, settings=settings)
