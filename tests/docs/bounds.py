"""The page that lists every bounded constant, as the sources define them."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import emu

ROOT = Path(emu.__file__).parent.parent
PAGE = ROOT / "docs" / "design" / "bounds.md"
_STATIC = re.compile(r'static_assert\((.+), "([^"]+)"\);')
_HEAD = """---
search:
  boost: 0.1
---

# Constants with bounds

A fast path gives the reference's bits because a number fits, stays normal, or is exact. Where that rests on a
constant, the constant is defined together with the interval it must lie in, and the interval is checked whenever the
module is imported or the kernel is compiled. Here is what that looks like:

```python
>>> from emu.backends.bounds import bounded
>>> bounded(53, 1, 53, "float64 holds no wider integer")
53
>>> bounded(54, 1, 53, "float64 holds no wider integer")
Traceback (most recent call last):
    ...
AssertionError: 54 is not in 1..53: float64 holds no wider integer

```

Constants that cost only time (how much work a thread must find, sizes of tiles) have no bounds.
`python tests/docs/refresh.py` writes this page from the sources.

## Compiled loops

| constant | value | least | most | why |
|---|---|---|---|---|
"""
_KERNELS = """
## CUDA kernels

| file | condition | why |
|---|---|---|
"""


class Bounded(NamedTuple):
    """One constant: where it is defined, its value, its bounds as they are written, and why."""

    module: str
    name: str
    value: float
    least: str
    most: str
    because: str

    @property
    def place(self) -> str:
        return f"{self.module.removeprefix('emu.backends.')}.{self.name}"


def _is_bounded(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "bounded"


def bounded_constants() -> Iterator[Bounded]:
    for path in sorted((ROOT / "emu").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and _is_bounded(node.value):
                assert isinstance(node.value, ast.Call)
                assert isinstance(node.targets[0], ast.Name)
                _, least, most, because = node.value.args
                assert isinstance(because, ast.Constant)
                value = getattr(importlib.import_module(module), node.targets[0].id)
                bounds = (ast.unparse(bound) for bound in (least, most))
                yield Bounded(module, node.targets[0].id, value, *bounds, str(because.value))


def static_assertions() -> Iterator[tuple[str, str, str]]:
    for path in sorted((ROOT / "kernels").rglob("*.cu*")):
        for condition, because in _STATIC.findall(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT / "kernels").as_posix(), condition, because


def _marked(because: str) -> str:
    """The reason with its powers as code: two of them in a line would be bold."""
    return re.sub(r"[^\s,;:]*\*\*[^\s,;:]*", r"`\g<0>`", because)


def page() -> str:
    rows = [
        f"| `{c.place}` | {c.value:.17g} | `{c.least}` | `{c.most}` | {_marked(c.because)} |"
        for c in bounded_constants()
    ]
    kernels = [
        f"| `{file}` | `{condition.replace('||', 'or').replace('&&', 'and')}` | {_marked(because)} |"
        for file, condition, because in static_assertions()
    ]
    return _HEAD + "\n".join(rows) + "\n" + _KERNELS + "\n".join(kernels) + "\n"
