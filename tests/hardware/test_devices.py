"""Every shipped device loads, says everything, and can be laid under a recipe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emu._paths import content_folder
from emu.datapath import Mac, OutputStage, Points
from emu.errors import ConfigError, FormatError
from emu.hardware import ROLES, Device, Fabric, PrecisionTable, device_names, load_device

TENSORS = ("weight", "bias", "activation", "error", "gradient")


def laid_over(device: str, **tables: object) -> PrecisionTable:
    """The precision of a device under a recipe's tables."""
    return load_device(device).with_precision(PrecisionTable.model_validate(tables), origin="models/x.toml").precision


def formats_of(device: Device, roles: tuple[str, ...]) -> set[str]:
    return {str(device.precision.stage("conv1", role).format) for role in roles}


class TestShippedDevices:
    def test_the_six_of_the_first_release_are_there(self):
        assert {"float32", "fp16", "fp16-mixed", "bf16-mixed", "fixed16", "fixed8"} <= set(device_names())

    @pytest.mark.parametrize("name", device_names())
    def test_a_device_is_called_as_its_file(self, name: str):
        assert load_device(name).name == name

    @pytest.mark.parametrize("name", device_names())
    def test_a_device_comes_back_from_json(self, name: str):
        device = load_device(name)
        assert Device.model_validate(json.loads(json.dumps(device.model_dump(mode="json")))) == device

    @pytest.mark.parametrize("name", device_names())
    def test_every_role_has_an_output_stage(self, name: str):
        for role in ROLES:
            assert isinstance(load_device(name).precision.stage("conv1", role), OutputStage)

    @pytest.mark.parametrize("name", device_names())
    def test_losses_are_computed_in_float32(self, name: str):
        assert load_device(name).precision.stage("loss", "loss") == OutputStage.of("fp32")

    @pytest.mark.parametrize("name", device_names())
    def test_every_format_is_explained_in_a_comment_above_it(self, name: str):
        """A comment may stand above several tables of one format."""
        explained = set()
        comment = False
        for line in (content_folder("devices") / f"{name}.toml").read_text().splitlines():
            comment = line.startswith("#") or (comment and bool(line.strip()))
            if found := re.match(r'format = "(.*)"', line):
                explained |= {found[1]} if comment else set()
                assert found[1] in explained, f"{found[1]} in devices/{name}.toml has no comment"

    def test_float32_rounds_every_product_and_every_sum(self):
        device = load_device("float32")
        assert formats_of(device, ROLES) == {"fp32"}
        assert device.precision.mac_of("conv1") == Mac(product="fp32", accumulator="fp32")

    @pytest.mark.parametrize(
        ("name", "tensors", "accumulator"),
        [
            ("fp16", "fp16", "fp16"),
            ("p100", "fp16", "fp16"),
            ("fp16-mixed", "fp16", "fp32"),
            ("bf16-mixed", "bf16", "fp32"),
        ],
    )
    def test_half_width_devices_keep_float32_master_weights(self, name: str, tensors: str, accumulator: str):
        device = load_device(name)
        assert formats_of(device, TENSORS) == {tensors}
        assert formats_of(device, ("update", "master", "loss")) == {"fp32"}
        assert device.precision.mac_of("conv1") == Mac(product="exact", accumulator=accumulator)

    def test_the_v100s_unit_is_the_preset_held_to_real_outputs(self):
        assert load_device("v100").precision.mac_of("fc1") == Mac.preset("v100", inputs="fp16", output="fp32")

    def test_the_p100_multiplies_binary16_at_twice_the_float32_rate(self):
        units = load_device("p100").compute.units
        assert units["fp16"].lanes.value == 2 * units["fp32"].lanes.value

    @pytest.mark.parametrize(
        ("name", "unit", "teraflops"),
        [
            ("p100", "fp16", 21.2),
            ("p100", "fp32", 10.6),
            ("v100", "matrix", 125),
            ("v100", "fp32", 15.7),
            ("k20x-8x", "sgemm", 3.95),
            ("k20x-8x", "fp32", 3.95),
            ("k20x-dual-24", "fp32", 3.95),
            ("dgx-v100-8x", "matrix", 125),
            ("dgx-h200-8x", "matrix", 989.4),
            ("dgx-h200-8x", "fp32", 66.9),
            ("h100", "matrix", 989.4),
            ("h100", "fp32", 66.9),
            ("h100-fp8", "matrix", 1979),
            ("a100", "matrix", 312),
            ("a100", "fp32", 19.5),
        ],
    )
    def test_lanes_times_clock_give_the_published_rate(self, name: str, unit: str, teraflops: float):
        compute = load_device(name).compute
        clock = compute.units[unit].clock_hz or compute.clock_hz
        assert 2e-12 * compute.units[unit].lanes.value * clock.value == pytest.approx(teraflops, rel=0.005)

    @pytest.mark.parametrize(
        ("name", "alone"), [("k20x-8x", "float32"), ("k20x-dual-24", "float32"), ("dgx-v100-8x", "v100")]
    )
    def test_many_of_a_kind_compute_as_one_does(self, name: str, alone: str):
        assert load_device(name).precision == load_device(alone).precision
        if alone == "v100":
            assert load_device(name).compute == load_device(alone).compute

    def test_the_h100s_unit_of_fp8_is_the_preset_that_its_file_names(self):
        preset = Mac.preset("h100", inputs="fp8_e4m3", output="fp32", instruction="wgmma")
        assert load_device("h100-fp8").precision.mac_of("fc1") == preset

    def test_the_h200s_unit_is_the_preset_held_to_real_outputs(self):
        assert load_device("dgx-h200-8x").precision.mac_of("fc1") == Mac.preset("h200", inputs="bf16", output="fp32")

    @pytest.mark.parametrize(
        ("name", "nodes", "devices", "gigabytes_per_s"),
        [
            ("k20x-8x", 8, 1, 6),
            ("k20x-dual-24", 24, 2, 6.8),
            ("dgx-v100-8x", 8, 1, 150),
            ("dgx-a100-8x", 8, 1, 300),
            ("dgx-h200-8x", 8, 1, 450),
        ],
    )
    def test_devices_on_a_crossbar_have_a_fabric(self, name: str, nodes: int, devices: int, gigabytes_per_s: float):
        device = load_device(name)
        fabric, shares = Fabric.of(device), {"dgx-v100-8x": 0.9, "dgx-a100-8x": 0.78, "dgx-h200-8x": 0.81}
        assert (fabric.nodes, fabric.devices) == (nodes, devices)
        assert {link.bandwidth_bytes_per_s.value for link in device.links if link.to == "crossbar"} == {
            gigabytes_per_s * 1e9
        }
        assert fabric.port.bytes_per_s == round(gigabytes_per_s * 1e9 * shares.get(name, 1.0))
        assert fabric.over_hosts == (name == "k20x-dual-24")

    @pytest.mark.parametrize(("name", "width_bits"), [("fixed16", 16), ("fixed8", 8)])
    def test_fixed_point_devices_have_words_of_one_width_and_saturate(self, name: str, width_bits: int):
        precision = load_device(name).precision
        for role in TENSORS:
            stage = precision.stage("conv1", role)
            assert (stage.format.width_bits, stage.overflow.value) == (width_bits, "saturate")
        assert precision.mac_of("conv1").is_exact
        assert precision.register.bins == 40
        for role in ("update", "master"):
            assert precision.stage("conv1", role).format.width_bits > width_bits


class TestPrecedence:
    def test_a_recipe_changes_one_key_and_leaves_the_others(self):
        stage = laid_over("fixed16", weight={"rounding": "floor"}).stage("conv1", "weight")
        assert stage == OutputStage.of("fix16f13", "floor", "saturate")

    def test_a_layer_glob_applies_to_its_layers_only(self):
        precision = laid_over("fixed16", layers=[{"match": "conv*", "weight": {"format": "fix8f6"}}])
        assert str(precision.stage("conv2", "weight").format) == "fix8f6"
        assert str(precision.stage("fc1", "weight").format) == "fix16f13"
        assert str(precision.stage("conv2", "activation").format) == str(
            load_device("fixed16").precision.activation.format
        )

    def test_among_globs_the_later_wins_key_by_key(self):
        rules = [
            {"match": "conv*", "weight": {"format": "fix8f6", "rounding": "floor"}},
            {"match": "*1", "weight": {"format": "fix8f5"}},
        ]
        precision = laid_over("fixed16", layers=rules)
        assert precision.stage("conv1", "weight") == OutputStage.of("fix8f5", "floor")
        assert precision.stage("conv2", "weight") == OutputStage.of("fix8f6", "floor")

    def test_a_recipes_globs_come_after_the_devices(self):
        device = load_device("fixed16").with_precision(
            PrecisionTable.model_validate({"layers": [{"match": "fc1", "weight": {"format": "fix8f1"}}]}), origin="a"
        )
        over = PrecisionTable.model_validate({"layers": [{"match": "fc*", "weight": {"format": "fix8f2"}}]})
        assert str(device.with_precision(over, origin="b").precision.stage("fc1", "weight").format) == "fix8f2"

    def test_another_family_of_formats_brings_its_own_overflow_rule(self):
        """`--set precision.weight.format=fp16` on a saturating device means binary16 as IEEE has it."""
        assert laid_over("fixed16", weight={"format": "fp16"}).stage("conv1", "weight") == OutputStage.of("fp16")

    def test_a_rule_that_the_new_format_can_have_is_kept(self):
        precision = laid_over(
            "fixed16", weight={"overflow": "wrap"}, layers=[{"match": "*", "weight": {"format": "fix8f6"}}]
        )
        assert precision.stage("conv1", "weight").overflow.value == "wrap"

    def test_a_layer_can_have_its_own_accumulator(self):
        precision = laid_over("fp16", layers=[{"match": "output", "mac": {"accumulator": "fp32"}}])
        assert precision.mac_of("output") == Mac(product="exact", accumulator="fp32")
        assert precision.mac_of("fc1") == Mac(product="exact", accumulator="fp16")

    def test_registers_are_laid_over_key_by_key(self):
        register = laid_over("fixed16", register={"lowest": -30}).register
        assert (register.lowest, register.bins, register.counter_bits) == (-30, 40, 32)

    def test_the_device_below_is_not_changed(self):
        device = load_device("fixed16")
        before = device.model_dump_json()
        device.with_precision(PrecisionTable.model_validate({"weight": {"format": "fp16"}}), origin="x")
        assert device.model_dump_json() == before

    def test_a_rule_of_the_wrong_family_is_refused_when_the_tables_meet(self):
        with pytest.raises(ConfigError) as caught:
            laid_over("fixed16", weight={"overflow": "ieee"})
        assert str(caught.value) == (
            "weight: `overflow` of fix16f13 must be one of saturate, saturate_symmetric, saturate_zero, wrap, got "
            "'ieee': that rule belongs to the other family of formats (in models/x.toml: precision, laid over "
            "device fixed16)"
        )

    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ({"orthogonal": {"overflow": "saturate"}}, "orthogonal: `overflow` of fp16 must be one of"),
            ({"backward_mac": {"overflow": "wrap"}}, "backward_mac: `overflow` of fp16 must be one of"),
            ({"gradient_mac": {"overflow": "wrap"}}, "gradient_mac: `overflow` of fp16 must be one of"),
        ],
    )
    def test_a_rule_of_the_wrong_family_is_refused_in_tables_of_one_file(self, tables: dict[str, object], said: str):
        """Not when the first gradient is computed."""
        with pytest.raises(ConfigError) as caught:
            laid_over("fp16", **tables)
        assert str(caught.value).startswith(said)

    def test_masters_of_a_layer_have_a_fixed_point_too(self):
        """Their point would be 0, whatever the weights are."""
        with pytest.raises(ConfigError) as caught:
            laid_over("dlu16", layers=[{"match": "conv*", "master": {"format": "fix32f?"}}])
        assert str(caught.value) == (
            "the format of role `master` in layers conv* must have a fixed binary point, got fix32f?: its numbers are "
            "kept while other points move; write fraction bits instead of the question mark"
        )

    def test_a_role_without_a_format_is_named(self):
        with pytest.raises(FormatError) as caught:
            PrecisionTable().stage("conv1", "weight")
        assert str(caught.value) == (
            'weight of layer conv1: a tensor role must have a format, got none; add `format = "..."` to its table'
        )


def test_a_unit_without_a_clock_beside_one_with_its_own_is_refused():
    text = json.loads(json.dumps(load_device("dgx-h200-8x").model_dump(mode="json")))
    assert text["compute"]["units"]["fp32"]["clock_hz"] is not None
    text["compute"]["clock_hz"] = None
    with pytest.raises(
        ValueError,
        match=r"unit 'matrix' must have a clock, because unit 'fp32' has its own and times need both, got none; add "
        r"`clock_hz` to the unit, or to \[compute\] for all",
    ):
        Device.model_validate(text)
    text["compute"]["units"]["fp32"]["clock_hz"] = None
    Device.model_validate(text)  # bits without times
    for unit in text["compute"]["units"].values():
        unit["clock_hz"] = {"value": 1e9, "source": "test"}
    Device.model_validate(text)


def test_a_rule_of_losses_that_their_default_format_cannot_have_is_named_with_its_file(tmp_path: Path):
    text = (content_folder("devices") / "fp16.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('[precision.loss]\nformat = "fp32"', '[precision.loss]\noverflow = "saturate"'))
    with pytest.raises(ConfigError, match=r"`overflow` of fp32 must be one of .* got 'saturate'.*mine\.toml"):
        load_device(path)


def test_a_zero_point_of_0_is_written_with_the_device():
    """As calibration gives it to what a relu has written."""
    table = {"format": "uint8_affine", "scale": 0.5, "zero": 0}
    operands = {"forward": {"activation": table, "weight": "int8_channel"}}
    device = load_device("float32").with_precision(
        PrecisionTable.model_validate({"layers": [{"match": "conv1", "operands": operands}]}), origin="a calibration"
    )
    back = Device.model_validate(json.loads(json.dumps(device.model_dump(mode="json"))))
    assert back == device
    first, _ = back.precision.casts("conv1", "forward") or pytest.fail("the table is lost")
    assert first.points == Points(0.5, 0)
    # laid over by a table of another product: each product keeps its own
    scaling = PrecisionTable.model_validate({"operands": {"scaling": {"kind": "current"}}})
    below = PrecisionTable.model_validate({"operands": operands})
    assert scaling.over(below).casts("conv1", "forward") == device.precision.casts("conv1", "forward")
