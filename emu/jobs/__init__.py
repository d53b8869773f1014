"""Jobs, and the engines that run them: local processes, or a Dask cluster of any size.

    with open_engine("local", workers=2) as engine:
        engine.submit("a", pow, 2, 10)
        for one in engine.ended():
            print(one.key, one.value)

A job is a function that a module defines, with plain data (JSON) as arguments and result. An engine starts processes,
spreads jobs over them and replaces processes that die. What a job does is its own: `emu study` and `emu search` run
trainings.

Source: docs/many-machines.md.
"""

from emu.jobs.engine import Ended, Engine, open_engine

__all__ = ["Ended", "Engine", "open_engine"]
