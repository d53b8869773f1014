"""Conventions of checkpoints: under which names, dtypes and shapes elements and scales lie in a file.

    model.up.weight            U8        (64, 16)    elements: two codes of 4 bits a byte, the first in the low bits
    model.up.weight_scale      F8_E4M3   (64, 2)     a scale for each 16          ──► one value, `model.up.weight`,
    model.up.weight_scale_2    F32       ()          and a number for the tensor      of shape (64, 32)

A convention is a row of the table below. A file stores scales, not the rule that chose them: a row's format has a rule
whose way from elements and scales to numbers is the convention's, operation by operation.

Sources: openai/gpt-oss, gpt_oss/torch/weights.py at 1983a9d; NVIDIA/Model-Optimizer, modelopt/torch/quantization/
qtensor at a8d544b; vllm-project/compressed-tensors at 15df5d1; deepseek-ai/DeepSeek-V3, inference/kernel.py at 0623163.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import FormatError
from emu.formats import Scaled, parse
from emu.formats.tiles import Tiles


@dataclass(frozen=True)
class Convention:
    """One row.

    Attributes:
        name: as `write_checkpoint` takes it.
        format: of the values, whose blocks lie along the last axis.
        elements: ending of the name of the elements' tensor, after the value's name.
        dtype: of the elements, as headers name it.
        scales: ending and dtype of the scales of each level, the finest first.
        one_shape: shape of a scale that serves the whole tensor.
        has_blocks: whether the bytes of a block have an axis of their own, the last.
        source: who writes such files.
    """

    name: str
    format: Scaled
    elements: str
    dtype: str
    scales: tuple[tuple[str, str], ...]
    one_shape: tuple[int, ...]
    has_blocks: bool
    source: str

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the names of the scales' tensors, after the value's name, the finest first."""
        return tuple(suffix for suffix, _ in self.scales)

    @property
    def codes_per_byte(self) -> int:
        """How many elements share a byte."""
        return 8 // self.format.element.width_bits

    def shape_of(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the value whose elements have a shape in the file.

        Raises:
            FormatError: no value has elements of such a shape. The text is what the shape must have, and completes the
                caller's sentence.
        """
        # the fewest axes that elements have: the one along which blocks lie, one more if the bytes of a block have an
        # axis of their own, and one more if blocks are square and so reach across a second axis
        tiling, axes = self.format.tiling, 1 + self.has_blocks + self.format.is_square
        if len(stored) < axes:
            raise FormatError(f"at least {axes} axes")
        *rest, last = stored
        if self.has_blocks:
            assert tiling.along is not None
            block_bytes = tiling.along // self.codes_per_byte
            if last != block_bytes:
                raise FormatError(f"{block_bytes} bytes a block along the last axis")
            return (*rest[:-1], rest[-1] * tiling.along)
        size = last * self.codes_per_byte
        # blocks within a row must be whole; square blocks may be cut off at the array's edge
        if tiling.across == 1 and tiling.along is not None and size % tiling.along:
            raise FormatError(f"whole blocks of {tiling} along the last axis, of {tiling.along} elements each")
        return (*rest, size)

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in the file of the elements of a value."""
        *rest, size = shape
        if not self.has_blocks:
            return (*rest, size // self.codes_per_byte)
        along = self.format.tiling.along
        assert along is not None
        return (*rest, size // along, along // self.codes_per_byte)

    def scale_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes in the file of the scales of a value, the finest first."""
        return [
            # across None: one scale for the whole tensor
            self.one_shape if level.tiling.across is None else Tiles(level.tiling, shape, -1).counts
            for level in self.format.levels
        ]

    def holds(self, fmt: Scaled) -> bool:
        """Return whether it holds values of a format: elements, scales, and the way from these to numbers are equal."""
        ours, theirs = ([(level.scale, level.tiling) for level in f.levels] for f in (self.format, fmt))
        return (self.format.element, ours, self.format.rule.value) == (fmt.element, theirs, fmt.rule.value)


def _row(
    name: str,
    fmt: str,
    elements: tuple[str, str],
    *scales: tuple[str, str],
    source: str,
    one_shape: tuple[int, ...] = (),
    has_blocks: bool = False,
) -> Convention:
    parsed = parse(fmt)
    assert isinstance(parsed, Scaled)
    return Convention(name, parsed, *elements, scales, one_shape, has_blocks, source)


_TILE = "fp8_tile_128x128"
_FP8 = ("", "F8_E4M3")
_CT = "compressed-tensors"
#: Of rows that fit the same tensors, the first is read; their numbers are the same.
_ROWS = (
    _row("gpt-oss", "mxfp4_e2m1", ("_blocks", "U8"), ("_scales", "U8"), has_blocks=True,
         source="gpt-oss on Hugging Face"),
    _row("gpt-oss-original", "mxfp4_e2m1", (".blocks", "U8"), (".scales", "U8"), has_blocks=True,
         source="gpt-oss, the files of OpenAI's own code"),
    _row("modelopt-nvfp4", "nvfp4 nvfp4_torchao", ("", "U8"), ("_scale", "F8_E4M3"), ("_scale_2", "F32"),
         source="NVIDIA ModelOpt"),
    _row("modelopt-mxfp4", "mxfp4_e2m1", ("", "U8"), ("_scale", "U8"), source="NVIDIA ModelOpt"),
    _row("compressed-tensors-mxfp4", "mxfp4_e2m1", ("_packed", "U8"), ("_scale", "U8"), source=_CT),
    _row("deepseek", _TILE, _FP8, ("_scale_inv", "F32"), source="DeepSeek-V3; _inv is what numbers are multiplied by"),
    _row("fp8-tensor", "fp8_tensor", _FP8, ("_scale", "F32"), source="NVIDIA ModelOpt"),
    _row("fp8-row", "fp8_row", _FP8, ("_scale", "F32"), source=_CT),
    _row("fp8-row-bf16", "fp8_row", _FP8, ("_scale", "BF16"), source=f"{_CT}, scales in the network's own dtype"),
    _row("fp8-tile", _TILE, _FP8, ("_scale", "F32"), source=_CT),
    _row("mxfp8", "mxfp8_e4m3", _FP8, ("_scale", "U8"), source=f"NVIDIA ModelOpt, {_CT}"),
    _row("mxfp8-e8m0", "mxfp8_e4m3", _FP8, ("_scale", "F8_E8M0"), source="the same, scales in PyTorch's dtype"),
)  # fmt: skip

#: Every convention by its name.
CONVENTIONS = {row.name: row for row in _ROWS}
