"""`emu.onnx`: networks in ONNX files.

>>> network = emu.onnx.load("digits.onnx")  # doctest: +SKIP
>>> [scores] = network(images, device="fixed16")  # doctest: +SKIP
"""

from emu.interop.onnx import Graph, load

__all__ = ["Graph", "load"]
