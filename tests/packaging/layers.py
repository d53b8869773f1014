"""The order of the packages, as docs/design/overview.md lists them, and which imports break it."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.imports import Import, imports_of

#: Modules that stand below every package, and what each of them may import.
BASE: dict[str, set[str]] = {
    "errors": set(),
    "_drawn": set(),
    "_files": set(),
    "_tables": set(),
    "_interrupt": set(),
    "_paths": {"errors"},
    "_config": {"errors", "_paths"},
    "_toml": {"_config"},
}
#: What each package may import, besides itself and the base.
ALLOWED: dict[str, set[str]] = {
    "formats": set(),
    "checkpoints": {"formats"},
    "datapath": {"formats"},
    "backends": {"formats", "datapath"},
    "engine": {"formats", "datapath", "backends"},
    "sparse": {"formats", "datapath", "backends", "engine"},
    "operations": {"formats", "datapath", "backends", "engine", "sparse"},
    "autodiff": {"formats", "datapath", "backends", "engine", "sparse", "operations"},
    "hardware": {"formats", "datapath", "backends", "engine", "sparse", "operations"},
    "testing": {"formats", "datapath", "backends", "engine"},
}
ALLOWED["prove"] = ALLOWED["testing"] | {"testing"}
ALLOWED["nn"] = ALLOWED["optim"] = ALLOWED["autodiff"] | {"autodiff"}
ALLOWED["precision"] = ALLOWED["cluster"] = ALLOWED["nn"] | {"nn", "optim", "hardware"}
ALLOWED["interop"] = ALLOWED["precision"] | {"precision", "checkpoints"}
ALLOWED["onnx"] = ALLOWED["tflite"] = ALLOWED["torch"] = {"interop"}
ALLOWED["training"] = ALLOWED["precision"] | {"precision", "cluster", "checkpoints", "interop"}
ALLOWED["report"] = ALLOWED["training"] | {"training"}
ALLOWED["jobs"] = ALLOWED["report"] | {"report"}
ALLOWED["watch"] = ALLOWED["search"] = ALLOWED["jobs"] | {"jobs"}
ALLOWED["sensitivity"] = ALLOWED["search"] | {"search"}
ALLOWED["notebook"] = ALLOWED["report"] | {"report", "testing"}
ALLOWED["export"] = ALLOWED["testing"] | {"testing"}
#: The public face and the command may import everything.
TOP = {"__init__", "__main__", "_runs", "cli"}


def part_of(path: Path, package: Path) -> str:
    """The subpackage or top-level module that a file belongs to."""
    return path.relative_to(package).parts[0].removesuffix(".py")


def has_place(path: Path, package: Path) -> bool:
    """Whether the order says what a file may import."""
    return part_of(path, package) in TOP | BASE.keys() | ALLOWED.keys()


def part_named(name: str, package: Path) -> str:
    """The part that a dotted name lies in: `emu.nn.layers` in `nn`, `emu` and its public names in `__init__`."""
    part = [*name.split("."), "__init__"][1]
    is_there = part == "*" or (package / part).is_dir() or (package / f"{part}.py").is_file()
    return part if is_there else "__init__"


def upward(path: Path, package: Path) -> list[Import]:
    """Imports of a file from parts that do not stand below its own, those for types alone included.

    Raises:
        KeyError: the file's part has no place in the order.
    """
    part = part_of(path, package)
    if part in TOP:
        return []
    allowed = BASE[part] if part in BASE else ALLOWED[part] | BASE.keys() | {part}
    return [found for found in sorted(imports_of(path, package)) if part_named(found.name, package) not in allowed]
