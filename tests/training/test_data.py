"""Images and labels reach the network unharmed, or one sentence says why not."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emu.errors import ConfigError
from emu.training.data import load_dataset
from emu.training.data.files import DIGITS_SCALE, read_digits, read_npz
from emu.training.recipe import Frames, Images

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


@pytest.mark.parametrize("scale", [1e-50, 1e-40, 1e39])
def test_a_scale_that_float32_does_not_hold_or_after_which_pixels_are_not_finite_is_refused(scale: float):
    assert message(Images(scale=scale)) == (
        f"`scale` of [data] must be finite in float32, and leave every pixel so, got {scale:g} for scikit-learn "
        "digits; set it to the largest value that a pixel can have"
    )


@pytest.mark.parametrize("noise", [1e38, 1e39])
def test_noise_beyond_float32_is_refused(noise: float):
    frames = Frames(kind="frames", count=10, test_count=10, noise=noise)
    with pytest.raises(ConfigError, match=r"`noise` of \[data\] must leave every frame finite in float32, got 1e"):
        load_dataset(frames, (20,), 10)


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
        assert "must begin with the magic number 0x00000803 or 0x00000804 (bytes), got 0x68656c6c in" in message(
            Images(source=str(mnist))
        )

    @pytest.mark.parametrize(
        "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"]
    )
    @pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
    def test_first_bytes_tell_how_a_file_is_compressed(self, mnist: Path, pack: Callable[[bytes], bytes], ending: str):
        expected = load_dataset(Images(source=str(mnist)), INPUT, 10)
        for path in list(mnist.glob("train-*")):
            content = path.read_bytes()
            path.unlink()
            path.with_name(path.name + ending).write_bytes(pack(content))
        assert load_dataset(Images(source=str(mnist)), INPUT, 10).sha256 == expected.sha256

    @pytest.mark.parametrize("cut", [-5, 40])
    def test_damaged_bz2_and_xz_are_refused(self, mnist: Path, cut: int):
        for pack in (bz2.compress, lzma.compress):
            path = mnist / "train-images-idx3-ubyte"
            images = np.random.default_rng(2).integers(0, 256, (12, 28, 28), dtype=np.uint8)
            path.write_bytes(pack(idx_bytes(images))[:cut])
            text = message(Images(source=str(mnist)))
            assert text.startswith("a data file must be an IDX file, got ")
            assert text.endswith(f"while reading {path}; copy or download it again")

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

    def test_a_damaged_npz_is_closed(self, tmp_path: Path):
        path = tmp_path / "d.npz"
        np.savez(path, **self.arrays())
        content = bytearray(path.read_bytes())
        content[content.rindex(b"PK\x01\x02")] ^= 1  # of the archive's directory, which is read first
        path.write_bytes(content)
        text = message(Images(source=str(path)))  # a file that stays open is a ResourceWarning
        assert text.startswith("a data file must be an .npz archive of plain arrays, got 'Bad magic number ")

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


def idx_set(folder: Path, name: str, first_label: int = 0, sides: tuple[str, str] = ("train", "test")) -> np.ndarray:
    """A data set with EMNIST's names; returns its training images."""
    rng = np.random.default_rng(len(name))
    shown = [rng.integers(0, 256, (12, 28, 28), dtype=np.uint8) for _ in sides]
    for side, images in zip(sides, shown, strict=True):
        labels = (np.arange(12) % 6 + first_label).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"{name}{side}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return shown[0]


class TestNamesOfDataSets:
    def test_emnists_names_are_found_in_a_folder(self, tmp_path: Path):
        images = idx_set(tmp_path, "emnist-letters-", first_label=1)
        (tmp_path / "emnist-letters-mapping.txt").write_text("1 65 97\n")
        data = load_dataset(Images(source=str(tmp_path)), INPUT, 6)
        assert (data.train_inputs[:, 0] == images / np.float32(255)).all()
        assert data.test_labels.tolist() == [0, 1, 2, 3, 4, 5] * 2
        assert data.source == (
            f"{tmp_path / 'emnist-letters'}: 12 images to train, 12 to test; divided by 255, upsampled 1x, padded by "
            "0; labels 1..6 moved to 0..5"
        )

    def test_of_several_sets_one_is_named_by_its_training_images(self, tmp_path: Path):
        idx_set(tmp_path, "emnist-digits-")
        images = idx_set(tmp_path, "emnist-balanced-")
        assert message(Images(source=str(tmp_path))) == (
            "a folder of data must hold one data set, got emnist-balanced-train-images..., "
            f"emnist-digits-train-images... in {tmp_path}; name the file of training images as `source` of [data]"
        )
        source = tmp_path / "emnist-balanced-train-images-idx3-ubyte.gz"
        data = load_dataset(Images(source=str(source)), INPUT, 6)
        assert (data.train_inputs[:, 0] == images / np.float32(255)).all()
        idx_set(tmp_path, "", sides=("train", "t10k"))  # MNIST's own names come first
        assert load_dataset(Images(source=str(tmp_path)), INPUT, 6).source.startswith(f"{tmp_path}: 12 images")

    def test_a_missing_file_of_emnist_is_named(self, tmp_path: Path):
        idx_set(tmp_path, "emnist-digits-")
        (tmp_path / "emnist-digits-test-labels-idx1-ubyte.gz").unlink()
        assert message(Images(source=str(tmp_path))) == (
            "a folder of IDX files must hold emnist-digits-test-labels-idx1-ubyte or "
            f"emnist-digits-test-labels-idx1-ubyte.gz, got none in {tmp_path}"
        )

    def medmnist(self, path: Path, shape: tuple[int, ...] = (28, 28, 3)) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(5)
        arrays: dict[str, np.ndarray] = {}
        for side, count in (("train", 12), ("val", 3), ("test", 6)):
            arrays[f"{side}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            arrays[f"{side}_labels"] = np.arange(count, dtype=np.uint8)[:, None] % 4
        np.savez(path, **arrays)
        return arrays

    def test_medmnists_archive_is_read_as_it_is_downloaded(self, tmp_path: Path):
        arrays = self.medmnist(tmp_path / "pathmnist.npz")
        for source in (tmp_path, tmp_path / "pathmnist.npz"):
            data = load_dataset(Images(source=str(source)), (3, 28, 28), 4)
            assert (data.train_inputs == arrays["train_images"].transpose(0, 3, 1, 2) / np.float32(255)).all()
            assert data.test_labels.tolist() == [0, 1, 2, 3, 0, 1]
            assert data.source == (
                f"{tmp_path / 'pathmnist.npz'}: 12 images to train, 6 to test; divided by 255, upsampled 1x, padded by "
                "0; val_images left out; labels of shape (N, 1) flattened; channels moved from the last axis"
            )

    def test_several_archives_in_a_folder_are_named(self, tmp_path: Path):
        for name in ("a.npz", "b.npz"):
            self.medmnist(tmp_path / name)
        assert message(Images(source=str(tmp_path))) == (
            f"a folder of data must hold one data set, got a.npz, b.npz in {tmp_path}; name the file of training "
            "images as `source` of [data]"
        )

    def test_a_missing_array_of_medmnist_is_named(self, tmp_path: Path):
        np.savez(tmp_path / "d.npz", train_images=np.zeros((3, 28, 28), np.uint8))
        assert message(Images(source=str(tmp_path / "d.npz"))) == (
            f"an .npz of images must hold the array train_labels, got train_images in {tmp_path / 'd.npz'}; store "
            "train_images, train_labels, test_images, test_labels"
        )


class TestForms:
    """Six images of 28 x 28, pixels 0..1, labels 0..5, in other forms."""

    def saved(self, folder: Path, x: np.ndarray, y: np.ndarray) -> str:
        np.savez(folder / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        return str(folder / "d.npz")

    images = np.random.default_rng(3).random((6, 28, 28)).astype(np.float32)

    @pytest.mark.parametrize(
        ("labels", "said"),
        [
            (np.arange(6), ""),
            (np.arange(6)[:, None], "; labels of shape (N, 1) flattened"),
            (np.arange(6, dtype=np.float32), "; labels read as integers from float32"),
            (np.arange(6, dtype=np.float16), "; labels read as integers from float16"),
            (np.arange(1, 7, dtype=np.uint8), "; labels 1..6 moved to 0..5"),
            (
                np.arange(1, 7.0)[:, None],
                "; labels read as integers from float64; labels of shape (N, 1) flattened; labels 1..6 moved to 0..5",
            ),
        ],
    )
    def test_class_numbers_in_other_forms_are_read_and_that_is_said(
        self, labels: np.ndarray, said: str, tmp_path: Path
    ):
        data = load_dataset(Images(source=self.saved(tmp_path, self.images, labels)), INPUT, 6)
        assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 1, 2, 3, 4, 5]
        assert data.source.endswith(f"padded by 0{said}")

    def test_labels_that_fit_as_they_are_stay_though_0_is_missing(self, tmp_path: Path):
        data = load_dataset(Images(source=self.saved(tmp_path, self.images, np.arange(1, 7))), INPUT, 7)
        assert data.train_labels.tolist() == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4, 6], [2, 3, 4, 5, 6, 6], [1, 2, 3, 4, 5, 7]])
    def test_labels_out_of_range_are_not_moved(self, labels: list[int], tmp_path: Path):
        text = message(Images(source=self.saved(tmp_path, self.images, np.array(labels))), classes=6)
        assert text.startswith("every label must be in 0..5, got ")

    def test_one_hot_rows_and_several_labels_are_named(self, tmp_path: Path):
        source = self.saved(tmp_path, self.images, np.eye(6, dtype=np.uint8))
        assert message(Images(source=source), classes=6) == (
            f"labels must be one integer per image, got one-hot rows, shape (6, 6), in {source}: y_train; store "
            "labels.argmax(axis=1)"
        )
        source = self.saved(tmp_path, self.images, np.ones((6, 14), np.uint8))
        assert message(Images(source=source), classes=6) == (
            f"labels must be one integer per image, got several labels for an image, shape (6, 14), in {source}: "
            "y_train; choose one of them"
        )

    @pytest.mark.parametrize("channels", [1, 3, 4])
    def test_channels_behind_rows_and_columns_are_moved_and_that_is_said(self, channels: int, tmp_path: Path):
        images = np.random.default_rng(4).random((6, 28, 28, channels)).astype(np.float32)
        data = load_dataset(Images(source=self.saved(tmp_path, images, np.arange(6))), (channels, 28, 28), 6)
        for channel in range(channels):
            assert (data.train_inputs[:, channel] == images[..., channel]).all()
        assert data.source.endswith("; channels moved from the last axis")
        first = self.saved(tmp_path, np.ascontiguousarray(images.transpose(0, 3, 1, 2)), np.arange(6))
        again = load_dataset(Images(source=first), (channels, 28, 28), 6)
        assert again.sha256 == data.sha256
        assert "moved" not in again.source

    @pytest.mark.parametrize(
        ("pixels", "told", "scale"),
        [
            (np.arange(6 * 784).astype(np.uint16) * 13, "16-bit integers, 0..61139,", 65535),
            (np.arange(6 * 784).astype(np.uint16) % 4096, "16-bit integers, 0..4095,", 4095),
            (np.arange(6 * 784) % 256, "signed 64-bit integers, 0..255,", 255),
            ((np.arange(6 * 784) % 128).astype(np.int8), "signed 8-bit integers, 0..127,", 127),
            (
                (np.arange(6 * 784) % 256).astype(np.float32),
                "float32 numbers that look like pixels of integers, 0..255,",
                255,
            ),
            (np.linspace(0, 254.5, 6 * 784), "float64 numbers that look like pixels of integers, 0..254.5,", 255),
            (
                (np.arange(6 * 784) % 17).astype(np.float64),
                "float64 numbers that look like pixels of integers, 0..16,",
                16,
            ),
        ],
    )
    def test_pixels_whose_scale_a_file_does_not_say_are_named_with_the_remedy(
        self, pixels: np.ndarray, told: str, scale: int, tmp_path: Path
    ):
        source = self.saved(tmp_path, pixels.reshape(6, 28, 28), np.arange(6))
        assert message(Images(source=source), classes=6) == (
            f"pixels must be unsigned 8-bit integers, or floats as the network takes them, got {told} in {source}: "
            f"x_train; set `scale` of [data] to the largest value that a pixel can have, such as {scale}, or to 1 to "
            "leave them"
        )
        data = load_dataset(Images(source=source, scale=scale), INPUT, 6)
        assert (data.train_inputs.ravel() == pixels.astype(np.float32) / np.float32(scale)).all()
        assert (
            load_dataset(Images(source=source, scale=1), INPUT, 6).train_inputs.ravel() == pixels.astype("f4")
        ).all()

    @pytest.mark.parametrize(
        "pixels",
        [
            np.random.default_rng(1).standard_normal(6 * 784), np.linspace(0, 1, 6 * 784),
            np.linspace(-128, 127, 6 * 784), np.arange(6 * 784) % 2, np.linspace(0, 5, 6 * 784), np.zeros(6 * 784),
        ],
    )  # fmt: skip
    def test_pixels_that_a_network_takes_as_they_are_stay(self, pixels: np.ndarray, tmp_path: Path):
        source = self.saved(tmp_path, pixels.reshape(6, 28, 28), np.arange(6))
        data = load_dataset(Images(source=source), INPUT, 6)
        assert (data.train_inputs.ravel() == pixels.astype(np.float32)).all()
        assert data.source.endswith("divided by 1, upsampled 1x, padded by 0")


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
