"""Checkpoints that the safetensors library writes, against tables of codes and ml_dtypes; and the other way."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors import numpy as library

import emu
from emu.checkpoints import CONVENTIONS
from emu.formats import ScaledValue
from emu.testing import assert_bits_equal
from tests.checkpoint_files import BF16, CASES, E4M3, E8M0, Tensors

NARROW = [BF16, E4M3, E8M0, *(getattr(ml_dtypes, f"float8_{kind}") for kind in ("e5m2", "e4m3fnuz", "e5m2fnuz"))]


def stored(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Dtype, shape and bytes of each tensor, as the library reads them."""
    tensors = safetensors.deserialize(path.read_bytes())
    return {name: (tensor["dtype"], tensor["shape"], bytes(tensor["data"])) for name, tensor in tensors}


def without_negative_nan(tensors: Tensors) -> Tensors:
    """Tensors whose only NaN of E4M3 is the canonical one, which is how every NaN is written."""
    codes = {name: x.view(np.uint8) for name, x in tensors.items() if x.dtype.name == "float8_e4m3fn"}
    return tensors | {name: np.where(x == 0xFF, 0x7F, x).astype(np.uint8).view(E4M3) for name, x in codes.items()}


def test_there_is_a_case_for_every_convention():
    assert CASES.keys() == CONVENTIONS.keys()


@pytest.mark.parametrize("convention", CASES)
def test_every_code_of_elements_and_scales_is_the_number_that_its_convention_says(convention: str, tmp_path: Path):
    tensors, fmt, numbers = CASES[convention]
    library.save_file(tensors, tmp_path / "w.safetensors")
    read = emu.read_checkpoint(tmp_path / "w.safetensors")
    assert dict(read.conventions) == {"w": convention}
    value = read["w"]
    assert isinstance(value, ScaledValue)
    assert (str(value.format), value.axis, read.shape("w")) == (fmt, -1, value.shape)
    with np.errstate(invalid="ignore"):
        expected = np.where(np.isnan(numbers), np.float32(np.nan), numbers)  # the bits of NaN are the canonical ones
    decoded = np.asarray(value)
    assert_bits_equal(np.where(np.isnan(decoded), np.float32(np.nan), decoded), expected)


@pytest.mark.parametrize("convention", CASES)
def test_what_is_written_is_read_by_the_library_as_the_bytes_that_were_there(convention: str, tmp_path: Path):
    path, back = tmp_path / "w.safetensors", tmp_path / "back.safetensors"
    library.save_file(without_negative_nan(CASES[convention][0]), path)
    emu.write_checkpoint(back, {"w": emu.read_checkpoint(path)["w"]}, convention)
    assert stored(back) == stored(path)


def test_all_conventions_and_plain_arrays_in_one_file_come_back_by_the_conventions_that_were_read(tmp_path: Path):
    tensors: Tensors = {}
    for convention, (parts, _, _) in CASES.items():
        tensors |= without_negative_nan({convention + name.removeprefix("w"): x for name, x in parts.items()})
    bf16 = CASES["fp8-row-bf16"][0]["w_scale"]
    plain = {"norm": bf16, "cast": tensors["deepseek"], "ids": np.arange(3), "one": np.array(0.1)}
    plain |= {"empty": np.zeros((0, 3), np.float16), "mask": np.array([True, False, True])}
    path, back = tmp_path / "w.safetensors", tmp_path / "back.safetensors"
    library.save_file(tensors | plain, path)
    read = emu.read_checkpoint(path)
    assert list(read) == sorted(CASES.keys() | plain.keys())
    assert [read.conventions[name] for name in plain] == ["BF16", "F8_E4M3", "I64", "F64", "F16", "BOOL"]
    assert_bits_equal(read["norm"], bf16.astype(np.float32))
    assert_bits_equal(read["cast"], np.asarray(read["deepseek"].array))
    emu.write_checkpoint(back, read)
    assert stored(back) == stored(path)


@pytest.mark.parametrize("kind", NARROW)
def test_every_code_of_a_narrow_float_without_scales_is_read_as_ml_dtypes_reads_it(kind: type, tmp_path: Path):
    width = np.dtype(kind).itemsize
    codes = np.arange(1 << 8 * width, dtype=f"<u{width}").view(kind)
    library.save_file({"x": codes}, tmp_path / "w.safetensors")
    x = emu.read_checkpoint(tmp_path / "w.safetensors")["x"]
    with np.errstate(invalid="ignore"):
        expected = codes.astype(np.float32)
    assert_bits_equal(x, np.where(np.isnan(expected), np.float32(np.nan), expected))
