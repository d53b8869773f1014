"""Waveforms of FST (GTKWave, Verilator, Icarus) and of GHW (GHDL), read by the package `pywellen`.

FST is read from front to back; of GHW, all changes of the signals that are wanted are in memory at once.
"""

from __future__ import annotations

import heapq
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from emu.errors import BackendUnavailable, ConfigError
from emu.testing.vectors.dumps.dump import Dump, Reading
from emu.testing.vectors.dumps.sampling import Sampler, Variable

#: The first block of an FST file: its type, 0, and its length, 329 bytes.
BEGINNING = b"\0" + (329).to_bytes(8, "big")
#: That of a GHW file, in lower case.
BEGINNING_OF_GHW = b"ghdlwave\n"


def read_fst(path: Path, reading: Reading) -> Dump:
    """Sample a signal of an FST or GHW file at the rising edges of a clock.

    Raises:
        ConfigError: the file is damaged, or there is no such signal.
        BackendUnavailable: `pywellen` is not installed.
    """
    try:
        # only readers of these two formats need the package
        import pywellen  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError:
        raise BackendUnavailable(
            f"waveforms of FST and GHW must be read by `pywellen`, which is not installed, got {path}; "
            "pip install 'emu-numerics[waves]', or dump VCD"
        ) from None
    with path.open("rb") as file:  # the package streams no GHW
        streams = file.read(len(BEGINNING_OF_GHW)).lower() != BEGINNING_OF_GHW
    with _damage_named(path):
        waveform: Any = cast("Any", pywellen).Waveform(str(path), stream_only=streams)
        # by signal, not by name: several names may be one signal
        declared = {str(var.signal_ref): var for var in waveform.all_vars()}
        variables = [
            Variable(
                var.full_name, str(var.signal_ref), var.bitwidth or 0, (var.bitwidth or 1) - 1, 0, bool(var.is_real)
            )
            for var in waveform.all_vars()
        ]
    player = _Player(Sampler.of(path, reading, variables))
    # a signal that several names have is asked for once
    wanted = {key: declared[key] for key in player.sampler.widths}
    with _damage_named(path):
        if streams:
            waveform.stream_changes(player.take, list(wanted.values()))
        else:
            # each signal's changes ascend in time; merged, they are those of a stream
            for time, key, value in heapq.merge(*(_changes(key, var) for key, var in wanted.items()), key=_time_of):
                player.take(time, key, value)
    return player.sampler.dump()


class _Player:
    """Hands changes to a sampler, in steps of time."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._now = 0

    def take(self, time: int, signal: object, value: Any) -> None:
        """Take a change: an integer, or text if not all bits are 0 or 1."""
        # a new time ends the step before: all its changes are there
        if time != self._now:
            self.sampler.step()
            self._now = time
        key = str(signal)
        bits = value.lower() if isinstance(value, str) else f"{value:0{self.sampler.widths[key]}b}"
        self.sampler.change(key, bits)


def _changes(key: str, var: Any) -> Iterator[tuple[int, str, Any]]:
    return ((time, key, value) for time, value in var.tv)


def _time_of(change: tuple[int, str, Any]) -> int:
    return change[0]


@contextmanager
def _damage_named(path: Path) -> Generator[None]:
    """Raise a ConfigError for what the package raises (a panic is no `Exception`), and hide what it prints."""
    try:
        with _without_stderr():
            yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path} must be a waveform of FST or GHW, got {what!r}; dump it again") from None


@contextmanager
def _without_stderr() -> Generator[None]:
    try:
        # compiled code writes to descriptor 2 itself, which `sys.stderr` cannot redirect
        own = os.dup(2)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stderr.flush()
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nowhere)
