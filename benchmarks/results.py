"""Every model on every device, into docs/results.md.

    python benchmarks/results.py --out runs/results --workers 2

Runs the study `benchmarks/results.toml`; finished runs are never repeated, so that it may be stopped and started again.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDY, PAGE = ROOT / "benchmarks" / "results.toml", ROOT / "docs" / "results.md"
INTRODUCTION = """# Results

Every layer through the device's arithmetic, forward, backward and update. Images are scikit-learn's digits (8 x 8,
upsampled; 1347 to train, 450 to test: one image is 0.22 points), the text is chapter I of Alice's Adventures in
Wonderland (accuracy is of the next byte), frames are synthetic. Seeds are the same for every device, so that
differences are paired: equal initial weights, equal batches. "What went wrong first" names the tensor of the first
seed's run that first had more than 1% of its results overflow, or more than 30% underflow, in an interval between two
logged steps, and where the leading bits of its results were.

Made by `python benchmarks/results.py`, {day}, Python {python}, {machine}.

"""


def main(arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "emu", "study", str(STUDY), *arguments], check=True)
    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else Path("studies/results")
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    text = INTRODUCTION.format(day=day, python=platform.python_version(), machine=platform.machine())
    PAGE.write_text(text + (out / "report.md").read_text(encoding="utf-8"), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
