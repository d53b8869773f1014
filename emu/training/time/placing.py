"""Which controller takes which layer of a run, by simulated time.

A run places its layers once, before its first step, by demands that follow from shapes alone. Demands that depend on
values (operations that run again, points that are decided) move no layer. So `emu simulate` places layers in the same
way.
"""

from __future__ import annotations

from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, controllers_of, fabric_of, teams_of
from emu.errors import ConfigError
from emu.hardware import Machine, machine_of
from emu.training.time.work import Work, longest, work_of
from emu.training.workbench import Workbench


def controllers_of_run(bench: Workbench, table: ClusterTable) -> dict[str, int]:
    """Return the controller of each layer of a run if its layers are placed by time; else nothing.

    Args:
        bench: workbench of the run.
        table: its `[cluster]`.

    Raises:
        ConfigError: layers are placed by time, and the device has no clock, or no crossbar with enough ports.
    """
    if table.exchange != "controllers" or table.placement != "least_busy":
        return {}
    machine = machine_of(bench.device)
    if machine is None:
        raise _without_time(bench.device.name, "a device must have a clock, got none; choose one like k20x-8x")
    try:
        fabric = fabric_of(table, bench.device)
    except ConfigError as error:
        raise _without_time(bench.device.name, str(error)) from None
    examples = max(bench.batches.planned // teams_of(table).replicas, 1)  # that it is a multiple is checked later
    work = work_of(bench.recipe, bench.device, examples, table, bench.batches.data, bench.network)
    return controllers_of(table, machine, fabric, share_of(work, machine))


def share_of(work: Work, machine: Machine) -> Share:
    """Return the work of one model: the longest demands of all models, because each waits for the slowest.

    The host's part and clipping are left out.
    """
    updated = work.arrived + work.update
    return Share(longest(work.passes, machine), updated, work.shapes, work.parameter_bytes, rows=work.rows)


def _without_time(device: str, reason: str) -> ConfigError:
    return ConfigError(
        "`placement` of [cluster] must be 'fixed' or 'least_loaded' if no time is simulated, got 'least_busy' on "
        f"{device!r}: {reason}"
    )
