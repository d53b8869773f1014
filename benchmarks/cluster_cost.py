"""What simulating a step costs: against the number of nodes, against kinds of nodes, and for what is shipped.

python benchmarks/cluster_cost.py        prints seconds; writes docs/pictures/measured/simulation-cost.svg

Nodes are of one kind if they add up as many numbers of every tensor.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import emu
from emu._paths import content_names
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, StepSchedule, play, schedule_of
from emu.hardware import Demand, Device, Fabric, Machine, load_device
from emu.report.vega import as_svg

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "measured" / "simulation-cost.svg"
LAYERS, SIZE, EXAMPLES, TIMES = 50, 2048, 16, 3
FP32 = emu.parse("fp32")
#: Powers of two divide the columns, so that all nodes are alike; one less does not.
ALIKE, UNLIKE = "equal stripes", "stripes of two widths"


def share(layers: int = LAYERS, widths: int = 1) -> Share:
    """Return what a network of linear layers asks, whose gradients have so many different widths."""
    batch, square = EXAMPLES * SIZE, SIZE * SIZE

    def product(layer: int, role: str, results: int) -> Demand:
        operands = ((FP32, batch), (FP32, square))
        return Demand(f"fc{layer}", role, "matmul", results, batch * SIZE, 0, operands, FP32)

    forward = [product(i, "activation", batch) for i in range(layers)]
    back = [
        product(i, role, n) for i in reversed(range(layers)) for role, n in (("error", batch), ("gradient", square))
    ]
    return Share(forward + back, (), {f"fc{i}.weight": (SIZE + 17 * (i % widths), SIZE) for i in range(layers)})


def schedule(nodes: int, layers: int = LAYERS, widths: int = 1) -> StepSchedule:
    """Return the schedule of a step in which each layer is exchanged by itself."""
    device = load_device("k20x-8x")
    fabric = Fabric.of(device, nodes=nodes, enough_ports=True)
    return schedule_of(ClusterTable(nodes=nodes, streaming=True), Machine(device), fabric, share(layers, widths))


def kinds(of: StepSchedule) -> int:
    """Return how many kinds of nodes there are."""
    sizes = [sizes for group in of.groups for sizes in group.messages]
    return len(set(zip(*(array.tolist() for array in sizes), strict=True)))


def seconds(nodes: int, layers: int = LAYERS, widths: int = 1) -> float:
    """Return how long planning and playing a step takes, the shortest of a few."""
    taken: list[float] = []
    for _ in range(TIMES):
        began = perf_counter()
        play(schedule(nodes, layers, widths))
        taken.append(perf_counter() - began)
    return min(taken)


def with_ports(device: Device, count: int) -> Device:
    """Return a device whose crossbar has so many ports."""
    assert device.crossbar is not None
    ports = device.crossbar.ports.model_copy(update={"value": count})
    return device.model_copy(update={"crossbar": device.crossbar.model_copy(update={"ports": ports}), "topology": None})


#: One step alone is played, or as many as a cycle takes to show.
ONE_STEP: dict[str, Any] = {}
BUFFERED: dict[str, Any] = {"cluster.streaming": True, "cluster.double_buffering": True}


def of_model(name: str, nodes: int, given: dict[str, Any]) -> float:
    """Return how long `emu.simulate` takes for a step of a shipped model, all that a user waits for but the import.

    A model with fewer columns than nodes has as many owners as fit.
    """
    recipe, device = emu.model(name), with_ports(load_device("k20x-8x"), nodes)
    (alone,) = emu.simulate(recipe, device, nodes=[1], batches=[nodes]).steps
    assert alone.time.step_ps
    settings = dict(given)
    for owners in (nodes, *(1 << i for i in range(nodes.bit_length() - 1, -1, -1))):
        try:
            if owners < nodes:
                settings["cluster.owners"] = list(range(owners))
            began = perf_counter()
            emu.simulate(recipe, device, nodes=[nodes], batches=[nodes], overrides=settings)
            return perf_counter() - began
        except emu.ConfigError as error:
            if "at least one column" not in str(error):
                raise
    raise AssertionError("one owner always has a stripe")


def picture(by_nodes: list[dict[str, Any]], by_kinds: list[dict[str, Any]]) -> str:
    """Return seconds against nodes, and against kinds of nodes, as SVG."""
    import altair as alt

    title = "seconds for a step of 50 layers"
    against_nodes = (
        alt.Chart(alt.Data(values=by_nodes), width=330, height=240)
        .mark_line(point=True)
        .encode(
            x=alt.X("nodes:Q", title="nodes"),
            y=alt.Y("seconds:Q", title=title),
            color=alt.Color("stripes:N", title=None, scale=alt.Scale(range=["#0072b2", "#d55e00"])),
        )
    )
    against_kinds = (
        alt.Chart(alt.Data(values=by_kinds), width=330, height=240)
        .mark_line(point=True, color="#009e73")
        .encode(
            x=alt.X("kinds:Q", title="kinds among 1023 nodes"),
            y=alt.Y("seconds:Q", title=title, scale=alt.Scale(zero=True)),
        )
    )
    label = "Seconds that the simulation of a step takes, against nodes and against kinds of nodes."
    return as_svg(alt.hconcat(against_nodes, against_kinds).to_dict(), label)


def main() -> None:
    """Print seconds, and write the picture."""
    seconds(4), seconds(3)  # compiled
    by_nodes: list[dict[str, Any]] = []
    for nodes in (64, 128, 256, 384, 512, 640, 768, 896, 1024):
        for stripes, count in ((ALIKE, nodes), (UNLIKE, nodes - 1)):
            if stripes == ALIKE and SIZE % nodes:
                continue
            by_nodes.append({"nodes": count, "stripes": stripes, "seconds": round(seconds(count), 4)})
            print(by_nodes[-1], flush=True)
    by_kinds: list[dict[str, Any]] = []
    for widths in (1, 2, 5, 10, 25, 50):
        count = kinds(schedule(1023, widths=widths))
        by_kinds.append({"kinds": count, "seconds": round(seconds(1023, widths=widths), 4)})
        print(by_kinds[-1], flush=True)
    print(f"200 layers, 1023 nodes: {seconds(1023, 200):.2f} s", flush=True)
    for nodes in (1024, 4096):
        for name in content_names("models"):
            one, buffered = of_model(name, nodes, ONE_STEP), of_model(name, nodes, BUFFERED)
            print(f"{name}, {nodes} nodes: {one:.2f} s, double-buffered {buffered:.2f} s", flush=True)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(by_nodes, by_kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
