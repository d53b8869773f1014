"""Where the time went: shares, the most expensive, what fell back, and why each path is exact."""

import html
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import profile

from emu.report.evidence import gather
from emu.report.pictures.time_spent import proof_in_words, section
from emu.report.time_spent import KINDS
from emu.report.words import NO_NUMBER

DOT = {"path": "integer_dot", "proof": "K*max|a|*max|b| + max|addend| <= 2**44 units of 2**-20 by the formats, "
       "exact in 64-bit integers in any order"}  # fmt: skip
#: Ten steps an interval: 40 ms in conv1, 40 ms in fc1 and 20 ms of host, but for first calls.
CONV = {"layer": "conv1", "role": "activation", "operation": "conv2d", "seconds": 0.03, "multiply_adds": 10**8, **DOT}
COPY = {"layer": "conv1", "role": "weight", "operation": "quantize", "seconds": 0.02}
FULL = {"layer": "fc1", "role": "error", "operation": "matmul", "seconds": 0.03, "multiply_adds": 10**5, **DOT}


def run_with(folder, *places, ends=(10, 20, 30), host=0.02, **info):
    """Return the evidence of a run that holds nothing but a profile."""
    pq.write_table(profile(ends, places, host=host), folder / "profile.parquet")
    (folder / "run.json").write_text(json.dumps({"layers": ["fc1", "conv1"], **info}))
    return gather(folder)


def words(part):
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", " ", part.body)))


def test_what_is_most_expensive_is_named_and_first_calls_are_kept_apart(tmp_path):
    text = words(section(run_with(tmp_path, CONV, COPY, FULL)))
    assert "A step took 10 ms, on average over 30 steps." in text
    assert (
        "The most expensive layer is conv1 with 50% of it, the most expensive operation conv2d for activation of conv1 "
        "(integer dot products) with 30%; 20% passed outside the datapath." in text
    )
    assert "No product was left to the reference." in text
    assert "first calls took 4 s in all" in text


def test_shares_add_up(tmp_path):
    spent = run_with(tmp_path, CONV, COPY, FULL).time
    assert spent.steps == 30
    assert spent.typical_seconds == pytest.approx(0.3)  # three intervals of 100 ms
    assert sum(spent.share([entry]) for entry in spent.entries) == pytest.approx(1)
    assert sum(entry.calls for entry in spent.entries) == 4 * 30
    assert [entry.kind for entry in spent.entries if entry.layer == ""] == ["host"]


def test_bars_are_layers_in_network_order_with_the_host_last(tmp_path):
    (chart,) = section(run_with(tmp_path, CONV, COPY, FULL)).charts
    rows = chart.spec["datasets"]["rows"]
    assert [(row["layer"], row["kind"], row["ms"]) for row in rows] == [
        ("fc1", "integer dot products", 3.0),
        ("conv1", "integer dot products", 3.0),
        ("conv1", "elementwise and output stage", 2.0),
        ("host", "host", 2.0),
    ]


def test_the_table_tells_speed_path_and_proof(tmp_path):
    text = words(section(run_with(tmp_path, CONV, COPY, FULL)))
    proof = "no sum exceeds 2⁴⁴ units of 2⁻²⁰ by the formats, so 64-bit integers are exact in any order"
    assert f"activation of conv1 conv2d integer dot products: {proof} 30 3 ms 30% 3.3 GMAC/s" in text
    assert f"error of fc1 matmul integer dot products: {proof} 30 3 ms 30% 3.3 MMAC/s" in text
    assert f"weight of conv1 quantize {NO_NUMBER} 30 2 ms 20% 0.05 MElem/s" in text
    assert f"host {NO_NUMBER} {NO_NUMBER} 30 2 ms 20% {NO_NUMBER}" in text


def test_what_fell_back_is_named_with_its_reason(tmp_path):
    left = {**CONV, "path": "wide", "proof": "beyond float64", "fallback": "the sums are wider than 64 bits"}
    evidence = run_with(tmp_path, left, COPY, FULL)
    text = words(section(evidence))
    assert (
        "Left to the reference, 30% of the time: conv2d for activation of conv1 (the sums are wider than 64 bits)."
        in text
    )
    assert "No product was left" not in text
    assert "left to the reference: the sums are wider than 64 bits; otherwise wide integers: beyond float64" in text
    assert [entry.kind for entry in evidence.time.entries if entry.operation == "conv2d"] == ["the reference"]


def test_what_fell_back_for_one_reason_is_told_together(tmp_path):
    left = [{**one, "fallback": reason} for one, reason in ((CONV, "odd"), (FULL, "odd"), (COPY, "even"))]
    assert (
        "Left to the reference, 80% of the time: conv2d for activation of conv1, matmul for error of fc1 (odd); "
        "quantize for weight of conv1 (even)." in words(section(run_with(tmp_path, *left)))
    )


def test_a_run_on_the_reference_says_so(tmp_path):
    places = [{**one, "path": "definition", "proof": "the reference runs the definition"} for one in (CONV, FULL)]
    text = words(section(run_with(tmp_path, *places)))
    assert "The reference ran every product by its definition: choose another backend for speed." in text
    assert "No product was left" not in text


def test_the_rest_of_the_run_is_told_where_it_is_known(tmp_path):
    said = (
        "Up to the end of its last step the run took 20 s. Steps took 4.3 s of it; choosing mini-batches, tests, noise "
        "and files took the rest."
    )
    assert said in words(section(run_with(tmp_path, CONV, COPY, FULL, seconds=20.0)))
    assert "the run took" not in words(section(run_with(tmp_path, CONV, COPY, FULL, seconds=0.0)))


def test_the_rest_of_a_run_that_searched_batch_sizes_has_its_trials(tmp_path):
    trials = pa.table({"step": [0, 0], "size": [8, 16], "criterion": [2.0, 1.0], "kept": [False, True]})
    pq.write_table(trials, tmp_path / "search.parquet")
    said = "choosing mini-batches, trials of their sizes, tests, noise and files took the rest."
    assert said in words(section(run_with(tmp_path, CONV, COPY, FULL, seconds=20.0)))


def test_a_run_of_one_step_has_nothing_but_first_calls(tmp_path):
    pq.write_table(profile([1], [CONV], host=0.02, calls=1), tmp_path / "profile.parquet")
    (tmp_path / "run.json").write_text("{}")
    text = words(section(gather(tmp_path)))
    assert "A step took 2 s, on average over 1 step." in text


def test_a_profile_of_the_host_alone_gives_a_page(tmp_path):
    text = words(section(run_with(tmp_path)))
    assert "A step took 2 ms, on average over 30 steps. No product was left to the reference." in text


def test_a_run_without_a_profile_has_no_section(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    assert section(gather(tmp_path)) is None


@pytest.mark.parametrize(
    ("operation", "path", "kind"),
    [
        ("matmul", "float32_blas", "float BLAS"),
        ("matmul", "float64_blas", "float BLAS"),
        ("sum", "wide", "wide integers"),
        ("average", "in_order", "sums in order"),
        ("fma", None, "elementwise and output stage"),
        ("relu", None, "selections"),
        ("function", None, "functions and loss"),
        ("mse", "in_order", "functions and loss"),
    ],
)
def test_every_operation_is_of_a_kind(tmp_path, operation, path, kind):
    evidence = run_with(tmp_path, {"layer": "a", "role": "activation", "operation": operation, "path": path})
    assert [entry.kind for entry in evidence.time.entries if entry.layer] == [kind]
    assert kind in KINDS


def test_a_proof_is_said_in_words():
    assert proof_in_words("the accumulator fp16 rounds at every add") == "the accumulator fp16 rounds at every add"
