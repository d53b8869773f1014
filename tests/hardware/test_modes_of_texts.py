"""A device's format text brings its modes; named ones are keys, a notation's defaults give way to any key."""

from __future__ import annotations

import pytest

from emu import OutputStage
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.hardware.arithmetic_tables import MacTable, RoleTable
from emu.hardware.precision_table import PrecisionTable

TEXT = "ap_fixed<16,8,AP_RND,AP_SAT_ZERO>"


def laid_over(device: str, **tables: object) -> PrecisionTable:
    """The precision of a device under a recipe's tables."""
    return load_device(device).with_precision(PrecisionTable.model_validate(tables), origin="models/x.toml").precision


def modes(stage: OutputStage) -> tuple[str, str]:
    return stage.rounding.value, stage.overflow.value


def test_named_modes_are_keys_of_the_table():
    table = RoleTable(format=TEXT)
    assert (table.format, table.rounding, table.overflow) == ("ap_fixed<16,8>", "nearest_up", "saturate_zero")
    assert modes(table.stage()) == ("nearest_up", "saturate_zero")
    assert RoleTable(format=TEXT, rounding="AP_RND") == table


def test_default_modes_stay_with_the_text():
    table = RoleTable(format="ap_fixed<16,8>")
    assert (table.format, table.rounding, table.overflow) == ("ap_fixed<16,8>", None, None)
    assert modes(table.stage()) == ("floor", "wrap")
    assert modes(RoleTable(format="ap_fixed<16,8>", rounding="RNE", overflow="AP_SAT").stage()) == (
        "nearest_even",
        "saturate",
    )


@pytest.mark.parametrize(
    ("own", "below", "found"),
    [
        ({"format": TEXT}, {"format": "fix16f8", "rounding": "stochastic"}, ("nearest_up", "saturate_zero")),
        ({"rounding": "ceil"}, {"format": TEXT}, ("ceil", "saturate_zero")),
        ({"format": "ap_fixed<16,8>"}, {"format": "fp16", "rounding": "ceil"}, ("ceil", "wrap")),
        ({"format": "ap_fixed<16,8>"}, {"format": "fix8f0", "overflow": "saturate"}, ("floor", "saturate")),
        ({"format": "fix16f8"}, {"format": "ap_fixed<16,8>"}, ("nearest_even", "saturate")),
    ],
)
def test_tables_laid_over_one_another_go_key_by_key(own: dict[str, str], below: dict[str, str], found: tuple[str, str]):
    assert modes(RoleTable(**own).over(RoleTable(**below)).stage()) == found


def test_a_recipe_s_text_brings_its_modes_to_a_device():
    precision = laid_over("float32", weight={"format": "ap_fixed<16,3>"}, bias={"format": TEXT})
    assert modes(precision.stage("conv1", "weight")) == ("floor", "wrap")
    assert modes(precision.stage("conv1", "bias")) == ("nearest_up", "saturate_zero")
    kept = laid_over("fixed16", weight={"format": "ap_fixed<16,3>"})  # whose keys say both modes
    assert modes(kept.stage("conv1", "weight")) == ("nearest_even", "saturate")


def test_an_accumulator_of_a_device_brings_its_modes():
    mac = laid_over("fixed16", mac={"accumulator": "ap_fixed<40,16,AP_TRN_ZERO>"}).mac_of("conv1")
    assert (mac.rounding.value, mac.overflow and mac.overflow.value) == ("toward_zero", "wrap")
    with pytest.raises(ConfigError, match="must serve products and sums"):
        MacTable(product="ap_fixed<16,8>", accumulator="ap_fixed<40,16,AP_RND>")
