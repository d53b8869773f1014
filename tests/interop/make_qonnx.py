"""Make the QONNX network of these tests with Brevitas, and record what QONNX's own executor computes.

    pip install torch==2.13.0 brevitas==0.13.4 qonnx==1.0.0 onnxscript scikit-learn 'setuptools<81'
    python tests/interop/make_qonnx.py tests/interop/networks

`digits-brevitas.onnx` is trained with 8-bit images, weights of 4 and 5 bits with a scale for each channel, and
activations of 4 bits. `qonnx.npz` has what each Quant of an activation gives, as integers, and the scores, for 20
images.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import brevitas.nn as qnn
import numpy as np
import onnx
import torch
from brevitas.export import export_qonnx
from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat, Int32Bias
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes
from sklearn.datasets import load_digits
from torch import nn

IMAGES = 20


class Digits(nn.Module):
    """Two convolutions and a linear layer, quantised."""

    def __init__(self) -> None:
        super().__init__()
        weights = {"weight_bit_width": 4, "weight_quant": Int8WeightPerChannelFloat, "bias_quant": Int32Bias}
        self.q = qnn.QuantIdentity(act_quant=Int8ActPerTensorFloat, bit_width=8, return_quant_tensor=True)
        self.c1 = qnn.QuantConv2d(1, 8, 3, padding=1, bias=True, return_quant_tensor=True, **weights)
        self.r1 = qnn.QuantReLU(bit_width=4, return_quant_tensor=True)
        self.c2 = qnn.QuantConv2d(8, 16, 3, stride=2, padding=1, bias=True, return_quant_tensor=True, **weights)
        self.r2 = qnn.QuantReLU(bit_width=4, return_quant_tensor=True)
        self.fc = qnn.QuantLinear(256, 10, bias=True, weight_bit_width=5, bias_quant=Int32Bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.r2(self.c2(self.r1(self.c1(self.q(x)))))
        return self.fc(x.flatten(1))


def computed(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the integers of each activation, and the scores, by tensor."""
    wrapper = ModelWrapper(str(path))
    given = wrapper.graph.input[0]
    size = given.type.tensor_type.shape.dim[0]
    size.ClearField("dim_param")
    size.dim_value = len(images)
    wrapper = wrapper.transform(InferShapes())
    context = execute_onnx(wrapper, {given.name: images}, return_full_exec_context=True)
    constants = {tensor.name for tensor in wrapper.graph.initializer}
    results: dict[str, np.ndarray] = {}
    for node in wrapper.graph.node:
        if node.op_type == "Quant" and node.input[0] not in constants:
            results[node.output[0]] = np.rint(context[node.output[0]] / context[node.input[1]]).astype(np.int16)
    scores = wrapper.graph.output[0].name
    return results | {scores: context[scores]}


def main(folder: Path) -> None:
    """Write both files."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits, kept = load_digits(), np.load(folder / "digits.npz")
    images = (digits.images[:, None] / 16).astype(np.float32)
    test = np.zeros(len(images), bool)
    test[np.random.default_rng(0).permutation(len(images))[:450]] = True  # as make_networks.py draws them
    x, y = torch.tensor(images[~test]), torch.tensor(digits.target[~test])
    network = Digits()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(12):
        for chosen in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(network(x[chosen]), y[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    path = folder / "digits-brevitas.onnx"
    axes = {"x": {0: "n"}}
    export_qonnx(network.eval(), torch.zeros(1, 1, 8, 8), export_path=str(path), input_names=["x"], dynamic_axes=axes)
    model = onnx.load(path)
    for item in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del item.metadata_props[:]  # stack traces, with paths of this computer
        item.doc_string = ""
    onnx.save(model, path)
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # it is in the file now
    np.savez_compressed(folder / "qonnx.npz", **computed(path, kept["x"][:IMAGES].astype(np.float32)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
