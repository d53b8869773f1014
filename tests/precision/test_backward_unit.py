"""The unit of the way back: forward in float32 with backward in binary16, accumulators included (SYSTEMS, A)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.datapath.presets import MATRIX_UNITS, MatrixUnit
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.hardware.arithmetic_tables import MacTable
from emu.hardware.precision_table import PrecisionTable
from emu.optim import GradientDescent
from emu.precision import Policy, RecordingRunner
from emu.testing import assert_bits_equal
from emu.training.workbench.model import Model

HALF = {"product": "fp16", "accumulator": "fp16", "order": "sequential"}
BACKWARD: dict[str, Any] = {
    "error": {"format": "fp16"},
    "gradient": {"format": "fp16"},
    "mac": {"product": "fp32", "accumulator": "fp32"},
    "backward_mac": HALF,
}
UNITS = {
    "forward": emu.Mac(product="fp32", accumulator="fp32"),
    "backward": emu.Mac(product="fp16", accumulator="fp16"),
}


def table(**own: Any) -> PrecisionTable:
    return PrecisionTable.model_validate(own).over(load_device("float32").precision)


def test_errors_and_gradients_have_a_unit_of_their_own_and_all_else_has_the_layers():
    policy = Policy(table(**BACKWARD))
    for role in ("activation", "weight", "update", "loss"):
        assert policy.mac("fc1", role=role) == UNITS["forward"]
    for role in ("error", "gradient"):
        assert policy.mac("fc1", role=role) == UNITS["backward"]


def test_a_layers_unit_is_laid_over_both_and_its_unit_of_the_way_back_over_one():
    layers = [
        {"match": "fc*", "mac": {"order": "pairwise"}},
        {"match": "fc2", "backward_mac": {"accumulator": "fp32"}},
    ]
    policy = Policy(table(**BACKWARD, layers=layers))
    assert str(policy.mac("fc1", role="activation").order) == "pairwise"
    assert str(policy.mac("fc1", role="error").order) == "pairwise"
    assert policy.mac("fc1", role="error").accumulator == emu.parse("fp16")
    assert policy.mac("fc2", role="error").accumulator == emu.parse("fp32")
    assert policy.mac("fc2", role="activation").accumulator == emu.parse("fp32")


def test_a_layers_unit_of_the_way_back_keeps_what_it_does_not_say():
    layers = [{"match": "fc1", "mac": {"order": "pairwise"}}, {"match": "fc*", "backward_mac": {"product": "bf16"}}]
    own = HALF | {"rounding": "floor"}
    policy = Policy(table(**BACKWARD | {"backward_mac": own, "layers": layers}))
    kept = {"product": "bf16", "accumulator": "fp16", "rounding": "floor"}
    assert policy.mac("fc1", role="error") == emu.Mac(**kept, order="pairwise")
    assert policy.mac("fc2", role="gradient") == emu.Mac(**kept)


def test_errors_and_gradients_may_have_a_unit_each_laid_over_that_of_both():
    policy = Policy(table(**BACKWARD, error_mac={"order": "pairwise"}, gradient_mac={"accumulator": "fp32"}))
    assert policy.mac("fc1", role="error") == emu.Mac(product="fp16", accumulator="fp16", order="pairwise")
    assert policy.mac("fc1", role="gradient") == emu.Mac(product="fp16", accumulator="fp32")
    assert policy.mac("fc1", role="activation") == UNITS["forward"]
    layers = [{"match": "fc1", "backward_mac": {"order": "lanes(4)"}, "gradient_mac": {"order": "pairwise"}}]
    own = Policy(table(**BACKWARD, error_mac={"rounding": "floor"}, layers=layers))
    half = {"product": "fp16", "accumulator": "fp16"}
    assert own.mac("fc1", role="error") == emu.Mac(**half, order="lanes(4)", rounding="floor")
    assert own.mac("fc1", role="gradient") == emu.Mac(**half, order="pairwise")
    assert own.mac("fc2", role="gradient") == UNITS["backward"]


def test_a_recipe_lays_its_units_over_those_of_the_device():
    below = table(error_mac={"accumulator": "fix40f20", "rounding": "floor"}, gradient_mac={"order": "pairwise"})
    above = PrecisionTable.model_validate({"error_mac": {"accumulator": "fix32f20"}}).over(below)
    assert above.mac_of("fc1", "error").accumulator == emu.parse("fix32f20")
    assert above.mac_of("fc1", "error").rounding == emu.Rounding.FLOOR
    assert str(above.mac_of("fc1", "gradient").order) == "pairwise"


@pytest.mark.parametrize("name", ["mac", "backward_mac", "error_mac", "gradient_mac"])
def test_units_of_a_layer_that_cannot_be_are_refused_by_their_name(name: str):
    layers = [{"match": "fc1", name: {"accumulator": "fp32", "order": "blocks(4, 23)"}}]
    with pytest.raises(ValueError, match=f"{name} of layers fc1: `product` must be exact where `order` is blocks"):
        PrecisionTable.model_validate({"mac": {"product": "fp32", "accumulator": "fp32"}, "layers": layers})


@pytest.mark.parametrize("unit", MATRIX_UNITS, ids=str)
def test_a_preset_stands_for_the_keys_of_a_matrix_unit(unit: MatrixUnit):
    words = {"inputs": unit.inputs, "output": unit.output, "instruction": unit.instruction}
    own = MacTable.model_validate({"preset": unit.gpu, **words})
    assert own.mac() == emu.Mac.preset(unit.gpu, **words)
    assert own.preset is None
    assert "preset" not in own.model_dump()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"preset": "h99"}, "got 'h99'; known, the nearest name first: h100"),
        (
            {"preset": "h100", "order": "pairwise"},
            "`preset` must stand for all keys of the unit, got `order`",
        ),
        ({"inputs": "fp16"}, "`inputs` must stand beside `preset`, got it alone"),
        ({"preset": "h100", "inputs": "fp8_e4m3"}, "`instruction` must be given for fp8_e4m3 -> fp32 on h100"),
        ({"presets": "h100"}, "did you mean 'preset'"),
    ],
)
def test_a_preset_that_cannot_be_is_refused_with_what_would_do(keys: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        emu.model("mlp").with_settings({f"precision.mac.{key}": value for key, value in keys.items()})


def test_without_a_table_of_its_own_the_way_back_has_the_layers_unit():
    policy = Policy(load_device("fp16").precision)
    assert policy.mac("fc1", role="error") == policy.mac("fc1", role="activation")


def test_a_unit_of_the_way_back_that_cannot_be_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="backward_mac"):
        emu.model("mlp").with_settings({"precision.backward_mac": {"accumulator": "fp17x"}})


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_the_forward_product_is_float32s_and_the_backward_products_are_those_of_a_binary16_accumulator(backend: str):
    """Every product of two layers against `emu.matmul` with the unit that it shall have."""
    network = nn.Network((nn.Linear("fc1", 3, 5, bias=False), nn.Linear("fc2", 5, 4)))
    policy = Policy(table(**BACKWARD))
    model = Model.initial(network, policy, GradientDescent(), 1, backend)
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((6, 3)).astype(np.float32), rng.integers(0, 4, 6)
    recorder = RecordingRunner(model.runner(policy, seed=1, backend=backend))
    found = model.run(recorder, x, labels, backward=True, scale=1024.0)
    weights = {state.name: state.master.array for state in model.states}
    one = {"a_format": "fp32", "b_format": "fp32", "out_format": "fp32", "mac": UNITS["forward"]}
    hidden = emu.matmul(x, weights["fc1.weight"].T, **one)
    assert_bits_equal(recorder.results["fc1", "activation", ""][0], hidden, emu.parse("fp32"))
    error = recorder.results["fc2", "error", ""][0]
    # what arrives at fc1: error of fc2's result times fc2's weight, summed in binary16
    loss_error = recorder.results["loss", "error", ""][0]
    back = {"a_format": "fp16", "b_format": "fp32", "out_format": "fp16", "mac": UNITS["backward"]}
    assert_bits_equal(error, emu.matmul(loss_error, weights["fc2.weight"], **back), emu.parse("fp16"))
    into = emu.matmul(error.T, x, **back)
    assert_bits_equal(found.gradients["fc1.weight"].array, into, emu.parse("fp16"))
    exact = emu.matmul(error.T, x, **{**back, "mac": emu.Mac()})
    assert not np.array_equal(into, exact), "the accumulator is seen"
