"""Gradient codecs: float32 columns become codes and levels, and back; the difference is added to the next gradient.

    V = G + residual        code = Q(V)        residual = V - Qinv(code)

codec.py     what every codec does, and float32 as it is
choice.py    the codec for a number of bits
quantiser.py 1..16 bits: thresholds, steps, levels, and how long levels are used
memory.py    what a codec remembers of one stripe: residual, levels, means
message.py   codes and levels as bytes
sums.py      float32 sums in the stated order

Arrays have shape (columns, rows), so that the numbers of a column lie together in memory.
"""

from emu.cluster.codecs.choice import codec_of
from emu.cluster.codecs.codec import Address, Codec, Float32
from emu.cluster.codecs.memory import Memory
from emu.cluster.codecs.message import Message
from emu.cluster.codecs.quantiser import Quantiser

__all__ = ["Address", "Codec", "Float32", "Memory", "Message", "Quantiser", "codec_of"]
