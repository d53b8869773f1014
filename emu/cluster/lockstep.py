"""Several nodes in one process that take turns from one joint decision to the next.

    node 0   ──work──► gather                  ──work──► gather
    node 1             ──work──► gather                  ──work──► gather
    node 2                       ──work──► gather                  ──work──► ...

One node works at a time, in the order of nodes, until it waits for the others. So shared data need no lock, and
every run takes the same turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Generic, TypeVar

ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class _EndedError(Exception):
    """Raised in a task because another task has raised an error."""


class Lockstep(Generic[ValueT]):
    """Runs tasks in turns, which give each other values.

    Examples:
        >>> steps = Lockstep()
        >>> steps.run([lambda: sum(steps.gather(1)), lambda: sum(steps.gather(10))])
        [11, 11]
    """

    def __init__(self, everywhere: Callable[[list[ValueT]], list[ValueT]] = list) -> None:
        """Begin without tasks.

        Args:
            everywhere: returns the values of the tasks of all processes, given those of this process.
        """
        self._everywhere = everywhere
        self._tasks = self._turn = self._done = 0
        self._values: list[ValueT] = []
        self._gathered: list[ValueT] = []
        self._failed: BaseException | None = None
        self._changed = threading.Condition()
        self._here = threading.local()

    def run(self, tasks: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """Return the results of tasks, in order.

        Raises:
            Exception: the first one that a task raises; the others end at their next `gather`.
        """
        # a failed run leaves values behind: begin anew
        self._tasks, self._turn, self._done, self._values, self._failed = len(tasks), 0, 0, [], None
        results: list[Any] = [None] * len(tasks)
        threads = [
            # each thread has a copy of the caller's context variables; daemons, so that an interrupt can end the
            # process
            threading.Thread(target=copy_context().run, args=(self._run_one, i, task, results), daemon=True)
            for i, task in enumerate(tasks)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:  # an interrupt: no task goes on after it
            self._fail(error)
            raise
        if self._failed is not None:
            raise self._failed
        return results

    def gather(self, value: ValueT) -> list[ValueT]:
        """Wait for all tasks; return the value of each, in their order.

        All tasks call this equally often, at the same points of their programs.
        """
        assert not self._done, "all tasks gather equally often"
        self._values.append(value)
        # the last task of a round closes it before it passes the turn on, so nobody reads an old list
        if len(self._values) == self._tasks:
            self._gathered, self._values = self._everywhere(self._values), []
        self._pass_on()
        self._wait()
        return self._gathered

    def _run_one(self, number: int, task: Callable[[], Any], results: list[Any]) -> None:
        self._here.number = number
        try:
            self._wait()
            results[number] = task()
            self._done += 1
            self._pass_on()
        except _EndedError:
            return
        except BaseException as error:
            self._fail(error)

    def _wait(self) -> None:
        with self._changed:
            # a failure wakes all tasks, whoever has the turn
            self._changed.wait_for(lambda: self._turn == self._here.number or self._failed is not None)
        if self._failed is not None:
            raise _EndedError

    def _pass_on(self) -> None:
        with self._changed:
            # tasks gather equally often, so they also end in turn: no turn goes to a task that has ended
            self._turn = (self._turn + 1) % self._tasks
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            # the first error stays: later ones follow from it
            self._failed = self._failed or error
            self._changed.notify_all()
