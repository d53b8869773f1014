"""What the report says about a run: outcome, diagnosis, formats and units in words."""

import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import write_run

import emu
from emu.hardware.precision_table import EVERY_ROLE
from emu.precision import DERIVED_ROLES
from emu.report.diagnosis import grouped
from emu.report.evidence import gather
from emu.report.header import first_finding, header
from emu.report.histories import LeadingBits, leading_bits
from emu.report.pictures.all_ranges import section as ranges_section
from emu.report.pictures.all_ranges import tensor_range
from emu.report.pictures.leading_bits import section as leading_bits_section
from emu.report.pictures.leading_bits_panel import panel, summary_of
from emu.report.pictures.noise import section as noise_section
from emu.report.range_of_format import range_of
from emu.report.texts.machine import section as machine_section
from emu.report.words import NO_NUMBER, ROLE_MEANINGS, format_in_words, mac_in_words, overflow_in_words, percent
from emu.training.folders.claim import training_alone

FLAGS = ("overflow", "underflow", "inexact", "invalid", "subnormal", "accumulator_overflow")


def run_with(folder, *, formats=(), flags=(), snr=(), metrics=None, **info):
    """Write a run folder that holds only what is given: rows of flags (layer, role, elements, {flag: count})."""
    rows = [{"layer": layer, "role": role, "format": text, **more} for layer, role, text, more in formats]
    base = {"status": "finished", "steps": 10, "layers": list(dict.fromkeys(row["layer"] for row in rows))}
    (folder / "run.json").write_text(json.dumps({**base, "formats": rows, **info}))
    if flags:
        columns = {"step": [10] * len(flags), "layer": [f[0] for f in flags], "role": [f[1] for f in flags]}
        counts = {name: [f[3].get(name, 0) for f in flags] for name in FLAGS}
        pq.write_table(pa.table({**columns, "elements": [f[2] for f in flags], **counts}), folder / "flags.parquet")
    if snr:
        columns = {"step": [10] * len(snr), "layer": [s[0] for s in snr], "role": [s[1] for s in snr]}
        pq.write_table(
            pa.table({**columns, "snr_db": pa.array([s[2] for s in snr], pa.float64())}), folder / "snr.parquet"
        )
    if metrics:
        pq.write_table(pa.table(metrics), folder / "metrics.parquet")
    return gather(folder)


def told(evidence):
    return [f"{one.subject}: {one.sentence}" for one in evidence.findings]


@pytest.mark.parametrize(
    ("cluster", "advice"),
    [
        ({"nodes": 4}, "Its nodes exchange gradients of one bit, which need a lower learning rate, or a warm start"),
        ({"nodes": 4, "bits": 4}, "Its nodes exchange gradients of 4 bits, which need"),
        ({"nodes": 4, "bits": 5}, ""),
        ({"nodes": 4, "bits": 32}, ""),
        (None, ""),
    ],
)
def test_a_cluster_of_few_bits_that_learned_nothing_is_told_what_to_try(tmp_path, cluster, advice):
    recipe = {"network": {"classes": 10}, **({"cluster": cluster} if cluster else {})}
    metrics = {"step": [10], "train_loss": [2.3], "test_accuracy": [0.1]}
    evidence = run_with(tmp_path, metrics=metrics, recipe=recipe)
    (sentence,) = [finding.sentence for finding in evidence.findings if finding.kind == "chance"]
    assert advice in sentence
    assert ("exchange" in sentence) == bool(advice)


def test_the_first_finding_says_how_many_more_there_are(tmp_path):
    flags = [("conv1", "error", 100, {"underflow": 97}), ("conv2", "error", 100, {"underflow": 90}),
             ("conv2", "activation", 100, {"overflow": 50})]  # fmt: skip
    formats = [(layer, role, "fix8f7", {}) for layer, role, *_ in flags]
    text = first_finding(run_with(tmp_path, formats=formats, flags=flags))
    assert text.startswith("activation of conv2: 50% of results were too large")
    assert text.endswith(". 1 more in the report.")
    recipe = {"network": {"classes": 10}}
    metrics = {"step": [10], "train_loss": [2.3], "test_accuracy": [0.1]}
    failed = first_finding(run_with(tmp_path, formats=formats, flags=flags, metrics=metrics, recipe=recipe))
    assert failed.startswith("The run: 10% of the test images are right")
    assert " learned nothing. activation of conv2: 50% of results were too large" in failed
    assert failed.endswith(". 1 more in the report.")
    (tmp_path / "metrics.parquet").unlink()
    alone = first_finding(run_with(tmp_path, formats=formats, flags=flags[:2]))
    assert alone.endswith("Likewise in conv2 (90%).")


def test_a_run_of_which_nothing_was_measured_is_not_said_to_be_sound(tmp_path):
    evidence = run_with(tmp_path)
    nothing = "this run folder holds neither flags nor signal-to-noise, so nothing can be said about its arithmetic"
    assert first_finding(evidence) == nothing
    assert f"<p>T{nothing[1:]}.</p>" in header(evidence)


def test_errors_lost_below_the_smallest_step_cost_the_layers_below_their_gradient(tmp_path):
    evidence = run_with(
        tmp_path, formats=[("conv1", "error", "fix8f7", {})], flags=[("conv1", "error", 100, {"underflow": 97})]
    )
    assert told(evidence) == [
        "error of conv1: 97% of results fell below the smallest step of fix8f7 (0.0078) and were written as 0: "
        "the layers below it receive no gradient."
    ]


@pytest.mark.parametrize(
    ("fmt", "rule", "instead"),
    [
        ("fix16f13", "saturate", "were written as a limit of fix16f13 (-4 or 3.99988)"),
        ("fix16f13", "wrap", "wrapped around, sign included"),
        ("fp16", None, "became infinite"),
        ("fp16", "satfinite", "were written as a limit of fp16 (-65504 or 65504)"),
        ("fp16", "satpropagate", "were written as a limit of fp16 (-65504 or 65504)"),
    ],
)
def test_overflow_says_what_was_written_instead(tmp_path, fmt, rule, instead):
    formats = [("conv1", "activation", fmt, {"overflow": rule})]
    evidence = run_with(tmp_path, formats=formats, flags=[("conv1", "activation", 100, {"overflow": 25})])
    assert told(evidence) == [
        f"activation of conv1: 25% of results were too large and {instead}: "
        "the layers above it see other values than conv1 computed."
    ]


def test_little_overflow_and_underflow_is_no_finding(tmp_path):
    flags = [("conv1", "weight", 1000, {"overflow": 1, "underflow": 200, "inexact": 999})]
    assert told(run_with(tmp_path, formats=[("conv1", "weight", "fp16", {})], flags=flags)) == []


LEARNED = {"step": [5, 10], "train_loss": [2.0, 0.1], "test_accuracy": [None, 0.973]}


@pytest.mark.parametrize(
    ("snr", "still"), [([], "."), ([("conv1", "error", 34.0)], ", and its signal-to-noise is 34.0 dB.")]
)
def test_an_underflow_among_the_key_figures_that_is_no_finding_is_explained(tmp_path, snr, still):
    flags = [("conv1", "error", 100, {"underflow": 29}), ("conv2", "error", 100, {"underflow": 28})]
    formats = [("conv1", "error", "fix16f13", {}), ("conv2", "error", "fp16", {})]
    evidence = run_with(tmp_path, metrics=LEARNED, formats=formats, flags=flags, snr=snr)
    assert (
        "Underflow was most in error of conv1: 29% of its results were smaller than the smallest step of fix16f13 "
        "(1.2e-4) and became 0. Under 30% this is harmless: each is off by less than that, as any rounded result may "
        f"be{still}" in header(evidence)
    )


def test_an_underflow_of_a_hundredth_is_explained_and_less_is_not(tmp_path):
    for count, explained in ((10, True), (9, False)):
        flags, formats = [("conv1", "error", 1000, {"underflow": count})], [("conv1", "error", "fix16f13", {})]
        assert ("harmless" in header(run_with(tmp_path, metrics=LEARNED, formats=formats, flags=flags))) == explained


@pytest.mark.parametrize(
    ("metrics", "count", "snr"),
    [
        (LEARNED, 30, []),  # a finding
        (LEARNED, 0, []),
        (LEARNED, 29, [("conv1", "error", 6.0)]),  # noise is the finding
        ({"step": [5, 10], "train_loss": [2.0, math.nan], "test_accuracy": [None, 0.1]}, 29, []),
    ],
)
def test_an_underflow_is_not_called_harmless_where_it_is_not_or_where_there_is_none(tmp_path, metrics, count, snr):
    formats, flags = [("conv1", "error", "fix16f13", {})], [("conv1", "error", 100, {"underflow": count})]
    assert "harmless" not in header(run_with(tmp_path, metrics=metrics, formats=formats, flags=flags, snr=snr))


def test_noise_names_the_flag_that_explains_it(tmp_path):
    evidence = run_with(
        tmp_path,
        formats=[("fc1", "weight", "fix8f5", {}), ("fc2", "weight", "fix8f5", {})],
        flags=[("fc1", "weight", 100, {"underflow": 20}), ("fc2", "weight", 100, {})],
        snr=[("fc1", "weight", 6.0), ("fc2", "weight", -3.0)],
    )
    first, second = told(evidence)
    assert first.startswith("weight of fc2: signal-to-noise is -3.0 dB against float32 with the same weights: ")
    assert first.endswith(
        "hardly any overflow or underflow itself, so the noise came in with its operands or is rounding."
    )
    assert second.endswith("noise is 50% of the signal; 20% of its own results raised underflow.")


def test_noise_of_a_tensor_with_a_known_cause_is_told_once(tmp_path):
    evidence = run_with(
        tmp_path,
        formats=[("fc1", "update", "fix8f5", {})],
        flags=[("fc1", "update", 100, {"underflow": 99})],
        snr=[("fc1", "update", 1.5)],
    )
    assert len(evidence.findings) == 1
    assert evidence.findings[0].sentence.endswith("Its signal-to-noise is 1.5 dB.")


def test_findings_of_one_kind_and_role_are_told_together(tmp_path):
    flags = [(layer, "error", 100, {"underflow": count}) for layer, count in (("a", 60), ("b", 90), ("c", 70))]
    evidence = run_with(tmp_path, formats=[(f[0], "error", "fp16", {}) for f in flags], flags=flags)
    assert [[one.subject for one in group] for group in grouped(evidence.findings)] == [
        ["error of b", "error of c", "error of a"]
    ]


def test_a_null_ratio_means_identical_and_nan_means_undefined(tmp_path):
    evidence = run_with(tmp_path, snr=[("a", "weight", None), ("b", "weight", math.nan), ("c", "weight", 40.0)])
    assert evidence.noise["a", "weight"].last == math.inf
    assert math.isnan(evidence.noise["b", "weight"].last)
    assert evidence.findings == []


def test_the_outcome_of_a_network_that_learned(tmp_path):
    metrics = {"step": [5, 10], "train_loss": [2.0, 0.0812], "test_accuracy": [None, 0.973]}
    evidence = run_with(tmp_path, metrics=metrics, seconds=74.2)
    assert evidence.outcome.sentence() == "Trained 10 steps in 74 s: 97.3% test accuracy, training loss 0.0812."
    assert evidence.findings == []


def test_the_outcome_of_a_network_that_guesses(tmp_path):
    metrics = {"step": [5, 10], "train_loss": [2.3, 2.3], "test_accuracy": [0.1, 0.102]}
    evidence = run_with(tmp_path, metrics=metrics, recipe={"network": {"classes": 10}})
    assert (
        evidence.outcome.sentence()
        == "Trained 10 steps and learned nothing: 10.2% test accuracy, where guessing gets 10%."
    )
    assert evidence.findings[0].sentence.endswith("the network has learned nothing.")


def test_the_outcome_of_a_loss_that_is_not_finite_names_the_step(tmp_path):
    metrics = {"step": [5, 10, 15], "train_loss": [2.3, math.inf, math.nan]}
    evidence = run_with(tmp_path, metrics=metrics)
    assert evidence.outcome.sentence() == "Trained 15 steps, but the loss is not a finite number from step 10 on."


def test_a_loss_that_is_finite_again_is_not_said_to_be_lost_from_there_on(tmp_path):
    metrics = {"step": [5, 10, 15, 20], "train_loss": [2.3, math.inf, math.nan, 0.5]}
    evidence = run_with(tmp_path, metrics=metrics)
    assert evidence.outcome.sentence() == "Trained 20 steps: training loss 0.5."
    assert told(evidence) == [
        "The run: the loss was not a finite number in the interval up to step 10, and is one again later: some step "
        "there gave infinity or NaN."
    ]
    lost = run_with(tmp_path, metrics={**metrics, "train_loss": [math.nan, 2.3, math.inf, math.nan]})
    assert lost.outcome.sentence() == "Trained 20 steps, but the loss is not a finite number from step 15 on."
    assert len(told(lost)) == 2


def test_the_outcome_of_a_run_that_has_not_finished(tmp_path):
    evidence = run_with(tmp_path, metrics={"step": [5], "train_loss": [2.0]}, status="running", steps=100)
    assert evidence.outcome.sentence() == (
        "Stopped at step 5: training loss 2. It stopped because its process was killed, or its computer went off. "
        "Continue it with emu train --resume."
    )


def test_the_outcome_of_a_run_that_a_process_trains(tmp_path):
    with training_alone(tmp_path):
        evidence = run_with(tmp_path, metrics={"step": [5], "train_loss": [2.0]}, status="running", steps=100)
    assert evidence.outcome.sentence() == "Still running, at step 5: training loss 2."


def test_the_outcome_of_a_run_that_noted_why_it_stopped(tmp_path):
    info = {"status": "stopped", "stopped_because": "it was interrupted from the keyboard", "steps": 100}
    evidence = run_with(tmp_path, metrics={"step": [5], "train_loss": [2.0]}, **info)
    assert evidence.outcome.sentence() == (
        "Stopped at step 5: training loss 2. It stopped because it was interrupted from the keyboard. Continue it with "
        "emu train --resume."
    )


@pytest.mark.parametrize(
    ("stop", "stopped_by", "held"),
    [
        ({"test_accuracy": 0.97}, ["test_accuracy"], "test_accuracy at least 0.97"),
        ({"test_error": 0.03, "epochs": 9}, ["test_error", "epochs"], "test_error at most 0.03 and epochs at least 9"),
        (
            {"improvement": {"below": 0.001, "of": "test_loss", "points": 3}},
            ["improvement"],
            "test_loss improved by less than 0.001 over the last 3 log points",
        ),
        ({"improvement": {"below": 0.5, "of": "train_loss", "points": 1}}, ["improvement"],
         "train_loss improved by less than 0.5 over the last log point"),
        ({}, ["epochs"], "epochs"),
    ],
)  # fmt: skip
def test_the_outcome_of_a_run_that_a_stop_test_ended_names_it_c10(tmp_path, stop, stopped_by, held):
    metrics = {"step": [5, 10], "train_loss": [2.0, 0.0812], "test_accuracy": [None, 0.973]}
    evidence = run_with(
        tmp_path, metrics=metrics, seconds=74.2, stopped_by=stopped_by, recipe={"training": {"stop": stop}}
    )
    assert evidence.outcome.sentence() == (
        f"Trained 10 steps in 74 s until a stop test held ({held}): 97.3% test accuracy, training loss 0.0812."
    )


def test_accuracy_that_was_lost_again_is_a_finding(tmp_path):
    metrics = {"step": [5, 10], "train_loss": [0.3, 1.0], "test_accuracy": [0.9, 0.5]}
    evidence = run_with(tmp_path, metrics=metrics)
    assert told(evidence) == ["The run: test accuracy was 90% at step 5 and has fallen to 50% since."]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fix16f13", "16 bits, 13 fraction bits, -4 .. 3.99988, steps of 1.2e-4"),
        ("ufix8f0", "8 bits unsigned, 0 fraction bits, 0 .. 255, steps of 1"),
        ("fix8f-2", "8 bits, the last one weighs 2², -512 .. 508, steps of 4"),
        ("fix64f0", "64 bits, 0 fraction bits, -9.22337e18 .. 9.22337e18, steps of 1"),
        ("fix8f2000", "8 bits, 2000 fraction bits, -10⁻⁶⁰⁰ .. 10⁻⁶⁰⁰, steps of 10⁻⁶⁰²"),
        ("fix16f?", "16 bits, the point moves while the machine runs"),
        (
            "fp8_e4m3",
            "8 bits: sign, 4 exponent, 3 fraction; -448 .. 448, full precision (about 1 digit) down to 0.016, "
            "smallest 2.0e-3, no infinity",
        ),
        (
            "e5m2 ftz",
            "8 bits: sign, 5 exponent, 2 fraction; -57344 .. 57344, full precision (about 1 digit) down to 6.1e-5, "
            "smaller results are flushed to 0",
        ),
        ("posit8", "a format that this version of emu does not have"),
    ],
)
def test_a_format_in_words(text, words):
    assert format_in_words(text) == words


def test_a_mac_in_words():
    chain = {"product": "fp32", "accumulator": "fp32", "order": "sequential", "rounding": "nearest_even"}
    assert mac_in_words(chain) == (
        "each product is rounded to fp32, each sum is rounded to fp32, in sequential order; "
        "rounding to the nearest value, ties to even"
    )
    assert mac_in_words({"product": "exact", "accumulator": "fp32", "order": "pairwise", "rounding": "floor"}) == (
        "products are exact, each sum is rounded to fp32, in pairwise order; "
        "rounding toward minus infinity (low bits dropped)"
    )


def test_the_default_overflow_rule_is_that_of_the_format():
    assert overflow_in_words(None, "fp16") == overflow_in_words("ieee")
    assert overflow_in_words(None, "fix8f4") == overflow_in_words("saturate")
    said = {overflow_in_words(rule.value) for rule in emu.Overflow}
    assert len(said) == len(emu.Overflow)
    assert not said & {rule.value for rule in emu.Overflow}


@pytest.mark.parametrize(
    ("text", "top", "bottom", "kinds"),
    [
        ("fix8f4", 3, -4, ["largest", "smallest"]),
        ("ufix8f4", 4, -4, ["largest", "smallest"]),
        ("fp16", 16, -24, ["largest", "normal", "smallest"]),
        ("fp16 ftz", 16, -14, ["largest", "smallest"]),
        ("fp8_e4m3", 9, -9, ["largest", "normal", "smallest"]),
    ],
)
def test_the_range_of_a_format_in_powers_of_two(text, top, bottom, kinds):
    covered = range_of(text)
    assert (covered.top, covered.bottom, [line.kind for line in covered.lines]) == (top, bottom, kinds)


def test_a_format_whose_point_moves_has_no_range_to_draw():
    assert range_of("fix16f?") is None


def test_shares_in_percent_never_hide_something_as_nothing_nor_almost_all_as_all():
    assert [percent(s) for s in (1e-9, 0.99999, 0.5, 1.0)] == ["<0.001%", "99.99%", "50%", "100%"]


def test_shares_in_percent_may_be_negative_or_more_than_all():
    assert [percent(s) for s in (-0.03, -0.9999, -0.0, 1.5, 2.0)] == ["-3%", "-99.99%", "0%", "150%", "200%"]


def test_every_role_that_a_run_can_write_has_a_place_in_the_glossary():
    assert set(ROLE_MEANINGS) == {*EVERY_ROLE, *DERIVED_ROLES}


def test_the_page_of_a_run_explains_every_role_that_it_writes(tmp_path):
    roles = ("weight", "slope", "norm", "moment", "orthogonal", "master")
    section = machine_section(run_with(tmp_path, formats=[("fc1", role, "fp32", {}) for role in reversed(roles)]))
    glossary = section.body.split("Roles of a tensor")[1].split("</dl>")[0]
    assert re.findall(r"<dt>(\w+)</dt>", glossary) == [*roles]


def test_roles_that_are_measured_and_unknown_ones_look_unlike_in_the_picture_of_noise(tmp_path):
    roles = ("weight", "bias", "activation", "loss", "error", "gradient", "slope", "another")
    formats, snr = [("fc1", role, "fp32", {}) for role in roles], [("fc1", role, 20.0) for role in roles]
    section = noise_section(run_with(tmp_path, formats=formats, snr=snr))
    colours = section.charts[0].spec["layer"][0]["encoding"]["color"]["scale"]
    assert len(set(colours["range"])) == len(roles) == len(set(colours["domain"]))


def history():
    counts = np.array([[1, 0, 2], [0, 3, 0], [4, 0, 0]])
    zeros = np.array([0, 0, 0])
    scalars = {
        "none": np.array([1, 2, 3]),
        "below": zeros,
        "above": zeros,
        "nonfinite": zeros,
        "total": np.array([4, 5, 7]),
    }
    return LeadingBits(np.array([10, 20, 30]), -5, counts, scalars)


def test_merged_intervals_hold_every_count_and_end_where_the_last_of_them_ends():
    merged = history().merged(2)
    assert merged.steps.tolist() == [20, 30]
    assert merged.counts.tolist() == [[1, 3, 2], [4, 0, 0]]
    assert merged.scalars["total"].tolist() == [9, 7]


def test_every_result_of_an_interval_is_drawn_once(tmp_path):
    evidence = gather(write_run(tmp_path / "x", points=4))
    bits = leading_bits(evidence.run)["conv1", "activation"]
    shown = panel(evidence, ("conv1", "activation"), bits)
    columns = np.array([parts for _, parts in shown["rows"]] + [parts for *_, parts in shown["special"]])
    # shares are rounded to millionths, row by row
    assert np.all(np.abs(columns.sum(axis=0) - 1_000_000) <= len(columns))


@pytest.mark.parametrize(
    ("outside", "sentence"),
    [
        ({}, "Every result was zero or not a finite number."),
        ({"above": 8}, "No result lies within the register's positions: 50% lie above them. Give the device others"),
        ({"below": 4, "above": 8}, "positions: 25% lie below them and 50% lie above them. Give the device others"),
    ],
)
def test_a_register_that_saw_no_result_says_whether_there_were_none(outside, sentence):
    zeros = np.array([0])
    scalars = dict.fromkeys(("none", "below", "above", "nonfinite"), zeros) | {"total": np.array([16])}
    scalars |= {kind: np.array([count]) for kind, count in outside.items()}
    empty = LeadingBits(np.array([10]), 0, np.zeros((1, 0), int), scalars)
    assert sentence in summary_of(empty, None, moves=False)


@pytest.mark.parametrize(
    ("fmt", "register", "is_seen"),
    [
        ("fp32", {}, False),  # 40 positions from 2**-149 on
        ("bf16", {}, False),
        ("fp16", {}, True),  # 40 positions from 2**-24 on: as far as the format
        ("fp32", {"lowest": -64, "bins": 96}, False),
        ("fp32", {"lowest": -149, "bins": 277}, True),
        ("fix16f8", {}, True),
    ],
)
def test_results_above_the_positions_of_a_register_are_beyond_a_format_only_if_both_end_together(
    tmp_path, fmt, register, is_seen
):
    rows = [
        {"step": 10, "layer": "fc1", "role": "gradient", "kind": kind, "exponent": exponent, "count": count}
        for kind, exponent, count in (
            ("positive", -20, 25), ("above", None, 75), ("none", None, 0), ("below", None, 0), ("nonfinite", None, 0),
            ("total", None, 100),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "registers.parquet")
    device = {"name": "x", "precision": {"register": register}}
    evidence = run_with(tmp_path, formats=[("fc1", "gradient", fmt, {})], device=device)
    history = evidence.bits["fc1", "gradient"]
    summary = panel(evidence, ("fc1", "gradient"), history)["summary"]
    drawn = tensor_range(evidence, ("fc1", "gradient"), history)
    assert ("75% lie above the register's positions" in summary) == (not is_seen)
    assert ("75% beyond the range" in summary) == is_seen
    assert (drawn.above, drawn.seen is None) == ((0.75, False) if is_seen else (0.0, True))
    assert history.merged(1).ends == history.ends


@pytest.mark.parametrize(
    ("fmt", "register", "is_known"),
    [
        ("fp16", {}, True),  # positions from 2**-24 on, which is its smallest value
        ("fp16", {"lowest": -10}, False),
        ("fp16", {"lowest": -24}, True),
        ("fix16f8", {"lowest": -6, "bins": 30}, False),
        ("fix16f8", {"lowest": -9, "bins": 30}, True),
    ],
)
def test_results_below_the_positions_of_a_register_are_below_a_format_only_if_both_start_together(
    tmp_path, fmt, register, is_known
):
    rows = [
        {"step": 10, "layer": "fc1", "role": "gradient", "kind": kind, "exponent": exponent, "count": count}
        for kind, exponent, count in (
            ("positive", 0, 50), ("above", None, 0), ("none", None, 0), ("below", None, 50), ("nonfinite", None, 0),
            ("total", None, 100),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "registers.parquet")
    device = {"name": "x", "precision": {"register": register}}
    evidence = run_with(tmp_path, formats=[("fc1", "gradient", fmt, {})], device=device)
    history = evidence.bits["fc1", "gradient"]
    summary = panel(evidence, ("fc1", "gradient"), history)["summary"]
    assert ("50% smaller than anything the format can write." in summary) == is_known
    assert ("50% lie below the register's positions, so that nothing is known" in summary) == (not is_known)
    drawn = tensor_range(evidence, ("fc1", "gradient"), history)
    assert (drawn.above, drawn.seen, drawn.below) == (0.0, (0, 1), 0.5 if is_known else None)
    cell = "50%" if is_known else NO_NUMBER
    assert f'data-label="below the range">{cell}</td>' in ranges_section(evidence).body
    assert f'data-label="below range">{cell}</td>' in leading_bits_section(evidence).body
    assert history.merged(1).starts == history.starts


def test_the_panel_says_how_much_lies_outside_the_range_of_its_format(tmp_path):
    evidence = run_with(tmp_path, formats=[("conv1", "weight", "fix8f4", {})])
    summary = panel(evidence, ("conv1", "weight"), history())["summary"]
    assert summary == (
        "Results from 2⁻⁵ to 2⁻², 38% exactly zero. None beyond the range, 5 powers of two of headroom. "
        "31% smaller than anything the format can write."
    )
