"""What an engine adds to many runs: throughput of two workers against one, and the time that each tiny run costs.

python benchmarks/many_runs.py                  throughput of short and long runs, and the cost of a tiny run
python benchmarks/many_runs.py --rounds 5 --tiny 1000

Every process computes with one thread. Studies on one worker and on two take turns. The first run of a study compiles
nothing: kernels come from the cache on disk.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

os.environ["EMU_THREADS"] = "1"

from emu.cli.study import StudyOptions, run_study
from emu.jobs import Job, open_engine
from emu.jobs.run import attempt
from emu.training.study import load_study

#: Model, settings and number of runs: about half a second each, and about ten.
SHORT = ("mlp", '"training.steps" = 100', 40)
LONG = ("lenet", '"training.steps" = 400', 8)
TINY = ("mlp", '"training.steps" = 1, "training.batch" = 8, "data.test_images" = 10', 1000)


def study_of(folder: Path, model: str, settings: str, count: int) -> Path:
    """Write a study of that many runs, and return its path."""
    path = folder / "study.toml"
    seeds = ", ".join(map(str, range(count)))
    path.write_text(
        f'name = "many"\nbaseline = "fixed16"\n[[grid]]\nmodels = ["{model}"]\ndevices = ["fixed16"]\n'
        f"seeds = [{seeds}]\n[[grid.settings]]\nset = {{ {settings} }}\n"
    )
    return path


def seconds_of(path: Path, workers: int) -> float:
    """Return how long a study takes, in a new folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()):
            began = perf_counter()
            run_study(path, Path(folder) / "out", StudyOptions(workers=workers, cache=False))
        return perf_counter() - began


def throughput(model: str, settings: str, count: int, rounds: int) -> None:
    """Print how much faster two workers are than one, studies in turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = study_of(Path(folder), model, settings, count)
        seconds_of(path, 2)
        ratios: list[float] = []
        ones: list[float] = []
        for _ in range(rounds):
            one, two = seconds_of(path, 1), seconds_of(path, 2)
            ratios.append(one / two)
            ones.append(one)
    print(
        f"{count} runs of {model}, {statistics.median(ones) / count:.2f} s each: two workers are "
        f"{statistics.median(ratios):.2f} x one ({min(ratios):.2f} .. {max(ratios):.2f})"
    )


def cost_of_a_run(model: str, settings: str, count: int) -> None:
    """Print what an engine adds to a run: the study on one worker, without the same jobs in a loop."""
    with tempfile.TemporaryDirectory() as folder:
        path = study_of(Path(folder), model, settings, count)
        cases = list(load_study(path).cases())
        runs = Path(folder) / "alone" / "runs"
        jobs = [Job.of(one.key, one.recipe, one.machine, (runs / one.key).as_posix()).plain() for one in cases]
        began = perf_counter()
        with open_engine("local", 1) as engine:  # a process of its own, as the study has
            engine.submit("all", run_all, jobs)
            while engine.running():
                for one in engine.ended():
                    assert one.failure is None, one.failure
        alone = perf_counter() - began
        spread = seconds_of(path, 1)
    print(
        f"{count} runs of {model}, {1000 * alone / count:.0f} ms each in a loop: a study takes "
        f"{1000 * spread / count:.0f} ms each, {1000 * (spread - alone) / count:.1f} ms more"
    )


def run_all(jobs: list[dict[str, object]]) -> None:
    """Do jobs in a loop."""
    for job in jobs:
        failure = attempt(job, True)["failure"]
        assert failure is None, failure


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often one and two workers take turns")
    parser.add_argument("--tiny", type=int, default=TINY[2], help="number of tiny runs")
    arguments = parser.parse_args()
    throughput(*SHORT, arguments.rounds)
    throughput(*LONG, arguments.rounds)
    cost_of_a_run(TINY[0], TINY[1], arguments.tiny)


if __name__ == "__main__":
    main()
