"""Random settings of simulated steps on all models and devices, and the limits that none may break.

`python -m tests.cluster.step_limits COUNT [SEED]` draws COUNT of them and lists those that break one.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import emu
from emu._paths import content_names
from emu.errors import EmuError
from emu.hardware import load_device
from emu.hardware.machine import can_be_timed
from emu.training.cluster_time import SimulatedStep

MODELS = content_names("models")
DEVICES = [name for name in content_names("devices") if can_be_timed(load_device(name))]


def drawn(choose: random.Random) -> dict[str, Any]:
    """Return settings of one step; not all go together."""
    device = choose.choice(DEVICES)
    connected = load_device(device).crossbar is not None
    nodes = choose.choice([1, 2, 2, 3, 4, 4, 5, 8, 8]) if connected else 1
    cluster: dict[str, Any] = {
        "streaming": choose.random() < 0.5,
        "double_buffering": choose.random() < 0.5,
        "owner_bits": choose.choice([1, 2, 8, 32]),
    }
    if choose.random() < 0.3:
        cluster["exchange"] = "controllers"
        cluster["controllers"] = sorted(choose.sample(range(nodes), choose.randint(1, min(nodes, 3))))
        cluster["placement"] = choose.choice(["fixed", "least_loaded", "least_busy"])
        del cluster["owner_bits"]
    if choose.random() < 0.3:
        cluster["chunks"] = choose.choice([1, 2, 8])
    if connected and choose.random() < 0.2:
        cluster["units"] = 2
    elif connected and choose.random() < 0.3:
        cluster["model_parallel"] = 2
        cluster["model_split"] = choose.choice(["stripes", "layers"])
    if choose.random() < 0.2 and nodes > 1:
        cluster["workers"] = sorted(choose.sample(range(nodes), choose.randint(1, nodes - 1)))
    if choose.random() < 0.2:
        cluster["lines"] = "inputs"
    bits = choose.choice([1, 2, 4, 8, 32])
    if cluster.get("exchange") != "controllers" and nodes > 1:
        if choose.random() < 0.2:
            cluster["quantise_own"] = False
        if choose.random() < 0.2:
            cluster["owners"] = sorted(choose.sample(range(nodes), choose.randint(1, nodes)))
        if choose.random() < 0.2:
            cluster["rule"] = choose.choice(["adagrad", "momentum"])
    if choose.random() < 0.2:
        bits = choose.choice([3, 9, 12, 16])
    elif bits in (2, 4, 8) and choose.random() < 0.2:
        cluster["codec"] = cluster["owner_codec"] = {"range": [-1.0, 1.0]}
        cluster["owner_bits"] = bits
    settings = {f"cluster.{key}": value for key, value in cluster.items()}
    if choose.random() < 0.3:
        settings["training.optimiser.fused"] = True
    if choose.random() < 0.2:
        settings["clipping.rules"] = [{"rule": "variance"}]
        settings["clipping.trigger"] = choose.choice(["own", "next", "after_all", "serial"])
        settings["clipping.on"] = choose.choice(["worker", "separate"])
    return {
        "recipe": choose.choice(MODELS),
        "device": device,
        "nodes": [nodes],
        "batches": [nodes * 2 * choose.choice([1, 4, 16, 60, 240, 1024])],
        "bits": [bits],
        "overrides": settings,
    }


def broken(step: SimulatedStep) -> list[str]:
    """Return the limits that a step breaks."""
    time, devices = step.time, step.nodes * step.devices
    limits = {
        "a part below 0": min(
            time.compute_ps, time.quantise_ps, time.update_ps, time.wait_ps, time.send_ps, time.clip_ps
        ) >= 0,
        "shorter than its parts": time.step_ps >= max(time.compute_ps, time.quantise_ps, time.update_ps),
        "shorter than its busiest port": time.link_use <= 1,
        "shorter than its clips": time.step_ps >= time.clip_ps,
        "faster than nodes that only exchange": step.bound is None or step.speed_up <= step.bound,
        "faster than so many devices": step.speed_up <= devices,
    }  # fmt: skip
    return [limit for limit, holds in limits.items() if not holds]


def main(count: int, seed: int) -> None:
    """Draw settings; print those that break a limit, and how many were refused, by the beginning of the reason."""
    choose, refused, judged, wrong = random.Random(seed), Counter[str](), 0, 0
    for number in range(count):
        settings = drawn(choose)
        try:
            (step,) = emu.simulate(**settings).steps
        except EmuError as error:
            refused[" ".join(str(error).split()[:6])] += 1
            continue
        judged += 1
        if faults := broken(step):
            wrong += 1
            print(number, faults, step.speed_up, step.bound, settings, flush=True)
    print(f"{judged} judged, {wrong} broke a limit, {refused.total()} refused: {dict(refused)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
