"""Make the quantised networks of these tests with onnxruntime's quantiser, and record what onnxruntime computes.

    pip install torch==2.13.0 onnx onnxruntime==1.32.0 scikit-learn sympy
    python tests/interop/make_networks.py tests/interop/networks
    python tests/interop/make_quantised.py tests/interop/networks

`digits-*.onnx` are the trained network in three forms: with QuantizeLinear and DequantizeLinear, in quantised
operators, and with scales that are chosen as it computes. `functions-*.onnx` is a network of the other operators that
the quantiser knows, which is not trained. Every tensor of elements is an output. `quantised.npz` has all outputs for 20
images, by file and tensor, as onnxruntime 1.32 computed them on an x86 processor with AVX-512 VNNI.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from torch.nn import functional as f

IMAGES = 20
UNSIGNED, SIGNED = QuantType.QUInt8, QuantType.QInt8


class Functions(nn.Module):
    """Two branches that are joined, groups, relu6, a sum, means of windows and of images, products, shares."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(1, 6, 3, padding=1)
        self.c, self.d = nn.Conv2d(12, 8, 1), nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4)
        self.e, self.g = nn.Linear(8, 16), nn.Linear(16, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([torch.sigmoid(self.a(x)), f.leaky_relu(self.b(x), 0.1)], 1)
        x = f.relu6(self.c(f.max_pool2d(f.avg_pool2d(x, 2), 3, 1, 1)))
        x = x * torch.tanh(x) + x
        x = f.adaptive_avg_pool2d(torch.relu(self.d(x)), 1).flatten(1)
        return torch.softmax(self.g(torch.relu(self.e(x))), -1)


class Images(CalibrationDataReader):
    """Images in batches of 50, for calibration."""

    def __init__(self, images: np.ndarray) -> None:
        self.batches = iter([{"x": images[i : i + 50]} for i in range(0, len(images), 50)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch."""
        return next(self.batches, None)


def with_elements(path: Path, activation: QuantType) -> None:
    """Make every tensor of elements an output, after those that the network has."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear"):
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], activation.tensor_type, None))
    onnx.save(model, path)


def computed(path: Path, images: np.ndarray, **entries: str) -> dict[str, np.ndarray]:
    """Return every output of a network by its name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name, value in entries.items():
        options.add_session_config_entry(name.replace("_", "."), value)
    session: Any = onnxruntime.InferenceSession(str(path), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": images}), strict=True))


def main(folder: Path) -> None:
    """Write every file."""
    warnings.simplefilter("ignore")
    images = np.load(folder / "digits.npz")["x"].astype(np.float32)
    torch.manual_seed(1)
    network = Functions().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.5)  # so that results differ from image to image
    recorded: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as scratch:
        floats, prepared = Path(scratch) / "functions.onnx", Path(scratch) / "prepared.onnx"
        axes = {"x": {0: "n"}}
        torch.onnx.export(
            network, (torch.zeros(1, 1, 8, 8),), floats, opset_version=17, dynamo=False, input_names=["x"],
            dynamic_axes=axes,
        )  # fmt: skip
        for name, source in (("digits", folder / "digits.onnx"), ("functions", floats)):
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            made = {
                "qdq": (QuantFormat.QDQ, True, UNSIGNED, SIGNED),
                "qoperator": (QuantFormat.QOperator, False, SIGNED, SIGNED),
            }
            for form, (how, per_channel, activation, weight) in made.items():
                path = folder / f"{name}-{form}.onnx"
                quantize_static(
                    str(prepared), str(path), Images(images[:200]), quant_format=how, per_channel=per_channel,
                    activation_type=activation, weight_type=weight,
                )  # fmt: skip
                with_elements(path, activation)
            if name == "digits":
                quantize_dynamic(str(prepared), str(folder / "digits-dynamic.onnx"))
    for path in [*sorted(folder.glob("*-q*.onnx")), folder / "digits-dynamic.onnx"]:
        outputs = computed(path, images[:IMAGES])
        recorded |= {f"{path.stem}:{name}": array for name, array in outputs.items()}
    np.savez_compressed(folder / "quantised.npz", **recorded)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
