"""`python -m benchmarks.claims [NAME ...]`: measures claims, all of them without a name; writes data, picture and text.

sums        the error of a dot product against its length, on Hopper's FP8 unit: seconds
machines    a sum that cancels and a random product, on eleven matrix units: seconds
recipes     a transformer in FP8, MXFP8, MXFP4 and NVFP4, with and without each part of their recipes: hours
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.claims import machines, recipes, sums
from benchmarks.measuring.markdown import fill

ROOT = Path(__file__).resolve().parents[2]


class Claim(Protocol):
    """What the module of a claim has."""

    def measure(self) -> Any:
        """Return the data, plain JSON values."""
        ...

    def picture(self, data: Any) -> str:
        """Return the picture as SVG."""
        ...

    def section(self, data: Any) -> str:
        """Return the section of docs/results.md as Markdown."""
        ...


#: Name of the command, the data, the picture and the place on the page -> its module.
CLAIMS: dict[str, Claim] = {"sums": sums, "machines": machines, "recipes": recipes}


def data_of(name: str, root: Path = ROOT) -> Any:
    """Return what was measured last."""
    return json.loads((root / "benchmarks" / "claims" / f"{name}.json").read_text(encoding="utf-8"))


def shown(name: str, data: Any, root: Path = ROOT) -> dict[Path, str]:
    """Return path -> text of the data, the picture and the page as `data` makes them."""
    page, claim = root / "docs" / "results.md", CLAIMS[name]
    return {
        root / "benchmarks" / "claims" / f"{name}.json": json.dumps(data, indent=1) + "\n",
        root / "docs" / "pictures" / "claims" / f"{name}.svg": claim.picture(data),
        page: fill(page.read_text(encoding="utf-8"), {name: claim.section(data)}),
    }


def main(names: Sequence[str], root: Path = ROOT) -> None:
    """Measure claims and write what shows them; without names, all of them."""
    if unknown := [name for name in names if name not in CLAIMS]:
        raise SystemExit(f"a claim must be one of {', '.join(CLAIMS)}, got {unknown[0]}; name some, or none for all")
    for name in names or CLAIMS:
        for path, text in shown(name, CLAIMS[name].measure(), root).items():
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(root))


if __name__ == "__main__":
    main(sys.argv[1:])
