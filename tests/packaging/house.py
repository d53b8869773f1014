"""The shape of the package in numbers, and what of it breaks a rule: `python -m tests.packaging.house [FOLDER]`.

    lines      code, docstrings, comments, blank
    bundles    functions that are given a product's options one by one, and the files that they stand in
    upward     imports against the order of the packages (layers.py)
    circles    files that all import one another, in functions and by name too (imports.py)

FOLDER is the package, another commit's for instance; without it, that of this checkout.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.imports import circles, graph_of, modules_of
from tests.packaging.layers import has_place, part_of, upward

PACKAGE = Path(__file__).resolve().parents[2] / "emu"
#: A product's options; a function that is given this many of them hands the bundle on one by one.
BUNDLE, HANDED_ON = {"formats", "mac", "stage", "random", "register"}, 3
#: Kinds of lines.
CODE, DOCSTRING, COMMENT, BLANK = "code", "docstrings", "comments", "blank"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def lines_of(text: str) -> Counter[str]:
    """How many lines of each kind a file has; a line with code and a comment is code."""
    lines = len(text.splitlines())
    docstrings = set(_docstring_lines(ast.parse(text)))
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    found = Counter({CODE: len(code - docstrings), DOCSTRING: len(docstrings), COMMENT: len(comments - code)})
    found[BLANK] = lines - found.total()
    return found


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def bundles_of(text: str) -> list[str]:
    """Names of the functions that are given a product's options one by one."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if len(_parameters(function) & BUNDLE) >= HANDED_ON]


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    return {argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def wrong_imports(package: Path) -> list[str]:
    """Imports upward, a sentence each."""
    return [
        f"{path.relative_to(package.parent)}:{found.line} imports {found.name}"
        for path in modules_of(package).values()
        if has_place(path, package)
        for found in upward(path, package)
    ]


def crosses(circle: list[str]) -> bool:
    """Whether a circle has files of two packages."""
    return len({module.split(".")[:2][-1] for module in circle}) > 1


def report(package: Path) -> str:
    """The numbers of a package, a line each."""
    texts = [path.read_text(encoding="utf-8") for path in modules_of(package).values()]
    lines = sum(map(lines_of, texts), Counter[str]())
    bundles = [found for text in texts if (found := bundles_of(text))]
    wrong, around = wrong_imports(package), circles(graph_of(package))
    across = [circle for circle in around if crosses(circle)]
    unknown = {part_of(path, package) for path in modules_of(package).values() if not has_place(path, package)}
    kinds = ", ".join(f"{lines[kind]:,} {kind}" for kind in (CODE, DOCSTRING, COMMENT, BLANK))
    return "\n".join(
        [
            f"files               {len(texts)}",
            f"lines               {lines.total():,}: {kinds}",
            f"share of comments   {lines[COMMENT] / lines.total():.1%} of all lines",
            f"bundles             {sum(map(len, bundles))} functions in {len(bundles)} files",
            f"upward              {len(wrong)} imports",
            *(f"                    {sentence}" for sentence in wrong),
            f"without a place     {', '.join(sorted(unknown)) or 'no part'}",
            f"circles             {len(around)}, {len(across)} of them across packages",
            f"the largest circle  {len(around[0]) if around else 0} files",
        ]
    )


if __name__ == "__main__":
    print(report(Path(sys.argv[1]).resolve() if sys.argv[1:] else PACKAGE))
