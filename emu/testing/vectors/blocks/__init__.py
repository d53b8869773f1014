"""Vectors of blocks: a quantiser whose elements share scales, as MXFP8 and NVFP4 have them.

    a.hex       ──► blocks of `along` numbers ──► scale of each block ──► scale.hex, tensor_scale.hex
                    each number / its scale   ──► output stage        ──► result.hex, flags.hex

A vector is an element, as it is of other operations: a number and its code. The definition is
`emu.backends.reference.scaled`; nothing here rounds.

requirements.py  which formats and options vectors of blocks can have
quotients.py     numbers, scales and quotients of operands
evidence.py      what is known of each element and of its block
cells.py         what hardware gets wrong with scales, and which blocks reach it
drawing.py       blocks that reach the cells (special_blocks.py: zeros, NaN, infinities, special values)
pool.py          the blocks from which the vectors of the cells are chosen
dumped_scales.py scales of a dump
check.py         elements and scales of a dump against the vectors

Faults of scales are in `emu.testing.vectors.causes.scales`.
"""
