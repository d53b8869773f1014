"""A loop of PyTorch with emu's layers, loss and optimiser ends in the hash of emu's own loop."""

from __future__ import annotations

import copy
import io
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.hardware.precision_table import PrecisionTable
from emu.training.recipe import Recipe, load_recipe
from emu.training.workbench import Workbench

torch = pytest.importorskip("torch", reason="emu.torch needs PyTorch, which tests do without")
from emu import torch as et  # noqa: E402 - it needs PyTorch

STEPS = 20


def lenet() -> Any:
    """The shipped model, with PyTorch's own functions between emu's layers."""
    relu, pool = torch.nn.ReLU, torch.nn.MaxPool2d
    layers = OrderedDict(
        conv1=et.Conv2d(1, 6, 5, padding=2), relu1=relu(), pool1=pool(2), conv2=et.Conv2d(6, 16, 5), relu2=relu(),
        pool2=pool(2), flat=torch.nn.Flatten(), fc1=et.Linear(400, 120), relu3=relu(), fc2=et.Linear(120, 84),
        relu4=relu(), output=et.Linear(84, 10),
    )  # fmt: skip
    return torch.nn.Sequential(layers)


def in_pytorch(model: Any, recipe: Recipe, optimiser: Any, loss: Any, steps: int) -> None:
    """Train by hand on the mini-batches of a recipe."""
    batches = Workbench.of(recipe, emu.device("float32")).batches
    for step in range(steps):
        x, y = (torch.as_tensor(np.array(array)) for array in batches.batch(step))
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()


def begun(model: Any, recipe: Recipe, device: str) -> Any:
    """Place a model on a device, with the first weights of a recipe's run."""
    machine = et.place(model, device, seed=recipe.training.seed)
    states = Workbench.of(recipe, emu.device(device)).model.states
    et.load_state(model, {state.name: np.array(state.master.array) for state in states})
    return machine


def recipe_with(steps: int, **training: Any) -> Recipe:
    """The shipped recipe with a constant rate, a number of steps, and another optimiser."""
    plain = load_recipe("lenet").model_dump(mode="json", exclude_unset=True)
    kept = {key: plain["training"][key] for key in ("batch", "seed", "optimiser")}
    return Recipe.model_validate({**plain, "training": {**kept, "steps": steps, **training}})


@pytest.mark.parametrize("device", ["float32", "fixed16", "fixed8", "bf16-mixed", "h100-fp8"])
def test_twenty_steps_in_pytorch_end_in_the_hash_of_emus_own_training(device: str, tmp_path: Path):
    """Those of `fixed8` draw random bits."""
    recipe = recipe_with(STEPS)
    run = emu.train(recipe, device, out=tmp_path / "run", report=False)
    model = lenet()
    machine = begun(model, recipe, device)
    in_pytorch(model, recipe, et.SGD(model, lr=0.01, momentum=0.9), et.Loss(on=machine), STEPS)
    assert machine.step == STEPS
    assert et.sha256(model) == run.weights_sha256


@pytest.mark.parametrize(
    ("optimiser", "clip_norm", "make"),
    [
        (
            {"name": "adam", "weight_decay": 0.01},
            None,
            lambda model: et.Adam(model.named_parameters(), lr=0.01, weight_decay=0.01, on=model.conv1.machine),
        ),
        ({"name": "adagrad"}, None, lambda model: et.AdaGrad(model, lr=0.01)),
        (
            {"name": "sgd"},
            0.5,
            lambda model: et.SGD(
                [{"params": model.named_parameters(), "lr": 0.01}], clip_norm=0.5, on=model.conv1.machine
            ),
        ),
        ({"name": "muon"}, None, lambda model: et.Muon(model, lr=0.01)),
    ],
    ids=["adam", "adagrad", "clipped", "muon"],
)
def test_every_optimiser_ends_in_the_hash_of_emus_own_training(
    optimiser: dict[str, Any], clip_norm: float | None, make: Any, tmp_path: Path
):
    recipe = recipe_with(3, optimiser={"learning_rate": 0.01, **optimiser}, clip_norm=clip_norm)
    run = emu.train(recipe, "bf16-mixed", out=tmp_path / "run", report=False)
    model = lenet()
    machine = begun(model, recipe, "bf16-mixed")
    in_pytorch(model, recipe, make(model), et.Loss(on=machine), 3)
    assert et.sha256(model) == run.weights_sha256


def test_a_group_of_muon_with_a_rate_of_its_own_begins_at_adams_rate():
    """Adam moves biases by `adam_lr` until the rate of their group changes."""

    def trained(make: Any) -> str:
        torch.manual_seed(0)
        model = torch.nn.Sequential(et.Linear(6, 5), torch.nn.Tanh(), et.Linear(5, 3))
        machine = et.place(model, "float32")
        optimiser, loss = make(model, machine), et.Loss(on=machine)
        x, y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3
        for step in range(4):
            optimiser.zero_grad()
            loss(model(x), y).backward()
            optimiser.step()
            for group in optimiser.param_groups:
                group["lr"] /= 2 if step == 1 else 1
        return et.sha256(model)

    own = trained(lambda m, on: et.Muon([{"params": m.named_parameters(), "lr": 0.002}], on=on))
    assert own == trained(lambda m, on: et.Muon(m, lr=0.002))
    assert own != trained(lambda m, on: et.Muon(m))


def test_a_group_of_muon_at_rest_does_not_move():
    def model_of() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(et.Linear(6, 5), et.Linear(5, 3))

    model = model_of()
    machine = et.place(model, "float32")
    optimiser = et.Muon([{"params": model.named_parameters(), "lr": 0.0}], on=machine)
    et.Loss(on=machine)(model(torch.ones(2, 6)), torch.arange(2)).backward()
    optimiser.step()
    before = model_of()
    et.place(before, "float32")
    assert et.sha256(model) == et.sha256(before)


def test_a_model_of_emus_layers_begins_as_a_run_does_and_ends_in_its_hash(tmp_path: Path):
    recipe = recipe_with(3)
    run = emu.train(recipe, "fixed8", out=tmp_path / "run", report=False)
    machine = et.Machine("fixed8", seed=recipe.training.seed)
    layers = nn.Network(recipe.network.built()).layers
    model = torch.nn.Sequential(*(et.Layer(layer, machine) for layer in layers))
    in_pytorch(model, recipe, et.SGD(model, lr=0.01, momentum=0.9), et.Loss(on=machine), 3)
    assert et.sha256(model) == run.weights_sha256


#: A model, its optimiser and its loss.
Training = tuple[Any, Any, Any]


def network() -> Any:
    return torch.nn.Sequential(et.Linear(6, 5), torch.nn.Tanh(), et.Linear(5, 3))


def trained_on_fixed8(begin: Callable[[Any], Training], resume: Callable[[Training], Training] | None = None) -> str:
    """Return the hash after six steps; `resume` takes what was trained up to the fourth, and returns what goes on."""
    x, y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3
    torch.manual_seed(0)
    training = begin(network())
    for step in range(6):
        if resume is not None and step == 3:
            training = resume(training)
        model, optimiser, loss = training
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
    return et.sha256(training[0])


def test_an_optimiser_that_is_saved_and_loaded_goes_on_in_the_same_bits():
    def begin(model: Any) -> Training:
        machine = et.place(model, "fixed8")
        return model, et.Adam(model), et.Loss(on=machine)

    def resume(training: Training) -> Training:
        before, saved, loss = training
        model = network()
        et.place(model, before[0].machine)
        optimiser = et.Adam(model)
        model.load_state_dict(before.state_dict())
        optimiser.load_state_dict(saved.state_dict())
        return model, optimiser, loss

    assert trained_on_fixed8(begin, resume) == trained_on_fixed8(begin)


def test_schedulers_of_pytorch_change_the_rate():
    model = et.Linear(2, 2)
    optimiser = et.SGD(model, lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    scheduler.step()
    optimiser.step()
    assert torch.equal(model.weight, before - 0.5 - 0.25)


def test_a_gradient_that_no_module_of_emu_wrote_is_written_first():
    model = et.Linear(2, 2, on="fixed8")
    optimiser = et.SGD(model, lr=1.0)
    with torch.no_grad():
        model.weight.zero_()
    model.weight.grad = torch.full((2, 2), 0.123, dtype=model.weight.dtype)
    optimiser.step()
    steps = (-model.weight.detach() * 2**6).flatten().tolist()  # gradients have 6 fraction bits
    assert set(steps) <= {7.0, 8.0}  # rounded at random


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m: et.SGD(m.parameters(), on="float32"), r"must have names, .* got Parameter without one; give"),
        (lambda m: et.SGD(m.named_parameters()), r"must have one machine, got 0 from the parameters; call"),
        (lambda m: et.SGD(m), r"must have one machine, got 2 from the parameters"),
        (lambda m: et.SGD(m, on="float32"), r"must have names of their own, got two for 'linear\.weight'; call"),
        (lambda m: et.SGD(torch.nn.Linear(2, 2), on="fixed16"), r"'parameters\.weight' must be torch\.float64 to hold"),
        (lambda m: et.Muon({"params": []}), r"must have one machine"),
        (lambda m: et.SGD([], on="float32"), r"must have a parameter to move, got none; give"),
        (lambda m: et.SGD(m.requires_grad_(False), on="float32"), r"must have a parameter to move, got none; give"),
        (lambda m: et.SGD([{"params": m[0]}], on="float32"), r"must have names, .* got Linear without one; give"),
        (lambda m: et.SGD([{"lr": 0.1}], on="float32"), r"must have names, .* got a group without `params`; give"),
        (lambda m: et.SGD(None, on="float32"), r"must have names, .* got NoneType without one; give"),
        (lambda m: et.SGD([("a.b", 3)], on="float32"), r"must have names, .* got tuple without one; give"),
        (
            lambda m: et.SGD(torch.nn.Linear(2, 2).to(torch.bfloat16), on="float32"),
            r"must be torch\.float32 to hold master weights of fp32, got torch\.bfloat16; call .*, or model\.float\(\)",
        ),
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_moved_are_refused(wrong: Any, message: str):
    with pytest.raises(emu.ConfigError, match=message):
        wrong(torch.nn.Sequential(et.Linear(2, 2), et.Linear(2, 2)))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (et.SGD, {"lr": -1.0}, r"`lr` must be a finite number from 0, got -1\.0; choose"),
        (et.SGD, {"lr": None}, r"`lr` must be a finite number from 0, got None; choose"),
        (et.SGD, {"lr": torch.tensor(0.5)}, r"`lr` must be .* from 0, got tensor\(0\.5000\); write float\(lr\)"),
        (et.Adam, {"betas": (1.0, 0.9)}, r"`beta` must be a finite number from 0 to below 1, got 1\.0"),
        (et.Adam, {"betas": 0.9}, r"`betas` must be a pair of numbers, got 0\.9; write"),
        (et.Adam, {"betas": None}, r"`betas` must be a pair of numbers, got None; write"),
        (et.Adam, {"betas": (0.9,)}, r"`betas` must be a pair of numbers, got \(0\.9,\); write"),
    ],
)  # fmt: skip
def test_settings_are_refused_in_a_group_as_in_the_constructor(kind: Any, settings: dict[str, Any], message: str):
    with pytest.raises(emu.ConfigError, match=message):
        kind(et.Linear(2, 2), **settings)
    with pytest.raises(emu.ConfigError, match=message):
        kind([{"params": et.Linear(2, 2).named_parameters(), **settings}], on="float32")


def test_settings_that_are_numbers_of_numpy_mean_the_same_as_those_of_python():
    def moved(number: Any) -> Any:
        model = et.Linear(2, 2)
        with torch.no_grad():
            model.weight.fill_(0.3)
        model.weight.grad = torch.full((2, 2), 0.7)
        et.SGD(model, lr=number(0.25), momentum=number(0.5), weight_decay=number(0.125)).step()
        return model.weight.detach()

    assert torch.equal(moved(np.float32), moved(float))


def test_a_muon_without_a_rate_to_begin_with_is_refused():
    with pytest.raises(emu.ConfigError, match=r"`lr` of Muon must begin above 0, .* got 0\.0; write one such as 0\.02"):
        et.Muon(et.Linear(2, 2), lr=0.0)


def test_a_string_of_adam_layers_is_one_glob():
    model = torch.nn.Sequential(OrderedDict(first=et.Linear(2, 2), second=et.Linear(2, 2)))
    machine = et.place(model, "float32")
    globs = [et.Muon(model, adam_layers=names).state_dict() for names in ("second", ("second",))]
    assert globs[0] == globs[1]
    group = {"params": model.named_parameters(), "adam_layers": "second"}
    optimiser = et.Muon([group], on=machine)
    model.second.weight.grad = torch.ones(2, 2)
    optimiser.step()
    assert sorted(optimiser.state[model.second.weight]) == ["mean", "squares", "step"]


def test_master_weights_of_a_narrow_format_may_lie_in_the_dtype_of_it():
    masters = PrecisionTable.model_validate({"master": {"format": "fp16"}})
    device = emu.device("float32").with_precision(masters, origin="a test")
    model = torch.nn.Linear(2, 2).to(torch.float16)
    et.SGD(model, on=device)
    with pytest.raises(emu.ConfigError, match=r"must be torch\.float32"):
        et.SGD(model.to(torch.bfloat16), on=device)


def test_a_group_that_is_refused_leaves_optimiser_and_parameters_as_they_were():
    first, other = et.Linear(2, 2, on="fixed8"), torch.nn.Linear(2, 2)
    optimiser, before = et.SGD(first), other.weight.detach().clone()
    for group, message in (
        ([("linear.weight", other.weight)], r"names of their own, got two for 'linear\.weight'"),
        ([("linear.weight", first.weight)], r"must be in one group, got 'linear\.weight' twice"),
        (
            [("new.weight", other.weight), ("new.bias", other.bias.detach().half())],
            r"'new\.bias' must be torch\.float32",
        ),
    ):
        with pytest.raises(emu.ConfigError, match=message):
            optimiser.add_param_group({"params": group})
    assert len(optimiser.param_groups) == 1
    assert torch.equal(other.weight, before)
    # names of a refused group are forgotten
    optimiser.add_param_group({"params": [("next.weight", other.weight)], "lr": 0.5})
    other.weight.grad = torch.ones(2, 2)
    optimiser.step()
    assert not torch.equal(other.weight, before)


def test_an_optimiser_that_is_refused_writes_no_parameter():
    model = torch.nn.Sequential(OrderedDict(fits=torch.nn.Linear(2, 2), narrow=torch.nn.Linear(2, 2).half()))
    before = model.fits.weight.detach().clone()
    with pytest.raises(emu.ConfigError, match=r"'narrow\.weight' must be torch\.float32"):
        et.SGD([{"params": part.named_parameters(name)} for name, part in model.named_children()], on="fixed8")
    assert torch.equal(model.fits.weight, before)


def test_a_step_that_is_refused_moves_no_parameter():
    model = torch.nn.Sequential(OrderedDict(first=et.Linear(2, 2), second=et.Linear(2, 2)))
    machine = et.place(model, "float32")
    optimiser, before = et.SGD(model, lr=0.5), model.first.weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    model.second.to(torch.bfloat16)
    with pytest.raises(emu.ConfigError, match=r"'second\.weight' must be torch\.float32"):
        optimiser.step()
    assert torch.equal(model.first.weight, before)
    assert machine.step == 0


def test_a_run_that_goes_on_from_files_draws_the_same_random_bits():
    """The machine is a new one: its step comes from the optimiser's file."""

    def begin(model: Any) -> Training:
        machine = et.place(model, "fixed8")
        return model, et.SGD(model, lr=0.1), et.Loss(on=machine)

    def resume(training: Training) -> Training:
        file = io.BytesIO()
        torch.save([part.state_dict() for part in training[:2]], file)
        file.seek(0)
        weights, saved = torch.load(file)
        model, optimiser, loss = begin(network())
        model.load_state_dict(weights)
        optimiser.load_state_dict(saved)
        assert saved["machine_step"] == model[0].machine.step == 3
        return model, optimiser, loss

    assert trained_on_fixed8(begin, resume) == trained_on_fixed8(begin)


def test_states_that_were_saved_without_the_machines_step_leave_it_as_it_is():
    model = et.Linear(2, 2)
    optimiser = et.SGD(model)
    model.machine.step = 5
    saved = optimiser.state_dict()
    del saved["machine_step"]
    optimiser.load_state_dict(saved)
    assert model.machine.step == 5
    with pytest.raises(emu.ConfigError, match=r"`machine_step` must be an integer, got 2\.5"):
        optimiser.load_state_dict({**saved, "machine_step": 2.5})


def test_moments_of_float64_are_loaded_as_they_were_saved():
    model = et.Linear(2, 2)
    optimiser = et.SGD(model, momentum=0.9)
    model.weight.grad = torch.ones(2, 2)
    optimiser.step()
    saved = optimiser.state_dict()
    saved["state"][0]["momentum"] = torch.full((2, 2), 1 / 3, dtype=torch.float64)
    optimiser.load_state_dict(saved)
    assert torch.equal(optimiser.state[model.weight]["momentum"], saved["state"][0]["momentum"])


def test_momentum_that_is_set_between_steps_begins_at_zero():
    def moved(momentum: float) -> Any:
        model = et.Linear(2, 2)
        with torch.no_grad():
            model.weight.fill_(1.0)
        optimiser = et.SGD(model, lr=0.25, momentum=momentum)
        optimiser.param_groups[0]["momentum"] = 0.5
        for _ in range(2):
            model.weight.grad = torch.ones(2, 2)
            optimiser.step()
        return model.weight.detach()

    assert torch.equal(moved(0.0), moved(0.5))


def test_a_copy_of_an_optimiser_is_refused():
    optimiser = et.SGD(et.Linear(2, 2))
    with pytest.raises(emu.ConfigError, match=r"got a copy of SGD; make one for the copied model, and call its load_"):
        copy.deepcopy(optimiser)
