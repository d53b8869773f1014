"""Who computes: backends, each a table of kernels that return the same bits.

    reference   NumPy, vectorised over outputs: the executable definition
    numba       compiled loops on the CPU's cores

`emu.backends.registry` knows which are ready and loads them on first use.
"""
