"""Choose an engine by its name."""

from __future__ import annotations

from emu.errors import ConfigError
from emu.formats.integers import as_integer
from emu.jobs.engine import DASK, LOCAL, Engine, processors


def open_engine(on: str = LOCAL, workers: int | None = None) -> Engine:
    """Return an engine.

    Args:
        on: "local" for processes of this machine, "dask:ADDRESS" for the scheduler of a Dask cluster, e.g.
            "dask:tcp://10.0.0.1:8786", "dask" for a Dask cluster of processes of this machine.
        workers: processes of this machine; None for one per processor. A cluster elsewhere has its own number.

    Raises:
        ConfigError: no engine has this name, `workers` is given for a cluster elsewhere, a package is not installed, or
            the scheduler does not answer.
    """
    kind, _, address = on.partition(":")
    if workers is not None:
        workers = as_integer("workers", workers, error=ConfigError)
        if workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {workers}; leave it out to use every processor")
    if kind == LOCAL and not address:
        # an engine's packages are loaded only if it is chosen
        from emu.jobs.local import LocalEngine

        count = workers or processors()
        # processors are divided among processes, rounded down, so kernels do not compete for them
        return LocalEngine(count, threads=max(processors() // count, 1))
    # "dask:" without an address is refused below
    if kind == DASK and bool(address) == (":" in on):
        from emu.jobs.dask import DaskEngine

        if workers is not None and address:
            raise ConfigError(
                f"--workers must be left out with --on {on}, got {workers}; a cluster has its own workers"
            )
        return DaskEngine(address or None, workers)
    raise ConfigError(f"--on must be {LOCAL}, {DASK}, or {DASK}:ADDRESS such as dask:tcp://10.0.0.1:8786, got {on!r}")
