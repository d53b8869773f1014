"""Who compiles what, if several processes take the same step: see `ahead.py`.

A process that misses a kernel in the cache claims it, compiles it, saves it, and gives the claim up. A claim is a
`flock` on a file beside the kernel's: the system gives it up if its process ends in any way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is shared there, and nothing claimed
    fcntl: Any = None

#: Of the file beside a kernel's by which it is claimed.
SUFFIX = ".claim"
#: Seconds between two tries to claim what another process compiles.
TRY_S = 0.005
#: Seconds after which a process no longer waits for another, and compiles itself. Several times the longest
#: compilation: a process that was stopped while it compiled must not stop the others.
PATIENCE_S = 60.0


#: Seconds after which a part of a file is no longer written: a kernel takes milliseconds.
OLD_S = 3600.0


class PassedOverError(Exception):
    """Another process compiles this kernel, and this one need not have it."""


@dataclass
class Claims:
    """What this process has claimed.

    Attributes:
        are_shared: other processes compile the same kernels.
        passes_over: this process need not have a kernel that another compiles.
        at_miss: called when this process has claimed a kernel that is to be compiled; not within another one.
        files: the locked files of what is claimed, by the kernels' files.
    """

    are_shared: bool = False
    passes_over: bool = False
    at_miss: Callable[[], None] | None = None
    files: dict[Path, BinaryIO] = field(default_factory=dict[Path, BinaryIO])

    def claim(self, path: Path, read: Callable[[], Any]) -> Any:
        """Return the kernel that another process saves at `path`, or None: then this process is to compile it.

        Args:
            path: file of the kernel.
            read: reads it; None if it is not there.

        Raises:
            PassedOverError: another process compiles it, and this one need not have it.
        """
        if not self.are_shared or path in self.files:
            return None
        # What a claimed kernel calls is compiled within it, and waited for. No kernel calls itself, not even by way of
        # others: so processes never wait for each other in a circle.
        is_outermost = not self.files
        file = self._locked(path, may_pass=self.passes_over and is_outermost)
        if file is None:
            return None
        self.files[path] = file
        kernel = read()
        if kernel is not None:  # saved between the miss and the claim
            self.give_up(path)
        elif is_outermost and self.at_miss is not None:
            self.at_miss()
        return kernel

    def _locked(self, path: Path, *, may_pass: bool) -> BinaryIO | None:
        """Return the locked file of a claim; None if nothing can be claimed, so that each process compiles for itself.

        Raises:
            PassedOverError: it `may_pass`, and another process has the claim.
        """
        waits_until = time.monotonic() + PATIENCE_S
        try:
            file = _claim_file(path).open("wb")
        except OSError:  # the folder is gone, or the file another user's
            return None
        try:
            while not _lock(file):
                if may_pass:
                    file.close()
                    raise PassedOverError
                if time.monotonic() > waits_until:
                    # Whoever has it was stopped, or hangs: its other claims need not be waited for.
                    self.are_shared = False
                    file.close()
                    return None
                time.sleep(TRY_S)
        except OSError:  # the file system knows no locks
            file.close()
            return None
        return file

    def give_up(self, path: Path) -> None:
        """Give up the claim on a kernel, if there is one."""
        file = self.files.pop(path, None)
        if file is not None:
            # Removed while it is locked: whoever has opened it meanwhile finds the kernel saved.
            with suppress(OSError):
                _claim_file(path).unlink(missing_ok=True)
            file.close()

    def give_up_all(self) -> None:
        """Give up every claim: what was compiled is saved, or has failed, or cannot be saved."""
        for path in list(self.files):
            self.give_up(path)

    def leave_to_parent(self) -> None:
        """Forget the claims that a forked process has inherited: they stay those of the process it was forked from."""
        for file in self.files.values():
            file.close()  # the lock is on the open file, which the parent has open, too
        self.files.clear()


def remove_left_files(folder: Path) -> None:
    """Remove from a folder what killed processes leave: claims that nobody has, and parts of files, an hour old."""
    with suppress(OSError):  # the folder may be gone
        for path in folder.rglob(f"*{SUFFIX}"):
            with suppress(OSError), path.open("rb") as file:
                if _lock(file):
                    path.unlink()
        for path in folder.rglob("*.nbc.*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > OLD_S:
                    path.unlink()


def _claim_file(path: Path) -> Path:
    return path.with_suffix(SUFFIX)


def _lock(file: BinaryIO) -> bool:
    """Lock a file; return False if another process has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


#: The claims of this process.
CLAIMS = Claims()
