"""Runs pytest in a process that sees one module mutated: `child.py KERNELS MODULE FILE_WITH_ITS_TEXT arguments...`.

The file on disk stays as it is, so that caches keyed by sources, and every other process, never meet the mutant.
An empty MODULE runs the tests on the sources as they are. KERNELS "hidden" hides Numba.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class MutatedFinder:
    """Finds one module, as Python does, and gives it the mutated text."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name, self.text = name, text

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = MutatedLoader(name, spec.origin, self.text)
        return spec


class FirstFailure:
    """A failure is enough: Hypothesis looks for no smaller one."""

    def pytest_sessionstart(self) -> None:
        if "hypothesis" in sys.modules:  # a conftest has chosen its profile
            from hypothesis import Phase, settings

            settings.register_profile("mutation", phases=(Phase.explicit, Phase.generate))
            settings.load_profile("mutation")


class WithoutNumba:
    """Skips what asks for Numba by name, where it is hidden."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            return (yield)
        except ImportError as error:
            if "backend 'numba' cannot compute here" not in str(error):
                raise
            pytest.skip("runs on Numba")


if __name__ == "__main__":
    kernels, module, text_file, *arguments = sys.argv[1:]
    if kernels == "hidden":
        sys.modules["numba"] = None  # pyright: ignore[reportArgumentType] - as if it were not installed
    if module:
        sys.meta_path.insert(0, MutatedFinder(module, Path(text_file).read_bytes()))
    sys.exit(pytest.main(arguments, plugins=[FirstFailure(), *([WithoutNumba()] if kernels == "hidden" else [])]))
