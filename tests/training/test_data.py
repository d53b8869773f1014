"""Images and labels reach the network unharmed, or one sentence says why not."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from emu.errors import ConfigError
from emu.training.data import load_dataset
from emu.training.data_files import DIGITS_SCALE, read_digits, read_npz
from emu.training.recipe import Images

INPUT = (1, 28, 28)


def idx_bytes(array: np.ndarray, type_code: int = 8) -> bytes:
    """An IDX file, written from its definition."""
    big_endian = array.astype(array.dtype.newbyteorder(">"))
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, type_code, array.ndim, *array.shape) + big_endian.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """A folder of 12 training and 5 test images of 28 x 28, one side gzipped."""
    rng = np.random.default_rng(1)
    for side, count in (("train", 12), ("t10k", 5)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        pack = gzip.compress if side == "t10k" else bytes
        ending = ".gz" if side == "t10k" else ""
        (tmp_path / f"{side}-images-idx3-ubyte{ending}").write_bytes(pack(idx_bytes(images)))
        (tmp_path / f"{side}-labels-idx1-ubyte{ending}").write_bytes(pack(idx_bytes(labels)))
    return tmp_path


def message(spec: Images, input_shape: tuple[int, ...] = INPUT, classes: int = 10) -> str:
    with pytest.raises(ConfigError) as caught:
        load_dataset(spec, input_shape, classes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestDigits:
    def test_the_split_never_changes(self):
        data = load_dataset(Images(), INPUT, 10)
        assert data.sha256 == "bb06424571b0a6325fea777bcb203138f0291667eff288b0732bdf24f74ed35d"
        assert data.source == (
            "scikit-learn digits: 1347 images to train, 450 to test; divided by 16, upsampled 3x, padded by 2"
        )

    def test_every_class_gives_the_test_set_its_share(self):
        data = load_dataset(Images(), INPUT, 10)
        test, train = np.bincount(data.test_labels), np.bincount(data.train_labels)
        assert test.sum() == 450
        assert (np.abs(test - (test + train) * 450 / 1797) < 1).all()

    def test_no_image_is_in_both_sets_and_none_is_lost(self):
        raw = read_digits()
        data = load_dataset(Images(upsample=1, pad=0), (1, 8, 8), 10)
        both = np.concatenate([data.train_inputs, data.test_inputs]).reshape(-1, 64)
        rows = sorted(row.tobytes() for row in both)
        assert rows == sorted(row.tobytes() for row in (raw.images / np.float32(DIGITS_SCALE)).reshape(-1, 64))

    def test_the_direct_reading_equals_the_librarys(self):
        from sklearn.datasets import load_digits

        bunch, raw = load_digits(), read_digits()
        assert (raw.images == bunch.images).all()
        assert (raw.labels == bunch.target).all()

    def test_pixels_are_repeated_and_framed_with_zeros(self):
        small = load_dataset(Images(upsample=1, pad=0), (1, 8, 8), 10).train_inputs
        large = load_dataset(Images(), INPUT, 10).train_inputs
        assert large.dtype == np.float32
        assert large.flags.c_contiguous
        for row, column in np.ndindex(28, 28):
            inside = 2 <= row < 26 and 2 <= column < 26
            expected = small[:, 0, (row - 2) // 3, (column - 2) // 3] if inside else 0
            assert (large[:, 0, row, column] == expected).all()

    def test_a_smaller_test_set_can_be_asked_for(self):
        assert len(load_dataset(Images(test_images=100), INPUT, 10).test_labels) == 100

    def test_a_test_set_that_leaves_nothing_to_train_on_is_refused(self):
        assert message(Images(test_images=1797)) == (
            "`test_images` must be below the number of images, got 1797 of 1797 in scikit-learn digits; choose fewer"
        )

    def test_images_that_do_not_reach_the_input_are_refused(self):
        assert message(Images(upsample=2, pad=1)) == (
            "images must reach the network's input (1, 28, 28), got (1, 8, 8) in scikit-learn digits, upsampled 2x and "
            "padded by 1: (1, 18, 18); change `upsample` and `pad` of [data], or `input` of [network]"
        )

    def test_more_classes_than_the_network_has_are_refused(self):
        assert message(Images(), classes=9).startswith(
            "every label must be in 0..8, got 9 at index [9] in scikit-learn"
        )


class TestIdx:
    def test_a_folder_with_mnists_names_is_read(self, mnist: Path):
        data = load_dataset(Images(source=str(mnist)), INPUT, 10)
        raw = (mnist / "train-images-idx3-ubyte").read_bytes()[16:]
        expected = np.frombuffer(raw, np.uint8).reshape(12, 1, 28, 28).astype(np.float32) / np.float32(255)
        assert data.train_inputs.tobytes() == expected.tobytes()
        assert data.test_labels.shape == (5,)
        assert data.source == f"{mnist}: 12 images to train, 5 to test; divided by 255, upsampled 1x, padded by 0"

    def test_a_folder_without_a_test_set_is_split(self, mnist: Path):
        for kind in ("images-idx3", "labels-idx1"):
            (mnist / f"t10k-{kind}-ubyte.gz").unlink()
        data = load_dataset(Images(source=str(mnist), test_images=3), INPUT, 10)
        assert (len(data.train_labels), len(data.test_labels)) == (9, 3)

    def test_wider_elements_are_big_endian(self, mnist: Path):
        images = np.arange(12 * 28 * 28, dtype=np.float32).reshape(12, 28, 28)
        (mnist / "train-images-idx3-ubyte").write_bytes(idx_bytes(images, 0x0D))
        data = load_dataset(Images(source=str(mnist)), INPUT, 10)
        assert (data.train_inputs.ravel() == images.ravel()).all()

    def test_a_missing_file_is_named(self, mnist: Path):
        (mnist / "train-labels-idx1-ubyte").unlink()
        assert message(Images(source=str(mnist))) == (
            "a folder of IDX files must hold train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz, got none in "
            f"{mnist}"
        )

    def test_a_truncated_file_is_refused(self, mnist: Path):
        path = mnist / "train-images-idx3-ubyte"
        path.write_bytes(path.read_bytes()[:-1])
        assert message(Images(source=str(mnist))) == (
            f"an IDX file must be complete: 9408 bytes for shape (12, 28, 28), got 9407 bytes in {path}; "
            "copy or download it again"
        )

    def test_a_truncated_header_is_refused(self, mnist: Path):
        path = mnist / "train-images-idx3-ubyte"
        path.write_bytes(path.read_bytes()[:9])
        assert message(Images(source=str(mnist))) == (
            f"an IDX file must be complete: a header of 12 bytes, got 5 bytes in {path}; copy or download it again"
        )

    def test_a_truncated_gzip_is_refused(self, mnist: Path):
        path = mnist / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-30])
        text = message(Images(source=str(mnist)))
        assert text.startswith("a data file must be an IDX file, got 'Compressed file ended before")
        assert text.endswith(f"while reading {path}; copy or download it again")

    def test_a_file_that_is_not_gzip_is_refused(self, mnist: Path):
        path = mnist / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(b"hello")
        assert "got \"Not a gzipped file (b'he')\"" in message(Images(source=str(mnist)))

    @pytest.mark.parametrize("content", [b"", b"\x00\x00", b"\x89PNG", b"\x00\x00\x07\x03", b"\x00\x00\x08\x01"])
    def test_a_wrong_magic_number_is_refused(self, mnist: Path, content: bytes):
        path = mnist / "train-images-idx3-ubyte"
        path.write_bytes(content)
        assert message(Images(source=str(mnist))) == (
            "an IDX file of 3 or 4 dimensions must begin with the magic number 0x00000803 or 0x00000804 (bytes), got "
            f"0x{content.hex() or '(nothing)'} in {path}; check that images and labels are not exchanged"
        )

    def test_a_file_that_claims_more_than_memory_is_refused(self, mnist: Path):
        path = mnist / "train-images-idx3-ubyte"
        path.write_bytes(b"\x00\x00\x08\x03" + b"\xff" * 12)
        assert "must be complete" in message(Images(source=str(mnist)))

    def test_different_counts_are_refused(self, mnist: Path):
        path = mnist / "train-labels-idx1-ubyte"
        path.write_bytes(idx_bytes(np.zeros(11, dtype=np.uint8)))
        assert message(Images(source=str(mnist))) == (
            f"images and labels must be equally many, got 12 images in {mnist / 'train-images-idx3-ubyte'} and 11 "
            f"labels in {path}; check that the two files belong together"
        )

    def test_a_label_out_of_range_is_named(self, mnist: Path):
        path = mnist / "train-labels-idx1-ubyte"
        path.write_bytes(idx_bytes(np.array([0, 1, 2, 10, 4, 5, 6, 7, 8, 9, 0, 1], dtype=np.uint8)))
        assert message(Images(source=str(mnist))) == (
            f"every label must be in 0..9, got 10 at index [3] in {path}; correct it, or `classes` of [network]"
        )


class TestNumpyFiles:
    def arrays(self, count: int = 6) -> dict[str, np.ndarray]:
        images = np.linspace(0, 1, count * 784, dtype=np.float32).reshape(count, 28, 28)
        return {"x_train": images, "y_train": np.arange(count), "x_test": images[:2], "y_test": np.arange(2)}

    def test_an_npz_is_read_as_it_is(self, tmp_path: Path):
        arrays = self.arrays()
        np.savez(tmp_path / "d.npz", **arrays)
        data = load_dataset(Images(source=str(tmp_path / "d.npz")), INPUT, 10)
        assert data.train_inputs.tobytes() == arrays["x_train"].tobytes()
        assert data.test_labels.tolist() == [0, 1]

    def test_an_npy_finds_its_labels_beside_it(self, tmp_path: Path):
        arrays = self.arrays()
        np.save(tmp_path / "d.npy", arrays["x_train"])
        np.save(tmp_path / "d_labels.npy", arrays["y_train"])
        data = load_dataset(Images(source=str(tmp_path / "d.npy"), test_images=2), INPUT, 10)
        assert sorted([*data.train_labels, *data.test_labels]) == [0, 1, 2, 3, 4, 5]

    def test_flat_images_are_given_rows_and_columns(self, tmp_path: Path):
        arrays = self.arrays()
        np.savez(tmp_path / "d.npz", **{k: v.reshape(len(v), -1) for k, v in arrays.items() if k[0] == "x"},
                 y_train=arrays["y_train"], y_test=arrays["y_test"])  # fmt: skip
        data = load_dataset(Images(source=str(tmp_path / "d.npz")), INPUT, 10)
        assert data.train_inputs.shape == (6, 1, 28, 28)

    def test_an_npy_without_labels_is_refused(self, tmp_path: Path):
        np.save(tmp_path / "d.npy", self.arrays()["x_train"])
        assert message(Images(source=str(tmp_path / "d.npy"))) == (
            f"an .npy of images must have its labels beside it, got no d_labels.npy or labels.npy in {tmp_path}; "
            "save them there"
        )

    def test_a_missing_array_is_named(self, tmp_path: Path):
        arrays = self.arrays()
        del arrays["y_test"]
        np.savez(tmp_path / "d.npz", **arrays)
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            f"an .npz of images must hold the array y_test, got x_test, x_train, y_train in {tmp_path / 'd.npz'}; "
            "store x_train, y_train, x_test, y_test"
        )

    def test_nan_is_named_with_its_index(self, tmp_path: Path):
        arrays = self.arrays()
        arrays["x_train"][3, 5, 7] = np.nan
        np.savez(tmp_path / "d.npz", **arrays)
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            f"every pixel must be finite in float32, got nan at index [3, 5, 7] in {tmp_path / 'd.npz'}: x_train; "
            "repair or remove that image"
        )

    def test_a_number_beyond_float32_is_refused(self, tmp_path: Path):
        arrays = self.arrays()
        arrays["x_train"] = arrays["x_train"].astype(np.float64)
        arrays["x_train"][0, 0, 0] = 1e300
        np.savez(tmp_path / "d.npz", **arrays)
        assert "got 1e+300 at index [0, 0, 0]" in message(Images(source=str(tmp_path / "d.npz")))

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"\x80\x04N."])
    def test_a_damaged_npz_is_refused(self, tmp_path: Path, content: bytes):
        path = tmp_path / "d.npz"
        path.write_bytes(content)
        assert message(Images(source=str(path))) == (
            "a data file must be an .npz archive of plain arrays, got 'not a zip archive, or cut off' while reading "
            f"{path}; copy or download it again"
        )

    def test_a_truncated_npz_is_refused(self, tmp_path: Path):
        path = tmp_path / "d.npz"
        np.savez(path, **self.arrays())
        path.write_bytes(path.read_bytes()[:3000])
        assert message(Images(source=str(path))).startswith("a data file must be an .npz archive of plain arrays")

    def test_a_truncated_npy_is_refused(self, tmp_path: Path):
        path = tmp_path / "d.npy"
        np.save(path, self.arrays()["x_train"])
        np.save(tmp_path / "labels.npy", np.arange(6))
        path.write_bytes(path.read_bytes()[:3000])
        assert message(Images(source=str(path))).startswith("a data file must be an .npy file of plain numbers")

    def test_pickled_objects_are_never_opened(self, tmp_path: Path):
        class Bomb:
            def __reduce__(self):
                return (Path(tmp_path / "exploded").touch, ())

        np.savez(tmp_path / "d.npz", x_train=np.array([Bomb()], dtype=object), y_train=np.arange(1))
        assert "Object arrays cannot be loaded" in message(Images(source=str(tmp_path / "d.npz")))
        assert not (tmp_path / "exploded").exists()

    def test_labels_that_are_not_integers_are_refused(self, tmp_path: Path):
        arrays = self.arrays() | {"y_train": np.linspace(0, 1, 6)}
        np.savez(tmp_path / "d.npz", **arrays)
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            f"labels must be one integer per image, got dtype float64 and shape (6,) in {tmp_path / 'd.npz'}: y_train; "
            "store class numbers"
        )

    def test_an_empty_file_is_refused(self, tmp_path: Path):
        empty = {"x_train": np.zeros((0, 28, 28)), "y_train": np.zeros(0, dtype=int)}
        np.savez(tmp_path / "d.npz", **self.arrays() | empty)
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            f"a data file must hold at least one image, got none in {tmp_path / 'd.npz'}: x_train; check the file"
        )

    @pytest.mark.parametrize("shape", [(), (6,), (6, 28, 0), (6, 1, 1, 28, 28)])
    def test_arrays_that_are_no_images_are_refused(self, tmp_path: Path, shape: tuple[int, ...]):
        np.savez(tmp_path / "d.npz", **self.arrays() | {"x_train": np.zeros(shape)})
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            "images must have the shape (N, rows, columns) or (N, channels, rows, columns), got "
            f"{shape} in {tmp_path / 'd.npz'}: x_train; reshape them"
        )


class TestSource:
    def test_a_path_that_does_not_exist_is_named(self, tmp_path: Path):
        assert message(Images(source=str(tmp_path / "none"))) == (
            f"`source` of [data] must be 'digits' or an existing path, got '{tmp_path / 'none'}'; check the path, "
            "which starts at the current folder"
        )

    def test_a_file_of_another_kind_is_refused(self, tmp_path: Path):
        (tmp_path / "d.csv").touch()
        assert message(Images(source=str(tmp_path / "d.csv"))) == (
            f"`source` of [data] must be 'digits', a folder of IDX files, an .npz or an .npy, got "
            f"'{tmp_path / 'd.csv'}'; name the folder instead of a file in it"
        )

    def test_the_hash_covers_every_array(self):
        data = load_dataset(Images(), INPUT, 10)
        digest = hashlib.sha256()
        for array in (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels):
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        assert digest.hexdigest() == data.sha256


def test_an_archive_of_an_unknown_compression_is_refused(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez(path, x_train=np.zeros((3, 8, 8), np.uint8), y_train=np.zeros(3, np.uint8))
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # of a member, and of its entry in the directory
        place = content.find(mark) + at
        content[place : place + 2] = b"\x63\x00"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"an \.npz archive of plain arrays, got .That compression"):
        read_npz(path)
