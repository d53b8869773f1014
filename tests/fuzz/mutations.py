"""What can be wrong with a file: a seeded mutator of text, TOML, JSON, bytes, NPZ archives and safetensors."""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: TOML values where something else is expected: wrong types, edges, absurd sizes, what other programs choke on.
VALUES = (
    "0", "1", "-1", "2", "3", "7", "1000", "0.148", "-0.0", "1e308", "1e-320", "5e-324", "1e999", "nan", "inf",
    "-inf", "true", "false", '""', '" "', '"\\u0000"', '"a\\nb"', "[]", "[[]]", "{}", "[0]", "[1, -1]", '["x"]',
    "1979-05-27", "07:32:00", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "18446744073709551616", "1" * 400, "1" * 5000, '"' + "a" * 5000 + '"',
    '"lanes(99999999)"', '"lanes(0)"', '"lanes()"', '"blocks(8, 25)"', '"blocks(1024, 256)"', '"pairwise"',
    '"sequential"', '"fix64f0"', '"ufix64f64"', '"fix8f?"', '"fix65f0"', '"fix8f99999"', '"fix16f-300"', '"e1m0"',
    '"e11m52"', '"e12m3"', '"e8m0 finite nans=top"', '"e5m10 bias=99999"', '"e2m1 finite nans=none"', '"fp64"',
    '"int8"', '"stochastic"', '"to_odd"', '"saturate_zero"', '"wrap"', '"satfinite"', '"satpropagate"', '"../x"',
    '"/"', '"/dev/null"', '"/dev/zero"', '"."', '"~"', '"none"', '"digits"', '"\\U0001F600"', "0x7FFFFFFF", "0b1",
    "1_0",
    "[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000, "{a = {a = {a = 1}}}",
)  # fmt: skip
#: Lines that TOML files do not expect.
LINES = (
    "[precision]", "[[precision.layers]]", "[units]", "[[units]]", "[training]", "[data]", "[[grid]]", "[network]",
    "[network.layers]", "[dynamic_point]", "[loss_scaling]", "x = 1", '"" = 1', '"a b" = 1', "a.b.c = 1", "= 1",
    "name", "\x00", "\x7f", "\ufeff", "# \u2028", '[[units]]\nname = "x"', "[registers]", "bins = 4", "bins = 40",
    "lowest = -2000", "clock_hz = 0.148", "steps = 1", "epochs = 0.5",
)  # fmt: skip
#: The same for JSON; the strings are written as they are.
NODES = (
    "null", "true", "false", "0", "-1", "1", "0.5", "1e999", "-1e999", "NaN", "Infinity", '""', '"x"', "[]", "{}",
    "[[]]", "[null]", '{"a": 1}', "9223372036854775808", "-9223372036854775809", "1" * 400, "1" * 5000, '"\\u0000"',
    '"' + "b" * 3000 + '"', '"\\ud800"', "[" * 500 + "]" * 500, '"none"', '"numba"', '"2020-01-01"',
)  # fmt: skip
#: Dtypes an array could have instead of its own.
DTYPES = (
    "<f2",
    "<f4",
    ">f4",
    "<f8",
    "<i8",
    "<i4",
    "|i1",
    "|u1",
    "<u8",
    ">i2",
    "?",
    "<c8",
    "<c16",
    "|S4",
    "<U3",
    "<M8[s]",
    "|V8",
    "O",
)
#: Numbers for the fields of a binary header.
FIELDS = (0, 1, 2, 3, 255, 256, 2049, 2051, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


class Mutator:
    """Draws mutations, the same for the same seed.

    Attributes:
        random: the source of every choice.
    """

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    # ---- text --------------------------------------------------------------------------------------------------------

    def toml(self, text: str) -> bytes:
        """A TOML file with one to three faults."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            text = self.random.choice(self._toml_steps())(text)
        data = text.encode("utf-8", "surrogatepass")
        return self.bytes(data) if self.random.random() < 0.08 else data

    def _toml_steps(self) -> Sequence[Callable[[str], str]]:
        return [
            self._value, self._value, self._value, self._value, self._scaled, self._scaled, self._borrowed, self._key,
            self._without_line, self._twice, self._moved, self._without_table, self._table_twice, self._line,
            self._character, self._token,
        ]  # fmt: skip

    def _assignments(self, lines: Sequence[str]) -> list[int]:
        return [i for i, line in enumerate(lines) if re.match(r"\s*[\w.\"-]+\s*=", line)]

    def _changed(self, text: str, change: Callable[[str, str], str]) -> str:
        """Change one `key = value`."""
        lines = text.splitlines()
        places = self._assignments(lines)
        if not places:
            return self._line(text)
        i = self.random.choice(places)
        key, _, value = lines[i].partition("=")
        lines[i] = change(key.rstrip(), value.strip())
        return "\n".join(lines) + "\n"

    def _value(self, text: str) -> str:
        return self._changed(text, lambda key, _: f"{key} = {self.random.choice(VALUES)}")

    def _scaled(self, text: str) -> str:
        """A number of the file, by another factor."""

        def change(key: str, value: str) -> str:
            numbers = list(re.finditer(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", value))
            if not numbers:
                return f"{key} = {self.random.choice(VALUES)}"
            found = self.random.choice(numbers)
            number, factor = (
                float(found[0]),
                self.random.choice((0.0, -1.0, 0.5, 2.0, 10.0, 1e3, 1e6, 1e9, 1e18, 1e-9, 1.5)),
            )
            product = number * factor + self.random.choice((0.0, 0.0, 1.0, -1.0))
            written = repr(product) if "." in found[0] or not product.is_integer() else str(int(product))
            return f"{key} = {value[: found.start()]}{written}{value[found.end() :]}"

        return self._changed(text, change)

    def _borrowed(self, text: str) -> str:
        """A value that belongs to another key."""
        values = [line.partition("=")[2].strip() for line in text.splitlines() if "=" in line] or ["1"]
        return self._changed(text, lambda key, _: f"{key} = {self.random.choice(values)}")

    def _key(self, text: str) -> str:
        names = re.findall(r"^\s*([\w.]+)\s*=", text, re.MULTILINE) or ["x"]
        other = (self.random.choice(names), self.random.choice(("", "x", "name", "frmat", "a.b", '"a b"', "training")))
        return self._changed(text, lambda _, value: f"{self.random.choice(other)} = {value}")

    def _token(self, text: str) -> str:
        """One word or number inside a value, replaced by one of another place."""
        words = list(re.finditer(r"[\w.?-]+", text))
        if len(words) < 2:
            return self._line(text)
        here, there = self.random.choice(words), self.random.choice(words)
        return text[: here.start()] + there[0] + text[here.end() :]

    def _lines(self, text: str, change: Callable[[list[str], int], None]) -> str:
        lines = text.splitlines() or [""]
        change(lines, self.random.randrange(len(lines)))
        return "\n".join(lines) + "\n"

    def _without_line(self, text: str) -> str:
        return self._lines(text, lambda lines, i: lines.pop(i) and None)

    def _twice(self, text: str) -> str:
        return self._lines(text, lambda lines, i: lines.insert(i, lines[i]))

    def _moved(self, text: str) -> str:
        return self._lines(text, lambda lines, i: lines.insert(self.random.randrange(len(lines)), lines.pop(i)))

    def _line(self, text: str) -> str:
        return self._lines(text, lambda lines, i: lines.insert(i, self.random.choice(LINES)))

    def _tables(self, text: str) -> list[str]:
        return re.split(r"(?m)^(?=\[)", text)

    def _without_table(self, text: str) -> str:
        tables = self._tables(text)
        del tables[self.random.randrange(len(tables))]
        return "".join(tables)

    def _table_twice(self, text: str) -> str:
        tables = self._tables(text)
        tables.insert(self.random.randrange(len(tables) + 1), self.random.choice(tables))
        return "".join(tables)

    def _character(self, text: str) -> str:
        place = self.random.randrange(len(text) + 1)
        return text[:place] + self.random.choice("\"'[]{}=,.#\\\n\t\x00é0-") + text[place + self.random.randrange(2) :]

    def lines(self, text: str) -> bytes:
        """A file of lines of digits with one to three faults."""
        for _ in range(self.random.choice((1, 1, 2, 3))):
            text = self.random.choice((self._without_line, self._twice, self._moved, self._character, self._token))(
                text
            )
        data = text.encode("utf-8", "surrogatepass")
        return self.bytes(data) if self.random.random() < 0.3 else data

    # ---- JSON --------------------------------------------------------------------------------------------------------

    def json(self, text: str) -> bytes:
        """A JSON file with a node replaced, removed, renamed or added; or damaged as bytes."""
        if self.random.random() < 0.15:
            return self.bytes(text.encode())
        tree = json.loads(text)
        mark = "\ue000"  # stands for the new node until the tree is text again
        for _ in range(self.random.choice((1, 1, 2))):
            tree = self._node(tree, mark)
        written = json.dumps(tree, ensure_ascii=False)
        return re.sub(f'"{mark}"', lambda _: self.random.choice(NODES), written).encode("utf-8", "surrogatepass")

    def _node(self, tree: Any, mark: str) -> Any:
        places: list[tuple[Any, Any]] = []
        stack = [tree]
        while stack:
            node = stack.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
            for key in keys:
                places.append((node, key))
                stack.append(node[key])
        if not places:
            return mark
        node, key = self.random.choice(places)
        kind = self.random.randrange(5)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[self.random.choice(("", "x", str(key) + "x"))] = node.pop(key)
        elif kind == 2:
            node[key] = [node[key]]
        else:
            node[key] = mark
        return tree

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def bytes(self, data: bytes) -> bytes:
        """Bytes flipped, cut, doubled, overwritten."""
        at = self.random.randrange(len(data) + 1)
        end = min(len(data), at + self.random.choice((1, 2, 4, 8, 64, 4096)))
        kind = self.random.randrange(9)
        if kind == 0:
            return b""
        if kind == 1:
            return data[:at]
        if kind == 2:
            return b"\xef\xbb\xbf" + data
        if kind == 3:
            return data[:at] + bytes(self.random.randrange(256) for _ in range(end - at)) + data[end:]
        if kind == 4:
            return data[:at] + bytes(end - at) + data[end:]
        if kind == 5:
            return data[:at] + data[end:]
        if kind == 6:
            return data[:end] + data[at:]
        if kind == 7:
            flipped = bytearray(data or b"\0")
            for _ in range(self.random.choice((1, 1, 3, 20))):
                flipped[self.random.randrange(len(flipped))] ^= 1 << self.random.randrange(8)
            return bytes(flipped)
        return self.field(data, self.random.choice((0, 4, 8, 12, 16)))

    def field(self, data: bytes, at: int) -> bytes:
        """A field of a header with another number."""
        form = self.random.choice((">I", "<I", "<Q"))
        packed = struct.pack(form, self.random.choice(FIELDS) & (2 ** (8 * struct.calcsize(form)) - 1))
        return data[:at] + packed + data[at + len(packed) :]

    # ---- arrays ------------------------------------------------------------------------------------------------------

    def array(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array of another dtype or shape, or with other values."""
        kind = self.random.randrange(6)
        if kind == 0:
            dtype = np.dtype(self.random.choice(DTYPES))
            with np.errstate(all="ignore"):
                return array.astype(dtype) if dtype.kind in "biufc" else np.zeros(array.shape, dtype)
        if kind == 1:
            shapes = [
                (0,),
                (1,),
                (),
                (-1,),
                (1, -1),
                (*array.shape, 1),
                (*array.shape[:-1], 0),
                array.shape[::-1],
                (0, *array.shape),
            ]
            shape = self.random.choice(shapes)
            return np.resize(array, shape) if -1 not in shape else array.reshape(shape)
        if kind == 2 and array.size and array.dtype.kind == "f":
            array = array.copy()
            array.flat[self.random.randrange(array.size)] = self.random.choice(
                (np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0)
            )
            return array
        if kind == 3 and array.size and array.dtype.kind in "iu":
            array = array.copy()
            array.flat[self.random.randrange(array.size)] = self.random.choice((0, 1, 100, 127))
            return array
        return array[: self.random.randrange(len(array) + 1)] if array.ndim else array[None]

    def npz(self, data: bytes) -> bytes:
        """An archive with a member changed, missing, renamed or added; or damaged as bytes."""
        if self.random.random() < 0.3:
            return self.bytes(data)
        with np.load(io.BytesIO(data)) as archive:
            members = {name: archive[name] for name in archive.files}
        name, kind = self.random.choice(sorted(members)), self.random.randrange(6)
        if kind == 0:
            del members[name]
        elif kind == 1:
            members[self.random.choice(("x", "arr_0", "a/b", "x_train", "label"))] = members.pop(name)
        else:
            members[name] = self.array(members[name])
        file = io.BytesIO()
        self.random.choice((np.savez, np.savez_compressed))(file, **members)
        return file.getvalue()

    def npy(self, data: bytes) -> bytes:
        """One array, changed; its header, changed; or damaged as bytes."""
        kind = self.random.randrange(3)
        if kind == 0:
            return self.bytes(data)
        if kind == 1:
            head, _, rest = data.partition(b"\n")
            return (
                self.random.choice((head.replace(b"False", b"True"), re.sub(rb"\((\d+)", rb"(9\1\1", head), head[:30]))
                + b"\n"
                + rest
            )
        file = io.BytesIO()
        np.save(file, self.array(np.load(io.BytesIO(data))), allow_pickle=True)
        return file.getvalue()

    def safetensors(self, data: bytes) -> bytes:
        """A file whose header lies, or that is damaged as bytes."""
        if self.random.random() < 0.4:
            return self.bytes(data)
        length = int.from_bytes(data[:8], "little")
        header = self.json(data[8 : 8 + length].decode())
        told = len(header) if self.random.random() < 0.8 else self.random.choice(FIELDS)
        return struct.pack("<Q", told) + header + data[8 + length :]
