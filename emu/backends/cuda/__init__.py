"""The CUDA backend: the kernels of `kernels/` on a device, the same bits as the reference.

device.py   what kernels run on: arrays and launches; loader.py: a GPU through CuPy, its states; nvrtc.py: the compiler
layout.py   the arguments of a launch, as integers in the order in which `kernels/include/task.cuh` reads them
ways/       the ways to compute a product, a file each
table.py    the table of kernels
"""

from emu.backends.cuda.device import Device
from emu.backends.cuda.table import CudaKernels

__all__ = ["CudaKernels", "Device", "on_gpu"]


def on_gpu() -> CudaKernels:
    """Return the table of kernels on CuPy's current device.

    Raises:
        BackendUnavailable: there is none; says why.
    """
    from emu.backends.cuda.loader import CupyDevice

    return CudaKernels(CupyDevice())
