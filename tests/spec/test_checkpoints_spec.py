"""docs/concepts/scaled.md, "Checkpoints": what is read, from where, and how it is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

import emu
from emu.checkpoints import CONVENTIONS
from emu.checkpoints import reading as reading_module
from emu.checkpoints import writing as writing_module
from emu.formats import ScaledValue
from emu.testing import assert_bits_equal
from tests.checkpoint_files import CASES, E4M3, Tensors, positive, save, some
from tests.command_line import running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


def quantized(shape: tuple[int, ...], fmt: str, axis: int = -1) -> ScaledValue:
    numbers = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return emu.quantize(numbers, fmt, axis=axis, pad=True)


def same(a: ScaledValue, b: object) -> None:
    """Compare bits of elements and scales."""
    assert isinstance(b, ScaledValue)
    assert_bits_equal(np.asarray(a.array), np.asarray(b.array))
    for ours, theirs in zip(a.scales, b.scales, strict=True):
        assert_bits_equal(ours, theirs)


# ---- read ---------------------------------------------------------------------------------------------------------


def test_elements_of_4_bits_lie_two_a_byte_the_first_in_the_low_bits(path: Path):
    save(path, {"w_blocks": np.uint8([[[0x21] + [0] * 15]]), "w_scales": np.uint8([[128]])})
    value = emu.read_checkpoint(path)["w"]
    assert np.asarray(value)[0, :3].tolist() == [1.0, 2.0, 0.0]
    assert value.scales[0].tolist() == [[2.0]]


def test_a_scale_of_nvfp4_is_multiplied_by_that_of_the_tensor_before_the_element_is(path: Path):
    scale = np.float32(0.1)
    save(path, {"w": np.full((1, 8), 0x55, np.uint8), "w_scale": np.uint8([[0x3B]]).view(E4M3),
                "w_scale_2": np.array(scale)})  # fmt: skip
    value = emu.read_checkpoint(path)["w"]
    first, other = np.float32(3) * (np.float32(1.375) * scale), (np.float32(3) * np.float32(1.375)) * scale
    assert first != other
    assert set(np.asarray(value).ravel().tolist()) == {first}


def test_a_scale_for_the_tensor_may_have_an_axis(path: Path):
    codes = some(4, 8, dtype=E4M3)
    save(path, {"w": codes, "w_scale": np.float32([0.25])})
    read = emu.read_checkpoint(path)
    assert read.conventions["w"] == "fp8-tensor"
    assert read["w"].scales[0].shape == (1, 1)


def test_scales_of_three_axes_belong_to_rows_of_each_matrix(path: Path):
    save(path, {"w": some(3, 4, 8, dtype=E4M3), "w_scale": positive(3, 4, 1)})
    read = emu.read_checkpoint(path)
    assert (read.conventions["w"], read["w"].scales[0].shape) == ("fp8-row", (3, 4, 1))


def test_8_bit_elements_without_scales_and_bytes_without_a_convention_are_arrays(path: Path):
    codes = some(4, 8, dtype=E4M3)
    save(
        path, {"cast": codes, "bytes": some(4, 8), "ln": positive(4), "ln_scale": positive(4), "x.k_scale": positive()}
    )
    read = emu.read_checkpoint(path)
    assert {type(read[name]) for name in read} == {np.ndarray}
    assert read["cast"].dtype == np.float32
    assert read["bytes"].dtype == np.uint8


def test_names_choose_entries_and_the_others_are_not_judged(path: Path):
    save(path, {"bad_blocks": some(4, 1, 16), "w_blocks": some(4, 1, 16), "w_scales": some(4, 1), "norm": positive(3)})
    read = emu.read_checkpoint(path, names=["norm", "w"])
    assert list(read) == ["norm", "w"]
    assert read.conventions["w"] == "gpt-oss"
    assert list(emu.read_checkpoint(path, names=["w_scales"])) == ["w_scales"]
    with pytest.raises(emu.ConfigError):
        emu.read_checkpoint(path)


def test_a_checkpoint_reads_an_entry_when_it_is_asked_for(path: Path):
    save(path, {"norm": np.float32([1, 2])})
    read = emu.read_checkpoint(path)
    save(path, {"norm": np.float32([3, 4])})
    assert read["norm"].tolist() == [3, 4]
    assert "norm" in read
    assert "other" not in read
    assert (read.get("other"), len(read), read.shape("norm"), read.scales("norm")) == (None, 1, (2,), ())
    with pytest.raises(KeyError, match="other"):
        read["other"]
    assert repr(read) == f"Checkpoint({str(path)!r}, 1 entries, 0 of them scaled)"


def test_scales_are_read_without_elements_and_sizes_are_those_in_the_file(path: Path):
    tensors = CASES["modelopt-nvfp4"][0]
    save(path, tensors)
    read = emu.read_checkpoint(path)
    for ours, theirs in zip(read.scales("w"), read["w"].scales, strict=True):
        assert_bits_equal(ours, theirs)
    assert read.size_bytes("w") == sum(x.nbytes for x in tensors.values()) == 8 * 128 + 8 * 16 + 4


def test_codes_are_read_and_written_in_chunks_of_any_length(path: Path, monkeypatch: pytest.MonkeyPatch):
    tensors = CASES["gpt-oss"][0]
    save(path, tensors)
    whole = emu.read_checkpoint(path)["w"]
    monkeypatch.setattr(reading_module, "CHUNK", 7)
    monkeypatch.setattr(writing_module, "CHUNK", 10)
    same(whole, emu.read_checkpoint(path)["w"])
    emu.write_checkpoint(path, {"w": whole}, "gpt-oss")
    same(whole, emu.read_checkpoint(path)["w"])


# ---- several files --------------------------------------------------------------------------------------------------


def shards(folder: Path, *files: Tensors) -> Path:
    names = [f"model-{i}-of-{len(files)}.safetensors" for i in range(len(files))]
    for name, tensors in zip(names, files, strict=True):
        save(folder / name, tensors)
    weight_map = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def test_an_index_and_its_folder_are_read_as_one_checkpoint(tmp_path: Path, path: Path):
    tensors = CASES["deepseek"][0]
    save(path, tensors)
    expected = emu.read_checkpoint(path)["w"]
    path.unlink()
    index = shards(tmp_path, {"w": tensors["w"]}, {"w_scale_inv": tensors["w_scale_inv"], "norm": positive(3)})
    for place in (index, tmp_path, str(tmp_path)):
        read = emu.read_checkpoint(place)
        assert list(read) == ["norm", "w"]
        same(expected, read["w"])


def test_a_folder_with_one_file_is_read(tmp_path: Path, path: Path):
    save(path, {"norm": positive(3)})
    assert list(emu.read_checkpoint(tmp_path)) == ["norm"]


def test_a_file_of_several_is_read_alone_unless_its_scales_are_in_another(tmp_path: Path):
    tensors = CASES["deepseek"][0]
    shards(tmp_path, {"norm": positive(3), "cast": tensors["w"]}, tensors)
    assert list(emu.read_checkpoint(tmp_path / "model-0-of-2.safetensors")) == ["cast", "norm"]
    shards(tmp_path, {"w": tensors["w"]}, {"w_scale_inv": tensors["w_scale_inv"]})
    with pytest.raises(emu.ConfigError, match=r"got them in model-1-of-2\.safetensors"):
        emu.read_checkpoint(tmp_path / "model-0-of-2.safetensors")


# ---- write ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "convention"),
    [
        ("mxfp4_e2m1", "gpt-oss"), ("mxfp4_e2m1 rceil", "gpt-oss"), ("nvfp4 nvfp4_torchao", "modelopt-nvfp4"),
        ("fp8_tile_128x128", "deepseek"), ("fp8_tile_128x128 te", "deepseek"), ("fp8_row", "fp8-row"),
        ("fp8_tensor deepgemm", "fp8-tensor"), ("mxfp8_e4m3", "mxfp8-e8m0"),
    ],
)  # fmt: skip
def test_a_value_of_any_rule_with_the_same_way_to_its_numbers_is_written(fmt: str, convention: str, path: Path):
    value = quantized((150, 160), fmt)
    emu.write_checkpoint(path, {"w": value}, convention)
    back = emu.read_checkpoint(path)["w"]
    same(value, back)
    assert_bits_equal(np.asarray(value), np.asarray(back))


def test_a_file_has_aligned_tensors_without_gaps_and_says_that_it_is_for_pytorch(path: Path):
    odd = quantized((3, 7), "fp8_row")
    emu.write_checkpoint(path, {"a": np.uint8([1]), "b": np.float64([2]), "w": odd, "ß": np.float16([3])}, "fp8-row")
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]
    sizes = {"F64": 8, "F32": 4, "F16": 2, "U8": 1, "F8_E4M3": 1}
    places = [(entry["data_offsets"], sizes[entry["dtype"]]) for entry in header.values()]
    assert all(start % size == 0 for (start, _), size in places)
    assert [start for (start, _), _ in places] == [0, *(end for (_, end), _ in places[:-1])]
    assert len(content) == 8 + length + places[-1][0][1]


def test_conventions_are_named_for_all_values_or_by_name(path: Path):
    values = {"a": quantized((2, 64), "mxfp4_e2m1"), "b": quantized((2, 64), "fp8_row"), "n": np.float32([0.5, -3])}
    emu.write_checkpoint(path, values, {"a": "gpt-oss", "b": "fp8-row", "n": "BF16"})
    read = emu.read_checkpoint(path)
    assert dict(read.conventions) == {"a": "gpt-oss", "b": "fp8-row", "n": "BF16"}
    other = path.with_name("other.safetensors")
    emu.write_checkpoint(other, read, {"a": "compressed-tensors-mxfp4", "n": "F32"})
    again = emu.read_checkpoint(other)
    assert dict(again.conventions) == {"a": "compressed-tensors-mxfp4", "b": "fp8-row", "n": "F32"}
    for name in ("a", "b"):
        same(values[name], again[name])
    emu.write_checkpoint(other, {"a": read["a"], "n": read["n"]}, "modelopt-mxfp4")
    assert dict(emu.read_checkpoint(other).conventions) == {"a": "modelopt-mxfp4", "n": "F32"}


def test_squares_are_written_from_either_axis_and_other_blocks_from_a_transpose(path: Path):
    square = quantized((2, 150, 260), "fp8_tile_128x128", axis=-2)
    emu.write_checkpoint(path, {"w": square}, "deepseek")
    same(square.along(-1), emu.read_checkpoint(path)["w"])
    rows = quantized((64, 3, 5), "mxfp8_e4m3", axis=0)
    emu.write_checkpoint(path, {"w": rows.T}, "mxfp8")
    same(rows, emu.read_checkpoint(path)["w"].T)


def test_a_checkpoint_is_written_over_its_own_file(path: Path):
    save(path, CASES["gpt-oss"][0])
    before = emu.read_checkpoint(path)["w"]
    emu.write_checkpoint(path, emu.read_checkpoint(path))
    same(before, emu.read_checkpoint(path)["w"])


def test_arrays_of_another_byte_order_are_written_as_little_endian(path: Path):
    emu.write_checkpoint(path, {"x": np.arange(3, dtype=">i4")})
    assert emu.read_checkpoint(path)["x"].tolist() == [0, 1, 2]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(path: Path):
    emu.write_checkpoint(path, {"x": np.float32([1])})
    content = path.read_bytes()
    with pytest.raises(emu.FormatError, match=r"array 'x' must be numbers of BF16, got 0\.1.* at index \(0,\)"):
        emu.write_checkpoint(path, {"x": np.float32([0.1])}, {"x": "BF16"})
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == content


# ---- the table, the command ---------------------------------------------------------------------------------------


def test_no_two_conventions_hold_the_same_tensors():
    rows = {(row.elements, row.dtype, row.scales, str(row.format)) for row in CONVENTIONS.values()}
    assert len(rows) == len(CONVENTIONS)


def test_every_convention_is_on_the_page():
    page = (Path(__file__).resolve().parents[2] / "docs" / "concepts" / "scaled.md").read_text(encoding="utf-8")
    for name, row in CONVENTIONS.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[1] == f"`{row.format}`"
        parts = [(row.elements, row.dtype), *row.scales]
        assert cells[2] == ", ".join(f"`w{suffix}` {dtype}" for suffix, dtype in parts)


def test_the_command_lists_formats_and_scales(path: Path, monkeypatch: Any, capsys: Any):
    scales = np.float32([[0.5], [0], [np.nan], [12]])
    save(path, {"w": some(4, 8, dtype=E4M3), "w_scale": scales, "n": np.float32([]), "z": some(2, 4, dtype=E4M3),
                "z_scale": np.array(np.float32(0))})  # fmt: skip
    run = running(monkeypatch, capsys)
    code, out, _ = run("checkpoint", str(path), "--json")
    n, w, z = json.loads(out)
    assert code == 0
    assert w == {"name": "w", "convention": "fp8-row", "format": "fp8_row", "shape": [4, 8], "bits_per_element": 12.0,
                 "scales": 4, "exponents": [-1, 3], "zero_scales": 1, "nan_scales": 1}  # fmt: skip
    assert n == dict.fromkeys(n) | {"name": "n", "convention": "F32", "shape": [0]}
    assert (z["scales"], z["exponents"], z["zero_scales"]) == (1, None, 1)
    lines = run("checkpoint", str(path), "w", "n", width=100)[1].splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["name", "stored", "as", "format", "shape", "bits", "scales", "exponents", "zero", "NaN"],
        ["w", "fp8-row", "fp8_row", "4", "x", "8", "12", "4", "-1..3", "1", "1"],
        ["n", "F32", "0", "-", "-", "-", "-", "-"],
    ]
    assert lines[-1] == "exponents are those of the leading bits of the finest scales"
    assert "exponents are" not in run("checkpoint", str(path), "n")[1]
    assert run("checkpoint", str(path.with_name("no")))[0] == 2
