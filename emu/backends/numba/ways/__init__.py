"""The ways of the Numba backend to compute a product, each a file; the lists say in which order they are asked.

    integer_dot        exact products of narrow fixed-point words, by integer dot-product instructions
    pairwise_sums      float32 sums in pairs, of one column
    blas               exact products in float32 or float64, in any order
    halves             exact products of words of up to 32 bits, by those of their halves
    wide_sums          exact sums wider than float64
    blocks_in_tiles    blocks of products, as matrix units add them, of binary16 and FP8, in vector code
    dot_add            blocks of products, in plain loops
    speculation        saturating accumulators, their exact sums where none saturates
    in_tiles           sequential accumulators, in vector code
    in_order           sequential accumulators that round, saturate or wrap at every add: the fast ones
    ordered            every other order, mode and rule, add by add

    strips             sparse products, entry by entry in strips of columns
    groups             sparse products, results of equal many entries by the ways above

`emu.backends.numba.table` has the lists.
"""
