"""Words that are written in any syntax of `$readmemh` are read back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emu.testing.vectors import Reading, read_dump

#: Words of 1 to 64 bits; None is one that was never driven.
WORDS = st.integers(1, 64).flatmap(
    lambda bits: st.tuples(
        st.just(bits), st.lists(st.one_of(st.integers(0, 2**bits - 1), st.none()), min_size=1, max_size=12)
    )
)
#: White space and comments that may stand between words.
SPACES = st.sampled_from(
    [" ", "\n", "\t", "\f", "\r\n", " // 3c00 @7\n", "/* @9 ffff\n*/", " /**/ ", "\n# note\n", "\n\n"]
)


@st.composite
def written(draw: st.DrawFn, bits: int, code: int | None, radix: str) -> str:
    """A word in a syntax of its own: with a size and a base, or as `$readmemh` or `$readmemb` have it."""
    base = {"hex": "h", "binary": "b", "octal": "o", "decimal": "d"}[radix]
    spelled = draw(st.sampled_from(["plain", "plain", "verilog"]))
    letter = draw(st.sampled_from("hbod")) if spelled == "verilog" else base
    per_digit = {"h": 4, "b": 1, "o": 3, "d": 0}[letter]
    if code is None:
        digits = draw(st.text("xXzZ?", min_size=1, max_size=4)) if per_digit else draw(st.sampled_from("xXzZ"))
        if per_digit and draw(st.booleans()):
            digits = "1" + digits
    else:
        digits = format(code, {"h": "x", "b": "b", "o": "o", "d": "d"}[letter])
        if per_digit:
            digits = digits.zfill(draw(st.integers(1, -(-bits // per_digit))))
        digits = digits.upper() if draw(st.booleans()) else digits
    cut = draw(st.integers(0, len(digits)))
    if 0 < cut < len(digits):
        digits = digits[:cut] + "_" + digits[cut:]
    size = draw(st.sampled_from(["", str(bits)]))
    return digits if spelled == "plain" else f"{size}'{letter if draw(st.booleans()) else letter.upper()}{digits}"


@settings(deadline=None)
@given(st.data(), WORDS, st.sampled_from(["hex", "binary", "octal", "decimal"]))
def test_words_are_read_back(tmp_path_factory, data: st.DataObject, words: tuple[int, list[int | None]], radix: str):
    bits, codes = words
    text = data.draw(st.sampled_from(["", "// a header\n", "\n", "/* of\n two */"]))
    for code in codes:
        text += data.draw(written(bits, code, radix)) + data.draw(SPACES)
    path = tmp_path_factory.mktemp("dump", numbered=True) / "dump.txt"
    path.write_bytes(text.encode())
    dump = read_dump(path, Reading(radix=radix, columns="result", count=len(codes)))
    result = [
        None if x else code for code, x in zip(dump.columns["result"].tolist(), dump.undriven["result"], strict=True)
    ]
    assert result == codes


@settings(deadline=None)
@given(st.data(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**16 - 1)), min_size=1, max_size=20))
def test_words_at_addresses_are_read_back(tmp_path_factory, data: st.DataObject, elements: list[tuple[int, int]]):
    """An oracle of its own: a dictionary."""
    memory: dict[int, int] = {}
    text, following = "", None
    for address, code in elements:
        if address != following or data.draw(st.booleans()):
            text += f"@{address:x}{data.draw(SPACES)}"
        text += f"{code:04x}{data.draw(SPACES)}"
        memory[address] = code
        following = address + 1
    text = text if "@" in text else f"@{elements[0][0]:x} {text}"
    path = tmp_path_factory.mktemp("dump", numbered=True) / "dump.hex"
    path.write_bytes(text.encode())
    dump = read_dump(path)
    first = min(memory)
    undriven = dump.undriven["result"].tolist()
    assert {first + i: int(code) for i, code in enumerate(dump.columns["result"]) if not undriven[i]} == memory
