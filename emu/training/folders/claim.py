"""The claim of a process to train a run: a lock of the operating system, and a file with the holder's lease.

A process that ends, for any reason, releases its locks. A process that hangs keeps them, but its count stands still.

    a run of a study   claims/KEY.lock, claims/KEY.process    beside the folders of its runs
    every run          run.lock, run.process                  in its folder, while it is trained

On a file system without locks the holder's file alone decides.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from emu.errors import ConfigError
from emu.training.folders.lease import Holder, counting, has_ended

#: Seconds between two counts.
BEAT_S = 2.0
#: Age in seconds from which a holder's file counts as left behind by a dead process. Clocks of a folder's computer and
#: of its reader may differ by a few seconds.
LOST_S = 60.0
#: Key of the claim in a run's own folder.
_RUN_KEY = "run"
#: Names of its files.
CLAIM_FILES = frozenset({f"{_RUN_KEY}.lock", f"{_RUN_KEY}.process"})
#: Errors of file systems that have no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Claim:
    """The right to train a run in a folder that others see.

    Attributes:
        lock: path of the lock.
        holder: path of the file that names the holder.
        is_tidy: whether the lock's file is removed when the claim ends.
    """

    def __init__(self, folder: Path, key: str, *, is_tidy: bool = False) -> None:
        self.lock, self.holder, self.is_tidy = folder / f"{key}.lock", folder / f"{key}.process", is_tidy

    @classmethod
    def of_run(cls, folder: Path) -> Claim:
        """Return the claim to train in the folder of a run."""
        return cls(folder, _RUN_KEY, is_tidy=True)

    @contextmanager
    def hold(self) -> Generator[bool, None, None]:
        """Hold the claim while the block runs; yield whether it was free.

        Raises:
            OSError: the folder cannot be written.
        """
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        # an object of its own for each claim: within one process, two claims exclude each other as well
        lock = FileLock(self.lock)
        if not self._takes(lock):
            yield False
            return
        try:
            # the holder's file is written before the block begins
            with counting(self._write, BEAT_S):
                yield True
        finally:
            # while the lock is still taken: after its release, the file may be another process's
            self.holder.unlink(missing_ok=True)
            if self.is_tidy:
                with suppress(OSError):  # Windows keeps open files
                    self.lock.unlink()
            lock.release()

    def _takes(self, lock: FileLock) -> bool:
        """Take the lock; return whether it was free."""
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            # no lock decides here: two processes that ask at the same moment may both be told that it is free
            return not self.is_held()
        return True

    def is_held(self) -> bool:
        """Return whether a living process holds the claim, as far as its file says; nothing is written."""
        try:
            # by the age of the file: a reader that has just begun has no earlier count to compare with
            age_s = time.time() - self.holder.stat().st_mtime
        except OSError:
            return False
        holder = Holder.of_lines(self.read())
        # the age alone decides for a holder on another computer, whose processes cannot be seen from here
        return age_s < LOST_S and not (holder and has_ended(holder.plain()))

    def read(self) -> str:
        """Return the text of the holder's file, with its count; empty if there is none."""
        try:
            return self.holder.read_text(encoding="utf-8")
        except OSError:
            return ""

    def _write(self, count: int) -> None:
        self.holder.write_text(Holder.here(count).lines(), encoding="utf-8")


def held_in(claims: Path) -> list[str]:
    """Return the keys of the claims in a folder that living processes hold, in alphabetical order."""
    # lock files stay in `claims` for good; only a holder's file says that somebody works
    keys = sorted(path.stem for path in claims.glob("*.process"))
    return [key for key in keys if Claim(claims, key).is_held()]


@contextmanager
def training_alone(folder: Path) -> Generator[None]:
    """Hold the claim of a run's folder while the block runs.

    Raises:
        ConfigError: another process trains this run, or the folder cannot be written.
    """
    claim = Claim.of_run(folder)
    with ExitStack() as stack:
        try:
            # on a stack, because only the entry may raise this error: an OSError of the block itself passes through
            is_ours = stack.enter_context(claim.hold())
        except OSError as error:
            raise ConfigError(
                f"the folder of a run must be writable, got {error.strerror or str(error)!r} for {folder}; change its "
                "permissions, or free some space"
            ) from None
        if not is_ours:
            raise ConfigError(_refusal(folder, Holder.of_lines(claim.read())))
        yield


def _refusal(folder: Path, holder: Holder | None) -> str:
    rule = f"a run must be trained by one process at a time, got {folder}, which"
    then = f"then continue with --resume {folder}"
    if holder is None:
        return f"{rule} another process trains; wait until that has ended, {then}"
    return (
        f"{rule} process {holder.process} on {holder.computer} trains; wait until that has ended, or end it there "
        f"(kill {holder.process}), {then}"
    )
