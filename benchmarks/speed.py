"""Measure everything, and write it into docs/benchmarks.md.

    python benchmarks/speed.py                        every row and every peer: `--rows '*' --against peers`
    python benchmarks/speed.py --rows stage ...       other options of `python -m benchmarks`
    python benchmarks/speed.py --from results.json    only write the page, from what `--out` wrote

The data stay in benchmarks/speed.json, so that the page can be written again. A machine that does nothing else gives
the figures; the spread in the tables says how quiet it was.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring.markdown import fill, places
from benchmarks.measuring.result import Session
from benchmarks.rows import all_rows

ROOT = Path(__file__).resolve().parents[1]
PAGE, DATA = ROOT / "docs" / "benchmarks.md", ROOT / "benchmarks" / "speed.json"
EVERYTHING = ["--rows", "*", "--against", "peers"]


def measure(options: list[str]) -> Path:
    """Measure; failed rows stay visible in the page. The data are replaced when all of them are there."""
    with TemporaryDirectory() as folder:
        found = Path(folder) / DATA.name
        command = [sys.executable, "-m", "benchmarks", *(options or EVERYTHING), "--out", str(found)]
        subprocess.run(command, cwd=ROOT, check=False)
        if not found.exists():
            sys.exit("benchmarks/speed.py: python -m benchmarks measured nothing")
        shutil.copy(found, part := DATA.with_suffix(".part"))
        part.replace(DATA)
    return DATA


def write_page(data: Path, page: Path) -> None:
    session = Session.from_dict(json.loads(data.read_text(encoding="utf-8")))
    page.write_text(fill(page.read_text(encoding="utf-8"), places(session, all_rows())), encoding="utf-8")


def main(arguments: list[str]) -> None:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return
    data = Path(arguments[1]) if arguments[:1] == ["--from"] and len(arguments) == 2 else measure(arguments)
    write_page(data, PAGE)
    print(f"{PAGE.relative_to(ROOT)} written from {data}")


if __name__ == "__main__":
    main(sys.argv[1:])
