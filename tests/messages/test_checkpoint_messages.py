"""What is wrong with a checkpoint, in whole sentences."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import ConfigError, FormatError, ShapeError
from tests.checkpoint_files import BF16, E4M3, E8M0, positive, save, some

FP8, U8 = some(4, 64, dtype=E4M3), some(4, 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a.w_blocks": some(4, 2, 16)},
         "elements 'a.w_blocks' must have the scales 'a.w_scales' beside them, got none in PATH; read the file that "
         "has all of them"),
        ({"w": U8, "w_scale_2": positive()},
         "elements 'w' must have the scales 'w_scale' and 'w_scale_2', or 'w_scale' beside them, got 'w_scale_2' in "
         "PATH; read the file that has all of them"),
        ({"w": FP8, "w_scale": positive(), "w_scale_inv": positive(1, 1)},
         "elements 'w' must have the scales 'w_scale_inv', or 'w_scale' beside them, got 'w_scale', 'w_scale_inv' in "
         "PATH; read the file that has all of them"),
        ({"w_packed": U8},
         "elements 'w_packed' must have the scales 'w_scale' beside them, got none in PATH; read the file that has all "
         "of them"),
        ({"w_packed": U8, "w_scale": some(4, 4, dtype=E4M3), "w_global_scale": positive(1)},
         "scales 'w_global_scale' must be of a convention that is read, got one in PATH whose meaning is open: "
         "compressed-tensors divides each scale by it and vLLM multiplies by its rounded reciprocal, so that the bits "
         "of its numbers differ; name the entries that you want with `names`"),
        ({"w": U8, "w_scale": positive(4, 4), "w_scale_2": positive()},
         "scales 'w_scale' and 'w_scale_2' must be F8_E4M3 and F32 for elements of U8, got F32 and F32 in PATH; name "
         "the entries that you want with `names`, or convert the scales"),
        ({"w": U8, "w_scale": positive(4, 2).astype(BF16)},
         "scales 'w_scale' must be U8 for elements of U8, got BF16 in PATH; name the entries that you want with "
         "`names`, or convert the scales"),
        ({"w": FP8, "w_scale": some(4, 2, dtype=E4M3)},
         "scales 'w_scale' must be F32 or BF16 or U8 or F8_E8M0 for elements of F8_E4M3, got F8_E4M3 in PATH; name the "
         "entries that you want with `names`, or convert the scales"),
        ({"w": FP8, "w_scale": positive(4)},
         "scales 'w_scale' must have the shape (), or (4, 1), or (1, 1) for elements (4, 64) of F8_E4M3, got (4,) in "
         "PATH; write one for each block"),
        ({"w": FP8, "w_scale": some(2, 4, dtype=E8M0)},
         "scales 'w_scale' must have the shape (4, 2) for elements (4, 64) of F8_E4M3, got (2, 4) in PATH; write one "
         "for each block"),
        ({"w": U8, "w_scale": some(4, 4, dtype=E4M3), "w_scale_2": positive(2)},
         "scales 'w_scale' and 'w_scale_2' must have the shape (4, 4) and () for elements (4, 32) of U8, got (4, 4) "
         "and (2,) in PATH; write one for each block"),
        ({"w": some(4, 12), "w_scale": some(4, 2, dtype=E4M3), "w_scale_2": positive()},
         "elements 'w' must have whole blocks of 1x16 along the last axis, of 16 elements each, got the shape (4, 12) "
         "of U8 in PATH; store them so, or name other entries with `names`"),
        ({"w_blocks": some(4, 2, 8), "w_scales": some(4, 2)},
         "elements 'w_blocks' must have 16 bytes a block along the last axis, got the shape (4, 2, 8) of U8 in PATH; "
         "store them so, or name other entries with `names`"),
        ({"w_blocks": some(16), "w_scales": some(1)},
         "elements 'w_blocks' must have at least 2 axes, got the shape (16,) of U8 in PATH; store them so, or "
         "name other entries with `names`"),
        ({"w": some(16, dtype=E4M3), "w_scale_inv": positive(1)},
         "elements 'w' must have at least 2 axes, got the shape (16,) of F8_E4M3 in PATH; store them so, or "
         "name other entries with `names`"),
        ({"w": positive(3), "w_blocks": some(4, 2, 16), "w_scales": some(4, 2)},
         "entries of a checkpoint must have names of their own, got two for 'w' in PATH: its elements are packed, and "
         "there is an array; rename one of them"),
    ],
)  # fmt: skip
def test_elements_and_scales_that_do_not_fit_say_what_the_file_would_need(
    tensors: dict[str, Any], message: str, path: Path
):
    save(path, tensors)
    with pytest.raises(ConfigError) as error:
        emu.read_checkpoint(path)
    assert str(error.value) == message.replace("PATH", str(path))


def test_a_scale_with_a_sign_is_named_where_its_format_has_none(path: Path):
    scales = np.uint8([[0x7F, 0x38], [0x00, 0x80], [0xFF, 0]]).view(E4M3)
    save(path, {"w": some(3, 16), "w_scale": scales, "w_scale_2": positive()})
    read = emu.read_checkpoint(path)
    with pytest.raises(ConfigError) as error:
        read["w"]
    assert str(error.value) == (
        f"scales 'w_scale' must not be negative, got the code 0x80 of F8_E4M3 at index (1, 1) in {path}; fp8_ue4m3 has "
        "no sign: quantize the numbers again"
    )


def test_a_name_that_is_not_there_is_told_what_is_near(path: Path):
    save(path, {f"layer.{name}.weight": positive(1) for name in ("up", "down", "gate", "z")})
    with pytest.raises(ConfigError) as error:
        emu.read_checkpoint(path, names=["layer.up.wieght"])
    assert str(error.value) == (
        f"entries must be in the checkpoint {path}, got 'layer.up.wieght'; the nearest are 'layer.up.weight', "
        "'layer.z.weight', 'layer.down.weight'"
    )
    save(path, {})
    with pytest.raises(ConfigError, match=r"got 'w'; the nearest are none$"):
        emu.read_checkpoint(path, names=["w"])


def entry(**fields: Any) -> bytes:
    """A file with one tensor `w` of two float32, of whose header fields are replaced."""
    fields = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | fields
    text = json.dumps({"w": {name: value for name, value in fields.items() if value is not None}}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes and a header of 0"),
        (b"\x08\0\0\0", "4 bytes and a header of 8"),
        (struct.pack("<Q", 3) + b"{}", "10 bytes and a header of 3"),
        (struct.pack("<Q", 0) + b"{}", "10 bytes and a header of 0"),
        (struct.pack("<Q", 1 << 56 | 2) + b"{}", "10 bytes and a header of 72057594037927938"),
        (struct.pack("<Q", 2) + b"[]", "a header that is no object"),
        (struct.pack("<Q", 2) + b"{]", "Expecting"),
        (struct.pack("<Q", 2) + b"\xff\xff", "'utf-8' codec"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "maximum recursion depth"),
        (struct.pack("<Q", 7) + b'{"w":1}', "no dtype, shape and two offsets for 'w'"),
        (entry(dtype=None), "no dtype, shape and two offsets for 'w'"),
        (entry(shape=[2, -1]), "no dtype, shape and two offsets for 'w'"),
        (entry(shape=[True]), "no dtype, shape and two offsets for 'w'"),
        (entry(shape=2), "no dtype, shape and two offsets for 'w'"),
        (entry(data_offsets=[0, 8, 8]), "no dtype, shape and two offsets for 'w'"),
        (entry(data_offsets=None), "no dtype, shape and two offsets for 'w'"),
        (entry(data_offsets=[0, 9]), "8 bytes of tensors, where 'w' needs bytes 0 to 9"),
        (entry(data_offsets=[8, 0]), "8 bytes of tensors, where 'w' needs bytes 8 to 0"),
        (entry()[:-1], "7 bytes of tensors, where 'w' needs bytes 0 to 8"),
        (entry(shape=[3]), "8 bytes for 'w', which has the dtype F32 and the shape [3]"),
        (entry(data_offsets=[4, 8]), "4 bytes for 'w', which has the dtype F32 and the shape [2]"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(content: bytes, reason: str, path: Path):
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        emu.read_checkpoint(path)
    assert str(error.value).startswith(f"checkpoint {path} must be a safetensors file, got {reason}")
    assert str(error.value).endswith("; load it again")


def test_a_file_that_shrinks_while_it_is_read_says_so(path: Path):
    path.write_bytes(entry())
    read = emu.read_checkpoint(path)
    path.write_bytes(entry()[:-4])
    with pytest.raises(ConfigError, match=f"^checkpoint {path} must stay as it is while it is read, got "):
        read["w"]


def test_a_tensor_of_a_dtype_without_numbers_is_listed_and_not_read(path: Path):
    path.write_bytes(entry(dtype="F4", shape=[16]))
    read = emu.read_checkpoint(path)
    assert (dict(read.conventions), read.shape("w")) == ({"w": "F4"}, (16,))
    with pytest.raises(ConfigError) as error:
        read["w"]
    assert str(error.value) == (
        f"tensor 'w' must have a dtype that NumPy or a format of emu has, got F4 in {path}; convert it, or leave it "
        "out of `names`"
    )


def test_a_name_that_is_no_text_is_refused(path: Path):
    path.write_bytes(entry())
    with pytest.raises(ConfigError, match="`names` must be names of entries, got 1; write '1'"):
        emu.read_checkpoint(path, names=[1])  # pyright: ignore[reportArgumentType]


NO_MAP = "index PATH must have a `weight_map` of tensors and files; load the checkpoint again"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "index PATH must be a JSON file, got Expecting"),
        ("[]", NO_MAP),
        ('{"weight_map": {"w": 1}}', NO_MAP),
        ('{"weight_map": {"w": "w.safetensors", "v": 1}}', NO_MAP),
        ('{"weight_map": []}', NO_MAP),
        ('{"weight_map": {"v": "w.safetensors"}}',
         "index PATH must name tensors of its files, got 'v', which w.safetensors lacks"),
        *(
            (f'{{"weight_map": {{"v": "{file}"}}}}',
             f"index PATH must name files beside it, got {file!r} of tensor 'v'; name a file, without folders")
            for file in ("", ".", "a/w.safetensors", "../w.safetensors", "/w.safetensors")
        ),
        ('{"weight_map": {"v": "x.safetensors"}}', "checkpoint FOLDER/x.safetensors must be a safetensors file, got "),
    ],
)  # fmt: skip
def test_a_damaged_index_says_what_is_wrong(content: str, message: str, path: Path):
    path.write_bytes(entry())
    index = path.with_name("w.safetensors.index.json")
    index.write_text(content)
    with pytest.raises(ConfigError) as error:
        emu.read_checkpoint(index)
    expected = message.replace("PATH", str(index)).replace("FOLDER", str(path.parent))
    assert str(error.value).startswith(expected)


def test_scales_in_another_file_lead_to_the_index(path: Path):
    save(path, {"w": FP8})
    save(path.with_name("s.safetensors"), {"w_scale_inv": positive(1, 1)})
    files = {"w": path.name, "w_scale_inv": "s.safetensors"}
    path.with_name("w.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    with pytest.raises(ConfigError) as error:
        emu.read_checkpoint(path)
    assert str(error.value) == (
        f"scales 'w_scale_inv' must be read with their elements in {path}, got them in s.safetensors; read the index "
        "of the files, or their folder"
    )


def test_a_folder_must_have_one_checkpoint(path: Path):
    folder = path.parent
    for files in (0, 2):
        for i in range(files):
            (folder / f"{i}.safetensors").write_bytes(entry())
        with pytest.raises(ConfigError) as error:
            emu.read_checkpoint(folder)
        assert str(error.value) == (
            "a folder of a checkpoint must have one file *.safetensors.index.json or one *.safetensors, got "
            f"{str(folder)!r} with 0 and {files}; name the file"
        )


ROWS = emu.quantize(np.ones((4, 64), np.float32), "fp8_row")
EVEN = emu.value((np.float32([[1], [2], [3]]), np.float32([[1], [0.5], [2]])), "fp8_row")
UNEVEN = emu.value((np.float32([[1], [2], [3]]), np.float32([[1], [0.1], [0.2]])), "fp8_row")
SHORT = emu.quantize(np.ones((4, 40), np.float32), "mxfp8_e4m3", pad=True)


@pytest.mark.parametrize(
    ("tensors", "convention", "kind", "message"),
    [
        ({"w": ROWS}, None, FormatError,
         "a scaled value must be stored by a convention, got none for 'w', a value of fp8_row; write "
         "convention='fp8-row'"),
        ({"w": ROWS}, {}, FormatError,
         "a scaled value must be stored by a convention, got none for 'w', a value of fp8_row; write "
         "convention='fp8-row'"),
        ({"w": EVEN}, None, FormatError,
         "a scaled value must be stored by a convention, got none for 'w', a value of fp8_row; write "
         "convention='fp8-row' or 'fp8-row-bf16'"),
        ({"w": ROWS}, "deepsek", ConfigError, "`convention` must be known, got 'deepsek'; did you mean 'deepseek'?"),
        ({"w": ROWS}, "deepseek", FormatError,
         "'w' must be a value of fp8_tile_128x128 for the convention deepseek, got one of fp8_row; write "
         "convention='fp8-row'"),
        ({"w": emu.quantize(np.ones((4, 64)), "nvfp4")}, "modelopt-nvfp4", FormatError,
         "'w' must be a value of nvfp4 nvfp4_torchao for the convention modelopt-nvfp4, got one of nvfp4; no "
         "convention has it, quantize the numbers into one of mxfp4_e2m1, nvfp4 nvfp4_torchao, fp8_tile_128x128, "
         "fp8_tensor, fp8_row, mxfp8_e4m3"),
        ({"w": ROWS.T}, "fp8-row", FormatError,
         "blocks of 'w' must lie along the last axis, got axis -2 of shape (64, 4); write its transpose, as value.T"),
        ({"w": SHORT}, "mxfp8", ShapeError,
         "'w' must have whole blocks of 1x32 in a file, got 40 elements along the last axis; pad the numbers by 24 "
         "zeros before they are quantized"),
        ({"w": ROWS, "w_scale": np.float32([1])}, "fp8-row", ConfigError,
         "tensors must have names of their own, got 'w_scale' twice; rename one of them"),
        ({"w": ROWS}, {"v": "fp8-row", "w": "fp8-row"}, ConfigError,
         "`convention` must name what is written, got 'v'; leave it out of the conventions"),
        ({"x": np.float32([1])}, {"x": "F33"}, ConfigError,
         "array 'x' must be stored in a known dtype, got 'F33'; did you mean 'F32'?"),
        ({"x": np.float32([1])}, {"x": "F64"}, FormatError,
         "array 'x' must have the dtype in which it is stored, got float32 for F64; convert it"),
        ({"x": np.array(["a"])}, None, FormatError,
         "array 'x' must have a dtype that safetensors files have, got <U1; give it as float32, with a dtype such as "
         "BF16 in `convention`"),
        ({"w": UNEVEN}, "fp8-row-bf16", FormatError,
         "scales 'w_scale' must be numbers of BF16, got 0.10000000149011612 at index (1, 0); write "
         "convention='fp8-row'"),
        ({"w": UNEVEN}, "deepseek", FormatError,
         "'w' must be a value of fp8_tile_128x128 for the convention deepseek, got one of fp8_row; write "
         "convention='fp8-row'"),
        ({"x": np.float32([1])}, "mxfp9", ConfigError,
         "`convention` must be known, got 'mxfp9'; did you mean 'mxfp8'?"),
        ({"x": np.float32([1])}, "BF16", ConfigError,
         "`convention` must be known, got 'BF16', a dtype; for arrays, name the dtype by tensor: {'x': 'BF16'}"),
        ({"x": np.float32([1])}, 3, ConfigError,
         "`convention` must be a name, or a dictionary of names by tensor, got 3; write one such as 'mxfp8', or "
         "{'w': 'BF16'}"),
        ({"x": np.float32([1])}, {"x": ["BF16"]}, ConfigError,
         "the convention or dtype of 'x' must be a name, got ['BF16']; write one such as 'mxfp8' or 'BF16'"),
        ({3: np.float32([1])}, None, ConfigError, "names of tensors must be strings, got 3; write '3'"),
        ({"__metadata__": np.float32([1])}, None, ConfigError,
         "a tensor must not be named '__metadata__', under which a file says what it is; rename it"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_hold_is_refused(
    tensors: dict[str, Any], convention: Any, kind: type[Exception], message: str, path: Path
):
    with pytest.raises(kind) as error:
        emu.write_checkpoint(path, tensors, convention)
    assert str(error.value) == message
    assert list(path.parent.iterdir()) == []


def test_lists_that_are_no_array_are_named(path: Path):
    with pytest.raises(
        FormatError, match=r"^array 'x' must be one that NumPy makes, got list: .*; give lists of equal"
    ):
        emu.write_checkpoint(path, {"x": [[1.0], [2.0, 3.0]]})
