"""Proofs: a user's RTL against the definition, for all inputs.

elaborate.py   sources to gates and registers, by Yosys
unit.py        ports, latency; registers unrolled
circuit.py     and-inverter graphs
reference/     the operation as SystemVerilog
proof.py       the miter of both, and the steps of a proof
search.py      the smallest wrong input, in order
sat.py         a block of inputs by SAT
exhaust.py     a block of inputs, each evaluated
wrong.py       a wrong input in words, with its cause
"""

from emu.prove.elaborate import Sources
from emu.prove.outcome import Answer, Outcome
from emu.prove.proof import Proof, prove
from emu.prove.unit import Unit, ports_of

__all__ = ["Answer", "Outcome", "Proof", "Sources", "Unit", "ports_of", "prove"]
