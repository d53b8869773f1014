"""Testbenches beside golden vectors: `emu vectors ... --testbench sv --handshake valid_ready --top mul`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from emu._files import replace_file
from emu.errors import ConfigError
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.handshakes import ROLES, handshake_of
from emu.testing.rtl.languages import language_of
from emu.testing.rtl.ports import Constant, End, Flags, In, Out, Port, RandomBits
from emu.testing.vectors import Description
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS

#: The file that testbenches write, which `emu check` reads if none is named.
DUMP = "dump.hex"
#: Latency that a testbench has unless it is told another one.
LATENCY = 1
#: The result among the words of `--ports`, the word for no clock, and what stands before the type of a port in VHDL.
RESULT, NO_CLOCK, TYPE = "y", "none", ":"
# a width of 0 is no port
_LITERAL = re.compile(r"0*([1-9]\d{0,4})'([hdb])([\da-f][\da-f_]*)\Z", re.IGNORECASE | re.ASCII)
_BASES = {"h": 16, "d": 10, "b": 2}


class Written(NamedTuple):
    """A testbench.

    Attributes:
        paths: its files.
        commands: that build and run it, in its folder; any one will do.
    """

    paths: list[Path]
    commands: tuple[str, ...]


def write_testbench(
    description: Description,
    folder: Path,
    language: str,
    *,
    handshake: str | None = None,
    top: str | None = None,
    ports: str | None = None,
    clock: str | None = None,
    reset: str | None = None,
    latency: int | None = None,
) -> Written:
    """Write the testbench of a unit into the folder of its vectors.

    Args:
        description: of the vectors.
        folder: in which they are.
        language: sv, vhdl, cpp or cocotb.
        handshake: name of a row of `HANDSHAKES`; None: none.
        top: module or entity; None: the operation.
        ports: `a=x,y=z`, see `ports_of`.
        clock: its name; None: clk; "none": there is no clock.
        reset: name of the reset, None without; `!name` is active low, and so is a name that ends in `_n`, `_ni`, `_b`,
            `resetn`, `rstn`, `nreset` or `nrst`.
        latency: cycles from operands to result if no signal says that it is there; a simulation may be given another.

    Raises:
        ConfigError: a word is wrong, or the folder cannot be written.
    """
    description.require_single_results(
        "a testbench",
        "read a.hex in a testbench of yours, dump elements and scales, and compare with emu check --scales",
    )
    row = language_of(language)
    bench = bench_of(
        description,
        handshake=handshake or "none",
        top=top or description.operation,
        ports=ports,
        clock=None if clock == NO_CLOCK else clock or "clk",
        reset=reset,
        latency=latency,
    )
    paths: list[Path] = []
    for name, text in row.testbench(bench, DUMP).items():
        path = folder / name
        try:
            # atomic: a testbench that is being read is the old or the new one
            replace_file(path, partial(_write, text))
        except OSError as error:
            raise ConfigError(
                f"the folder of a testbench must be writable, got {error.strerror!r} for {path}; choose "
                "another with --out"
            ) from None
        paths.append(path)
    return Written(paths, row.commands)


def _write(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


def bench_of(
    description: Description,
    *,
    handshake: str,
    top: str,
    ports: str | None,
    clock: str | None,
    reset: str | None,
    latency: int | None,
) -> Bench:
    """Return the testbench of vectors.

    Raises:
        ConfigError: a word is wrong.
    """
    # roles of the handshake are taken out first; a word NAME:TYPE is split into port and VHDL type
    words = _words(ports)
    signals = {role: words.pop(role) for role in ROLES if role in words}
    plain = {key: word.partition(TYPE)[0] for key, word in words.items()}
    # the port of a word is its name, but that of a constant is the word itself
    types = {
        key if _constant(plain[key]) else plain[key]: kind
        for key, word in words.items()
        if (kind := word.partition(TYPE)[2])
    }
    row = handshake_of(handshake).with_signals(
        {role: None if name in ("", NO_CLOCK) else name for role, name in signals.items()}
    )
    # without a clock a unit has no registers
    cycles = (0 if clock is None else LATENCY) if latency is None else latency
    return Bench(
        top,
        ports_of(description, plain),
        row,
        clock,
        reset,
        cycles,
        types={name.lower(): kind for name, kind in types.items()},
        count=description.count,
        depth=description.depth,
    )


def ports_of(description: Description, words: Mapping[str, str]) -> dict[str, Port]:
    """Return the ports that carry vectors.

    Args:
        description: of the vectors.
        words: names of ports by what they carry: a, b, c operands, y the result (these are the ports' names unless
            others are given), flags in TestFloat's order, rbits, first and last for the ends of a sum whose terms come
            one after the other; any other name is an input with a constant, such as 1'b1.

    Raises:
        ConfigError: a constant is none, or a port carries two of them.
    """
    d, left = description, dict(words)
    is_serial = "first" in left or "last" in left
    ports: dict[str, Port] = {}

    def add(name: str, port: Port) -> None:
        # a second port of a name would take the place of the first one
        if name in ports:
            raise ConfigError(f"`ports` must name another port for each word, got {name} for two of them; correct it")
        ports[name] = port

    for i, (letter, fmt) in enumerate(zip(NAMES, d.operand_formats, strict=False)):
        # without first or last all terms of a sum stand side by side in one port
        terms = d.depth if d.operation == "matmul" and i < 2 and not is_serial else 1
        add(left.pop(letter, letter), In(fmt, terms))
    if d.is_stochastic:
        add(left.pop("rbits", "rbits"), RandomBits(d.n_rbits))
    add(left.pop(RESULT, RESULT), Out(d.stage.format))
    if "flags" in left:
        add(left.pop("flags"), Flags(TESTFLOAT_FLAGS))
    if "first" in left:
        add(left.pop("first"), End("first"))
    if "last" in left:
        add(left.pop("last"), End("last"))
    # what was not taken above must be an input with a constant
    for name, text in left.items():
        constant = _constant(text)
        if constant is None:
            known = ", ".join([*NAMES[: len(d.formats)], RESULT, "flags", "first", "last", *ROLES])
            raise ConfigError(
                f"`ports` must name {known}, or give an input a constant such as {name}=1'b1, got {name}={text}; "
                "correct it"
            )
        add(name, constant)
    return ports


def _constant(text: str) -> Constant | None:
    """Return the constant that Verilog writes as 1'b1 or 8'hff; None of anything else."""
    literal = _LITERAL.match(text)
    if literal is None:
        return None
    try:
        # Verilog allows underscores behind any digit, int() only between two
        code = int(literal[3].replace("_", ""), _BASES[literal[2].lower()])
    except ValueError:
        # a digit that the base does not have
        return None
    return Constant(code, int(literal[1]))


def _words(ports: str | None) -> dict[str, str]:
    words: dict[str, str] = {}
    for part in (ports or "").split(","):
        key, equals, name = (text.strip() for text in part.partition("="))
        if part.strip() and not (equals and key):
            raise ConfigError(
                f"`ports` must be a list such as a=x,y=z, got {part.strip()!r}; write what a "
                "port carries before its name"
            )
        if part.strip():
            words[key] = name
    return words


def run_lines(written: Written, folder: Path) -> list[str]:
    """Return sentences: how to build and run a testbench."""
    first, *others = written.commands
    return [
        f"run it in {folder}: {first}",
        *(f"or: {command}" for command in others),
    ]
