"""Vectors of products cross the accumulator's limits if any operands can, and say what they reach and hide."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.testing.vectors import Description, check_dump, make_vectors, what_they_tell, write_vectors
from emu.testing.vectors.steering import reach_of, steered_operands

#: The accumulator that a random sum of 1024 terms never fills.
WORD = {"formats": ("fix8f3", "fix8f6"), "out_format": "fix24f9", "mac": {"accumulator": "fix24f9"}, "depth": 1024}
#: One that a random sum of 16 terms hardly fills: 2**8 / 31.5 is 8.1.
SHORT = {**WORD, "out_format": "fix18f9", "mac": {"accumulator": "fix18f9"}, "depth": 16}


def described(**changes: Any) -> Description:
    return Description.model_validate({"operation": "matmul", "count": 60, **WORD, **changes})


def running_sums(d: Description) -> list[list[Fraction]]:
    """The exact sum after each term, of each vector."""
    operands = steered_operands(d)
    assert operands is not None
    a, b = (fmt.decode(codes).tolist() for fmt, codes in zip(d.operand_formats[:2], operands[:2], strict=True))
    sums: list[list[Fraction]] = []
    for left, right in zip(a, b, strict=True):
        total, path = Fraction(0), list[Fraction]()
        for x, y in zip(left, right, strict=True):
            total += Fraction(x) * Fraction(y)
            path.append(total)
        sums.append(path)
    return sums


@pytest.mark.parametrize("changes", [
    {}, {"depth": 700}, {"formats": ("fix8f3", "ufix8f6")}, {"formats": ("ufix8f3", "fix8f6")},
    {"formats": ("fp16", "fp16"), "out_format": "fp16", "mac": {"accumulator": "fp16"}, "depth": 4},
    {"formats": ("fix8f4", "fix8f4"), "mac": {"accumulator": "fix12f8"}, "depth": 9},
], ids=str)  # fmt: skip
def test_steered_sums_cross_a_limit_and_those_with_room_cross_both_or_come_back(changes: dict[str, Any]):
    d = described(**changes)
    limit = Fraction(float(d.mac.mac().accumulator.max))  # type: ignore[union-attr]
    paths = running_sums(d)
    assert sum(max(map(abs, path)) > limit for path in paths) >= len(paths) * 9 // 10
    assert any(max(path) > limit for path in paths)
    assert any(min(path) < -limit for path in paths)
    assert sum(abs(path[-1]) <= limit for path in paths) >= len(paths) // 5


def test_some_steered_sums_stay_beyond_a_limit_so_that_a_wrapping_unit_is_told_from_an_exact_one():
    """A sum that comes back is the same in both."""
    d = described(**SHORT)
    limit = Fraction(float(d.mac.mac().accumulator.max))  # type: ignore[union-attr]
    paths = running_sums(d)
    stays = [path for path in paths if abs(path[-1]) > limit]
    assert len(paths) // 8 <= len(stays) <= len(paths) // 2
    wrap, exact = emu.Mac(accumulator="fix18f9", overflow="wrap"), emu.Mac()
    a, b = (fmt.decode(codes) for fmt, codes in zip(d.operand_formats, steered_operands(d) or (), strict=True))
    different = 0
    for left, right in zip(a, b, strict=True):
        values = emu.value(left[None], "fix8f3"), emu.value(right[:, None], "fix8f6")
        results = [emu.Unit("fix18f9", mac=mac).matmul(*values).codes.item() for mac in (wrap, exact)]
        different += results[0] != results[1]
    assert different == len(stays)


def test_operands_without_a_sign_cross_the_upper_limit():
    d = described(formats=("ufix8f3", "ufix8f6"))
    limit = Fraction(float(d.mac.mac().accumulator.max))  # type: ignore[union-attr]
    assert all(path[-1] > limit for path in running_sums(d))


@pytest.mark.parametrize(("depth", "order", "reaches"), [
    (1040, "sequential", True), (1020, "sequential", True), (520, "sequential", False), (521, "sequential", True),
    (1024, "lanes(2)", False), (1048, "lanes(2)", True), (521, "pairwise", True),
])  # fmt: skip
def test_sums_reach_a_limit_only_if_the_terms_of_one_running_sum_do(depth: int, order: str, reaches: bool):
    """127/8 times 127/64 is 31.5, and 2**14 / 31.5 is 520.1; each of two lanes has half of the terms."""
    d = described(depth=depth, mac={"accumulator": "fix24f9", "order": order})
    reach = reach_of(d)
    assert reach is not None
    assert reach.is_beyond is reaches
    assert (steered_operands(d) is not None) is reaches
    assert (
        steered_operands(described(depth=depth, mac={"accumulator": "fix24f9", "order": order})) is None
    ) is not reaches


def test_products_that_are_rounded_reach_as_far_as_their_format():
    reach = reach_of(described(mac={"product": "fix8f4", "accumulator": "fix24f9"}))
    assert reach == (1024 * 127 / 16, (2**23 - 1) / 512)


def test_an_addend_widens_the_reach():
    reach = reach_of(described(formats=("fix8f3", "fix8f6", "fix24f9"), depth=1))
    assert reach is not None
    assert reach.most == 127 / 8 * 127 / 64 + (2**23 - 1) / 512 > reach.limit


def test_exact_accumulators_and_other_operations_have_no_limit():
    assert reach_of(described(mac={})) is None
    assert reach_of(Description(operation="add", formats=("fp16", "fp16"), out_format="fp16")) is None


HABITS = [(word, habit) for word in (SHORT, WORD) for habit in ("wrap", "saturate_zero", "none until the end")]


@most_are_slow(("word", "habit"), HABITS, keep=[case for case in HABITS if case[0] is SHORT])
def test_a_unit_that_does_something_else_beyond_its_limit_is_noticed_and_named(
    word: dict[str, Any], habit: str, tmp_path: Path
):
    found = make_vectors(described(**word, count=200))
    accumulator = word["out_format"]
    write_vectors(found, tmp_path)
    a, b = (fmt.decode(codes) for fmt, codes in zip(found.description.operand_formats, found.operands, strict=True))
    mac = emu.Mac() if habit == "none until the end" else emu.Mac(accumulator=accumulator, overflow=habit)
    options: Any = {
        "a_format": "fix8f3",
        "b_format": "fix8f6",
        "out_format": accumulator,
        "mac": mac,
        "backend": "reference",
    }
    given = emu.matmul(a[:, None, :], b[:, :, None], **options).reshape(-1)
    codes = emu.parse(accumulator).encode(given)
    (tmp_path / "dump.hex").write_text("".join(f"{int(code):06x}\n" for code in codes))
    finding = check_dump(tmp_path, tmp_path / "dump.hex")
    assert finding is not None
    expected = "an accumulator that never rounds" if habit == "none until the end" else f"overflow rule {habit}"
    assert any(expected in cause for cause in finding.causes)


@most_are_slow("word", [SHORT, WORD], keep=[SHORT])
def test_what_vectors_reach_and_what_none_of_them_shows_is_said(word: dict[str, Any]):
    reached, hidden = what_they_tell(make_vectors(described(**word, count=200)))[-2:]
    assert reached == "accumulator overflow: 66 of 200"
    assert hidden.startswith(
        "no vector here shows (some change no result at all): another rounding of results (10 of 12); "
    )
    assert "overflow rule of the unit" not in hidden
    far, hidden = what_they_tell(make_vectors(described(depth=16, count=200)))[-2:]
    assert (
        far == "accumulator overflow: 0 of 200; no operands reach its limit, 16384: 16 terms add up to at most 504.031"
    )
    assert "another overflow rule of the unit; another width of the accumulator" in hidden


def test_vectors_that_show_every_fault_say_how_many_cells_they_reach_alone():
    (cells,) = what_they_tell(
        make_vectors(Description(operation="quantize", formats=("fp32",), out_format="fix8f4", rounding="floor"))
    )
    assert cells == "cells with enough vectors: 72 of 72"


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["vectors", *words])


def test_formats_and_unit_are_those_of_a_devices_forward_products(tmp_path: Path):
    done = run("matmul", "--device", "h100", "--depth", "8", "--count", "9", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    description = check_description(tmp_path)
    assert description.formats == ("bf16", "bf16")
    assert description.stage.format == emu.parse("bf16")
    assert str(description.mac.mac().order) == "blocks(16, 25, min_exponent=-133)"
    assert description.mac.mac().rounding.value == "toward_zero"


def test_a_layer_of_a_device_has_its_own_formats_and_options_are_laid_over_them(tmp_path: Path):
    text = (Path(emu.__file__).parents[1] / "devices" / "fixed16.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text + '\n[[precision.layers]]\nmatch = "conv1"\nweight = { format = "fix8f7" }\n')
    for layer, fmt in ("conv1", "fix8f7"), ("conv2", "fix16f13"):
        out = str(tmp_path / layer)
        done = run("matmul", "--device", str(mine), "--layer", layer, "--accumulator", "fix24f22", "--out", out)
        assert done.exit_code == 0, done.output
        assert check_description(tmp_path / layer).formats[1] == fmt
        assert str(check_description(tmp_path / layer).mac.mac().accumulator) == "fix24f22"


def test_formats_are_laid_over_those_of_a_device(tmp_path: Path):
    words = ("matmul", "--device", "fixed16", "--out")
    assert run(*words, str(tmp_path / "a"), "--out-format", "fix24f9").exit_code == 0
    assert str(check_description(tmp_path / "a").out_format) == "fix24f9"
    assert check_description(tmp_path / "a").formats == ("fix16f9", "fix16f13")
    assert run(*words, str(tmp_path / "b"), "--formats", "fix8f3,fix8f6").exit_code == 0
    assert check_description(tmp_path / "b").formats == ("fix8f3", "fix8f6")
    assert str(check_description(tmp_path / "b").out_format) == "fix16f9"


def check_description(folder: Path) -> Description:
    from emu.testing.vectors import read_vectors

    return read_vectors(folder).description


@pytest.mark.parametrize(("words", "text"), [
    (("matmul",), "`--formats` must be given unless `--device` is, got nothing; add it"),
    (("matmul", "--formats", "fp16,fp16"), "`--out-format` must be given unless `--device` is, got nothing; add it"),
    (("add", "--device", "h100"), "`--device` is of matmul, got it for add; give --formats and --out-format"),
    (("matmul", "--device", "dlu16"), "got the activations of dlu16, whose point training chooses; give --formats"),
])  # fmt: skip
def test_what_a_device_cannot_say_is_refused(words: tuple[str, ...], text: str, tmp_path: Path):
    done = run(*words, "--out", str(tmp_path / "vectors"))
    assert done.exit_code != 0
    assert text in " ".join(str(done.exception or done.output).split())


def test_every_other_sum_of_two_reaches_what_its_seed_says():
    first, second = (steered_operands(described(depth=600, count=5, seed=seed)) for seed in (1, 2))
    assert first is not None
    assert second is not None
    assert not np.array_equal(first[0], second[0])
