"""What a control loop costs: steps of training with it and without it, on one device, in turns.

    python benchmarks/control_loops.py [--model lenet] [--rounds 15]

Dynamic fixed point: main training on dlu16 and dlu8, every point set anew after each `interval`, beside the same
machine with its formats fixed at the points that it had come to, from the same weights. Pre-training is measured beside
it, with its redos: that is work the method asks for, and no cost of controlling it. Loss scaling: each policy on fp16
beside none.

A round is ten steps of each, in turns; the figure is the ratio of medians over the rounds, beside the quartiles of the
ratios of the rounds.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import emu
from emu.autodiff import Operation, Value
from emu.hardware import ROLES, Device, load_device
from emu.training.loop import Loop
from emu.training.workbench import Workbench

STEPS = 10
#: Steps before anything is measured: kernels compile, points settle.
WARM = 25
POLICIES: dict[str, dict[str, Any]] = {
    "fixed": {"policy": "fixed", "scale": 1024.0},
    "max_gradient": {"policy": "max_gradient"},
    "backoff": {"policy": "backoff"},
    "statistical": {"policy": "statistical"},
}


#: Where sums saturate, the kernel that takes a product depends on its numbers; exact ones take the same on both sides.
EXACT = {"precision.mac.accumulator": "exact"}


def loop(model: str, device: Device, settings: dict[str, Any]) -> Loop:
    recipe = emu.model(model).with_settings({"training.steps": 10**6, **settings})
    return Loop(Workbench.of(recipe, recipe.machine(device), "numba"))


def advance(one: Loop, steps: int) -> float:
    """Return seconds of so many steps."""
    began = time.perf_counter()
    for _ in range(steps):
        one.advance()
    return time.perf_counter() - began


def formats_in_use(found: Loop) -> dict[tuple[str, str], str]:
    """Return (layer, role) -> format of what a step writes there."""
    formats: dict[tuple[str, str], str] = {}
    for runner in (found.runner, found.updating):
        run = runner.run

        def noted(operation: Operation, role: str, layer: str, run: Any = run) -> Value:
            value = run(operation, role, layer)
            formats.setdefault((layer, role), str(value.format))
            return value

        runner.run = noted
    found.advance()
    for runner in (found.runner, found.updating):
        del runner.run
    return formats


def with_fixed_points(found: Loop) -> Device:
    """Return a loop's device with the format of every tensor as it stands, its points in place."""
    data = found.bench.device.model_dump(mode="json", exclude_none=True)
    open_roles = [role for role in ROLES if str(data["precision"][role]["format"]).endswith("?")]
    layers: dict[str, dict[str, Any]] = {}
    for (layer, role), fmt in formats_in_use(found).items():
        if role in open_roles:
            layers.setdefault(layer, {"match": layer})[role] = {"format": fmt}
    for role in open_roles:
        data["precision"][role]["format"] = "fix16f8"
    data["precision"]["layers"] = list(layers.values())
    data.pop("dynamic_point")
    return Device.model_validate(data)


def twin_of(found: Loop, model: str) -> Loop:
    """Return a loop on the machine with fixed points that goes on from the same weights."""
    twin = loop(model, with_fixed_points(found), EXACT)
    twin.bench.model.states = copy.deepcopy(found.bench.model.states)
    twin.steps.done = found.steps.done
    return twin


def compare(name: str, plain: Loop, other: Loop, rounds: int) -> None:
    for one in (plain, other):
        advance(one, STEPS)
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        steps = [(advance(plain, 1), advance(other, 1)) for _ in range(STEPS)]
        pairs.append((sum(a for a, _ in steps), sum(b for _, b in steps)))
    without, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
    low, _, high = statistics.quantiles([b / a for a, b in pairs], n=4)
    print(
        f"{name:34s} {without / STEPS * 1e3:8.2f} ms {beside / STEPS * 1e3:8.2f} ms "
        f"{beside / without - 1:+7.1%}   ({low - 1:+.1%} to {high - 1:+.1%})",
        flush=True,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="lenet")
    options.add_argument("--rounds", type=int, default=15)
    given = options.parse_args()
    print(f"{'a step of ' + given.model:34s} {'without':>11s} {'with':>11s}   cost   (quartiles)")
    for name in ("dlu16", "dlu8"):
        device = load_device(name)
        ways = {"main training": {"dynamic_point.pretraining_steps": WARM}} | {
            f"pre-training, {schedule}": {
                "dynamic_point.pretraining_steps": 10**6,
                "dynamic_point.schedule": schedule,
            }
            for schedule in ("conditional_redo", "always_redo")
        }
        for way, settings in ways.items():
            found = loop(given.model, device, settings | EXACT)
            advance(found, 2 * WARM)
            compare(f"{name}, {way}", twin_of(found, given.model), found, given.rounds)
    for policy, table in POLICIES.items():
        scaled = loop(given.model, load_device("fp16"), {"loss_scaling": table})
        compare(f"fp16, loss scaling {policy}", loop(given.model, load_device("fp16"), {}), scaled, given.rounds)


if __name__ == "__main__":
    main()
