"""Layers in PyTorch: gradients are PyTorch's in float32, and on a device those of emu's own networks, bit for bit."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.autodiff import Graph, Operation, Value
from emu.hardware import load_device
from emu.precision import DatapathRunner, Policy

torch = pytest.importorskip("torch", reason="emu.torch needs PyTorch, which tests do without")
from emu import torch as et  # noqa: E402 - it needs PyTorch

#: Against PyTorch, of the largest: sums of up to 300 products are rounded in another order.
BOUND = 1e-6


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def far(ours: Any, theirs: Any) -> float:
    return float((ours.detach() - theirs.detach()).abs().max() / theirs.detach().abs().max())


def both(ours: Any, theirs: Any, x: Any) -> list[tuple[Any, Any]]:
    """Results and all gradients of two modules with the same weights."""
    theirs.load_state_dict(ours.state_dict())
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [module(given) for module, given in zip((ours, theirs), inputs, strict=True)]
    gradient = torch.randn_like(results[1])
    for result in results:
        result.backward(gradient)
    parameters = [(p.grad, q.grad) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True)]
    return [tuple(results), (inputs[0].grad, inputs[1].grad), *parameters]


@pytest.mark.parametrize("shape", [(64, 300), (4, 5, 300)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_in_float32_has_the_gradients_of_pytorch(shape: tuple[int, ...], bias: bool):
    pairs = both(et.Linear(300, 100, bias), torch.nn.Linear(300, 100, bias), torch.randn(shape))
    assert len(pairs) == 4 if bias else 3
    assert all(far(*pair) < BOUND for pair in pairs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"groups": 2, "dilation": 2, "padding": (2, 1), "kernel_size": (2, 3)},
        {"padding": "same", "dilation": (1, 2)},
        {"padding": "valid", "bias": False, "stride": (1, 2)},
    ],
    ids=str,
)
def test_conv2d_in_float32_has_the_gradients_of_pytorch(options: dict[str, Any]):
    options = {"kernel_size": 3, **options}
    ours, theirs = et.Conv2d(4, 6, **options), torch.nn.Conv2d(4, 6, **options)
    assert all(far(*pair) < 2 * BOUND for pair in both(ours, theirs, torch.randn(5, 4, 11, 9)))


def test_first_values_are_those_of_pytorch():
    ours = et.Linear(5, 3)
    torch.manual_seed(0)
    theirs = torch.nn.Linear(5, 3)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    assert ours.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.parametrize("device", ["fixed16", "fixed8", "bf16-mixed"])
def test_two_layers_compute_what_emus_own_tape_computes(device: str):
    model = torch.nn.Sequential(et.Linear(20, 8), et.Layer(nn.Activation("tanh", "tanh")), et.Linear(8, 3))
    machine = et.place(model, device, seed=3)
    machine.step = 5
    x, g = torch.randn(6, 20, requires_grad=True), torch.randn(6, 3) * 1e-2
    result = model(x)
    result.backward(g)

    runner = DatapathRunner(Policy(load_device(device).precision), seed=3)
    runner.step = 5
    graph = Graph(runner)

    def written(array: Any, role: str, layer: str, part: str = "") -> Value:
        return runner.run(Operation("quantize", (Value(array.detach().numpy()),), part=part), role, layer)

    leaves = {f"{i}.{part}": graph.parameter(written(getattr(model[i], part), part, f"{i}"))
              for i in (0, 2) for part in ("weight", "bias")}  # fmt: skip
    given = graph.variable(written(x, "activation", "input"))
    hidden = graph.apply("linear", given, leaves["0.weight"], leaves["0.bias"], layer="0")
    hidden = graph.apply("tanh", hidden, layer="tanh")
    end = graph.apply("linear", hidden, leaves["2.weight"], leaves["2.bias"], layer="2")
    found = graph.backward(end, written(g, "error", "2", "arrived"))

    assert np.array_equal(result.detach(), end.value.array)
    assert np.array_equal(x.grad, found[id(given)].array)
    for name, leaf in leaves.items():
        assert np.array_equal(model.get_parameter(name).grad, found[id(leaf)].array), name


def test_a_tensor_that_something_else_has_changed_is_written_again():
    first, second = et.Linear(4, 4), et.Linear(4, 4)
    model = torch.nn.Sequential(first, second)
    et.place(model, "fixed8")
    with torch.no_grad():
        y = first(torch.randn(2, 4))
        expected = second(y + 0.05)
        y += 0.05  # no number of the format
        assert torch.equal(second(y), expected)


def test_every_format_of_a_tensor_is_held_exactly():
    layer = et.Linear(4, 2, on="fixed16")
    assert layer.weight.dtype == torch.float64  # master weights have 32 bits
    assert layer(torch.randn(3, 4)).dtype == torch.float32  # activations 16
    assert et.Linear(4, 2, on="float32").weight.dtype == torch.float32


def test_normalisation_moves_its_moments_in_training_alone():
    layer = et.Layer(nn.BatchNorm("norm", 4))
    x = torch.randn(8, 4)
    layer.eval()(x)
    assert layer.mean.tolist() == [0.0] * 4
    layer.train()(x)
    assert far(layer.mean, 0.1 * x.mean(0)) < BOUND


def test_layers_inside_a_layer_have_their_own_parameters():
    inside = (nn.Linear("res.a", 4, 4), nn.Activation("res.act", "relu"))
    layer = et.Layer(nn.Residual("res", inside))
    assert list(layer.state_dict()) == ["a.weight", "a.bias"]
    layer(torch.randn(3, 4)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_copies_and_pickles_of_a_module_compute_the_same():
    layer = et.Linear(6, 3, on="fixed16")
    x = torch.randn(2, 6)
    twin = copy.deepcopy(layer)
    assert twin.machine is layer.machine
    loaded = pickle.loads(pickle.dumps(layer))
    assert torch.equal(twin(x), layer(x))
    assert torch.equal(loaded(x), layer(x))
    assert loaded.machine.device == layer.machine.device


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32"])
def test_tensors_of_other_dtypes_are_read_as_their_numbers(dtype: str):
    layer = et.Linear(4, 2)
    x = torch.tensor([[1.0, -2.0, 0.0, 3.0]])
    if dtype != "int32":
        assert torch.equal(layer(x.to(getattr(torch, dtype))), layer(x))


@pytest.mark.parametrize("kind", ["softmax_cross_entropy", "mse", "euclidean"])
def test_losses_have_the_gradients_of_pytorch(kind: str):
    labels, outputs = torch.tensor([1, 0, 2, 2]), torch.randn(4, 3)
    one_hot = torch.nn.functional.one_hot(labels, 3).float()
    theirs = {
        "softmax_cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, labels),
        "mse": lambda x: torch.nn.functional.mse_loss(x, one_hot),
        "euclidean": lambda x: (x - one_hot).norm(dim=1).mean(),
    }[kind]
    x, y = (outputs.clone().requires_grad_() for _ in range(2))
    ours, other = et.Loss(kind)(x, labels), theirs(y)
    (8 * ours).backward()
    (8 * other).backward()
    assert far(ours, other) < BOUND
    assert far(x.grad, y.grad) < BOUND


def test_a_product_on_a_unit_and_its_gradients():
    a, b = torch.randn(3, 4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    c, d = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    result = et.matmul(a, b, "fp32")
    result.sum().backward()
    (c @ d).sum().backward()
    assert far(result, c @ d) < BOUND
    assert far(a.grad, c.grad) < BOUND
    assert far(b.grad, d.grad) < BOUND
    x = et.quantize(torch.randn(4, 5), "fix8f4")
    unit = emu.Unit("fix16f8", inputs="fix8f4")
    assert np.array_equal(et.matmul(x, x.mT, unit), unit.matmul(x.numpy(), x.mT.numpy()).array)


@pytest.mark.parametrize("fmt", ["fix8f4", "fp16", "mxfp8_e4m3", "fix40f30"])
def test_quantize_writes_the_format_and_its_gradient_passes_straight_through(fmt: str):
    x = torch.randn(2, 32, requires_grad=True)
    y = et.quantize(x, fmt)
    assert np.array_equal(y.detach(), np.asarray(emu.quantize(x.detach().numpy(), fmt)))
    y.backward(g := torch.randn(2, 32, dtype=y.dtype))
    assert torch.equal(x.grad, g.float())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: et.Linear(2, 2)(torch.randn(2, 2).to_sparse()), r"`x` must be a dense tensor .* \.to_dense\(\)"),
        (lambda: et.Linear(2, 2)(torch.zeros(2, 2, dtype=torch.complex64)), r"`x` must be a dense tensor"),
        (lambda: et.Linear(2, 2, on="dlu16"), r"formats with fixed points, got dlu16, .* or train with emu\.train"),
        (lambda: et.Linear(2, 2, on="h100-fp8-delayed"), r"scale operands by their own numbers, got h100-fp8-delayed"),
        (lambda: et.Conv2d(4, 6, 3, padding="same", stride=2), r"`padding` 'same' must have a stride of 1, got \(2"),
        (lambda: et.Conv2d(4, 6, 3, padding="full"), r"`padding` must be numbers, 'valid' or 'same', got 'full'"),
        (lambda: et.Conv2d(4, 6, 3, groups=3), r"`groups` must divide the channels, got 3 for 4 and 6"),
        (lambda: et.Layer(nn.SparseLinear("s", 3, 2)), r"must read dense tensors, got 's' \(sparse_linear\)"),
        (lambda: et.Loss("hinge"), r"a loss must be one of emu's, got 'hinge'; known: euclidean, mse"),
        (lambda: et.Loss()(torch.randn(2, 3), torch.tensor([0, 3])), r"labels must be 0\.\.2, .* got 3; check the"),
        (lambda: et.Loss()(torch.randn(2, 3), torch.tensor([0.0, 1.0])), r"labels must be integers, one for each row"),
        (lambda: et.place(torch.nn.Linear(2, 2), "fixed16"), r"must have modules of emu\.torch, got Linear without"),
        (lambda: et.matmul(torch.randn(3), torch.randn(3), "fp32"), r"two axes or more, got \(3,\) and \(3,\)"),
        (lambda: et.quantize(torch.randn(3), "fix64f10"), r"must fit float64 exactly, got fix64f10; choose a narrower"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_says_the_remedy(wrong: Any, message: str):
    with pytest.raises(emu.EmuError, match=message):
        wrong()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_narrow_floats_are_quantised_and_multiplied(dtype: str):
    x = torch.tensor([[1.0, -2.5], [0.5, 3.0]]).to(getattr(torch, dtype))
    wide = x.float().numpy()
    assert np.array_equal(emu.torch.quantize(x, "fix8f4").float().numpy(), np.asarray(emu.quantize(wide, "fix8f4")))
    unit = emu.Unit("fp32", inputs="fp32")
    assert np.array_equal(emu.torch.matmul(x, x.float(), unit).float().numpy(), np.asarray(unit.matmul(wide, wide)))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"lr": -1.0}, "`lr` must be a finite number from 0, got -1.0"),
        ({"lr": math.nan}, "`lr` must be a finite number from 0, got nan"),
        ({"lr": "a"}, "`lr` must be a finite number from 0, got 'a'"),
        ({"momentum": 1.0}, "`momentum` must be a finite number from 0 to below 1, got 1.0"),
        ({"weight_decay": math.inf}, "`weight_decay` must be a finite number from 0, got inf"),
        ({"clip_norm": 0.0}, "`clip_norm` must be a finite number above 0, got 0.0"),
    ],
)
def test_settings_that_no_optimiser_can_have(options: dict[str, Any], rule: str):
    model = torch.nn.Sequential(emu.torch.Linear(3, 2))
    emu.torch.place(model, "float32")
    with pytest.raises(emu.ConfigError) as refused:
        emu.torch.SGD(model, **{"lr": 0.1, **options})
    assert rule in str(refused.value)


@pytest.mark.parametrize("betas", [(1.0, 0.9), (0.9, -0.1), (0.9, math.nan)])
def test_shares_of_means_are_below_1(betas: tuple[float, float]):
    model = torch.nn.Sequential(emu.torch.Linear(3, 2))
    emu.torch.place(model, "float32")
    with pytest.raises(emu.ConfigError, match="`beta` must be a finite number from 0 to below 1"):
        emu.torch.Adam(model, betas=betas)


def test_a_state_is_rounded_once_to_master_weights():
    """1 + 2**-21 + 2**-40 lies above a tie of fix24f20, and float32, the parameters' dtype, has that tie."""
    number, above = 1 + 2.0**-21 + 2.0**-40, 1 + 2.0**-20
    model = et.Linear(1, 1, name="fc")
    et.place(model, "fixed8")
    et.load_state(model, {"weight": [[number]], "bias": [-number]})
    assert (model.weight.item(), model.bias.item()) == (above, -above)
    assert et.sha256(model) == et.sha256(et.load_state(model, {"weight": [[above]], "bias": [-above]}))


def test_a_state_that_cannot_be_written_changes_nothing():
    model = torch.nn.Sequential(et.Linear(1, 1), torch.nn.Linear(1, 1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {name: np.full(tensor.shape, 2**70, object) for name, tensor in before.items()}
    with pytest.raises(emu.FormatError):
        et.load_state(model, {**state, "0.bias": [2**70 + 1]})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    et.load_state(model, state)
    assert all((tensor == 2.0**70).all() for tensor in model.state_dict().values())


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: et.quantize(x, "fix8f4"),
        lambda x: et.matmul(x, torch.ones(2, 2), "fp16"),
        lambda x: et.matmul(torch.ones(2, 2), x, "fp16"),
        lambda x: et.Linear(2, 2)(x),
        lambda x: et.Loss()(x, [0]),
    ],
)
@pytest.mark.parametrize("x", [None, "text", [[1.0], [2.0, 3.0]]])
def test_what_is_no_tensor_is_refused(compute: Any, x: Any):
    with pytest.raises(emu.FormatError, match=r"must be a tensor, or numbers .* makes one of, got (NoneType|str|list)"):
        compute(x)


def test_numbers_are_tensors_where_pytorch_makes_one_of_them():
    assert et.Loss()([[0.0, 0.0]], [1]).item() == pytest.approx(math.log(2))
    assert torch.equal(et.matmul([[1.0, 2.0]], [[3.0], [4.0]], "fp16"), torch.tensor([[11.0]]))


def test_what_is_no_unit_is_refused():
    for units in ({"unit": 16}, {"unit": "fp16", "back": "fp32"}):
        with pytest.raises(emu.FormatError, match=r"`(unit|back)` must be an emu\.Unit, got (int|str); describe one"):
            et.matmul(torch.ones(2, 2), torch.ones(2, 2), **units)


def test_models_without_modules_of_emu_are_refused():
    """A hash of nothing would be that of every such model."""
    for use in (et.sha256, lambda model: et.place(model, "float32")):
        with pytest.raises(emu.ConfigError, match=r"must have modules of emu\.torch, got Linear without any; make"):
            use(torch.nn.Linear(2, 2))
        with pytest.raises(emu.ConfigError, match=r"a model must be a torch\.nn\.Module, got str; wrap"):
            use("model")
    with pytest.raises(emu.ConfigError, match=r"must be made of a layer of emu\.nn, got Linear; give one such as"):
        et.Layer(torch.nn.Linear(2, 2))


def test_a_seed_may_be_an_integer_of_numpy_and_nothing_else():
    def drawn(seed: Any) -> Any:
        machine = et.Machine("fixed8", seed=seed)
        model = et.Linear(2, 1, on=machine)
        with torch.no_grad():
            model.weight.fill_(0.3)
        et.Loss("mse", on=machine)(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.int64)).backward()
        et.SGD(model, lr=0.01).step()
        return et.sha256(model)

    torch.manual_seed(0)
    first = drawn(3)
    torch.manual_seed(0)
    assert drawn(np.int64(3)) == first
    for seed in ("a", 1.5, None):
        with pytest.raises(emu.ConfigError, match="`seed` must be an integer, got"):
            et.Machine("fixed8", seed=seed)
