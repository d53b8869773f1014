"""The kinds of data that a recipe can name, and what each requires of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from emu._config import Table
from emu.errors import ConfigError
from emu.nn import Layer, every
from emu.nn.layer import Shape
from emu.sparse import CSR

#: Inputs of some examples: an array whose first axis counts them, or a sparse matrix with a row for each. Both have
#: `len`, `shape`, `size` (numbers that are stored) and `dtype`, and are indexed by a slice or an array of row numbers.
Inputs: TypeAlias = NDArray[Any] | CSR
Labels: TypeAlias = NDArray[np.int64]
#: Inputs and labels to train, inputs and labels to test.
Arrays: TypeAlias = tuple[Inputs, Labels, Inputs, Labels]

#: Values of a byte: tokens and classes of text.
BYTES = 256

#: Bytes of a number of a batch in its source: a pixel, a letter, a float32; of sparse data, a float32 and its column.
SOURCE_BYTES = {"images": 1, "text": 1, "frames": 4, "svmlight": 8, "ngrams": 8}


class DataTable(Table):
    """Base of all kinds of data."""

    def check_network(self, shape: Shape, classes: int, layers: Sequence[Layer]) -> None:
        """Raise ConfigError if a network cannot take the data.

        Raises:
            ConfigError: its input has another number of dimensions, it reads tokens but the data have none, or it does
                not read the data's sparse matrix.
        """
        kind, dimensions = self.kind, self.dimensions
        if len(shape) != dimensions:
            raise ConfigError(
                f"`input` of [network] must have {dimensions} number{'s' * (dimensions > 1)} for data of kind "
                f"{kind!r}, got {list(shape)}; change it, or `kind` of [data]"
            )
        for layer in every(layers):
            # tokens are indices into a table of rows: no layer before it, and no other data, gives such indices
            if layer.token_count is not None and (kind != "text" or layer is not layers[0]):
                raise ConfigError(
                    f"layer {layer.name!r} ({layer.type_name}) must be the first and read text, got data of kind "
                    f"{kind!r} and {layers[0].name!r} in the first place; remove it, or change `kind` of [data]"
                )
        # only the first layer reads the batch itself
        if self.is_sparse and not layers[0].accepts_sparse:
            raise ConfigError(
                f"for data of kind {kind!r} a network must begin with a layer of type sparse_linear, or of type "
                f"linear, which reads the zeros as well, got {layers[0].name!r} ({layers[0].type_name}); change "
                "its type, or `kind` of [data]"
            )

    kind: str
    dimensions: ClassVar[int] = 1
    is_sparse: ClassVar[bool] = False


class Images(DataTable):
    """Images with a label each, and how they reach the network's input.

    Attributes:
        source: `digits` (bundled), or a path: a folder of IDX files (or the training images of one of several sets in
            it), an `.npz`, or an `.npy` with labels beside it. A relative path starts at the current folder.
        test_images: images held out for testing, if the source has no test set of its own.
        upsample: each pixel is repeated this often in rows and columns; None: as often as fits the network's input.
        pad: zeros added on each side; None: as many as reach the network's input.
        scale: pixel values are divided by it; None: by 16 for `digits`, 255 for 8-bit images, 1 for floats; other
            integers, and floats that look like them, need it.
    """

    kind: Literal["images"] = "images"  # pyright: ignore[reportIncompatibleVariableOverride]
    dimensions: ClassVar[int] = 3
    source: str = Field(default="digits", min_length=1)
    test_images: int = Field(default=450, ge=1)
    upsample: int | None = Field(default=None, ge=1)
    pad: int | None = Field(default=None, ge=0)
    scale: float | None = Field(default=None, gt=0)


class Text(DataTable):
    """Text as bytes: the network sees `input` bytes and learns the one that follows each.

    Attributes:
        source: `alice` (bundled), or the path of a text file; a relative path starts at the current folder.
        test_share: share of the text, its end, held out for testing.
        stride: bytes from the start of a training sequence to the start of the next.
    """

    kind: Literal["text"]  # pyright: ignore[reportIncompatibleVariableOverride]
    source: str = Field(default="alice", min_length=1)
    test_share: float = Field(default=0.1, gt=0, lt=1)
    stride: int = Field(default=8, ge=1)

    @override
    def check_network(self, shape: Shape, classes: int, layers: Sequence[Layer]) -> None:
        """Raise ConfigError unless the network reads bytes first, and gives a value for each of their 256 values."""
        super().check_network(shape, classes, layers)
        tokens = layers[0].token_count
        # inputs and labels are both bytes: each is a token, and each is a class
        if (tokens, classes) != (BYTES, BYTES):
            raise ConfigError(
                f"a network that reads text must begin with an embedding of {BYTES} tokens and have {BYTES} `classes`, "
                f"the values of a byte, got {tokens} tokens and {classes} classes; change them"
            )


class Frames(DataTable):
    """Synthetic frames, in the sizes of speech features: noise around one random point per class.

    Attributes:
        count: frames to train.
        test_count: frames to test.
        noise: deviation around a class's point, whose elements have deviation 1.
        seed: seed of points, labels and noise.
    """

    kind: Literal["frames"]  # pyright: ignore[reportIncompatibleVariableOverride]
    count: int = Field(ge=1)
    test_count: int = Field(ge=1)
    noise: float = Field(default=1.0, ge=0)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)


class SvmLight(DataTable):
    """Sparse examples in the format of SVMlight and LIBSVM, a line each: `label index:value index:value ...`.

    Attributes:
        source: path of a file, plain or compressed (gzip, bzip2, XZ); a relative path starts at the current folder.
        test_source: path of the file of the test examples; None: examples of `source` are held out.
        test_share: share of the examples of `source` that is held out; None: a tenth.
        zero_based: whether the first column of `input` has index 0, not 1.
    """

    kind: Literal["svmlight"]  # pyright: ignore[reportIncompatibleVariableOverride]
    is_sparse: ClassVar[bool] = True
    source: str = Field(min_length=1)
    test_source: str | None = Field(default=None, min_length=1)
    test_share: float | None = Field(default=None, gt=0, lt=1)
    zero_based: bool = False

    @model_validator(mode="after")
    def _single_test(self) -> SvmLight:
        if self.test_source is not None and self.test_share is not None:
            raise ConfigError(
                f"at most one of `test_source` and `test_share` must be given, got {self.test_source!r} and "
                f"{self.test_share:g}; remove one of them"
            )
        return self


class Ngrams(DataTable):
    """The n-grams before each byte of a text, hashed to `input` columns; the network learns that byte.

    Attributes:
        source: `alice` (bundled), or the path of a text file; a relative path starts at the current folder.
        test_share: share of the text, its end, held out for testing.
        stride: bytes from one example to the next.
        reach: bytes before an example that it reads.
        longest: bytes of the longest n-grams among them.
    """

    kind: Literal["ngrams"]  # pyright: ignore[reportIncompatibleVariableOverride]
    is_sparse: ClassVar[bool] = True
    source: str = Field(default="alice", min_length=1)
    test_share: float = Field(default=0.1, gt=0, lt=1)
    stride: int = Field(default=1, ge=1)
    reach: int = Field(default=12, ge=1, le=255)
    longest: int = Field(default=5, ge=1)

    @model_validator(mode="after")
    def _longest_fits(self) -> Ngrams:
        if self.longest > self.reach:
            raise ConfigError(
                f"`longest` must be at most `reach`, the bytes that an example reads, got {self.longest} and "
                f"{self.reach}; change one of them"
            )
        return self

    @override
    def check_network(self, shape: Shape, classes: int, layers: Sequence[Layer]) -> None:
        """Raise ConfigError unless the network begins with a sparse layer, and gives a value for each byte value."""
        super().check_network(shape, classes, layers)
        if classes != BYTES:
            raise ConfigError(
                f"`classes` of [network] must be {BYTES}, the values of a byte, for data of kind 'ngrams', got "
                f"{classes}; change it and the last layer"
            )


def _with_kind(data: object) -> object:
    """Return a `[data]` table with its kind: images, if it names none."""
    # before validation: the union chooses its table by `kind`, so the default of `Images.kind` would come too late
    return {"kind": "images", **cast("dict[str, object]", data)} if isinstance(data, dict) else data


Data: TypeAlias = Annotated[
    Images | Text | Frames | SvmLight | Ngrams, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
