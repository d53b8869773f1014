"""Kernels written as vector code, with the operations of `lanes`.

There are sixteen lanes unless code says otherwise; LLVM splits them if a processor's vectors are shorter. Each kernel
has a twin of plain loops beside this package, used if vector code does not apply and by `EMU_CPU=generic`.

lanes.py              numbers in lanes, with Python's operators
calling.py            compiled loops that call others by address: products deliver their sums to the output stage
rounding.py           modes with vector code; arithmetic.py: elementwise operations rounded to odd
leading_bits.py       the statistics register by carry-save adders; philox.py: random bits
stage.py              the output stage of a chunk; writing.py: of a range; ranges.py: of a result
choosing.py           which stages have vector code, and the numbers it is given
scaled.py             blocks that share scales; steps.py: the steps of their rules
dot_tiles.py          tiles of integer products; packing.py: their operands; integer_products.py: whole ones
ordered_tiles.py      tiles of products added in order; ordered_products.py: whole ones
batched_products.py   products of one matrix with many, side by side in lanes; transposing.py: squares of numbers
transposed_products.py  products of which the rows are in lanes, the columns read where they lie
block_tiles.py        tiles of products added in blocks; group_tiles.py: in blocks of groups
pairing.py            pairs of 16-bit integers along k, and words of them
paired_products.py    exact products of one matrix of such words with each of a batch, read where they lie
gathered_pairs.py     exact sums of such words along the rows of a gathered matrix
strips.py             sparse products; code_sides.py: gradient codecs of two steps
pooling.py            maxima of windows
"""
