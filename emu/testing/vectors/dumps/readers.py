"""The formats of dumps, one a line, and which of them a file has.

A format is known by what stands at the beginning of the file; if that says nothing, by the end of its name; any other
file is text as `$readmemh` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emu.errors import ConfigError, nearest_name
from emu.testing.vectors.dumps import coe, fst, memory, mif, questa, table, vcd
from emu.testing.vectors.dumps.dump import Dump, Reading

#: Bytes of a file's beginning by which formats are known.
BEGINNING = 4096
#: Options of `Reading` that a kind of format has a use for.
_OF_WORDS = ("radix", "columns")
_OF_SIGNALS = ("signal", "flags_signal", "clock", "valid", "ready")


@dataclass(frozen=True)
class Reader:
    """A format of dumps.

    Attributes:
        name: what `--dump-format` calls it.
        read: reads a file.
        options: names of what it is told, of those that `Reading` has.
        endings: ends of names of such files, in lower case.
        recognises: whether a file that begins so is one; it gets the beginning in lower case.
        resembles: the same, if neither a beginning nor the end of a name says what it is.
    """

    name: str
    read: Callable[[Path, Reading], Dump]
    options: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    recognises: Callable[[bytes], bool] = lambda _: False
    resembles: Callable[[bytes], bool] = lambda _: False


_COMMENT = re.compile(rb"//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
# The first that recognises a file's beginning reads it, else the first that knows the end of its name.
READERS = (
    Reader("questa", questa.read_questa, recognises=lambda text: text.startswith(questa.FIRST_LINE.encode())),
    Reader("vcd", vcd.read_vcd, _OF_SIGNALS, (".vcd",), lambda text: b"$enddefinitions" in text or _is_vcd(text)),
    # `lower` changes the length, too: 329 is 0x149, and 0x49 is the letter I
    Reader("fst", fst.read_fst, _OF_SIGNALS, (".fst",), lambda text: text.startswith(fst.BEGINNING.lower())),
    Reader("ghw", fst.read_fst, _OF_SIGNALS, (".ghw",), lambda text: text.startswith(fst.BEGINNING_OF_GHW)),
    Reader("mif", mif.read_mif, endings=(".mif",), recognises=lambda text: b"address_radix" in text),
    Reader("coe", coe.read_coe, endings=(".coe",), recognises=lambda text: b"memory_initialization_radix" in text),
    Reader("csv", table.read_table, _OF_WORDS, (".csv", ".tsv"), resembles=lambda text: _has_separators(text)),
    # the name under which `emu vectors` writes such lines
    Reader("testfloat", memory.read_testfloat, ("columns",), ("vectors.txt",)),
    Reader("text", memory.read_memory, _OF_WORDS),
)


def _is_vcd(text: bytes) -> bool:
    return text.lstrip().startswith((b"$date", b"$version", b"$timescale", b"$comment", b"$scope", b"$var"))


def _has_separators(text: bytes) -> bool:
    """Return whether the first line that is no comment has a comma or a semicolon; text may have tabs, too."""
    # comments, which may have commas, as `memory.py` reads them; the last one may go on behind this beginning
    for line in _COMMENT.sub(b" ", text).splitlines():
        if line.strip():
            return b"," in line or b";" in line
    return False


def read_dump(path: str | Path, reading: Reading | None = None) -> Dump:
    """Read a dump of any format.

    Args:
        path: of the file.
        reading: what the file does not say by itself.

    Raises:
        ConfigError: the file is missing or damaged, its format has no use for an option, or lacks one.
        BackendUnavailable: the package that reads the format is not installed.
    """
    path, reading = Path(path), reading or Reading()
    reader = _reader_of(path, reading.dump_format)
    for option in reading.given():
        if option not in reader.options:
            flag = f"--{option.replace('_', '-')}"
            users = ", ".join(other.name for other in READERS if option in other.options)
            raise ConfigError(
                f"`{flag}` must be of a format that uses it ({users}), got it for {path}, which is read as "
                f"{reader.name}; leave it out, or say another format with --dump-format"
            )
    return reader.read(path, reading)


def _reader_of(path: Path, name: str | None) -> Reader:
    by_name = {reader.name: reader for reader in READERS}
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING).lower()
    except OSError as error:
        raise ConfigError(f"a dump must be a file, got {error.strerror!r} for {path}; check the path") from None
    if name is not None:
        if name not in by_name:
            known = ", ".join(by_name)
            raise ConfigError(f"`--dump-format` must be one of {known}, got {name!r}{nearest_name(name, by_name)}")
        return by_name[name]
    # what the file says counts more than what it is called
    for reader in READERS:
        if reader.recognises(beginning):
            return reader
    for reader in READERS:
        if path.name.lower().endswith(reader.endings):
            return reader
    return next((reader for reader in READERS if reader.resembles(beginning)), by_name["text"])
