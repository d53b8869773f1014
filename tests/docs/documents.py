"""The documentation as tests read it: fenced blocks, commands with what they print, links and anchors."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import emu
from emu.cli import main
from emu.cli.runs import Bar

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
#: A page shows `...` for what changes from run to run.
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: Under a command, the reader's Ctrl-C.
INTERRUPT = "^C"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what the page says it prints; empty where the page does not show it."""

    block: Block
    words: tuple[str, ...]
    output: str
    interrupted: bool

    @property
    def arguments(self) -> list[str]:
        return list(self.words[1:])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2]) for found in _FENCE.finditer(text)]


def prose_of(page: Path) -> str:
    """The page without its fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def commands_of(page: Path) -> Iterator[Command]:
    """The `emu` commands of a page, in order; other commands are the reader's own."""
    for block in blocks_of(page):
        if block.language == "sh":
            parts = re.split(r"&&|\n", block.text)
            texts = [(part.strip(), "") for part in parts]
        elif block.language == "console":
            sessions = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
            texts = [tuple(session.partition("\n")[::2]) for session in sessions]
        else:
            continue
        for text, output in texts:
            words = tuple(shlex.split(text))
            if words[:1] == ("emu",):
                interrupted = output.startswith(INTERRUPT)
                yield Command(block, words, output.removeprefix(INTERRUPT).lstrip("\n"), interrupted)


def run(command: Command) -> str:
    """Run an `emu` command in this process; return what a reader sees without the progress lines."""
    out, error = io.StringIO(), io.StringIO()
    update = _interrupting if command.interrupted else Bar.update
    with (
        mock.patch.object(sys, "argv", list(command.words)),
        mock.patch.dict(os.environ, COLUMNS="100"),
        mock.patch.object(Bar, "update", update),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        contextlib.suppress(SystemExit),  # typer ends every command with it
    ):
        main()
    said = [line for line in error.getvalue().splitlines() if line.startswith("emu:")]
    return out.getvalue() + "\n".join(said)


def _interrupting(bar: Bar, step: int, *_: float) -> None:
    """Press Ctrl-C in the middle of a run."""
    if step == bar.steps // 2:
        raise KeyboardInterrupt


def assert_shown(expected: str, printed: str, place: str) -> None:
    """Compare what a page shows with what was printed."""
    same = doctest.OutputChecker().check_output(expected.strip() + "\n", printed.strip() + "\n", COMPARED)
    assert same, f"{place} shows\n{expected.strip()}\nbut this was printed:\n{printed.strip()}"


def run_python(page: Path) -> None:
    """Run a page's Python blocks in order, in one namespace; a `text` block right behind one is what it prints."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = blocks_of(page)
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language != "python":
            continue
        if ">>>" in block.text:
            _run_doctest(block, namespace)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), namespace)
        shown = after.text if after is not None and after.language == "text" else ""
        if shown or printed.getvalue():
            assert_shown(shown, printed.getvalue(), block.place)


def _run_doctest(block: Block, namespace: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, block.place, str(block.page), block.line - 1)
    test.globs = namespace
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=COMPARED, verbose=False)
    runner.run(test, out=report.write, clear_globs=False)
    assert runner.failures == 0, report.getvalue()


def named_files(page: Path) -> dict[str, str]:
    """The TOML, Verilog and SystemVerilog blocks of a page whose first line is a comment with a file name."""
    languages = ("toml", "verilog", "systemverilog")
    files = (block for block in blocks_of(page) if block.language in languages and is_named(block))
    return {block.text.partition("\n")[0].lstrip("#/ "): block.text for block in files}


def is_named(block: Block) -> bool:
    """Whether a block's first line is a comment with the name of a TOML, Verilog or SystemVerilog file."""
    return re.fullmatch(r"(#|//) \S+\.(toml|s?v)", block.text.partition("\n")[0]) is not None


def links_of(page: Path) -> list[str]:
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text(encoding="utf-8")))


def headings_of(page: Path) -> dict[str, str]:
    """Titles of a page's headings by the anchors they make, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): title for title in titles}


def anchors_of(page: Path) -> set[str]:
    return set(headings_of(page))


def public_names() -> list[str]:
    return [name for name in emu.__all__ if not name.startswith("__")]
