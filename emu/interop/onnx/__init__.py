"""Networks in ONNX files: read, computed on any device, trained further.

files.py       the file and its external data
trace.py       nodes in order become steps; constants are folded; shapes are known
node.py        what an operator's row is given
operators/     the table of operators
graph.py       `Graph`: what a user has after reading

What other kinds of files have too is beside this package: calling one in graph.py, writing steps in steps.py.
"""

from emu.interop.onnx.graph import Graph, load

__all__ = ["Graph", "load"]
