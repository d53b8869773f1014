"""Sparse gradients in a report: a made-up table, and a run on a machine with a clock."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

import emu
from emu.report.evidence import gather
from emu.report.pictures import sparse_products
from emu.report.words import percent

#: Two intervals of ten steps: 1.5 us a step for the product, 2 us for a copy.
ROWS = [
    {"step": step, "layer": "words", "entries": entries, "rows": 40, "product_ps": 15_000_000,
     "transpose_ps": 20_000_000, "product_bytes": 30_000, "transpose_bytes": 40_000}
    for step, entries in ((10, 100), (20, 60))
]  # fmt: skip


def section_of(folder, rows=None):
    if rows is not None:
        pq.write_table(pa.Table.from_pylist(rows), folder / "sparse.parquet")
    (folder / "run.json").write_text(json.dumps({"status": "finished", "steps": 20, "layers": ["words"]}))
    return sparse_products.section(gather(folder))


def test_a_run_without_sparse_layers_has_no_section(tmp_path):
    assert section_of(tmp_path) is None


def test_a_table_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "sparse.parquet").write_bytes(b"no table")
    assert "sparse.parquet" in section_of(tmp_path).body


def test_what_the_product_takes_and_a_copy_would_add_is_of_a_step(tmp_path):
    section = section_of(tmp_path, ROWS)
    assert (
        "The gradient of words takes 1.5 µs in a step: 8 entries give 4 rows. A transposed copy of its input would add "
        "2 µs." in section.body
    )
    (chart,) = section.charts
    assert [(row["layer"], row["kind"], row["us"]) for row in chart.spec["datasets"]["rows"]] == [
        ("words", "product", 1.5),
        ("words, copied", "transposed copy", 2.0),
        ("words, copied", "product", 1.5),
    ]
    assert "3 kB" in section.body
    assert "4 kB" in section.body


def test_a_run_tells_what_share_of_its_step_the_method_saves(tmp_path):
    """The run is charged the product, and no copy."""
    overrides = {
        "network.input": [1024], "data.reach": 6, "data.longest": 3, "training.steps": 4, "training.batch": 8,
        "training.log_every": 2,
    }  # fmt: skip
    run = emu.train(emu.model("text_sparse"), emu.device("p100"), out=tmp_path / "run", overrides=overrides)
    rows = pq.read_table(run.path / "sparse.parquet").to_pylist()
    assert [(row["step"], row["layer"]) for row in rows] == [(2, "words"), (4, "words")]
    charged = [row for row in pq.read_table(run.path / "simulation.parquet").to_pylist()
               if (row["layer"], row["role"]) == ("words", "gradient")]  # fmt: skip
    bias = 4 * (8 * 64 + 64) * 2  # of each step, in fp16: 8 errors of 64 outputs, and their sums
    assert sum(row["product_bytes"] for row in rows) + bias == sum(row["bytes"] for row in charged)
    copied = sum(row["transpose_ps"] for row in rows)
    share = copied / run.info["simulated_picoseconds_by_phase"]["training"]
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert f"{percent(share)} of the step.</p>" in page
    assert "Sparse gradients without a transpose" in page
