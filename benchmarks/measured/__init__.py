"""Published measured times, and what the simulation of a device says of the same work.

products.csv     products of matrices: sizes, microseconds, and whether a device was fitted to the row
memory.csv       kernels that move bytes: sizes, microseconds
all_reduce.csv   all-reduces: bytes, microseconds

SOURCES.md says where each number is from. `python -m benchmarks.measured` prints every row beside ours, and the errors
of the rows that nothing was fitted to; with `--fit` it prints the numbers of the device files that fit the others best.
"""
