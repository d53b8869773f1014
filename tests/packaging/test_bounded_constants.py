"""Numbers on which the bits of a fast path rest have names and bounds."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import emu
from emu.backends.bounds import bounded

ROOT = Path(emu.__file__).parent.parent
LOOPS = [p for folder in ("numba", "cuda") for p in sorted((ROOT / "emu" / "backends" / folder).rglob("*.py"))]
#: Numbers of what a word, a float or a file is: their value is a fact, no choice. Smaller ones count things.
FACTS = {
    64, 128, 255, 256, 512, 1024, 0x7FFFFFFF, 0xFFFFFFFF, 0x3FF,  # widths and masks
    127, 0xFFFF, 65536, 4294967296,  # float32, float64, halves of words
    0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85,  # Philox
    0xFFF,  # digits of an int64 that are left where 52 are taken
}  # fmt: skip
#: Calls whose numbers decide nothing.
IDLE = {"lru_cache", "bounded"}


def unnamed_numbers(source: str) -> Iterator[tuple[int, float]]:
    """Lines and values of numbers from 64 on that stand in the bodies of functions."""
    skipped: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IDLE:
            skipped.update(id(inner) for inner in ast.walk(node))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or id(node) in skipped:
                continue
            if isinstance(node.value, int | float) and abs(node.value) >= 64 and node.value not in FACTS:
                yield node.lineno, node.value


@pytest.mark.parametrize("path", LOOPS, ids=lambda p: p.relative_to(ROOT / "emu" / "backends").as_posix())
def test_no_number_of_a_loop_is_without_a_name(path: Path):
    assert not list(unnamed_numbers(path.read_text(encoding="utf-8")))


def test_the_number_that_made_five_fraction_bits_wrong_would_be_found():
    line = "def f(field, unit):\n    return min(field, 2000) + unit.tail\n"
    assert list(unnamed_numbers(line)) == [(2, 2000)]


def test_a_constant_outside_its_bounds_stops_the_import():
    with pytest.raises(AssertionError, match=r"2047 is not in 1\.\.2046: the next one is that of infinities"):
        bounded(2047, 1, 2046, "the next one is that of infinities")


@pytest.mark.parametrize(
    ("kernel", "theirs", "module", "ours"),
    [
        ("include/unit.cuh", "MOST_WORDS", "emu.backends.cuda.layout", "MOST_SUM_WORDS"),
        ("include/task.cuh", "NO_FLUSH", "emu.backends.cuda.layout", "NO_FLUSH"),
        ("include/task.cuh", "TASK_NUMBERS", "emu.backends.cuda.layout", "TASK_NUMBERS"),
        ("include/stage.cuh", "N_FLAGS", "emu.backends.interface", "N_FLAGS"),
        ("functions.cu", "SUBNORMAL_SHIFT", "emu.backends.proofs", "SUBNORMAL_SHIFT"),
        *(
            ("functions.cu", name, "emu.backends.functions.coefficients", name)
            for name in (
                "LARGEST_EXP", "LARGEST_TANH", "LARGEST_ERF", "LARGEST_GELU", "TANH_IS_X", "GELU_IS_HALF",
                "LOWEST_POWER", "TAIL_SLOPE", "ERFC_CENTRE", "PHI_CENTRE", "LN2_HIGH", "LN2_LOW",
            )
        ),
    ],
)  # fmt: skip
def test_kernels_and_python_agree_on_a_constant(kernel: str, theirs: str, module: str, ours: str):
    text = (ROOT / "kernels" / kernel).read_text(encoding="utf-8")
    found = re.search(rf"#define {theirs} (.+?)(?: *//.*)?$", text, re.MULTILINE)
    assert found
    written = found[1].strip("()").replace("(", "").replace(")", "")
    value = float.fromhex(written) if "0x" in written else eval(written, {"__builtins__": {}})
    assert value == getattr(importlib.import_module(module), ours)
