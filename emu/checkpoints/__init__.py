"""Checkpoints as people have them: files in which elements and scales have tensors of their own.

    model.safetensors: w (U8), w_scale (F8_E4M3), w_scale_2 (F32) ──► a `ScaledValue` named w ──► the same bytes

Which names, dtypes and shapes mean which scaled format is a table of conventions, `conventions.py`.

Source: docs/concepts/scaled.md, "Checkpoints".
"""

from emu.checkpoints.conventions import CONVENTIONS, Convention
from emu.checkpoints.reading import Checkpoint, read_checkpoint
from emu.checkpoints.writing import write_checkpoint

__all__ = ["CONVENTIONS", "Checkpoint", "Convention", "read_checkpoint", "write_checkpoint"]
