"""The unit of the way back: forward in float32 with backward in binary16, accumulators included (SYSTEMS, A)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.errors import ConfigError
from emu.hardware import load_device
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
