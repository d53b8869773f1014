"""Make the networks of these tests with PyTorch: trained on the bundled digits, exported as users export them.

    pip install torch==2.13.0 onnx onnxscript scikit-learn
    python tests/interop/make_networks.py tests/interop/networks

The files are kept, so that tests need no PyTorch: emu computes other bits for other weights. `digits.onnx` and
`digits-dynamo.onnx` are one network by both exporters; `sequence.onnx` reads rows of digits as a sequence, and
`letters.onnx` is a transformer of tokens. `digits.npz` has the test images: 450 of scikit-learn's digits, / 16.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as f


class Digits(nn.Module):
    """Convolutions with normalisation, one by channel with relu6 beside a shortcut, gelu, pooling, a strided one."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.dw, self.b2 = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)
        self.pw, self.c3 = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.b1(self.c1(x)))
        x = x + f.relu6(self.b2(self.dw(x)))
        x = f.max_pool2d(f.gelu(self.pw(x)), 2)
        return self.fc(self.c3(x).mean((2, 3)))


class Sequence(nn.Module):
    """One-dimensional convolutions over the rows of a digit, dilated and in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.b = nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16)
        self.d, self.fc = nn.Conv1d(16, 16, 3, dilation=2, groups=2, padding=2), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.leaky_relu(self.b(self.c(x[:, 0])))
        return self.fc(f.silu(self.d(f.max_pool1d(x, 2))).mean(-1))


class Block(nn.Module):
    """A block of a transformer with causal attention."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.up, self.down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, features = x.shape
        parts = self.qkv(self.n1(x)).split(features, dim=2)
        q, k, v = (p.view(n, length, self.heads, features // self.heads).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1)) * (features // self.heads) ** -0.5
        scores = scores + torch.triu(torch.full((length, length), float("-inf")), 1)
        joined = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, length, features)
        x = x + self.out(joined)
        return x + self.down(f.gelu(self.up(self.n2(x))))


class Letters(nn.Module):
    """A transformer that predicts the next of 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(32, 16), nn.Parameter(torch.randn(12, 16) * 0.1)
        self.block, self.norm, self.out = Block(16, 4), nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.block(self.table(tokens) + self.place)))


def trained(network: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> nn.Module:
    """Train with Adam on mini-batches of 64."""
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(64):
            loss = f.cross_entropy(network(x[chosen]).reshape(-1, 10 if y.ndim == 1 else 32), y[chosen].reshape(-1))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def _without_traces(path: Path) -> None:
    """Remove what an exporter notes of the computer it ran on: stack traces, with paths."""
    model = onnx.load(path, load_external_data=False)
    for item in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
    ):
        del item.metadata_props[:]
        item.doc_string = ""
    path.write_bytes(model.SerializeToString())


def export(network: nn.Module, example: torch.Tensor, path: Path, *, dynamo: bool) -> None:
    """Export with an open batch: by PyTorch's older exporter, opset 17, or by its newer one, opset 20."""
    if dynamo:
        shapes = ({0: torch.export.Dim("n")},)
        torch.onnx.export(
            network, (example[:2],), path, opset_version=20, dynamo=True, dynamic_shapes=shapes, external_data=True
        )
        _without_traces(path)
        return
    axes = {"x": {0: "n"}}
    torch.onnx.export(
        network, (example[:1],), path, opset_version=17, dynamo=False, input_names=["x"], dynamic_axes=axes
    )
    _without_traces(path)


def main(folder: Path) -> None:
    """Write every file."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    test = np.zeros(len(images), bool)
    test[np.random.default_rng(0).permutation(len(images))[:450]] = True
    np.savez_compressed(folder / "digits.npz", x=images[test], y=digits.target[test].astype(np.int64))
    x, y = torch.tensor(images[~test]), torch.tensor(digits.target[~test])
    network = trained(Digits(), x, y, 40)
    export(network, x, folder / "digits.onnx", dynamo=False)
    export(network, x, folder / "digits-dynamo.onnx", dynamo=True)
    export(trained(Sequence(), x, y, 40), x, folder / "sequence.onnx", dynamo=False)
    tokens = torch.tensor((digits.data[:, :13] * 1.9).astype(np.int64))
    letters = trained(Letters(), tokens[:, :-1], tokens[:, 1:], 10)
    export(letters, tokens[:, :-1], folder / "letters.onnx", dynamo=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
