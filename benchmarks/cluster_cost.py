"""What simulating a step costs against the number of nodes: 50 layers, each exchanged by itself.

python benchmarks/cluster_cost.py        prints seconds; writes docs/pictures/measured/simulation-cost.svg
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import emu
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, play, schedule_of
from emu.hardware import Demand, Fabric, Machine, load_device
from emu.report.vega import as_svg

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "measured" / "simulation-cost.svg"
LAYERS, SIZE, EXAMPLES, TIMES = 50, 2048, 16, 3
FP32 = emu.parse("fp32")
#: Powers of two divide the columns, so that all nodes are alike; one less does not.
ALIKE, UNLIKE = "equal stripes", "stripes of two widths"


def share() -> Share:
    """Return what a network of linear layers asks."""
    batch, square = EXAMPLES * SIZE, SIZE * SIZE

    def product(layer: int, role: str, results: int) -> Demand:
        operands = ((FP32, batch), (FP32, square))
        return Demand(f"fc{layer}", role, "matmul", results, batch * SIZE, 0, operands, FP32)

    forward = [product(i, "activation", batch) for i in range(LAYERS)]
    back = [
        product(i, role, n) for i in reversed(range(LAYERS)) for role, n in (("error", batch), ("gradient", square))
    ]
    return Share(forward + back, (), {f"fc{i}.weight": (SIZE, SIZE) for i in range(LAYERS)})


def seconds(nodes: int) -> float:
    """Return how long planning and playing a step takes, the shortest of a few."""
    device = load_device("k20x-8x")
    taken: list[float] = []
    for _ in range(TIMES):
        began = perf_counter()
        table = ClusterTable(nodes=nodes, streaming=True)
        play(schedule_of(table, Machine(device), Fabric.of(device, nodes=nodes, enough_ports=True), share()))
        taken.append(perf_counter() - began)
    return min(taken)


def picture(rows: list[dict[str, Any]]) -> str:
    """Return seconds against nodes as SVG."""
    import altair as alt

    chart = (
        alt.Chart(alt.Data(values=rows), width=420, height=260)
        .mark_line(point=True)
        .encode(
            x=alt.X("nodes:Q", title="nodes"),
            y=alt.Y("seconds:Q", title="seconds for a step of 50 layers"),
            color=alt.Color("stripes:N", title=None, scale=alt.Scale(range=["#0072b2", "#d55e00"])),
        )
    )
    return as_svg(chart.to_dict())


if __name__ == "__main__":
    seconds(4), seconds(3)  # compiled
    rows: list[dict[str, Any]] = []
    for nodes in (64, 128, 256, 384, 512, 640, 768, 896, 1024):
        for stripes, count in ((ALIKE, nodes), (UNLIKE, nodes - 1)):
            if stripes == ALIKE and SIZE % nodes:
                continue
            rows.append({"nodes": count, "stripes": stripes, "seconds": round(seconds(count), 4)})
            print(rows[-1])
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(rows), encoding="utf-8")
