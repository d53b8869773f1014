"""Run a command line: an error becomes one line and exit code 2, a warning one line."""

from __future__ import annotations

import errno
import sys
import warnings
from typing import NoReturn

import typer

from emu.errors import EmuError, EmuWarning

#: Exit code of bad input, as `typer` uses it for bad usage.
BAD_INPUT = 2
#: A message is cut to about this many characters: it may quote input, which may be of any length.
MOST_CHARACTERS = 800
#: Errors of the system for a path alone. Python raises them where it is only asked whether a file exists.
_REFUSED_PATHS = (errno.ENAMETOOLONG, errno.EACCES)


def run(app: typer.Typer, name: str) -> None:
    """Run a command line.

    An error that emu raises on purpose, a path that the system refuses to look at, and a lack of memory are printed as
    one line; the process then ends with exit code 2. In a job of several ranks an unexpected error ends the other
    ranks, too.

    Args:
        app: the commands.
        name: name of the command for the help.
    """
    warnings.showwarning = _show_warning
    try:
        app(prog_name=name)
    except EmuError as error:
        _refuse(str(error))
    # NumPy's message names the size and shape; Python's own is empty.
    except MemoryError as error:
        _refuse(f"the arrays must fit the memory, got {error or 'more than it holds'}; choose smaller sizes")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSED_PATHS:
            path = str(error.filename)
            _refuse(f"a path must be one that the system opens, got {error.strerror!r} for {path!r}; check the path")
        # Not 0 but None means a single process: rank 0 of several must end the others, too.
        if _rank() is not None:
            from emu.cluster.mpi import failed

            failed(error)  # else the other ranks would wait for this one
        raise


def _rank() -> int | None:
    """Return the number of this process among several that a launcher has started; None if there is only one."""
    from emu.cluster.launcher import started

    rank, ranks = started()
    return rank if ranks > 1 else None


def _refuse(message: str) -> NoReturn:
    """Print a message as one line, without its middle if it is very long; end with exit code 2."""
    line = " ".join(message.split())
    if len(line) > MOST_CHARACTERS:
        # what must be and what was given stand at the start of a message, what to do at its end
        line = f"{line[: MOST_CHARACTERS // 2]} ... {line[-MOST_CHARACTERS // 4 :]}"
    if (rank := _rank()) is not None:
        from emu.cluster.mpi import end_job

        end_job(f"emu: rank {rank}: {line}", BAD_INPUT)
    print("emu:", line, file=sys.stderr)
    sys.exit(BAD_INPUT)


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    """Print emu's own warning as one line, and any other as Python does; of several ranks, rank 0 alone prints it."""
    if _rank():  # neither rank 0 nor None, the only process
        return
    if issubclass(category, EmuWarning):
        print("emu: warning:", " ".join(str(message).split()), file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))
