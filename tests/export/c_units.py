"""Exported units, compiled and called: a library through ctypes, or a program that aborts on undefined behaviour."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from emu.export.c import files_of
from emu.testing.vectors import Description
from emu.testing.vectors.definition import Answer, answered

Codes = np.ndarray
Unit = Callable[[Sequence[Codes], Codes | None], Answer]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZED = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")
COMPILERS = tuple(name for name in ("gcc", "clang") if shutil.which(name))
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed: gcc or clang")
#: A program that calls unit number argv[1] with the operands on its standard input.
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void loop(size_t, size_t, const uint64_t *, const uint64_t *, const uint64_t *, const uint64_t *, uint64_t *,
                  uint64_t *);
{declarations}
static loop *const UNITS[] = {{{units}}};

int main(int count, char **argument)
{{
    uint64_t sizes[5], *array[7];
    int i;
    if (count != 2 || fread(sizes, 8, 5, stdin) != 5)
        return 2;
    for (i = 0; i < 6; i++) {{
        const size_t size = i < 4 ? sizes[1 + i] : sizes[0];
        array[i] = (uint64_t *)malloc(8 * size + 8);
        if (i < 4 && fread(array[i], 8, size, stdin) != size)
            return 2;
    }}
    UNITS[atoi(argument[1])](sizes[0], sizes[1] / sizes[0], array[0], array[1], array[2], array[3], array[4], array[5]);
    for (i = 0; i < 6; i++) {{
        if (i > 3)
            fwrite(array[i], 8, sizes[0], stdout);
        free(array[i]);
    }}
    return 0;
}}
"""


def run(command: Sequence[str], folder: Path, given: bytes = b"") -> bytes:
    """Run a command; what it says is the message if it fails."""
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr.decode()}"
    return done.stdout


def loop_of(description: Description, name: str) -> str:
    """C that calls a unit once for each vector; its flags are set, whatever they were."""
    d = description
    if d.operation == "matmul":
        operands = ["a + i * depth", "b + i * depth", "depth", *(["c[i]"] if len(d.formats) > 2 else [])]
    else:
        operands = [f"{variable}[i]" for variable in "abc"[: len(d.formats)]]
    arguments = ", ".join([*operands, *(["(uint32_t)r[i]"] if d.is_stochastic else []), "&raised"])
    return (
        f'#include "{name}.h"\n'
        f"void {name}_loop(size_t n, size_t depth, const uint64_t *a, const uint64_t *b, const uint64_t *c,\n"
        "    const uint64_t *r, uint64_t *codes, uint64_t *flags);\n"
        f"void {name}_loop(size_t n, size_t depth, const uint64_t *a, const uint64_t *b, const uint64_t *c,\n"
        "    const uint64_t *r, uint64_t *codes, uint64_t *flags)\n{\n    size_t i;\n"
        "    (void)depth, (void)a, (void)b, (void)c, (void)r;\n"
        "    for (i = 0; i < n; i++) {\n        uint32_t raised = 77;\n"
        f"        codes[i] = {name}({arguments});\n        flags[i] = raised;\n    }}\n}}\n"
    )


def export_all(descriptions: Sequence[Description], folder: Path) -> list[str]:
    """Write units named unit0, unit1, ... and their loops; return the C files."""
    sources: list[str] = []
    for i, description in enumerate(descriptions):
        for name, text in files_of(description, f"unit{i}").items():
            (folder / name).write_text(text)
        sources.append(f"unit{i}.c")
    loops = [loop_of(description, f"unit{i}") for i, description in enumerate(descriptions)]
    (folder / "loops.c").write_text("\n".join(loops))
    return [*sources, "loops.c"]


def _arrays(d: Description, operands: Sequence[Codes], rbits: Codes | None) -> tuple[int, list[Codes]]:
    """Return how many vectors there are, and the arrays a, b, c, random bits; those that the unit lacks are empty."""
    none = np.empty(0, np.uint64)
    given = [*operands, *[none] * (3 - len(operands)), none if rbits is None else rbits]
    return operands[0].shape[0], [np.ascontiguousarray(x, np.uint64) for x in given]


def library(
    descriptions: Sequence[Description], folder: Path, compiler: str = "gcc", options: Sequence[str] = ("-O2",)
) -> list[Unit]:
    """Return units in a shared library, compiled with warnings as errors."""
    sources = export_all(descriptions, folder)
    run([compiler, *STRICT, *options, "-fPIC", "-shared", *sources, "-o", "units.so"], folder)
    loaded = ctypes.CDLL(str(folder / "units.so"))

    def unit(i: int) -> Unit:
        def call(operands: Sequence[Codes], rbits: Codes | None = None) -> Answer:
            count, arrays = _arrays(descriptions[i], operands, rbits)
            codes, flags = np.empty(count, np.uint64), np.empty(count, np.uint64)
            pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, codes, flags)]
            loaded[f"unit{i}_loop"](ctypes.c_size_t(count), ctypes.c_size_t(arrays[0].size // count), *pointers)
            return Answer(codes, flags)

        return call

    return [unit(i) for i in range(len(descriptions))]


def sanitized(descriptions: Sequence[Description], folder: Path, compiler: str = "gcc") -> list[Unit]:
    """Return units in a program that aborts where C's behaviour is undefined, or beyond an array."""
    sources = export_all(descriptions, folder)
    names = [f"unit{i}_loop" for i in range(len(descriptions))]
    main = MAIN.format(declarations="".join(f"loop {name};\n" for name in names), units=", ".join(names))
    (folder / "main.c").write_text(main)
    run([compiler, *STRICT, *SANITIZED, *sources, "main.c", "-o", "units"], folder)

    def unit(i: int) -> Unit:
        def call(operands: Sequence[Codes], rbits: Codes | None = None) -> Answer:
            count, arrays = _arrays(descriptions[i], operands, rbits)
            sizes = np.array([count, *(x.size for x in arrays)], np.uint64)
            given = b"".join(x.tobytes() for x in (sizes, *arrays))
            written = np.frombuffer(run([str(folder / "units"), str(i)], folder, given), np.uint64)
            return Answer(*written.reshape(2, count))

        return call

    return [unit(i) for i in range(len(descriptions))]


def assert_defined(unit: Unit, d: Description, operands: Sequence[Codes], rbits: Codes | None = None) -> None:
    """Compare codes and flags of a unit with the definition's; the first difference is shown with its operands."""
    given = unit(operands, rbits)
    expected = answered(d.model_copy(update={"count": operands[0].shape[0]}), tuple(operands), rbits)
    wrong = (given.codes != expected.results) | (given.flags != expected.flags)
    if wrong.any():
        i = int(wrong.argmax())
        words = [" ".join(f"{int(code):x}" for code in np.atleast_1d(x[i])) for x in operands]
        random = "" if rbits is None else f", random bits {int(rbits[i]):x}"
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} differ, the first at {i}, operands {' | '.join(words)}{random}: code "
            f"{int(given.codes[i]):x}, flags {int(given.flags[i]):x}; the definition's "
            f"{int(expected.results[i]):x}, {int(expected.flags[i]):x}; {d!r}"
        )
