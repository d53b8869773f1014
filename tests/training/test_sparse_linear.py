"""A sparse first layer ends in the bits of a dense one, and neither reads nor writes rows that no input needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu import nn
from emu.autodiff import RowsValue
from emu.backends.registry import load
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.optim import AdaGrad, Adam, GradientDescent
from emu.precision import CounterTable, Policy
from emu.sparse import CSR
from emu.training.workbench.build import require_rows
from emu.training.workbench.model import Model
from emu.training.workbench.update import Update

INPUTS, HIDDEN, CLASSES, EXAMPLES = 40, 8, 4, 6
DEVICES = ("float32", "fixed16", "fp16", "fp16-mixed", "bf16-mixed")


def examples(seed: int) -> tuple[CSR, Any]:
    """Return rows of which one is empty; most columns have no entry."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((EXAMPLES, INPUTS), np.float32)
    for row in range(EXAMPLES - 1):
        dense[row, rng.choice(INPUTS, 3, replace=False)] = rng.integers(-16, 17, 3) / 16 + 2
    return CSR.from_dense(dense, "fp32"), rng.integers(0, CLASSES, EXAMPLES)


def network(kind: type[nn.Layer]) -> nn.Network:
    behind = (nn.Activation("relu1", "relu"), nn.Linear("fc2", HIDDEN, CLASSES))
    return nn.Network((kind("fc1", INPUTS, HIDDEN), *behind))


def model(kind: type[nn.Layer], device: str, optimiser: Any, backend: str) -> tuple[Model, Any, Update, CounterTable]:
    """Return a model whose first layer begins with the same weights whichever kind it is; runner, update, counts."""
    policy = Policy(load_device(device).precision).at(0)
    made = Model.initial(network(kind), policy, optimiser, 1, backend)
    first = next(state for state in made.states if state.name == "fc1.weight")
    if first.by_rows:
        linear = Model.initial(network(nn.Linear), policy, optimiser, 1, backend)
        first.master = linear.states[0].master.with_array(np.ascontiguousarray(linear.states[0].master.array.T))
    counters = CounterTable(policy.register)
    runner = made.runner(policy, seed=1, backend=backend, counters=counters)
    return made, runner, Update(optimiser, ["gradient"], None), counters


def trained(kind: type[nn.Layer], device: str, optimiser: Any, backend: str, steps: int = 3) -> tuple[Any, list[float]]:
    made, runner, update, _ = model(kind, device, optimiser, backend)
    losses: list[float] = []
    for step in range(steps):
        x, labels = examples(step)
        runner.step = step
        found = made.run(runner, x if kind is nn.SparseLinear else x.to_dense(), labels, backward=True)
        update.apply(made.states, found.gradients, 0.5, 1.0, runner)
        losses.append(found.loss)
    masters = {state.name: state.master.format.encode(state.master.array) for state in made.states}
    if kind is nn.SparseLinear:
        masters["fc1.weight"] = masters["fc1.weight"].T
    return masters, losses


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("optimiser", [GradientDescent, AdaGrad])
@pytest.mark.parametrize("device", DEVICES)
def test_a_sparse_first_layer_ends_in_the_bits_of_a_dense_one_e0_e3(device: str, optimiser: Any, backend: str):
    sparse, losses = trained(nn.SparseLinear, device, optimiser(), backend)
    dense, expected = trained(nn.Linear, device, optimiser(), backend)
    assert losses == expected
    assert sparse.keys() == dense.keys()
    for name, codes in dense.items():
        assert np.array_equal(sparse[name], codes), name


@pytest.mark.parametrize("device", ["fixed16", "fp16-mixed"])
def test_dense_inputs_become_sparse_ones_e0(device: str):
    x, labels = examples(0)
    passes = []
    for given in (x, x.to_dense()):
        made, runner, _, _ = model(nn.SparseLinear, device, GradientDescent(), "numba")
        passes.append(made.run(runner, given, labels, backward=True))
    assert passes[0].loss == passes[1].loss
    for name, gradient in passes[0].gradients.items():
        assert np.array_equal(gradient.array, passes[1].gradients[name].array), name


def test_a_gradient_has_the_rows_of_the_batch_alone_e2():
    made, runner, _, counters = model(nn.SparseLinear, "fixed16", GradientDescent(), "numba")
    x, labels = examples(0)
    gradient = made.run(runner, x, labels, backward=True).gradients["fc1.weight"]
    assert isinstance(gradient, RowsValue)
    assert np.array_equal(gradient.rows, x.unique_columns)
    assert gradient.shape == (len(x.unique_columns), HIDDEN)
    used = len(x.unique_columns) * HIDDEN
    assert counters.of("fc1", "weight").register.total == used
    assert counters.of("input", "activation").register.total == x.nnz


def test_an_update_neither_reads_nor_writes_other_rows_e3():
    made, runner, update, _ = model(nn.SparseLinear, "fp16-mixed", AdaGrad(), "numba")
    state = made.states[0]
    x, labels = examples(0)
    others = np.setdiff1d(np.arange(INPUTS), x.unique_columns)
    state.master.array[others] = np.nan
    state.slots["squares"].array[others] = np.nan
    before = state.master.array.copy()
    found = made.run(runner, x, labels, backward=True)
    update.apply(made.states, found.gradients, 0.5, 1.0, runner)
    assert np.isfinite(found.loss)
    assert np.isnan(state.master.array[others]).all()
    assert np.isnan(state.slots["squares"].array[others]).all()
    changed = state.master.array[x.unique_columns]
    assert np.isfinite(changed).all()
    assert not np.array_equal(changed, before[x.unique_columns])


def test_a_gradients_scale_is_taken_out_of_the_rows_that_are_there():
    made, runner, update, _ = model(nn.SparseLinear, "fp16-mixed", GradientDescent(), "numba")
    x, labels = examples(0)
    plain = made.run(runner, x, labels, backward=True, scale=1.0)
    scaled = made.run(runner, x, labels, backward=True, scale=4.0)
    update.apply(made.states, scaled.gradients, 0.5, 4.0, runner)
    moved = made.states[0].master.array.copy()
    again, runner, update, _ = model(nn.SparseLinear, "fp16-mixed", GradientDescent(), "numba")
    update.apply(again.states, plain.gradients, 0.5, 1.0, runner)
    assert np.array_equal(again.states[0].master.array, moved)


def test_clipping_by_norm_shortens_the_rows_that_are_there():
    x, labels = examples(0)
    masters = []
    for kind in (nn.SparseLinear, nn.Linear):
        made, runner, update, _ = model(kind, "float32", GradientDescent(), "numba")
        update.clip_norm = 1e-3
        start = made.states[0].master.array.copy()
        found = made.run(runner, x if kind is nn.SparseLinear else x.to_dense(), labels, backward=True)
        update.apply(made.states, found.gradients, 0.5, 1.0, runner)
        moved = made.states[0].master.array - start
        masters.append(moved if kind is nn.SparseLinear else moved.T)
    ours, dense = masters
    assert np.abs(ours).max() < 1e-3
    assert (ours == 0).all(axis=1).sum() == INPUTS - len(x.unique_columns)
    assert np.abs(ours - dense).max() < 1e-7  # squares of other elements are joined in another order


@pytest.mark.parametrize("optimiser", [GradientDescent(momentum=0.9), GradientDescent(weight_decay=0.1), Adam()])
def test_optimisers_that_move_every_row_are_refused(optimiser: Any):
    with pytest.raises(ConfigError) as found:
        require_rows(network(nn.SparseLinear), optimiser)
    assert str(found.value) == (
        "layer 'fc1' (sparse_linear) must have an optimiser that does not change a weight whose gradient is 0, because "
        "a step reads only the rows of the batch's inputs; choose `training.optimiser.name` 'sgd' or 'adagrad', "
        "without `weight_decay`"
    )


def test_a_sparse_layer_behind_another_one_is_refused():
    layers = (nn.Linear("fc1", INPUTS, HIDDEN), nn.SparseLinear("fc2", HIDDEN, CLASSES))
    with pytest.raises(ConfigError) as found:
        require_rows(nn.Network(layers), GradientDescent())
    assert str(found.value) == (
        "layer 'fc2' (sparse_linear) must be the first of the network; use `linear` with `sparse = true` after "
        "other layers"
    )


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_rows_are_put_back_where_they_were(backend: str):
    made, *_ = model(nn.SparseLinear, "fixed16", AdaGrad(), backend)
    state = made.states[0]
    master = state.master.array
    some = state.rows(np.array([3, 7]))
    some.master = some.master.with_array(load(backend).place(np.ones_like(some.master.array)))
    state.put(np.array([3, 7]), some)
    assert state.master.array is master
    assert (master[[3, 7]] == 1).all()
    assert (state.slots["squares"].array == 0).all()
