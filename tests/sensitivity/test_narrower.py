"""Which format a number of bits is, and what a change does to a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu._paths import content_folder
from emu.datapath import StatisticsRegister
from emu.errors import ConfigError
from emu.formats import parse
from emu.hardware import Device, PrecisionTable, load_device
from emu.precision import Policy
from emu.sensitivity.change import Change, Saving, changed
from emu.sensitivity.narrower import narrower, range_of
from emu.sensitivity.question import SensitivityOptions, changes_of, question_of
from emu.sensitivity.ranges import passing_on
from emu.training import load_recipe
from emu.training.cost import cost_of


@pytest.mark.parametrize(
    ("own", "bits", "measured", "narrow"),
    [
        ("fix16f13", 8, None, "fix8f5"),  # the range of 3 integer bits stays
        ("fix16f13", 8, 0, "fix8f7"),  # below 1: no integer bit besides the sign
        ("fix16f13", 8, -3, "fix8f10"),  # below 1/8
        ("fix16f13", 8, 2, "fix8f5"),  # exactly the format's own range
        ("fix16f13", 8, 5, "fix8f5"),  # more than the format holds: its own range
        ("ufix16f12", 8, None, "ufix8f4"),
        ("ufix16f12", 8, 1, "ufix8f7"),
        ("fix16f9", 4, 5, "fix4f-2"),
        ("fix8f?", 4, -1, "fix4f4"),
        ("fix8f?", 5, None, "fix5f2"),
        ("fp16", 8, None, "fp8_e5m2"),
        ("fp16", 8, -4, "fp8_e5m2"),  # the exponent keeps its width, so its bias stays, too
        ("fp16", 12, None, "e5m6"),
        ("fp8_e4m3", 7, None, "e4m2 finite nans=top"),
        ("fp16", 7, None, "e4m2 finite nans=none"),
        ("fp32", 8, None, "e5m2 finite nans=none"),
        ("fp16 ftz daz", 6, None, "e3m2 finite nans=none ftz daz"),
        ("fp16 ftz daz", 9, None, "e5m3 ftz daz"),
        ("bf16", 5, None, "e2m2 finite nans=none"),
        ("bf16", 4, None, "e2m1 finite nans=none"),
        ("bf16", 3, None, "e1m1 finite nans=none"),
    ],
)
def test_bits_become_the_format_that_the_rule_says(own: str, bits: int, measured: int | None, narrow: str):
    assert narrower(parse(own), bits, measured) == parse(narrow)


@pytest.mark.parametrize("measured", [-7, 0, 3])
@pytest.mark.parametrize("bits", [8, 6, 4, 3])
def test_a_narrowed_exponent_has_the_largest_measured_value_in_its_highest_binade(bits: int, measured: int):
    fmt = narrower(parse("fp32"), bits, measured)
    assert fmt.width_bits == bits
    assert 2.0 ** (measured - 1) <= fmt.max < 2.0**measured


@pytest.mark.parametrize(("own", "bits"), [("fix16f8", 1), ("fp16", 2)])
def test_too_few_bits_for_a_format_are_refused(own: str, bits: int):
    with pytest.raises(ConfigError, match=rf"narrower than {own} must have at least {bits + 1} bits, got {bits}"):
        narrower(parse(own), bits)


def test_a_range_holds_all_but_one_in_ten_thousand():
    def counted(counts: dict[str, int]) -> StatisticsRegister:
        total = sum(counts.values())
        scalars = {"none": 0, "below": 0, "above": 0, "nonfinite": 0, "total": total, "max_exponent": None}
        return StatisticsRegister.from_dict({"lowest": -9, "bins": 20, "positive": counts, "negative": {}, **scalars})

    assert range_of(counted({"3": 1, "0": 9999})) == 1
    assert range_of(counted({"3": 2, "0": 9998})) == 4
    assert range_of(StatisticsRegister(0, 4)) is None
    assert range_of(None) is None


NAMES = ["input", "conv1", "relu1", "pool1", "fc1", "relu2", "loss"]
WRITTEN = [("input", "activation"), ("conv1", "activation"), ("fc1", "activation"), ("conv1", "weight")]
WRITTEN += [("loss", "error"), ("conv1", "error")]


@pytest.mark.parametrize(
    ("layer", "role", "behind"),
    [
        ("conv1", "activation", ("relu1", "pool1")),
        ("input", "activation", ()),
        ("fc1", "activation", ("relu2",)),  # the loss has no activation
        ("loss", "error", ("relu2",)),  # errors come from the loss
        ("conv1", "error", ()),  # the input has no error
        ("relu2", "error", ()),  # fc1 writes none, and passes none on
        ("conv1", "weight", ()),
    ],
)
def test_layers_that_only_pass_values_on_follow_the_layer_that_writes_them(
    layer: str, role: str, behind: tuple[str, ...]
):
    assert passing_on(layer, role, NAMES, WRITTEN) == behind


def test_tokens_are_no_layer_that_passes_errors_on():
    names = ["input", "relu0", "fc1", "loss"]
    assert passing_on("fc1", "error", names, [("fc1", "error"), ("fc1", "activation")]) == ("relu0",)


def stage(device: Device, layer: str, role: str) -> tuple[str, str, str]:
    """Format, rounding and overflow rule of a tensor."""
    found = Policy(device.precision).stage(layer, role)
    return str(found.format), found.rounding.value, found.overflow.value


def test_a_change_leaves_rounding_and_overflow_as_the_notation_of_the_wide_format_has_them():
    recipe = load_recipe("mlp").with_settings({"precision.activation.format": "ap_fixed<16,8>"})
    device = recipe.machine(load_device("fixed16").model_copy(update={"precision": recipe.precision}))
    assert stage(device, "fc1", "activation") == ("fix16f8", "floor", "wrap")
    narrow = changed(device, [Change("fc1", "activation", ("relu1",), "fix16f8", "fix6f2")])
    for layer in ("fc1", "relu1"):
        assert stage(narrow, layer, "activation") == ("fix6f2", "floor", "wrap")
    assert stage(narrow, "fc2", "activation") == ("fix16f8", "floor", "wrap")


def test_a_change_to_another_family_takes_that_family_s_overflow_rule():
    narrow = changed(load_device("fixed16"), [Change("fc1", "weight", (), "fix16f13", "fp8_e4m3")])
    assert stage(narrow, "fc1", "weight") == ("fp8_e4m3", "nearest_even", "ieee")
    assert stage(narrow, "fc2", "weight") == ("fix16f13", "nearest_even", "saturate")


def test_a_change_keeps_the_random_bits_of_stochastic_rounding():
    table = PrecisionTable.model_validate({"weight": {"rounding": "stochastic", "n_rbits": 7}})
    device = load_device("fixed16").with_precision(table, origin="the test")
    narrow = changed(device, [Change("fc1", "weight", (), "fix16f13", "fix6f4")])
    found = Policy(narrow.precision).stage("fc1", "weight")
    assert (found.rounding.value, found.n_rbits) == ("stochastic", 7)


def test_a_layer_s_name_is_no_glob():
    narrow = changed(load_device("fixed16"), [Change("fc[12]", "weight", (), "fix16f13", "fix6f4")])
    assert stage(narrow, "fc1", "weight")[0] == "fix16f13"
    assert stage(narrow, "fc[12]", "weight")[0] == "fix6f4"


def test_layers_whose_names_are_one_in_files_are_refused(tmp_path: Path):
    """The rows of one would be those of the other."""
    path = tmp_path / "mine.toml"
    text = (content_folder("models") / "mlp.toml").read_text()
    path.write_text(text.replace('"fc1"', '"fc_1"').replace('"fc2"', '"fc__1"'))
    options = SensitivityOptions(bits=(8,), steps=1)
    question = question_of(str(path), None, "fixed16", [], options)
    names = ["input", "fc_1", "fc__1", "output", "loss"]
    written = [(name, "weight") for name in names[1:4]]
    with pytest.raises(ConfigError, match=r"got 'fc_1' and 'fc__1', both in 'fc_1-weight-fix8f5'; rename one"):
        changes_of(question, options, names, written, {})
    assert len(changes_of(question, replace(options, layers=["fc__1"]), names, written, {})) == 1


def test_formats_that_differ_have_different_keys():
    formats = ["fix4f1", "fix4f-1", "fix4f11", "e4m2 finite nans=none", "e4m2 finite nans=none bias=9"]
    formats += ["e4m2 finite nans=none bias=-9"]
    keys = [Change("a", "weight", (), "fp32", fmt).key for fmt in formats]
    assert len(set(keys)) == len(formats)
    assert all(key.replace("-", "").replace("_", "").replace(".", "").isalnum() for key in keys)
    assert Change.of(Change("a", "weight", ("b",), "fp32", "fp16").plain()) == Change(
        "a", "weight", ("b",), "fp32", "fp16"
    )


@pytest.mark.parametrize("inference", [True, False])
def test_the_saving_is_the_share_by_which_the_cost_tables_energy_falls(inference: bool):
    recipe, device = load_recipe("mlp"), load_device("fixed16")
    change = Change("fc1", "weight", (), "fix16f13", "fix6f4")
    wide, narrow = cost_of(recipe, device), cost_of(recipe, changed(device, [change]))
    costs = [cost.joules_per_inference if inference else cost.joules_per_step for cost in (wide, narrow)]
    share = Saving(recipe, device, inference=inference).of([change])
    assert share == pytest.approx(1 - costs[1] / costs[0], rel=1e-9)  # quotients of doubles beside exact fractions
    assert share is not None
    assert share > 0.05
