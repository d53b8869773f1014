"""A unit's definition in another language, for simulators and firmware that do not run Python.

    emu export c add --formats fp16,fp16 --out-format fp16 --name add_fp16 --out unit

A language is a package of its own here, and a line of `LANGUAGES`. Its function takes the description of golden vectors
(`emu.testing.vectors`), so whatever has vectors can be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from emu._files import replace_file
from emu.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from emu.testing.vectors import Description

__all__ = ["LANGUAGES", "Language", "export"]


def _c(description: Description, name: str) -> dict[str, str]:
    from emu.export.c import files_of

    return files_of(description, name)


class Language(NamedTuple):
    """A language.

    Attributes:
        sentence: what is written, for the help of its command.
        write: returns texts by file name, of a description and the name of the unit.
    """

    sentence: str
    write: Callable[[Description, str], dict[str, str]]


#: Languages, and commands of `emu export`, by name.
LANGUAGES: Mapping[str, Language] = {
    "c": Language("Write a unit as C99, a file and a header, integers alone: for DPI-C, Verilator, firmware.", _c)
}


def export(description: Description, folder: str | Path, *, name: str, language: str = "c") -> list[Path]:
    """Write a unit into a folder; return the files.

    Args:
        description: operation, formats, output stage and unit; `count` and `seed` are of no use here.
        folder: made if it does not exist; files of the same names are replaced.
        name: of the function, and of the files.
        language: a key of `LANGUAGES`.

    Raises:
        ConfigError: no such language, a name that the language cannot have, or a folder that cannot be written.
        FormatError: formats that the unit cannot have.

    Examples:
        >>> from tempfile import mkdtemp
        >>> from emu.testing.vectors import Description
        >>> unit = Description(operation="quantize", formats=("fp32",), out_format="fp16")
        >>> [path.name for path in export(unit, mkdtemp(), name="to_half")]
        ['to_half.c', 'to_half.h']
    """
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ConfigError(f"`language` must be one of {known}, got {language!r}{nearest_name(language, LANGUAGES)}")
    # Asked here, before a language: no language has a function of several results.
    description.require_single_results(
        "a unit in another language", "export the conversion of an element, quantize to its own format"
    )
    texts, place = LANGUAGES[language].write(description, name), Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file_name, text in texts.items():
            content = text.encode()
            # `content=content` binds the value of this iteration; the closure alone would see that of the last one.
            replace_file(place / file_name, lambda file, content=content: file.write(content))
    except OSError as error:
        raise ConfigError(
            f"the folder of a unit must be writable, got {error.strerror!r} for {place}; choose another with --out"
        ) from None
    return [place / file_name for file_name in texts]
