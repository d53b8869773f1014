"""Presets against outputs recorded on real GPUs, and what those outputs can and cannot tell apart.

EMU_VECTORS names a folder with `tensor_cores/GPU_FORMAT.npz`: one matrix instruction per row, `a` and `b` of shape
(n, K), the addend `c`, the results `d_fp32` and `d_fp16`, all as binary32 bits; beside `d_fp16` the addend is `c` in
binary16.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import emu
from emu import Mac
from emu.datapath import Blocks
from emu.testing import assert_bits_equal

FORMATS = {"E4M3": "fp8_e4m3", "E5M2": "fp8_e5m2"}
VECTORS = os.environ.get("EMU_VECTORS")
FILES = sorted(Path(VECTORS, "tensor_cores").glob("*.npz")) if VECTORS else []


class Recording(NamedTuple):
    """Results of one file in one output format."""

    path: Path
    output: str

    @property
    def inputs(self) -> str:
        name = self.path.stem.partition("_")[2]
        return FORMATS.get(name, name)

    @property
    def mac(self) -> Mac:
        return Mac.preset(self.path.stem.partition("_")[0].lower(), inputs=self.inputs, output=self.output)

    @property
    def blocks(self) -> Blocks:
        order = self.mac.order
        assert isinstance(order, Blocks)
        return order

    @property
    def depth(self) -> int:
        with np.load(self.path) as data:
            return data["a"].shape[1]

    def compare(self, backend: str, **changed: object) -> tuple[np.ndarray, np.ndarray]:
        """Return what the preset, or a neighbour of it, computes, and what the device did."""
        with np.load(self.path) as data:
            a, b, c, d = (data[name].view(np.float32) for name in ("a", "b", "c", f"d_{self.output}"))
        mac = self.mac
        order, rounding = changed.get("order", mac.order), changed.get("rounding", mac.rounding)
        mac = Mac(accumulator=mac.accumulator, order=order, rounding=rounding)
        formats = {"a_format": self.inputs, "b_format": self.inputs, "out_format": self.output}
        addend = emu.quantize(c, self.output)[:, None, None]
        result = emu.matmul(
            a[:, None, :], b[:, :, None], addend=addend, addend_format=self.output, mac=mac, backend=backend, **formats
        )
        return result[:, 0, 0], d

    def neighbours(self) -> dict[str, dict[str, object]]:
        """Settings next to the preset's, those included that K does not reach."""
        order, cuts = self.blocks, str(self.mac.rounding) == "toward_zero"
        return {
            "fraction_bits - 1": {"order": replace(order, fraction_bits=order.fraction_bits - 1)},
            "fraction_bits + 1": {"order": replace(order, fraction_bits=order.fraction_bits + 1)},
            "half n": {"order": replace(order, n=order.n // 2)},
            "double n": {"order": replace(order, n=2 * order.n)},
            "addend after": {"order": replace(order, addend="after")},
            "other rounding": {"rounding": "nearest_even" if cuts else "toward_zero"},
        }

    def blind_to(self) -> set[str]:
        """Neighbours that these results cannot tell from the preset.

        One block that holds all of K may as well be longer. Results of binary16 hide the place of the cut: they keep 11
        bits of a sum cut at 23 or more, and only the 13 of FP8 units come near that; the same unit's results of
        binary32 show it.
        """
        blind = {"double n"} if self.depth <= self.blocks.n else set[str]()
        hidden = self.output == "fp16" and self.blocks.fraction_bits > 13
        return blind | ({"fraction_bits - 1", "fraction_bits + 1"} if hidden else set())


def outputs_of(path: Path) -> list[str]:
    with np.load(path) as data:
        return [output for output in ("fp32", "fp16") if f"d_{output}" in data]


def recordings() -> list[Recording]:
    return [Recording(path, output) for path in FILES for output in outputs_of(path)]


def name_of(recording: Recording) -> str:
    return f"{recording.path.stem}-{recording.output}"


@pytest.fixture(
    params=recordings()
    or [pytest.param(None, marks=pytest.mark.skip(reason="EMU_VECTORS names no folder of recorded outputs"))],
    ids=lambda recording: "none" if recording is None else name_of(recording),
)
def recording(request: pytest.FixtureRequest) -> Recording:
    return request.param


def test_presets_return_every_recorded_bit(recording: Recording, backend: str):
    actual, recorded = recording.compare(backend)
    assert_bits_equal(actual, recorded)


def test_neighbouring_settings_are_told_from_the_device(recording: Recording):
    for name, changed in recording.neighbours().items():
        if name in recording.blind_to():
            continue
        actual, recorded = recording.compare("reference", **changed)
        wrong = int((actual.view(np.uint32) != recorded.view(np.uint32)).sum())
        assert wrong > recorded.size // 50, f"{name}: {wrong} of {recorded.size} results differ"


def test_what_recordings_cannot_tell_apart_is_known(recording: Recording):
    """Documented limits: were one of these neighbours rejected, the preset would be surer than its row says."""
    for name in recording.blind_to():
        actual, recorded = recording.compare("reference", **recording.neighbours()[name])
        wrong = int((actual.view(np.uint32) != recorded.view(np.uint32)).sum())
        assert wrong <= recorded.size // 1000, f"{name}: {wrong} of {recorded.size} results differ"
