"""The CUDA backend: the kernels of `kernels/` on a device, the same bits as the reference.

device.py   what kernels run on: arrays and launches
layout.py   what a launch is told, as integers in the order `kernels/include/task.cuh` reads them
table.py    the table of kernels
"""

from emu.backends.cuda.device import Device
from emu.backends.cuda.table import CudaKernels

__all__ = ["CudaKernels", "Device"]
