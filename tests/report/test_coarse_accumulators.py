"""The diagnosis names an accumulator whose steps are too coarse for what a layer sends back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emu.report.evidence import gather

MAC = {"product": "exact", "accumulator": "fix24f9", "order": "sequential", "rounding": "nearest_even"}


def findings_of(folder: Path, *, role: str = "error", fmt: str = "fix16f18", lowest: int = -9, zeros: int = 60,
                snr: float | None = 1.0, weights: bool = True, **mac: str) -> list[str]:  # fmt: skip
    """A run of a tensor of 100 results, `zeros` of them 0 and the others with leading bits from `lowest` on."""
    rows: list[dict[str, Any]] = [
        {"step": 10, "layer": "fc1", "role": role, "kind": kind, "exponent": exponent, "count": count}
        for kind, exponent, count in (
            ("positive", lowest, 50 - zeros // 2), ("positive", 0, 50 - zeros // 2), ("none", None, zeros),
            ("below", None, 0), ("above", None, 0), ("nonfinite", None, 0), ("total", None, 100),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "registers.parquet")
    if snr is not None:
        noise = {"step": [10], "layer": ["fc1"], "role": [role], "snr_db": pa.array([snr], pa.float64())}
        pq.write_table(pa.table(noise), folder / "snr.parquet")
    formats = [{"layer": "fc1", "role": role, "format": fmt, "mac": MAC | mac}]
    formats += [{"layer": "fc1", "role": "weight", "format": "fix16f13"}] if weights else []
    info = {"status": "finished", "steps": 10, "layers": ["fc1"], "formats": formats}
    (folder / "run.json").write_text(json.dumps(info))
    return [finding.sentence for finding in gather(folder).findings if finding.kind == "coarse accumulator"]


def test_sums_that_never_go_below_the_accumulators_step_are_named_with_what_to_do(tmp_path: Path):
    assert findings_of(tmp_path) == [
        "the accumulator fix24f9 has steps of 2⁻⁹, while fix16f18 goes down to 2⁻¹⁸: products below a step are rounded "
        "away, and 60% of the sums are 0: the layers below it receive only part of the gradient; give the accumulator "
        "more fraction bits or give that pass a unit of its own ([precision.backward_mac]). If the device shall only "
        "run the network, train it in float32 and ask emu evaluate. Its signal-to-noise is 1.0 dB."
    ]
    assert "backward_mac" not in findings_of(tmp_path, role="activation")[0]
    assert "fp16 goes down to 2⁻²⁴" in findings_of(tmp_path, fmt="fp16")[0]


@pytest.mark.parametrize(
    "given",
    [
        {"lowest": -10},  # a result below the step was seen
        {"fmt": "fix16f9"},  # the results have no finer steps
        {"fmt": "fix16f8"},
        {"snr": 10.0},  # they are not noisy
        {"snr": None, "zeros": 28},
        {"weights": False},  # no product computes them
        {"role": "update"},
        {"accumulator": "fp32"},
        {"accumulator": "exact"},
    ],
    ids=str,
)
def test_nothing_is_said_where_the_accumulator_is_not_the_cause(tmp_path: Path, given: dict[str, Any]):
    assert findings_of(tmp_path, **given) == []


def test_without_noise_the_share_of_zeros_decides(tmp_path: Path):
    assert len(findings_of(tmp_path, snr=None, zeros=30)) == 1
    assert len(findings_of(tmp_path, snr=9.99, zeros=0)) == 1
    assert len(findings_of(tmp_path, fmt="fix16f10")) == 1


def test_it_comes_before_the_noise_that_it_causes_and_replaces_it(tmp_path: Path):
    findings_of(tmp_path)
    assert [finding.kind for finding in gather(tmp_path).findings] == ["coarse accumulator"]
    assert gather(tmp_path).findings[0].severity == 1.6
