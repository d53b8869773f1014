"""Jobs, and the engines that run them: local processes, or a Dask cluster of any size.

    with open_engine("local", workers=2) as engine:
        engine.submit("a", pow, 2, 10)
        for job in engine.ended():
            print(job.key, job.value)

An engine calls functions that a module defines, with plain data (JSON) as arguments and result. It starts processes,
distributes jobs among them and replaces processes that die. `Runs` submits training runs, each described by a `Job`:

    with Runs(open_engine("local", workers=2)) as runs:
        runs.submit(Job.of("a", recipe, device, "out/runs/a"))
        for run in runs.ended():
            print(run.key, run.failure)

Source: docs/many-machines.md.
"""

from emu.jobs.choice import open_engine
from emu.jobs.engine import Ended, Engine
from emu.jobs.job import Job
from emu.jobs.run import run_job
from emu.jobs.runs import Runs

__all__ = ["Ended", "Engine", "Job", "Runs", "open_engine", "run_job"]
