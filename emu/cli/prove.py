"""The command `emu prove`: a unit in Verilog against the definition, for all inputs."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emu._config import checked
from emu.cli.options import ProveOptions, StageOptions, parts_of
from emu.cli.output import Output
from emu.cli.vectors import with_formats
from emu.errors import ConfigError
from emu.prove import Answer, Proof, Sources, Unit, ports_of, prove
from emu.prove.proof import LIMIT_S
from emu.testing.vectors import Description

#: Exit codes.
EXITS = {Answer.PROVED: 0, Answer.DIFFERS: 1, Answer.NOT_PROVED: 3}


def prove_unit(operation: str, files: Sequence[Path], options: dict[str, Any]) -> Output:
    """Return whether a unit is right, as text and data; the exit code is 0 if it is proved.

    Args:
        operation: what it computes.
        files: its sources, or patterns of their names, behind those of the option.
        options: of `ProveOptions`; one that is None changes nothing.
    """
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    # Options of the proof are taken out; what stays are those of the output stage, which are keys of a description.
    own = {key: given.pop(key, None) for key in ProveOptions.__annotations__ if key not in StageOptions.__annotations__}
    for key in ("formats", "out_format", "top", "ports"):
        if not own[key]:
            raise ConfigError(f"`--{key.replace('_', '-')}` must be given, got nothing; add it")
    table = with_formats({"operation": operation}, own["formats"], own["out_format"])
    description = checked(Description, {**table, **given}, file="the command line")
    sources = Sources(
        tuple(_files([*(own["sources"] or []), *files])),
        own["top"],
        _parameters(own["parameter"] or []),
        tuple(own["include"] or []),
        tuple(own["define"] or []),
    )
    unit = Unit(sources, ports_of(own["ports"]), own["latency"])
    limit_s = LIMIT_S if own["limit"] is None else own["limit"]
    outcome = prove(Proof(description, unit, bool(own["any_nan"]), limit_s))
    data = {
        "answer": outcome.answer.value,
        "inputs_bits": outcome.n_bits,
        "operands": [f"0x{code:x}" for code in outcome.operands],
        "is_smallest": outcome.is_smallest,
        "causes": outcome.causes,
        "how": outcome.how,
        "seconds": round(outcome.seconds, 3),
        "explanation": outcome.lines,
    }
    return Output([*outcome.lines, f"{outcome.seconds:.1f} s"], data, exit_code=EXITS[outcome.answer])


def _files(names: Sequence[Path]) -> list[Path]:
    """Return files; a name with a star stands for all that it matches, in order of their names."""
    files = list[Path]()
    for name in names:
        # Shells that do not expand stars, and quoted ones, leave them to us.
        matched = sorted(glob.glob(str(name))) if "*" in str(name) else [str(name)]
        if not matched:
            raise ConfigError(f"`--sources` must match files, got {str(name)!r}, which matches none; correct it")
        files += map(Path, matched)
    return files


def _parameters(settings: Sequence[str]) -> dict[str, int]:
    parameters = dict[str, int]()
    for setting in (part for text in settings for part in parts_of(text)):
        name, _, value = setting.partition("=")
        try:
            # Base 0: 16, 0x10 and 0b10000 are the same.
            parameters[name.strip()] = int(value, 0)
        except ValueError:
            raise ConfigError(f"`--parameter` must be NAME=INTEGER, got {setting!r}; write it like WIDTH=16") from None
    return parameters
