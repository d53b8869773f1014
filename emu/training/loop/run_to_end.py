"""Take a run from its current step to its last: steps, log points, checkpoints, and `run.json`."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext

from emu.backends.registry import load
from emu.training.folders.history import rates
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.loop.loop import Loop
from emu.training.loop.run import Progress, Run
from emu.training.loop.summary import described

#: Seconds after which a checkpoint is written even if `checkpoint_every` steps are not done.
CHECKPOINT_SECONDS = 20.0
#: Seconds between two readings of the rates in the progress bar: on a GPU, reading them waits for the kernels.
SHOWN_SECONDS = 0.25


def run_to_end(loop: Loop, folder: RunFolder, progress: Progress | None = None) -> Run:
    """Take the remaining steps, write everything, and return the run.

    Args:
        loop: a run at any step.
        folder: folder of the run.
        progress: receives the progress of every step.

    Raises:
        ConfigError: the disk is full, or the folder cannot be written.
    """
    steps, log, counters = loop.steps, loop.log, loop.bench.runners.counters
    save_every = loop.bench.recipe.training.checkpoint_every or log.every
    # before the first step: watchers know the run by this file, and its time is when the process began
    folder.write_json(RUN, described(loop, "running"))
    if progress:
        progress.start(steps.done, steps.planned)
    before = saved_at = time.perf_counter()
    # the first step and the first interval compile what they use
    step_context, interval_context = _compiling_ahead(loop), _compiling_ahead(loop)
    # the first step is shown at once
    shown, shown_at = (0.0, 0.0), -math.inf
    while not steps.are_over:
        with step_context:
            loss, accuracy = loop.advance()
        step_context = nullcontext()
        if progress:
            if before - shown_at > SHOWN_SECONDS:
                shown, shown_at = rates(counters)[:2], before
            progress.update(steps.done, loss, accuracy, *shown)
        now = time.perf_counter()
        # log points and checkpoints follow `now`, so they count as time of the step after them
        log.seconds, before = log.seconds + now - before, now
        # asked before `end_interval`, which may end the run
        is_logged = steps.done % log.every == 0 or steps.are_over
        if is_logged:
            with interval_context:
                log.end_interval()
            interval_context = nullcontext()
        is_due = steps.are_over or steps.done % save_every == 0
        # rank 0 decides by its clock: saving is a joint operation, and the clocks of ranks differ
        if is_due or loop.bench.ranks.agree(now - saved_at > CHECKPOINT_SECONDS):
            loop.checkpoint.save(folder)
            saved_at = time.perf_counter()
        elif is_logged:
            # for watchers: a resumed run cuts what is newer than its checkpoint
            log.write(folder)
    if progress:
        progress.finish()
    # the last step has written its tables; a run that was resumed at its end takes no step, and writes them here
    log.write(folder)
    # after the tables: "finished" promises that they are complete
    info = described(loop, "finished")
    folder.write_json(RUN, info)
    return Run(folder.path, info)


def _compiling_ahead(loop: Loop) -> AbstractContextManager[None]:
    """Return a context in which copies of this process compile ahead; what ranks do jointly is not copied."""
    bench = loop.bench
    return load(bench.runners.backend).compiling_ahead() if not bench.ranks.several else nullcontext()
