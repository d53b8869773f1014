"""An operation as SystemVerilog: one module without registers, in the order in which data pass it.

    text.py       wires and expressions of known width
    unpack.py     codes to sign, significand, exponent and kind
    exact.py      sums and products of these, exact or with a sticky last bit
    rounding.py   the step that a magnitude takes
    fixed.py      the output stage of fixed point
    floating.py   the output stage of floats
    judge.py      all of it, and the comparison with what a unit gives

It is written for provers, not for silicon: no part is shared, and nothing is pipelined. Tests hold every piece against
the definition.
"""

from emu.prove.reference.judge import MODULE, N_FLAGS, OFFERED, Judging, judge_of

__all__ = ["MODULE", "N_FLAGS", "OFFERED", "Judging", "judge_of"]
