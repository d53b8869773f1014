"""The ways of a device to compute a product, each a file; `emu.backends.cuda.table` has the lists.

    vendor           exact sums, bounded by the planner's proof, by the vendor's library: no order matters
    integer_tiles    exact sums of fixed-point operands beyond them, in tiles
    tiles_in_order   float32 accumulators, nearest even, along k, in tiles of fused multiply-adds
    aligned_blocks   blocks and groups of products of operands that share scales
    add_by_add       every other unit: one thread per result
    entries          sparse products: one thread per result, its entries in storage order
    on_host          the definition, on the host

The first three leave sums on the device, which `settling.py` writes.
"""
