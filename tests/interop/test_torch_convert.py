"""Modules of PyTorch become graphs, and state dicts weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu

MISSING = "import sys; sys.modules['torch'] = None\nimport emu\nprint('torch' in sys.modules and 'torch' in dir(emu))\n"


def test_without_pytorch_the_import_says_what_is_missing():
    script = MISSING + "try:\n    import emu.torch\nexcept emu.BackendUnavailable as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1].startswith("emu.torch needs PyTorch, which is not installed; install it as")


def test_importing_emu_loads_no_pytorch():
    script = "import emu, emu.onnx, emu.training, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.fixture(autouse=True)
def _with_torch(request: pytest.FixtureRequest) -> None:
    if "module" in request.fixturenames:
        pytest.importorskip("onnxscript", reason="networks are exported with onnxscript")


@pytest.fixture
def module() -> Any:
    torch = pytest.importorskip("torch", reason="emu.torch needs PyTorch, which tests do without")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
            self.fc = torch.nn.Linear(4 * 36, 10)

        def forward(self, x: Any) -> Any:
            return self.fc(torch.relu(self.norm(self.conv(x))).flatten(1))

    torch.manual_seed(0)
    return Net()


def test_a_module_is_converted_as_it_computes_in_evaluation(module: Any):
    import torch

    module.norm.eval()
    network = emu.torch.convert(module, torch.randn(1, 1, 8, 8))
    assert (module.training, module.norm.training) == (True, False)  # as it was
    assert {"conv", "fc"} <= network.shapes().keys()
    x = torch.randn(7, 1, 8, 8)
    [scores] = network(x)
    # sums of 144 products in another order
    assert np.abs(scores - module.eval()(x).detach().numpy()).max() < 1e-5
    [on_device] = network(x, device="fixed8")
    assert on_device.shape == (7, 10)


def test_the_file_is_kept_where_it_is_asked_for(module: Any, tmp_path: Path):
    import torch

    kept = emu.torch.convert(module, torch.randn(2, 1, 8, 8), path=tmp_path / "net.onnx")
    assert emu.onnx.load(tmp_path / "net.onnx").sha256 == kept.sha256


def test_a_module_that_cannot_be_traced_is_refused_in_a_sentence(module: Any):
    import torch

    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(emu.ConfigError, match=r"must be one that torch\.export traces, got Odd: .* try convert\("):
        emu.torch.convert(Odd(), torch.randn(2, 3))
    with pytest.raises(emu.ShapeError, match=r"`example` must be a tensor for each input of the module, got none"):
        emu.torch.convert(module)
    with pytest.raises(emu.ConfigError, match=r"must be a torch\.nn\.Module, got function; wrap a function"):
        emu.torch.convert(lambda x: x, torch.randn(2, 3))


def test_weights_go_from_pytorch_to_modules_of_emu_and_back(module: Any):
    import torch

    from emu import nn

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = emu.torch.Conv2d(1, 4, 3), emu.torch.Layer(nn.BatchNorm("norm", 4))
            self.fc = emu.torch.Linear(4 * 36, 10)

        def forward(self, x: Any) -> Any:
            return self.fc(torch.relu(self.norm(self.conv(x))).flatten(1))

    module(torch.randn(4, 1, 8, 8))  # running moments move
    ours = emu.torch.load_state(Net(), module.state_dict()).eval()
    assert torch.equal(ours.norm.variance, module.norm.running_var)
    x = torch.randn(3, 1, 8, 8)
    assert (ours(x) - module.eval()(x)).abs().max() < 1e-5  # sums of 144 products in another order
    before = module.state_dict()["fc.weight"].clone()
    emu.torch.load_state(module, ours)
    assert torch.equal(module.fc.weight, before)
    with pytest.raises(emu.ConfigError, match=r"without conv\.weight, conv\.bias.* unused odd"):
        emu.torch.load_state(ours, {"odd": torch.zeros(1)})


def test_a_recipes_network_takes_a_state_dict(module: Any):
    import torch

    table = emu.model("lenet").network
    with pytest.raises(emu.ConfigError, match=r"without conv1\.weight"):
        emu.torch.load_state(table, {})
    with pytest.raises(emu.ConfigError, match=r"must be loaded into an emu\.nn\.Network or a module, got dict"):
        emu.torch.load_state({}, {"a": torch.zeros(1)})
