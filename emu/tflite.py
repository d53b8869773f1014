"""`emu.tflite`: networks of int8 in TFLite files.

>>> network = emu.tflite.load("digits.tflite")  # doctest: +SKIP
>>> [shares] = network(images)  # doctest: +SKIP
"""

from emu.interop.tflite import Network, load

__all__ = ["Network", "load"]
