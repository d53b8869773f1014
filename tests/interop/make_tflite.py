"""Make the TFLite networks of these tests, and record what TensorFlow Lite's reference kernels compute.

    pip install tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0
    python tests/interop/make_tflite.py tests/interop/networks

`digits.tflite` is a residual network of Keras, trained on 350 of the digits and quantised in int8 by TensorFlow's
converter, which calibrates it with 100 of them. `functions.tflite` is a network of other operators, not trained,
quantised likewise. In `operators.tflite` each operator reads the inputs alone, with drawn scales: `every_operator` of
tflite_files.py writes it. `tflite.npz` has every tensor of each, of 20 images or of drawn inputs, by file and tensor,
as ai-edge-litert computed them with its reference kernels: no XNNPACK, no other delegate.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.interop.tflite_files import drawn_inputs, every_operator

IMAGES, CALIBRATION, TRAINED = 20, 100, 350
#: Of the scales and inputs of `operators.tflite`.
SEED = 1


def reference(content: bytes, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Return every tensor that the reference kernels of ai-edge-litert compute, by its name; constants are left out."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    constants = {d["index"] for d in interpreter.get_tensor_details() if _is_constant(interpreter, d["index"])}
    interpreter.invoke()
    return {
        detail["name"]: interpreter.get_tensor(detail["index"])
        for detail in interpreter.get_tensor_details()
        if detail["index"] not in constants and detail["name"] and detail["dtype"] in (np.int8, np.uint8, np.float32)
    }


def _is_constant(interpreter: Any, index: int) -> bool:
    """Return whether a tensor has numbers before anything is computed: it is no input, and no operator writes it."""
    details = interpreter._get_ops_details()
    written = {place for operator in details for place in operator["outputs"]}
    return index not in written and index not in {d["index"] for d in interpreter.get_input_details()}


def converted(network: Any, images: np.ndarray) -> bytes:
    """Return a Keras network as TFLite in int8, inputs and outputs in float32."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.representative_dataset = lambda: ([image[None]] for image in images[:CALIBRATION])
    content: bytes = converter.convert()
    return content


def digits(images: np.ndarray, labels: np.ndarray) -> Any:
    """Return a trained network: convolutions, a depthwise one, a sum, pools, a product, softmax."""
    import keras
    from keras import layers

    x = given = keras.Input((8, 8, 1), name="x")
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="c1")(x)
    y = layers.DepthwiseConv2D(3, padding="same", activation="relu6", name="dw")(x)
    y = layers.Conv2D(8, 1, name="pw")(y)
    x = layers.Add(name="sum")([x, y])
    x = layers.MaxPooling2D(2, name="max")(x)
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu", name="c2")(x)
    x = layers.AveragePooling2D(2, name="mean")(x)
    x = layers.Flatten(name="flat")(x)
    x = layers.Dense(10, activation="softmax", name="fc")(x)
    network = keras.Model(given, x)
    network.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    network.fit(images[:TRAINED], labels[:TRAINED], epochs=30, batch_size=32, verbose=0)
    return network


def functions() -> Any:
    """Return a network of the other operators, with weights that make results differ from image to image."""
    import keras
    from keras import layers, ops

    x = given = keras.Input((8, 8, 1), name="x")
    x = layers.ZeroPadding2D(1, name="pad")(x)
    a = keras.activations.tanh(layers.Conv2D(6, 3, name="a")(x))
    b = keras.activations.sigmoid(layers.Conv2D(6, 3, name="b")(x))
    x = layers.Concatenate(name="joined")([a, b])
    x = layers.LeakyReLU(negative_slope=0.1, name="leaky")(layers.Conv2D(8, 3, name="c")(x))
    y = layers.DepthwiseConv2D(2, depth_multiplier=2, strides=2, padding="same", name="dw")(x)
    y = ops.relu6(y + 1.0)
    z = layers.AveragePooling2D(3, strides=2, padding="same", name="average")(x)
    z = layers.Concatenate(name="twice")([z, z * 0.5])
    x = y * z - z
    x = layers.ReLU(name="relu")(x)
    x = layers.GlobalAveragePooling2D(keepdims=True, name="gap")(x)
    x = layers.Dense(16, activation="relu", name="e")(layers.Reshape((16,), name="flat")(x))
    x = ops.hard_silu(x)
    return keras.Model(given, layers.Dense(10, use_bias=False, activation="softmax", name="g")(x))


def main(folder: Path) -> None:
    """Write every file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    assert importlib.util.find_spec("ai_edge_litert"), "pip install ai-edge-litert==2.3.0"
    with np.load(folder / "digits.npz") as data:
        images, labels = data["x"].astype(np.float32).transpose(0, 2, 3, 1), data["y"]
    recorded: dict[str, np.ndarray] = {}
    for name in ("digits", "functions"):
        keras.utils.set_random_seed(1)
        network = digits(images, labels) if name == "digits" else functions()
        if name == "functions":
            network.set_weights([2.0 * weight for weight in network.get_weights()])
        content = converted(network, images)
        (folder / f"{name}.tflite").write_bytes(content)
        recorded |= {f"{name}:{tensor}": array for tensor, array in reference(content, images[:IMAGES]).items()}
    content = every_operator(SEED)
    (folder / "operators.tflite").write_bytes(content)
    recorded |= {f"operators:{tensor}": array for tensor, array in reference(content, *drawn_inputs(SEED)).items()}
    np.savez_compressed(folder / "tflite.npz", **recorded)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
