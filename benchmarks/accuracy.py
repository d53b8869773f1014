"""Accuracy of models on devices: five seeds, and the paired difference to float32 with its 95% interval.

    python benchmarks/accuracy.py --out runs/accuracy --workers 2          writes docs/results.md

Finished runs are never repeated: killed and started again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from emu.errors import ConfigError
from emu.training.run_folder import RunFolder

MODELS = ("mlp", "lenet")
DEVICES = ("float32", "fp16", "fp16-mixed", "bf16-mixed", "fixed16", "fixed8")
SEEDS = (1, 2, 3, 4, 5)
#: Two-sided 95% quantile of Student's t with four degrees of freedom.
T_95 = 2.776
ROOT = Path(__file__).parent.parent


def folder_of(out: Path, model: str, device: str, seed: int) -> Path:
    return out / f"{model}-{device}-seed{seed}"


def finished(folder: Path) -> dict[str, Any] | None:
    try:
        info = RunFolder(folder).read_json()
    except ConfigError:
        return None
    return info if info.get("status") == "finished" else None


def run(out: Path, model: str, device: str, seed: int, threads: int) -> str:
    folder = folder_of(out, model, device, seed)
    if finished(folder):
        return f"{folder.name}: there already"
    command = [sys.executable, "-m", "emu", "train"]
    if (folder / "run.json").is_file():
        command += ["--resume", str(folder)]
    else:
        command += [model, "--device", device, "--set", f"training.seed={seed}", "--out", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "EMU_THREADS": str(threads)}, capture_output=True, text=True, check=False
    )
    info = finished(folder)
    accuracy = f"{info['metrics']['test_accuracy']:.2%}" if info else done.stderr.strip().splitlines()[-1]
    return f"{folder.name}: {accuracy}"


def accuracies(out: Path, model: str, device: str) -> list[float]:
    infos = [finished(folder_of(out, model, device, seed)) for seed in SEEDS]
    return [100 * info["metrics"]["test_accuracy"] for info in infos if info]


def interval(differences: list[float]) -> str:
    half = T_95 * stdev(differences) / math.sqrt(len(differences))
    return f"{mean(differences):+.2f} ({mean(differences) - half:+.2f} .. {mean(differences) + half:+.2f})"


def table(out: Path, model: str) -> list[str]:
    lines = [
        f"### {model}",
        "",
        "| device | mean | spread (s.d.) | worst .. best | difference to float32, paired (95% interval) "
        "| overflow | underflow |",
        "|---|---|---|---|---|---|---|",
    ]
    base = accuracies(out, model, "float32")
    for device in DEVICES:
        own = accuracies(out, model, device)
        infos = [finished(folder_of(out, model, device, seed)) for seed in SEEDS]
        rates = [mean(info["metrics"][name] for info in infos if info) for name in ("overflow_rate", "underflow_rate")]
        difference = "-" if device == "float32" else interval([a - b for a, b in zip(own, base, strict=True)])
        cells = (device, f"{mean(own):.2f} %", f"{stdev(own):.2f}", f"{min(own):.2f} .. {max(own):.2f}", difference)
        lines.append("| " + " | ".join([*cells, *(f"{rate:.1e}" for rate in rates)]) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"), help="folder of the runs")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="threads of each run")
    parser.add_argument("--devices", nargs="+", default=DEVICES, choices=DEVICES, help="run only these; no page then")
    parser.add_argument("--write", type=Path, default=ROOT / "docs" / "results.md", help="page to write")
    arguments = parser.parse_args()
    jobs = [(model, device, seed) for seed in SEEDS for model in MODELS for device in arguments.devices]
    with ThreadPoolExecutor(arguments.workers) as pool:
        for line in pool.map(lambda job: run(arguments.out, *job, arguments.threads), jobs):
            print(line, flush=True)
    if set(arguments.devices) != set(DEVICES):
        return
    lines = [
        "# Results",
        "",
        "Test accuracy on scikit-learn's digits (8 x 8, upsampled to 28 x 28; 1347 images to train, 450 to test),",
        f"every layer through the device's arithmetic; seeds {SEEDS[0]} to {SEEDS[-1]}, the same for every device, so",
        "that differences are paired: equal initial weights, equal batches. One image is 0.22 points.",
        "Made by `python benchmarks/accuracy.py`,",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.machine()}.",
        "",
        *(line for model in MODELS for line in table(arguments.out, model)),
    ]
    arguments.write.parent.mkdir(parents=True, exist_ok=True)
    arguments.write.write_text("\n".join(lines))
    print(arguments.write)


if __name__ == "__main__":
    main()
