"""Changes measured by evaluation: against hand evaluation, interrupted and resumed, by workers, at chance."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import emu
from emu.cli.commands import app
from emu.errors import ConfigError
from emu.report.sensitivity import Sensitivity, read_sensitivity
from emu.search.design import Design
from emu.search.file import load_search
from emu.search.metrics import Metrics
from emu.search.space import Space
from emu.sensitivity import Measuring, SensitivityOptions, question_of
from emu.sensitivity.evaluated import Evaluator
from emu.sensitivity.search_file import write_search
from emu.training.cost import cost_of

SETTINGS = {"training.steps": 40, "training.batch": 16, "data.test_images": 200, "training.log_every": 20}
BITS = SensitivityOptions(bits=(8, 2))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of mlp that has learned a little, on fixed16."""
    folder = tmp_path_factory.mktemp("runs") / "little"
    emu.train("mlp", "fixed16", out=folder, overrides=SETTINGS, report=False)
    return folder


def measured(run: Path, out: Path, options: SensitivityOptions = BITS, **given: Any) -> Sensitivity:
    """What a whole analysis measures."""
    question = question_of(str(run), given.get("model"), given.get("device"), given.get("settings", []), options)
    measuring = Measuring(question, options, out)
    for _ in measuring.measure():
        pass
    return measuring.finish()


@pytest.fixture(scope="module")
def found(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Sensitivity:
    return measured(run, tmp_path_factory.mktemp("out") / "all")


def test_rows_are_what_hand_evaluation_of_the_same_device_gives(run: Path, found: Sensitivity):
    base = emu.evaluate(run)
    rows = {(row.layer, row.role, row.bits): row for row in found.rows}
    for layer, role, passes in (("fc1", "weight", ()), ("fc1", "activation", ("relu1",))):
        row = rows[layer, role, 2]
        assert row.passes == passes
        exceptions = [{"match": name, role: {"format": row.format}} for name in (layer, *passes)]
        table = emu.hardware.PrecisionTable.model_validate({"layers": exceptions})
        device = emu.device("fixed16").with_precision(table, origin="the test")
        by_hand = emu.evaluate(run, device=device)
        result = row.results[1]
        assert (result.accuracy, result.loss) == (by_hand.test_accuracy, by_hand.test_loss)
        assert (result.baseline, result.baseline_loss) == (base.test_accuracy, base.test_loss)
        flags = by_hand.counters.of(layer, role).flags
        assert result.underflow == flags.underflow / by_hand.counters.of(layer, role).elements > 0
        energies = [cost_of("mlp", machine).joules_per_inference for machine in ("fixed16", device)]
        assert row.saving == pytest.approx(1 - energies[1] / energies[0], rel=1e-9)  # doubles beside exact fractions


def test_changed_answers_add_up_to_the_lost_accuracy(found: Sensitivity):
    assert any(row.answers and row.answers.changed for row in found.rows)
    for row in found.rows:
        result = row.results[1]
        assert result.changed is not None
        assert result.spoilt is not None
        assert result.mended is not None
        assert result.spoilt + result.mended <= result.changed
        assert (result.spoilt - result.mended) / 200 == pytest.approx(result.baseline - result.accuracy, abs=1e-12)


def test_the_most_sensitive_come_first_and_answers_decide_between_equal_losses(found: Sensitivity):
    ranked = found.ranked()
    losses = [round(row.lost or 0.0, 12) for row in ranked]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 0.02
    assert {row.bits for row in ranked[:3]} == {2}
    keys = [
        (-loss, -(row.answers.changed or 0) if row.answers else 0) for loss, row in zip(losses, ranked, strict=True)
    ]
    assert keys == sorted(keys)


def test_every_tensor_that_an_evaluation_writes_is_narrowed_where_it_was_measured(run: Path, found: Sensitivity):
    tensors = {row.tensor for row in found.rows}
    layers = ("fc1", "fc2", "output")
    assert tensors == {
        ("input", "activation"),
        *((name, role) for name in layers for role in ("weight", "bias", "activation")),
    }
    weights = np.abs(emu.training.evaluation.read_weights(run)["fc1.weight"]).max()
    (row,) = (row for row in found.rows if row.tensor == ("fc1", "weight") and row.bits == 8)
    largest = float(emu.parse(row.format).max)
    assert largest / 2 < weights <= largest * 1.05  # of 10,000 results one may lie outside
    assert emu.parse(row.own).max > 2 * largest


def test_formats_that_are_given_are_tried_as_they_are(run: Path, tmp_path: Path):
    options = SensitivityOptions(formats=("fp8_e4m3", "fix16f13", "ap_fixed<8,2>"), layers=("fc2",), roles=("weight",))
    found = measured(run, tmp_path, options)
    assert [row.format for row in found.rows] == ["fp8_e4m3", "fix8f6"]  # fix16f13 is what the device has
    assert found.columns() == ["fp8_e4m3", "fix16f13", "fix8f6"]
    assert {found.column_of(row) for row in found.rows} < set(found.columns())


def test_tolerated_tensors_together_are_one_more_evaluation(run: Path, found: Sensitivity):
    (eight,) = (together for together in found.together if together.column == "8 bits")
    tolerated = [row for row in found.rows if row.bits == 8 and found.is_tolerated(row)]
    assert eight.tensors == len(tolerated)
    exceptions = [
        {"match": name, row.role: {"format": row.format}} for row in tolerated for name in (row.layer, *row.passes)
    ]
    table = emu.hardware.PrecisionTable.model_validate({"layers": exceptions})
    device = emu.device("fixed16").with_precision(table, origin="the test")
    assert eight.accuracy == emu.evaluate(run, device=device).test_accuracy
    assert eight.saving is not None
    assert eight.saving > max(row.saving or 0.0 for row in tolerated)


def test_rows_of_the_folder_are_not_measured_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options = SensitivityOptions(bits=(4,), roles=("weight",))
    measured(run, tmp_path, options)
    asked: list[str] = []
    original = Evaluator.measure

    def noting(self: Evaluator, change: Any) -> Any:
        asked.append(change.format)
        return original(self, change)

    monkeypatch.setattr(Evaluator, "measure", noting)
    rows = (tmp_path / "rows.json").read_bytes()
    assert len(measured(run, tmp_path, options).rows) == 3
    assert (asked, (tmp_path / "rows.json").read_bytes()) == ([], rows)
    more = measured(run, tmp_path, SensitivityOptions(bits=(4, 6), roles=("weight",)))
    assert [emu.parse(fmt).width_bits for fmt in asked] == [6, 6, 6]
    assert [row.bits for row in more.rows] == [6, 4] * 3
    assert [row.bits for row in measured(run, tmp_path, options).rows] == [4] * 3  # what is asked for now


def test_an_interrupted_command_keeps_its_rows_and_goes_on(
    run: Path, tmp_path: Path, found: Sensitivity, monkeypatch: pytest.MonkeyPatch
):
    words = ["sensitivity", str(run), "--bits", "8,2", "--out", str(tmp_path / "a b")]
    monkeypatch.setattr("sys.argv", ["emu", *words])
    original, done = Evaluator.measure, list[str]()

    def stopping(self: Evaluator, change: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(change.key)
        return original(self, change)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "measure", stopping)
        stopped = CliRunner().invoke(app, words)
    assert stopped.exit_code == 130
    assert f"3 of 20 changes are in {tmp_path / 'a b'}" in stopped.stderr
    assert f"emu sensitivity {run} --bits 8,2 --out '" in stopped.stderr
    assert len(read_sensitivity(tmp_path / "a b").rows) == 3
    assert "points lost" in stopped.stdout
    assert "3 of 20 changes are measured; the same command goes on." in (tmp_path / "a b" / "report.html").read_text()
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.stderr
    assert read_sensitivity(tmp_path / "a b").rows == found.rows
    assert again.stderr.startswith("4/20 ")


def test_the_command_prints_the_ranked_table_what_can_go_and_what_it_does_not_tell(run: Path, tmp_path: Path):
    done = CliRunner().invoke(
        app, ["sensitivity", str(run), "--bits", "8,2", "--out", str(tmp_path)], env={"COLUMNS": "110"}
    )
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        r"little on fixed16: \d\d\.\d\d% of 200 test answers are right in the unchanged formats\.", lines[0]
    )
    assert lines[1].split() == [
        "layer",
        "role",
        "format",
        "points",
        "lost",
        "changed",
        "loss",
        "saved",
        "events",
    ]
    assert len([line for line in lines if " fix2f" in line and "under " in line]) >= 9
    assert any(line.startswith("8 bits: ") and "tensors lose at most 0.5 points alone." in line for line in lines)
    assert any(re.match(r"2 bits: \d+ of 10 tensors loses? .* Not: \w+ of \w+ \(\d", line) for line in lines)
    assert "note      One role of one layer was narrowed at a time" in done.stdout
    assert "note      The weights were trained in the unchanged formats" in done.stdout
    assert f"emu search {tmp_path / 'search.toml'}" in done.stdout.replace("\n", "")


def test_data_have_the_rows_in_their_order(run: Path, tmp_path: Path):
    words = ["sensitivity", str(run), "--bits", "4", "--roles", "weight", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    data, found = json.loads(done.stdout), read_sensitivity(tmp_path)
    assert data["accuracy"] == found.baseline
    assert [(row["layer"], row["format"], row["lost_share"]) for row in data["rows"]] == [
        (row.layer, row.format, row.lost) for row in found.ranked()
    ]
    assert {row["own_format"] for row in data["rows"]} == {"fix16f13"}
    assert data["report"] == str(tmp_path / "report.html")


def test_workers_measure_the_same_rows(run: Path, tmp_path: Path):
    options = SensitivityOptions(bits=(4,), roles=("weight",))
    here = measured(run, tmp_path / "here", options)
    there = measured(run, tmp_path / "there", SensitivityOptions(bits=(4,), roles=("weight",), workers=2))
    assert there.rows == here.rows


def test_the_search_file_s_first_trials_are_the_device_and_each_tolerated_row_alone(found: Sensitivity):
    path = found.path / "search.toml"
    search = load_search(path)
    space = Space(search, str(path))
    Metrics(search, space, str(path))
    best = found.narrowest()
    assert 0 < len(best) == len(search.variable) <= len({row.tensor for row in found.rows})
    assert (search.baseline, search.seeds, search.trials) == ("fixed16", (1, 2, 3), 1 + len(best) + 4 + 16)
    (bound,) = search.constraint
    assert (bound.metric, bound.at_least) == ("test_accuracy_difference", -0.005)
    assert [objective.metric for objective in search.objective] == ["joules_per_inference", "test_accuracy_difference"]
    design = Design(search)
    first = space.setup(design.values(0, [])).device
    for row in best.values():
        assert stage(first, row.layer, row.role).format.width_bits == row.own_bits
    for number, row in enumerate(best.values(), 1):
        device = space.setup(design.values(number, [])).device
        for name in (row.layer, *row.passes):
            assert str(stage(device, name, row.role).format) == row.format
        assert stage(device, row.layer, row.role).overflow.value == "saturate"
        others = [other for other in best.values() if other.tensor != row.tensor]
        assert all(stage(device, other.layer, other.role).format.width_bits == 16 for other in others)
    assert space.baseline.device == emu.device("fixed16")
    assert space.baseline.recipe.data.test_images == 200  # the recipe of the run, not the shipped one
    assert design.waits_for(1 + len(best)) == 1 + len(best)


def stage(device: Any, layer: str, role: str) -> Any:
    return emu.precision.Policy(device.precision).stage(layer, role)


def test_floats_become_choices_that_start_at_the_device_s_own_format(run: Path, tmp_path: Path):
    found = measured(run, tmp_path, SensitivityOptions(bits=(10, 6), roles=("weight",), layers=("fc*",)), device="fp16")
    search = load_search(tmp_path / "search.toml")
    Space(search, str(tmp_path / "search.toml"))
    (first, _) = search.variable
    assert first.choices is not None
    assert first.choices[0] == first.start == "fp16"
    assert first.probe == found.narrowest()["fc1", "weight"].format
    assert search.device == str(tmp_path / "device.toml")


@pytest.mark.parametrize("formats", [("fix16f11",), ("fix20f11", "fix8f3")])
def test_formats_as_wide_as_the_device_s_own_or_wider_are_choices(formats: tuple[str, ...], run: Path, tmp_path: Path):
    measured(run, tmp_path, SensitivityOptions(formats=formats, roles=("activation",), layers=("fc1",), margin=0.99))
    (variable,) = load_search(tmp_path / "search.toml").variable
    assert variable.choices is not None
    assert set(formats) <= set(variable.choices)
    assert variable.probe in formats


def test_a_float_tried_for_a_moving_point_is_the_probe(tmp_path: Path):
    emu.train("mlp", "dlu8", out=tmp_path / "run", overrides=SETTINGS, report=False)
    options = SensitivityOptions(formats=("fp6_e3m2",), roles=("weight",), layers=("fc1",), margin=0.99)
    measured(tmp_path / "run", tmp_path / "out", options)
    (variable,) = load_search(tmp_path / "out" / "search.toml").variable
    assert (variable.choices, variable.probe) == (("fix8f?", "fp6_e3m2"), "fp6_e3m2")


def written_search(run: Path, out: Path, **changes: Any) -> str | None:
    """What is written of the row of fc1's activations after some of its fields are changed."""
    options = SensitivityOptions(bits=(8,), roles=("activation",), layers=("fc1",), margin=0.99)
    found = measured(run, out, options)
    rows = tuple(replace(row, **changes) for row in found.rows)
    return write_search(question_of(str(run), None, None, [], options), options, replace(found, rows=rows))


def test_characters_beyond_the_first_plane_are_written_as_toml_reads_them(run: Path, tmp_path: Path):
    out = tmp_path / "\U0001f600"
    assert written_search(run, out, layer="\U0001d11e") == "search.toml"
    search = load_search(out / "search.toml")
    assert search.device == str(out / "device.toml")
    assert search.set[0].keys[0] == "device.precision.layers[\U0001d11e].activation.format"


@pytest.mark.parametrize("changes", [{"layer": "fc[1]"}, {"passes": ("relu*",)}])
def test_names_that_are_no_keys_have_no_variable(changes: dict[str, Any], run: Path, tmp_path: Path):
    assert written_search(run, tmp_path, **changes) is None
    assert not (tmp_path / "search.toml").exists()


def test_a_baseline_at_chance_is_said_on_top_and_ranks_nothing(tmp_path: Path):
    emu.train("mlp", "fixed16", out=tmp_path / "run", overrides={**SETTINGS, "training.steps": 1}, report=False)
    words = ["sensitivity", str(tmp_path / "run"), "--bits", "4", "--roles", "weight", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("The unchanged device is at chance: ")
    assert "guessing gets 10%" in done.stdout.splitlines()[0]
    assert "points lost" not in done.stdout
    assert "tensors lose" not in done.stdout
    assert not (tmp_path / "out" / "search.toml").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("The unchanged device is at chance") < page.index("in the unchanged formats")
    assert "points lost" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    found = read_sensitivity(tmp_path / "out")
    assert [row.layer for row in found.ranked()] == ["fc1", "fc2", "output"]
    assert not any(found.is_tolerated(row) for row in found.rows)


def test_a_file_of_weights_is_placed_by_its_own_evaluation(run: Path, tmp_path: Path):
    arrays = emu.training.evaluation.read_weights(run)
    np.savez(tmp_path / "weights.npz", **{name: array.astype(np.float64) for name, array in arrays.items()})
    options = SensitivityOptions(bits=(8,), roles=("weight", "activation"), layers=("fc*",))
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    found = measured(
        tmp_path / "weights.npz", tmp_path / "out", options, model="mlp", device="fixed16", settings=settings
    )
    assert found.about["network"] == "weights"
    assert found.baseline == emu.evaluate(run).test_accuracy
    assert {row.layer for row in found.rows} == {"fc1", "fc2"}
    assert all(emu.parse(row.format).frac_bits > 8 - 16 + emu.parse(row.own).frac_bits for row in found.rows)


def test_a_dynamic_word_is_narrowed_around_the_values_that_its_run_had(tmp_path: Path):
    emu.train("mlp", "dlu8", out=tmp_path / "run", overrides=SETTINGS, report=False)
    found = measured(tmp_path / "run", tmp_path / "out", SensitivityOptions(bits=(6,), roles=("weight",)))
    assert found.baseline == emu.evaluate(tmp_path / "run").test_accuracy
    assert [row.own for row in found.rows] == ["fix8f?"] * 3
    assert all(re.fullmatch(r"fix6f-?\d+", row.format) for row in found.rows)
    assert all((row.answers.changed or 0) < 60 for row in found.rows if row.answers)  # points of all others stay
    search = load_search(tmp_path / "out" / "search.toml")
    assert {assignment.value for assignment in search.set} <= {f"fix{{{v.name}}}f?" for v in search.variable}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mlp"], "without --train, a trained network must be given, got 'mlp'"),
        (
            ["RUN", "--roles", "error"],
            "roles that an evaluation writes, weight, bias, activation, got 'error'; add --train",
        ),
        (
            ["RUN", "--roles", "wieght"],
            "an evaluation writes, weight, bias, activation, got 'wieght'; did you mean 'weight'?",
        ),
        (["RUN", "--layers", "conv*"], "got 'conv*'; there are input, fc1, fc2, output"),
        (["RUN", "--bits", "32"], "there must be a tensor whose format can be narrowed, got none"),
        (["RUN", "--bits", "eight"], "--bits must be whole numbers with commas between them, got 'eight'"),
        (["RUN", "--bits", "1"], "narrower than fix16f9 must have at least 2 bits, got 1"),
        (["RUN", "--formats", "fix8"], "--formats must be formats, got 'fix8'"),
        (["RUN", "--formats", "fix8f?"], "--formats must have a binary point, got 'fix8f?'"),
        (["RUN", "--seeds", "1,2"], "--seeds must be given with --train"),
        (["RUN", "--train", "0"], "--train must be at least 1 step, got 0"),
        (["RUN", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["RUN", "--margin", "-1"], "--margin must be 0 to 100 points, got -1"),
        (["RUN", "--set", "training.steps=2"], "--set must not be laid over the recipe of a run"),
        (["RUN", "--model", "mlp"], "--model must be given with a file of weights alone"),
        (["w.npz", "--train", "3", "--model", "mlp"], "--train must be given a model or a run, got weights, 'w.npz'"),
        (["RUN", "--out", "RUN"], "--out must not be the folder of a run"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(run: Path, words: list[str], message: str, tmp_path: Path):
    given = [str(run) if word == "RUN" else word for word in words]
    given += [] if "--out" in words else ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["sensitivity", *given])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)


def test_a_folder_keeps_the_rows_of_one_network_on_one_device(run: Path, tmp_path: Path):
    options = SensitivityOptions(bits=(4,), roles=("bias",), layers=("fc1",))
    measured(run, tmp_path, options)
    before = json.loads((tmp_path / "rows.json").read_text())
    with pytest.raises(ConfigError, match="must have an analysis of one network on one device"):
        measured(run, tmp_path, options, device="dlu16")
    assert json.loads((tmp_path / "rows.json").read_text()) == before
