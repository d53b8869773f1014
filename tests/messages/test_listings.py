"""Listings on narrow screens: no line is longer than the screen, no name is broken, descriptions stand under rows."""

from __future__ import annotations

import itertools
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from emu import cli
from emu._paths import content_folder
from emu.cli.output import Output
from emu.cli.tables import Listing
from emu.formats import PRESETS
from emu.hardware import device_names
from emu.training.recipe import model_names
from tests.command_line import running

COMMANDS = (
    "train",
    "evaluate",
    "simulate",
    "study",
    "report",
    "devices",
    "models",
    "formats",
    "vectors",
    "export",
    "check",
)
TABLE = Listing(
    ("name", "count", "rate", "words"),
    [("a/long-name", "7", "0.25", "one word after another"), ("b", "11", "1.5", "short")],
    title="Title",
    under=("words", "rate"),
    numbers=("count",),
)


def printed(table: Listing, width: int) -> list[str]:
    screen = Console(file=StringIO(), width=width, highlight=False)
    screen.print(table)
    return screen.file.getvalue().splitlines()


def test_a_table_that_fits_stands_as_it_is():
    assert printed(TABLE, 60) == [
        "Title",
        "name         count  rate  words",
        "a/long-name      7  0.25  one word after another",
        "b               11  1.5   short",
    ]


def test_a_line_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]):
    """Brackets are no style, and `:b:` is no picture."""
    Output(["runs/x[red]:b:y/report.html"]).show(as_json=False)
    assert capsys.readouterr().out == "runs/x[red]:b:y/report.html\n"


def test_what_is_too_wide_stands_under_its_row_without_its_head_if_it_is_alone():
    assert printed(TABLE, 25) == [
        "Title",
        "name         count  rate",
        "a/long-name      7  0.25",
        "    one word after",
        "    another",
        "b               11  1.5",
        "    short",
    ]


def test_two_columns_under_a_row_keep_their_heads():
    assert printed(TABLE, 23) == [
        "Title",
        "name         count",
        "a/long-name      7",
        "    rate: 0.25; words:",
        "    one word after",
        "    another",
        "b               11",
        "    rate: 1.5; words:",
        "    short",
    ]


def test_a_column_alone_under_its_row_has_its_head_where_that_is_asked_for():
    table = Listing(("name", "limit"), [("a", "a copy of memory")], under=("limit",), names_under=True)
    assert printed(table, 12) == ["name", "a", "    limit: a", "    copy of", "    memory"]


def test_columns_that_still_do_not_fit_have_tables_of_their_own_with_the_names_again():
    table = Listing(("name", "first", "second"), [("a", "1", "22"), ("b", "333333", "4")], numbers=("first",))
    assert printed(table, 18) == ["name  first second", "a         1 22", "b    333333 4"]
    assert printed(table, 11) == ["name  first", "a         1", "b    333333", "", "name second", "a    22", "b    4"]


def test_a_further_table_begins_at_the_column_that_starts_one_and_only_where_there_must_be_one():
    table = Listing(("name", "one", "two", "three"), [("a", "1", "2", "3")], starts=("two",))
    assert printed(table, 21) == ["name  one  two  three", "a     1    2    3"]
    assert printed(table, 17) == ["name  one", "a     1", "", "name  two  three", "a     2    3"]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a command prints on a screen of so many columns."""

    def command(width: int, *arguments: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "argv", ["emu", *arguments])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out.splitlines()

    return command


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(
    "arguments",
    [
        *(["devices"], ["models"], ["formats"], ["devices", "--backends"], ["--help"]),
        *(["devices", "dgx-h200-8x"], ["models", "resnet8"], ["formats", "fp64"], ["formats", "fix32f16"]),
        *([command, "--help"] for command in COMMANDS),
    ],
    ids=" ".join,
)
def test_no_line_is_longer_than_the_screen(lines, width: int, arguments: list[str]):
    assert max(map(len, lines(width, *arguments))) <= width


@pytest.mark.parametrize(
    ("listing", "names"),
    [("devices", device_names()), ("models", model_names()), ("formats", sorted(PRESETS))],
    ids=["devices", "models", "formats"],
)
def test_at_80_columns_a_name_has_one_row_and_its_description_stands_under_it(lines, listing: str, names: list[str]):
    printed = list(itertools.takewhile(bool, lines(80, listing)))
    rows = [number for number, line in enumerate(printed) if line.split(" ")[0] in names]
    assert sorted(printed[number].split(" ")[0] for number in rows) == sorted(names)
    assert all(printed[number + 1].startswith("    ") for number in rows)
    assert all(number - before <= 4 for before, number in itertools.pairwise(rows)), "three lines at most"


def test_simulated_times_of_80_columns_repeat_the_setting_they_belong_to(lines):
    printed = lines(80, "simulate", "mlp", "--device", "k20x-8x", "--nodes", "1,2", "--bits", "1")
    heads = [line.split() for line in printed if line.startswith("batch")]
    assert [head[:4] for head in heads] == [["batch", "bits", "nodes", name] for name in ("step", "samples/s")]
    assert [head[-1] for head in heads] == ["send", "link"]
    assert max(map(len, printed)) <= 80


def test_a_model_lists_the_layers_inside_of_its_layers(lines):
    printed = [line.split() for line in lines(100, "models", "resnet8")]
    block = [words[:2] for words in printed if words and words[0].startswith("block2")]
    assert block == [
        ["block2", "residual"],
        *(["block2." + name, kind] for name, kind in (
            ("conv1", "conv2d"), ("norm1", "batch_norm"), ("relu1", "relu"), ("conv2", "conv2d"),
            ("norm2", "batch_norm"), ("down", "conv2d"),
        )),
    ]  # fmt: skip


@pytest.mark.parametrize(("device", "expected"), [
    ("h100", ["order blocks(16, 25, min_exponent=-133)", "rounding toward_zero, at every add", "overflow ieee"]),
    ("fixed16", ["order irrelevant: nothing rounds before the output"]),
    ("fixed8", ["layers output activation fix8f2"]),
])  # fmt: skip
def test_a_device_says_how_its_adds_round_and_what_differs_by_layer(lines, device: str, expected: list[str]):
    printed = [" ".join(line.split()) for line in lines(100, "devices", device)]
    assert [line for line in printed if line in expected] == expected
    assert any(line.startswith("rounding ") for line in printed) == (device == "h100")


def test_a_device_shows_the_units_of_errors_and_gradients_where_they_differ(lines, tmp_path: Path):
    text = (content_folder("devices") / "fixed16.toml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.toml"
    units = '[precision.backward_mac]\naccumulator = "fix40f20"\n[precision.error_mac]\norder = "pairwise"\n'
    mine.write_text(text + units, encoding="utf-8")
    printed = [" ".join(line.split()) for line in lines(100, "devices", str(mine))]
    assert "backward_mac accumulator fix40f20" in printed
    assert "error_mac order pairwise" in printed
    assert not any(line.startswith("gradient_mac") for line in printed)
    assert not any("_mac" in line for line in lines(100, "devices", "fixed16"))


def test_what_differs_by_layer_has_its_keys_and_its_steps(lines, tmp_path: Path):
    text = (content_folder("devices") / "fixed16.toml").read_text(encoding="utf-8")
    layers = '[[precision.layers]]\nmatch = "conv*"\nfrom_step = 3\nuntil_step = 9\nweight = { format = "fix8f7", '
    mine = tmp_path / "mine.toml"
    mine.write_text(text + layers + 'rounding = "floor" }\nmac = { accumulator = "fix40f20" }\n', encoding="utf-8")
    printed = " ".join(" ".join(lines(100, "devices", str(mine))).split())
    assert "layers conv*, steps 3..8 weight fix8f7 floor; mac fix40f20" in printed


def test_a_device_shows_the_role_of_multiplied_matrices_where_it_has_a_table(lines, tmp_path: Path):
    text = (content_folder("devices") / "fixed16.toml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.toml"
    mine.write_text(text + '[precision.orthogonal]\nrounding = "floor"\n', encoding="utf-8")
    printed = [" ".join(line.split()) for line in lines(100, "devices", str(mine))]
    assert "orthogonal fix16f13 floor saturate" in printed
    assert not any("orthogonal" in line for line in lines(100, "devices", "fixed16"))


def test_a_device_beside_backends_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, _, err = running(monkeypatch, capsys)("devices", "nosuch", "--backends")
    assert code == 2
    assert "`--backends` must stand without a device, got 'nosuch'; leave out one of them" in " ".join(err.split())
