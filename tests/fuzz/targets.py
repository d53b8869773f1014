"""What reads files: commands with files that a mutation changes.

A target builds sound files once, in a folder of its own. A case is a copy of them with one file changed, and a command.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import emu
from emu.hardware import load_device
from emu.testing.vectors import Description, make_vectors, write_vectors
from emu.training import load_recipe, train

from .mutations import Mutator

ROOT = Path(emu.__file__).resolve().parent.parent
#: A network that trains in no time: what a device file is tried on.
TINY = """name = "tiny"
description = "A convolution, pooling and a layer, on 8 x 8 digits."
source = "For tests."

[network]
input = [1, 8, 8]
classes = 10
loss = "softmax_cross_entropy"

[[network.layers]]
type = "conv2d"
name = "conv1"
out_channels = 2
kernel = 3

[[network.layers]]
type = "relu"

[[network.layers]]
type = "max_pool"
name = "pool1"
window = 2

[[network.layers]]
type = "flatten"

[[network.layers]]
type = "linear"
name = "output"
out_features = 10

[data]
source = "digits"
test_images = 10

[training]
steps = 2
batch = 4
seed = 1
log_every = 1
checkpoint_every = 1

[training.optimiser]
name = "momentum"
learning_rate = 0.05
"""
STUDY = """name = "tiny_study"
description = "One run."
baseline = "float32"

[[grid]]
models = ["tiny.toml"]
devices = ["float32", "fixed8"]
seeds = [1]
"""
#: Settings that keep a run short.
SHORT = ("--set", "training.steps=2", "--set", "training.batch=2", "--backend", "reference")


@dataclass(frozen=True)
class Target:
    """A kind of file and a command that reads it.

    Attributes:
        name: of the case.
        build: writes sound files into a folder.
        file: the one that is changed, relative to the folder.
        mutate: from its bytes to others.
        arguments: of `emu`; the folder is the working one.
        codes: exit codes that are no fault.
        weight: how often it is drawn.
    """

    name: str
    build: Callable[[Path], object]
    file: str
    mutate: Callable[[Mutator, bytes], bytes]
    arguments: tuple[str, ...]
    codes: tuple[int, ...] = (0, 2)
    weight: int = 1


def _toml(mutator: Mutator, data: bytes) -> bytes:
    return mutator.toml(data.decode())


def _json(mutator: Mutator, data: bytes) -> bytes:
    return mutator.json(data.decode())


def _lines(mutator: Mutator, data: bytes) -> bytes:
    return mutator.lines(data.decode())


def _copies(*sources: Path) -> Callable[[Path], object]:
    return lambda folder: [shutil.copy(source, folder / source.name) for source in sources]


def _with_tiny(*sources: Path) -> Callable[[Path], object]:
    def build(folder: Path) -> None:
        (folder / "tiny.toml").write_text(TINY)
        _copies(*sources)(folder)

    return build


class _Stop:
    """Progress that ends a run before its last step."""

    def start(self, step: int, steps: int) -> None:
        """Nothing."""

    def update(self, step: int, *_: float) -> None:
        """Stop behind the second step."""
        if step == 2:
            raise KeyboardInterrupt

    def finish(self) -> None:
        """Nothing."""


def _trained(folder: Path, *, stops: bool = False) -> None:
    (folder / "tiny.toml").write_text(TINY)
    recipe, device = load_recipe(str(folder / "tiny.toml"), ["training.steps=4"]), load_device("dlu16")
    with suppress(KeyboardInterrupt):
        train(recipe, device, out=folder / "run", backend="reference", progress=_Stop() if stops else None)


def _stopped(folder: Path) -> None:
    _trained(folder, stops=True)


def _weights(folder: Path) -> None:
    (folder / "tiny.toml").write_text(TINY)
    np.savez(
        folder / "weights.npz",
        **{
            "conv1.weight": np.full((2, 1, 3, 3), 0.25, np.float32), "conv1.bias": np.zeros(2, np.float32),
            "output.weight": np.full((10, 18), 0.125, np.float32), "output.bias": np.zeros(10, np.float32),
        },
    )  # fmt: skip


def _tensors(folder: Path) -> None:
    """Weights in narrow floats, written from the format's page: a length, JSON, bytes; every code is 0.25, or 0."""
    (folder / "tiny.toml").write_text(TINY)
    header: dict[str, Any] = {}
    content = b""
    for name, dtype, shape, code in (
        ("conv1.weight", "BF16", (2, 1, 3, 3), b"\x80\x3e"), ("conv1.bias", "F8_E5M2", (2,), b"\x00"),
        ("output.weight", "F8_E4M3", (10, 18), b"\x28"), ("output.bias", "F16", (10,), b"\x00\x34"),
    ):  # fmt: skip
        begin, content = len(content), content + code * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(content)]}
    text = json.dumps(header).encode()
    (folder / "weights.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)


def _images(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images = (np.arange(count * 64) * 37 % 256).astype(np.uint8).reshape(count, 8, 8)
    return images, (np.arange(count) % 10).astype(np.uint8)


def _idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def _data(folder: Path) -> None:
    (folder / "tiny.toml").write_text(TINY)
    images, labels = _images(40)
    np.savez(folder / "data.npz", x_train=images, y_train=labels)
    np.savez(folder / "keras.npz", x_train=images[:30], y_train=labels[:30], x_test=images[30:], y_test=labels[30:])
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    (folder / "idx").mkdir()
    for kind, first, last in (("train", 0, 30), ("t10k", 30, 40)):
        (folder / "idx" / f"{kind}-images-idx3-ubyte").write_bytes(_idx(images[first:last]))
        with gzip.open(folder / "idx" / f"{kind}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(_idx(labels[first:last]))
    (folder / "emnist").mkdir()
    for side in ("train", "test"):
        (folder / "emnist" / f"emnist-digits-{side}-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images)))
        (folder / "emnist" / f"emnist-digits-{side}-labels-idx1-ubyte.gz").write_bytes(lzma.compress(_idx(labels + 1)))
    medmnist = {f"{side}_images": images[..., None] for side in ("train", "val", "test")}
    np.savez(
        folder / "medmnist.npz", **medmnist, **{f"{side}_labels": labels[:, None] for side in ("train", "val", "test")}
    )
    (folder / "letters.txt").write_text("to be or not to be " * 40)


def _vectors(style: str) -> Callable[[Path], object]:
    def build(folder: Path) -> None:
        mac = {"accumulator": "fp32"}
        description = Description(
            operation="matmul", formats=("fp16", "fp16"), out_format="fp16", depth=3, count=20, mac=mac
        )  # type: ignore[arg-type]
        plain = Description(operation="add", formats=("fp16", "fp16"), out_format="fp16", count=20)
        vectors = make_vectors(description if style == "hex" else plain)
        write_vectors(vectors, folder / "v", style)
        if style == "hex":
            shutil.copy(folder / "v" / "result.hex", folder / "dump.hex")
        else:
            lines = (folder / "v" / "vectors.txt").read_text().splitlines()
            (folder / "dump.hex").write_text("".join(f"{line.split()[2]}\n" for line in lines))

    return build


#: Dumps of each format: lines before, of each result `{code}` of number `{i}`, and after; and options.
DUMPS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "text": ("// of a memory\n@0\n", "{code}  16'h{code} /* {i} */\n", "", ()),
    "csv": ("time;result;flags\n", "{i};{code};00\n", "", ()),
    "mif": ("WIDTH=16; DEPTH=20; ADDRESS_RADIX=DEC; DATA_RADIX=HEX;\nCONTENT BEGIN\n", "{i} : {code};\n", "END;\n", ()),
    "coe": ("memory_initialization_radix=16;\nmemory_initialization_vector=\n", "{code},\n", ";\n", ()),
    "questa": ("// memory data file\n// format=mti addressradix=d dataradix=h\n", "{i}: {code}\n", "", ()),
    "vcd": (
        "$scope module tb $end $var wire 1 ! clk $end $var wire 16 # y [15:0] $end\n$enddefinitions $end\n",
        "0!\nb{bits} #\n#{i}5\n1!\n#{i}8\n",
        "",
        ("--signal", "tb.y", "--clock", "clk"),
    ),
}


def _dump(name: str) -> Callable[[Path], object]:
    def build(folder: Path) -> None:
        vectors = make_vectors(Description(operation="add", formats=("fp16", "fp16"), out_format="fp16", count=20))
        write_vectors(vectors, folder / "v")
        before, line, after, _ = DUMPS[name]
        codes = vectors.results.tolist()
        lines = (line.format(i=i, code=f"{code:04x}", bits=f"{code:b}") for i, code in enumerate(codes))
        (folder / f"dump.{name}").write_text(before + "".join(lines) + after)

    return build


def _study(folder: Path) -> None:
    (folder / "tiny.toml").write_text(TINY)
    (folder / "study.toml").write_text(STUDY)


def targets() -> Iterator[Target]:
    """Every target: the shipped files, and what runs, data and vectors write."""
    for path in sorted((ROOT / "devices").glob("*.toml")):
        yield Target(f"devices {path.name}", _copies(path), path.name, _toml, ("devices", path.name), weight=3)
        arguments = ("train", "tiny.toml", "--device", path.name, "--out", "out", *SHORT)
        yield Target(f"train on {path.name}", _with_tiny(path), path.name, _toml, arguments, weight=6)
    for path in sorted((ROOT / "models").glob("*.toml")):
        yield Target(f"models {path.name}", _copies(path), path.name, _toml, ("models", path.name), weight=3)
        if path.stem in ("mlp", "lenet", "deep_sigmoid", "transformer"):
            arguments = ("train", path.name, "--device", "float32", "--out", "out", *SHORT)
            yield Target(f"train {path.name}", _copies(path), path.name, _toml, arguments, weight=2)
    arguments = ("train", "tiny.toml", "--device", "fixed8", "--out", "out", *SHORT)
    yield Target("train tiny", _with_tiny(), "tiny.toml", _toml, arguments, weight=12)
    for path in sorted((ROOT / "benchmarks").glob("*.toml")):
        arguments = ("study", path.name, "--out", "out", "--only", "no run is called so")
        yield Target(f"study {path.name}", _copies(path), path.name, _toml, arguments, weight=6)
    arguments = ("study", "study.toml", "--out", "out", "--only", "no run is called so")
    yield Target("study tiny", _study, "study.toml", _toml, arguments, weight=6)
    yield from _runs()
    yield from _arrays()


def _runs() -> Iterator[Target]:
    files: dict[str, Callable[[Mutator, bytes], bytes]] = {
        "run.json": _json, "checkpoint.safetensors": Mutator.safetensors, "metrics.parquet": Mutator.bytes,
        "registers.parquet": Mutator.bytes, "flags.parquet": Mutator.bytes,
    }  # fmt: skip
    commands = {
        "report": ("report", "run"),
        "evaluate": ("evaluate", "run", "--backend", "reference"),
        "resume": ("train", "--resume", "run"),
    }
    for name, mutate in files.items():
        for title, arguments in commands.items():
            weight = 12 if name in ("run.json", "checkpoint.safetensors") else 2
            build = _stopped if title == "resume" else _trained
            yield Target(f"{title} with {name}", build, f"run/{name}", mutate, arguments, weight=weight)


def _arrays() -> Iterator[Target]:
    arguments = ("evaluate", "weights.npz", "--model", "tiny.toml", "--device", "fixed16", "--backend", "reference")
    yield Target("evaluate weights", _weights, "weights.npz", Mutator.npz, arguments, weight=20)
    arguments = ("evaluate", "weights.safetensors", *arguments[2:])
    yield Target("evaluate tensors", _tensors, "weights.safetensors", Mutator.bytes, arguments, weight=10)
    data: dict[str, tuple[str, Callable[[Mutator, bytes], bytes]]] = {
        "data.npz": ("data.npz", Mutator.npz), "keras.npz": ("keras.npz", Mutator.npz),
        "images.npy": ("images.npy", Mutator.npy), "labels.npy": ("images.npy", Mutator.npy),
        "idx/train-images-idx3-ubyte": ("idx", Mutator.bytes),
        "idx/train-labels-idx1-ubyte.gz": ("idx", Mutator.bytes),
        "idx/t10k-images-idx3-ubyte": ("idx", Mutator.bytes), "medmnist.npz": ("medmnist.npz", Mutator.npz),
        "emnist/emnist-digits-train-images-idx3-ubyte.gz": ("emnist", Mutator.bytes),
        "emnist/emnist-digits-test-labels-idx1-ubyte.gz": ("emnist", Mutator.bytes),
    }  # fmt: skip
    for file, (source, mutate) in data.items():
        arguments = ("train", "tiny.toml", "--out", "out", "--set", f"data.source={source}", *SHORT)
        yield Target(f"data {file}", _data, file, mutate, arguments, weight=10)
    for style in ("hex", "testfloat"):
        yield from _of_vectors(style)
    yield from _of_dumps()


def _of_vectors(style: str) -> Iterator[Target]:
    names = {"hex": ("manifest.json", "a.hex", "result.hex"), "testfloat": ("manifest.json", "vectors.txt")}[style]
    for name in names:
        mutate = _json if name.endswith("json") else _lines
        yield Target(
            f"check {style} {name}", _vectors(style), f"v/{name}", mutate, ("check", "v", "dump.hex"), (0, 1, 2), 10
        )
    yield Target(f"check {style} dump", _vectors(style), "dump.hex", _lines, ("check", "v", "dump.hex"), (0, 1, 2), 8)


def _of_dumps() -> Iterator[Target]:
    for name, (*_, options) in DUMPS.items():
        arguments = ("check", "v", f"dump.{name}", "--dump-format", name, *options)
        yield Target(f"check dump of {name}", _dump(name), f"dump.{name}", _lines, arguments, (0, 1, 2), 6)
