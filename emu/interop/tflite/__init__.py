"""Networks in TFLite files: int8, computed in integers as TensorFlow Lite's reference kernels compute them.

schema.py      which field of which table is what
files.py       the file's bytes become tensors and operators
trace.py       operators in order become steps
node.py        what an operator's row is given
operators/     the table of operators
network.py     `Network`: what a user has after reading
"""

from emu.interop.tflite.network import Network, load

__all__ = ["Network", "load"]
