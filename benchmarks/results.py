"""Every model on every device, into the end of docs/results.md and the README's table.

    python benchmarks/results.py --out runs/results --workers 2
    python benchmarks/results.py --out runs/results --only 'resnet8-*'

Runs the study `benchmarks/results.toml`, with the options of `emu study`; finished runs are never repeated, so that it
may be stopped and started again. A model's section of the page is written anew once all of its runs are there; its row
of the README's table, if it has more than one seed, is taken from there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from emu.training.folders.study_folder import StudyFolder
from emu.training.study import load_study

ROOT = Path(__file__).resolve().parents[1]
STUDY, PAGE, README = ROOT / "benchmarks" / "results.toml", ROOT / "docs" / "results.md", ROOT / "README.md"
#: What is above stays: `python -m benchmarks.claims` writes there.
HEADING = "## Every model on every device"
INTRODUCTION = f"""{HEADING}

How accurate is each model on each shipped device? Every layer goes through the device's arithmetic, forward,
backward and update.

- **Devices.** `p100` gives the same bits as `fp16` and is not listed twice. `dlu16` and `dlu8` run their default
  schedule, `conditional_redo`.
- **Data.** Images are scikit-learn's digits (8 x 8, upsampled; 1347 to train, 450 to test, so one image is 0.22
  points). The text is chapter I of Alice's Adventures in Wonderland; its accuracy is that of the next byte. Frames
  are synthetic.
- **Differences** are paired. Seeds are the same for every device, and give equal initial weights and equal batches.
  An interval is the 95% interval of Student's t. If all differences are equal, the interval has no width, which is
  not certainty. A single seed has no interval.
- **Bold.** A device fails if the whole interval lies more than half a point below the baseline.
- **What went wrong first** names a tensor of the first seed's run: the first of which more than 1% of the results
  overflowed, or more than 30% underflowed, in an interval between two logged steps. It also says where the leading
  bits of these results were.
- **`dnn46m`** runs 200 steps of one seed: 12,800 frames of 9304 classes, after which no arithmetic has learned a
  class. Read its table for losses (a guess costs ln 9304 = 9.138), overflow and underflow, not for accuracy.

Made by `python benchmarks/results.py`, which runs the study `benchmarks/results.toml`, model by model.
"""
SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^### |\Z)", re.DOTALL | re.MULTILINE)
#: The README's table: its columns, and where it stands.
DEVICES = ("float32", "fp16", "v100", "bf16-mixed", "fixed16", "dlu16", "fixed8", "dlu8")
TABLE = re.compile(r"^\| \| float32 .*\n(?:\|.*\n)+", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return model -> what stands under its heading."""
    return {name: body.strip() for name, body in SECTION.findall(text)}


def summary(found: dict[str, str]) -> str:
    """Return the README's table of models -> sections: the baseline's accuracy, and the differences to it."""
    rows = [("", *DEVICES), ("---",) * (len(DEVICES) + 1)]
    for model, section in found.items():
        cells = {row[1]: row for row in (re.split(r"\s*\|\s*", line) for line in section.splitlines() if "|" in line)}
        baseline, *others = (cells[device] for device in DEVICES)
        if baseline[4][0].isdigit():  # a spread: more than one seed
            rows.append((model, baseline[3], *(row[6] for row in others)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |")


def measured(runs: list[dict[str, Any]]) -> str:
    """Return when runs ended, and what they ran on, from their `run.json`."""
    days = sorted({str(run["ended"])[:10] for run in runs})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "No run finished"
    on = sorted({f"Python {run['versions']['python']}, {run['versions']['machine']}" for run in runs})
    return f"{', '.join([when, *on])}."


def page(text: str, found: dict[str, str], names: list[str]) -> str:
    """Return the page `text` with the sections that there are of models; what is above `HEADING` stays."""
    models, missing = [name for name in names if name in found], [f"`{name}`" for name in names if name not in found]
    rest = [f"Not measured yet: {', '.join(missing)}.\n"] if missing else []
    parts = [INTRODUCTION, *rest, *(f"### {name}\n\n{found[name]}\n" for name in models)]
    return text.partition(HEADING)[0] + "\n".join(parts)


def main(arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "emu", "study", str(STUDY), *arguments], check=True)
    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else Path("studies/results")
    cases, home = list(load_study(STUDY).cases()), StudyFolder(out)
    left = {case.model for case in cases if home.result(case) is None and home.failure(case) is None}
    found = sections(PAGE.read_text(encoding="utf-8"))
    for name, body in sections((out / "report.md").read_text(encoding="utf-8")).items():
        if name not in left:
            runs = [info for case in cases if case.model == name and (info := home.result(case)) is not None]
            found[name] = f"{measured(runs)}\n\n{body}"
    names = list(dict.fromkeys(case.model for case in cases))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found, names), encoding="utf-8")
    table = summary({name: found[name] for name in names if name in found})
    README.write_text(TABLE.sub(lambda _: table, README.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE, *(f"without {name}: runs are left" for name in sorted(left)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
