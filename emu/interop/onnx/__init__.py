"""Networks in ONNX files: read, computed on any device, trained further.

files.py       the file and its external data
trace.py       nodes in order become steps; constants are folded; shapes are known
node.py        what an operator's row is given
operators/     the table of operators
graph.py       `load`

What other kinds of files have too is beside this package: `Graph` in graph.py, writing steps in steps.py.
"""

from emu.interop.graph import Graph
from emu.interop.onnx.graph import load

__all__ = ["Graph", "load"]
