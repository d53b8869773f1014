"""Start a run, or resume one that was interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

from emu._files import mark_stopped
from emu.cluster.launcher import started
from emu.cluster.sigterm import Terminated
from emu.engine.description import require_options
from emu.errors import EmuError
from emu.hardware import Device, load_device
from emu.nn import Network
from emu.training.folders.claim import training_alone
from emu.training.folders.run_folder import RUN, RunFolder, SilentFolder
from emu.training.loop.loop import Loop
from emu.training.loop.run import Progress, Run
from emu.training.loop.run_to_end import run_to_end
from emu.training.loop.summary import versions
from emu.training.recipe import Recipe, load_recipe
from emu.training.workbench import Workbench
from emu.training.workbench.build import require_network
from emu.training.workbench.ranks import Ranks

#: Writes the report of a run into its folder, which it is given.
WriteReport: TypeAlias = Callable[[Path], object]


class RunOptions(TypedDict, total=False):
    """Options of `train` and `resume`.

    Attributes:
        backend: "auto", "reference", "numba" or "cuda": the bits are the same. A new run's is "auto"; a resumed run
            keeps its own.
        network: a network from Python that is trained instead of the recipe's; input, classes, data and training stay
            the recipe's. To resume such a run, give the network again.
        progress: receives the progress of each step.
    """

    backend: str | None
    network: Network | None
    progress: Progress | None


OPTIONS = frozenset(RunOptions.__annotations__)


def train(
    recipe: str | Path | Recipe,
    device: str | Path | Device,
    *,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    write_report: WriteReport | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Train a recipe's network on a device. `emu.train` is this function with emu's own report.

    Args:
        recipe: network, data, training: a name as "lenet", the path of a `.toml` file, or what `emu.model` returns.
        device: formats and units: a name as "fixed16", a path, or what `emu.device` returns.
        out: folder of the run; must not exist or be empty.
        overrides: key path -> value, laid over the recipe, e.g. `{"training.steps": 20}`.
        write_report: writes the report of the finished run; None writes none.
        options: backend, network, progress; see `RunOptions`.

    Returns:
        The finished run.

    Raises:
        ConfigError: recipe, data or folder cannot be used; nothing is written then.
        BackendUnavailable: the backend cannot compute here.
    """
    require_options("train", options, OPTIONS)
    recipe, device = load_recipe(recipe), load_device(device)
    recipe = recipe.with_settings(overrides) if overrides else recipe
    ranks = Ranks.of(recipe.cluster)
    with ranks.ending_together():
        backend, network = options.get("backend") or "auto", options.get("network")
        loop = Loop(Workbench.of(recipe, recipe.machine(device), backend, network, ranks))
        run = begin(loop, out, options.get("progress"))
    # outside of the block, and after the channel is closed: the report concerns rank 0 alone
    return _reported(run, ranks, write_report)


def begin(loop: Loop, out: str | Path, progress: Progress | None = None) -> Run:
    """Train in a new folder, on all ranks.

    Args:
        loop: at its first step.
        out: folder of the run; must not exist or be empty.
        progress: receives the progress of every step.

    Raises:
        ConfigError: the folder cannot be used.
    """
    ranks = loop.bench.ranks
    # before a folder is made: ranks that differ leave nothing behind
    ranks.require_same(_identities(loop))
    _ = loop.log.cost  # raises if the cost table lacks an entry, before a folder is made
    # all ranks read the folder of rank 0, whatever they were given
    path = ranks.agree(str(out))
    if not ranks.is_first:
        return _run(loop, SilentFolder(path), progress)
    folder = RunFolder.create(path)
    # after the folder exists, because the claim's files lie in it; `create` does not count them
    with training_alone(folder.path):
        return _run(loop, folder, progress)


def resume(path: str | Path, *, write_report: WriteReport | None = None, **options: Unpack[RunOptions]) -> Run:
    """Continue a run that was interrupted; it ends in the same bits as one that was not.

    Args:
        path: folder of the run.
        write_report: writes the report of the finished run; None writes none.
        options: backend, network, progress; see `RunOptions`.

    Raises:
        ConfigError: the folder holds no run, its checkpoint is damaged or belongs to another recipe, or another process
            trains in it.
    """
    require_options("resume", options, OPTIONS)
    # the claim of rank 0 stands for all ranks
    if started()[0] > 0:
        return _resumed(SilentFolder(path), write_report, options)
    # checked before the claim, which would write files into a folder that is no run; opened within it, because `open`
    # removes files that another training may be writing
    folder = RunFolder.existing(path)
    with training_alone(folder.path):
        return _resumed(RunFolder.open(path), write_report, options)


def _resumed(folder: RunFolder, write_report: WriteReport | None, options: RunOptions) -> Run:
    """Continue the run of a folder that no other process trains in."""
    network = options.get("network")
    # the recipe's tables are laid over this device already
    recipe, device = folder.read_setup()
    ranks = Ranks.of(recipe.cluster)
    with ranks.ending_together():
        info = folder.read_json()
        require_network(info.get("network"), network, folder.path)
        backend = options.get("backend") or str(info.get("backend", "auto"))
        loop = Loop(Workbench.of(recipe, device, backend, network, ranks))
        run = go_on(loop, folder, options.get("progress"))
    return _reported(run, ranks, write_report)


def go_on(loop: Loop, folder: RunFolder, progress: Progress | None = None) -> Run:
    """Resume training from a run's folder, on all ranks.

    Args:
        loop: at its first step.
        folder: folder of the run.
        progress: receives the progress of every step.

    Raises:
        ConfigError: the checkpoint is damaged, or belongs to another recipe, device, data or number of nodes.
    """
    # without a checkpoint, the run was killed before its first checkpoint: it begins again at step 0
    if folder.has_checkpoint:
        loop.checkpoint.restore(folder)
    loop.log.started = str(folder.read_json().get("started") or loop.log.started)
    # after the checkpoint: what ranks have read of it is compared as well
    loop.bench.ranks.require_same(_identities(loop))
    return _run(loop, folder, progress)


def _identities(loop: Loop) -> dict[str, str]:
    """Return, by name, everything that must be the same on all ranks before the first step."""
    bench = loop.bench
    return {
        "recipe": f"{bench.recipe.name!r} ({_hash(bench.recipe.decisive())})",
        "device": f"{bench.device.name!r} ({_hash(bench.device.model_dump(mode='json'))})",
        "network": _hash(repr(bench.network)),
        "data": bench.batches.data.sha256,
        # the processor is left out: ranks may differ in it, because bits do not depend on it
        **{f"version of {name}": number for name, number in versions().items() if name != "machine"},
        "checkpoint": f"step {loop.steps.done}, weights {bench.model.sha256()}",
    }


def _hash(plain: object) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def _run(loop: Loop, folder: RunFolder, progress: Progress | None) -> Run:
    """Train to the end, and raise ConfigError if the processes do not end in the same bits."""
    ranks = loop.bench.ranks
    if ranks.is_first:
        ranks.note_run(folder.path / RUN)
    with _noting_why(folder if ranks.is_first else None):
        run = run_to_end(loop, folder, progress if ranks.is_first else None)
    # every rank has made every update, so all must end in the same bits
    ranks.require_same({"weights at the end": run.weights_sha256, "registers at the end": run.registers_sha256})
    ranks.close()
    return run


@contextmanager
def _noting_why(folder: RunFolder | None) -> Generator[None]:
    """If the block fails, record why in `run.json`."""
    try:
        yield
    # an interrupt from the keyboard and SIGTERM are to be recorded as well
    except BaseException as error:
        if folder is not None:
            mark_stopped(folder.path / RUN, _why(error))
        raise


def _why(error: BaseException) -> str:
    """Return the part of a sentence that begins with "because"."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted from the keyboard"
    if isinstance(error, Terminated):
        return "its process got SIGTERM"
    text = " ".join(str(error).split())
    return text if isinstance(error, EmuError) else f"of an error: {type(error).__name__}: {text}"


def _reported(run: Run, ranks: Ranks, write_report: WriteReport | None) -> Run:
    """Write the report of a run, on the rank that has its folder."""
    if write_report is not None and ranks.is_first:
        write_report(run.path)
    return run
