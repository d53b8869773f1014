"""Evaluation: a model's accuracy on a device, without training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import nn
from emu._drawn import Drawn
from emu._files import UNREADABLE_ARRAYS
from emu.backends.registry import load
from emu.errors import ConfigError
from emu.hardware import Device, DynamicPoint, load_device
from emu.optim import GradientDescent
from emu.precision import CounterTable, Policy
from emu.precision.delayed_scales import DelayedScales
from emu.precision.dynamic_point import Points
from emu.precision.functions import require_functions
from emu.training.data import Dataset, load_dataset
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.folders.tensor_files import read_safetensors
from emu.training.recipe import Recipe, load_recipe
from emu.training.systems.joint_points import JointPoints
from emu.training.workbench.build import build_network, require_network
from emu.training.workbench.model import MOMENTS, Model, written
from emu.training.workbench.ranks import Ranks

Array = NDArray[Any]
PREFIX = "parameters/"


@dataclass(frozen=True)
class Evaluation(Drawn):
    """The result of an evaluation.

    Attributes:
        test_loss: mean loss of the test images.
        test_accuracy: share that is classified right.
        images: number of test images; for text, of predicted bytes.
        weights_sha256: hash of the weights in the device's master format.
        counters: registers and flags by layer and role.
    """

    test_loss: float
    test_accuracy: float
    images: int
    weights_sha256: str
    counters: CounterTable


def evaluate(
    weights: str | Path,
    recipe: str | Path | Recipe | None = None,
    device: str | Path | Device | None = None,
    *,
    backend: str = "auto",
    network: nn.Network | None = None,
) -> Evaluation:
    """Return the test accuracy of weights on a device.

    Args:
        weights: a run folder, or a `.safetensors` or `.npz` file with arrays named `layer.weight` and `layer.bias`.
        recipe: network and data: a name, a path, or what `emu.model` returns; a run folder brings its own.
        device: device to run on: a name, a path, or what `emu.device` returns; a run folder brings its own.
        backend: backend that computes.
        network: network that replaces the recipe's; a run whose network was given from Python needs it again.

    Raises:
        ConfigError: weights, recipe or device are missing or do not fit together.
    """
    given = None if recipe is None else load_recipe(recipe), None if device is None else load_device(device)
    trained = Trained.read(weights, *given, network=network)
    return trained.on(trained.device, backend=backend)


@dataclass(frozen=True)
class Trained:
    """Weights with their network and test data: what is evaluated on one device or several.

    Attributes:
        path: run folder, or file of the weights.
        recipe: network and data.
        device: the device, with the recipe's tables laid over it.
        arrays: parameters and moments by name, as the file has them.
        data: the test data.
        network: layers and loss.
        last: training step whose formats are used.
    """

    path: Path
    recipe: Recipe
    device: Device
    arrays: dict[str, Array]
    data: Dataset
    network: nn.Network
    last: int

    @classmethod
    def read(
        cls, weights: str | Path, recipe: Recipe | None, device: Device | None, *, network: nn.Network | None = None
    ) -> Trained:
        """Read weights and test data; arguments as of `evaluate`.

        Raises:
            ConfigError: weights, recipe or device are missing or do not fit together.
        """
        path = Path(weights)
        recipe, device = _setup(path, recipe, device)
        arrays = read_weights(path)
        data = load_dataset(recipe.data, recipe.network.input, recipe.network.classes)
        if (path / RUN).is_file() and network is None:
            require_network(RunFolder(path).read_json().get("network"), network, path)
        network = network or build_network(recipe.network)
        return cls(path, recipe, device, arrays, data, network, _last_step(path, recipe))

    def on(self, device: Device, *, backend: str = "auto", answers: list[Array] | None = None) -> Evaluation:
        """Return the evaluation on a device: `self.device`, or one that differs from it in formats alone.

        Args:
            device: the device, complete: no table of the recipe is laid over it.
            backend: backend that computes.
            answers: receives an array for each batch: the class that each output names, -1 for one with NaN.

        Raises:
            ConfigError: the network's functions cannot be computed in its formats, or weights do not fit.
        """
        # not the device of `self`: a device that differs from it in formats may be evaluated with the same weights
        policy = Policy(device.precision)
        require_functions(self.network, policy.at(self.last))
        model = self._model(policy, backend)
        if device.has_open_points:
            # of `self.device`: a run's points fit only the device that it was trained on
            model.points = _points(self.path, self.device, policy)
        if device.has_delayed_scales:
            model.scales = _scales(self.path, self.device)
        counters = CounterTable(policy.register)
        settings: dict[str, Any] = {
            "seed": self.recipe.training.seed,
            "backend": load(backend).name,
            "counters": counters,
            # formats and points are those after this step, as in an evaluation during training
            "after": self.last,
            "finds_points": model.points is not None and not model.points.of and not model.points.in_float(self.last),
            "answers": answers,
        }
        loss, accuracy = model.evaluate(self.data.test_inputs, self.data.test_labels, **settings)
        return Evaluation(loss, accuracy, self.data.test_labels.size, model.sha256(), counters)

    def _model(self, policy: Policy, backend: str) -> Model:
        """Return the network with the weights, written into the formats of a policy."""
        # no update is made: plain gradient descent keeps no arrays beside the parameters
        model = Model.initial(self.network, policy, GradientDescent(), self.recipe.training.seed, backend)
        of_run = _policy_of_run(self.path)
        for state in model.states:
            # wide formats are stored as raws: then `source` says so, and the numbers are converted from its raws
            values = _fitting(self.arrays, state.name, state.master.shape, self.path)
            source = of_run and of_run.stage(state.layer, "master").format
            state.master = written(values, state.master.format, source, backend=backend)
        # running moments of normalisation, which belong to the network like parameters
        for name, value in model.moments.items():
            moments = _fitting(self.arrays, name, value.shape, self.path)  # of functions, whose formats hold values
            model.moments[name] = written(moments, value.format, backend="reference")
        return model


def _setup(path: Path, recipe: Recipe | None, device: Device | None) -> tuple[Recipe, Device]:
    """Return recipe and device; the run folder supplies what is not given.

    The device of a run folder already has its recipe's `[precision]` laid over it, so this is done only if one of the
    two was given.
    """
    is_given = recipe is not None or device is not None
    if (path / RUN).is_file():
        own_recipe, own_device = RunFolder(path).read_setup()
        # what the caller gives wins over the run's own
        recipe, device = recipe or own_recipe, device or own_device
    if recipe is None or device is None:
        raise ConfigError(
            f"weights that are no run folder need a model and a device, got {path}; add --model and --device"
        )
    if is_given:
        device = recipe.machine(device)
    return recipe, device


def _last_step(path: Path, recipe: Recipe) -> int:
    """Return the training step whose formats are used for the weights: the run's last one, or the recipe's."""
    if (path / RUN).is_file():
        # steps count from 0, so the last of n is n - 1; a run without a step has the formats of the first
        return max(RunFolder(path).read_result().steps - 1, 0)
    return (recipe.training.steps or 1 << 62) - 1  # of a recipe in epochs: later than any change of formats


def _points(path: Path, device: Device, policy: Policy) -> Points:
    """Return the binary points with which a run ended; for other weights, points that each operation chooses."""
    recipe, of_run = RunFolder(path).read_setup() if (path / RUN).is_file() else (None, None)
    if recipe is not None and of_run == device:
        points, cluster = Points(device.dynamic_point or DynamicPoint(), policy), recipe.cluster
        if cluster is not None and cluster.points == "own":
            # of the first node, as in the run's own evaluations; nothing is counted, so no register has a size
            points.agreement = JointPoints(Ranks(), own=True, register_bytes=0)
        points.load(RunFolder(path).load_checkpoint()[1]["dynamic_point"])
        return points
    # pre-training without an end: each operation chooses its own point, and runs again with it
    table = (device.dynamic_point or DynamicPoint()).model_copy(
        update={"schedule": "always_redo", "pretraining_steps": 1 << 62}
    )
    return Points(table, policy)


def _scales(path: Path, device: Device) -> DelayedScales | None:
    """Return the delayed scales with which a run ended; None for other weights, whose operands have current scales."""
    if not (path / RUN).is_file() or RunFolder(path).read_setup()[1] != device:
        return None
    scales = DelayedScales()
    scales.load(RunFolder(path).load_checkpoint()[1]["delayed_scaling"])
    return scales


def _policy_of_run(path: Path) -> Policy | None:
    """Return the policy in whose formats a run's checkpoint stores its arrays; None for any other file."""
    if not (path / RUN).is_file():
        return None
    return Policy(RunFolder(path).read_setup()[1].precision)


def read_weights(path: Path) -> dict[str, Array]:
    """Return arrays by parameter name from a run folder, a `.safetensors` or an `.npz` file.

    Raises:
        ConfigError: the file is missing, damaged or of another kind.
    """
    if path.is_dir():
        arrays, _ = RunFolder(path).load_checkpoint()
        # the optimiser's slots have other prefixes, and are left out
        kinds = (PREFIX, MOMENTS)
        return {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(kinds)}
    if not path.is_file():
        raise ConfigError(
            f"weights must be a run folder, a .safetensors or an .npz file, got {str(path)!r}, which does not exist; "
            "check the path"
        )
    if path.suffix == ".npz":
        try:
            with path.open("rb") as file:
                # an .npy under the name .npz is loaded as one array
                content: Any = np.load(file, allow_pickle=False)
                if isinstance(content, np.ndarray):
                    raise ValueError("a single array")
                return {name: content[name] for name in content.files}
        except UNREADABLE_ARRAYS as error:
            raise ConfigError(
                f"weights in {path} must be an .npz file of plain arrays, got {error}; write it with numpy.savez"
            ) from None
    if path.suffix == ".safetensors":
        arrays = read_safetensors(path)
        return {name.removeprefix(PREFIX).removeprefix(MOMENTS): array for name, array in arrays.items()}
    raise ConfigError(f"weights must be a run folder, a .safetensors or an .npz file, got {str(path)!r}")


def _fitting(arrays: dict[str, Array], name: str, shape: tuple[int, ...], path: Path) -> Array:
    if name not in arrays:
        raise ConfigError(
            f"weights must have an array {name!r}, got {', '.join(sorted(arrays)) or 'none'} in {path}; check the model"
        )
    array = arrays[name]
    if array.shape != shape or array.dtype.kind not in "fiu":
        # `read_safetensors` names a dtype that NumPy lacks as the only field of the array's dtype
        dtype = array.dtype.names[0] if array.dtype.names else array.dtype
        raise ConfigError(
            f"array {name!r} must be real numbers of shape {shape}, got {dtype} of shape {array.shape} "
            f"in {path}; check the model"
        )
    if not np.isfinite(array).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ConfigError(
            f"array {name!r} must be finite, got {array[index]} at index {index} in {path}; train again, or clean it"
        )
    # float64 holds every float of up to 64 bits; integers stay, because raws may exceed 2**53
    return array if array.dtype.kind in "iu" else array.astype(np.float64)
