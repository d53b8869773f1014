"""The Numba backend's ways to compute a product, one file each.

    integer_dot        exact products of narrow fixed-point words, by integer dot-product instructions
    pairwise_sums      pairwise sums in float32, of one column
    blas               exact products in float32 or float64, in any order
    halves             exact products of words of up to 32 bits, by products of their halves
    wide_sums          exact sums wider than float64
    blocks_in_tiles    blocks of products, as matrix units add them, of binary16 and FP8, in vector code
    groups_in_tiles    blocks of groups of products whose operands share scales, in vector code
    dot_add            blocks of products, in plain loops
    speculation        saturating accumulators: exact sums of the outputs that cannot saturate
    in_tiles           sequential accumulators, in vector code
    in_order           sequential accumulators in plain loops: the units that have a loop of their own
    ordered            all other orders, modes and rules, add by add

    strips             sparse products, entry by entry in strips of columns; sparse_blocks: sorted by column first
    groups             sparse products by the ways above, results of the same number of entries together

`emu.backends.numba.table` lists them in the order in which they are asked.
"""
