"""What is written of a run: a table by folder, survivors with their edit and what was said about them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .draw import NEWER, SHARES, share_of
from .mutants import Mutant
from .own_tests import HIDDEN, OWN_TESTS
from .process import Checkout, Verdict

BEGIN, END = "<!-- mutation: begin -->", "<!-- mutation: end -->"
JUDGED = Path(__file__).with_name("judged.toml")
UNJUDGED = "not judged yet"
#: How the judgement of an edit begins that no test could notice.
EQUIVALENT = ("changes nothing", "changes no ", "refuses the same")


def judgements() -> list[dict[str, str]]:
    """Return the entries of judged.toml."""
    return tomllib.loads(JUDGED.read_text(encoding="utf-8"))["judged"]


def judgement_of(mutant: Mutant, entries: Sequence[dict[str, str]] | None = None) -> str:
    """Return what judged.toml says of a survivor."""
    entries = judgements() if entries is None else entries
    wanted = {name: getattr(mutant, name) for name in ("path", "on", "before", "after")}
    fitting = (e["why"] for e in entries if {name: e[name] for name in wanted} == wanted)
    return next(fitting, UNJUDGED)


def report_of(
    verdicts: Sequence[Verdict], checkout: Checkout, command: str, seconds: float, set_aside: Sequence[Mutant] = ()
) -> str:
    """Return the Markdown between the markers; `set_aside` are edits that were drawn and change nothing."""
    lines = [
        f"`{command}`: {len(verdicts)} mutants in {seconds / 60:.1f} minutes.",
        "",
        *_table(verdicts),
        "",
        *_survivors(verdicts, checkout),
        *_aside(set_aside),
        *_baselines(checkout),
    ]
    return "\n".join(lines) + "\n"


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    lines = ["| folder | mutants | killed | timed out | survived |", "|---|---:|---:|---:|---:|"]
    for share in [*SHARES, *NEWER, ""]:
        own = Counter(v.outcome for v in verdicts if not share or share_of(v.mutant.path) == share)
        counts = [sum(own.values()), own["killed"], own["timed out"], own["survived"]]
        if counts[0]:
            lines.append(f"| {f'`{share}`' if share else 'all'} | {' | '.join(map(str, counts))} |")
    return lines


def _survivors(verdicts: Sequence[Verdict], checkout: Checkout) -> list[str]:
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.outcome == "survived":
            m = verdict.mutant
            where = f"`{m.path}`, `{m.scope}`" if m.scope else f"`{m.path}`"
            lines += [f"- {where}: {judgement_of(m)}", "", "    ```diff", *difference(m, checkout), "    ```", ""]
    return ["Survivors:", "", *lines] if lines else ["No survivors.", ""]


def _aside(mutants: Sequence[Mutant]) -> list[str]:
    lines = [f"- `{m.path}`, `{m.on}`: `{m.before}` to `{m.after}`: {judgement_of(m)}" for m in mutants]
    return ["Drawn and set aside; others were drawn in their place:", "", *lines, ""] if lines else []


def difference(mutant: Mutant, checkout: Checkout) -> list[str]:
    """Return the lines an edit changes, as a diff without surroundings, indented for a list."""
    source = checkout.source_of(mutant)
    old, new = (text.decode().splitlines() for text in (source, mutant.applied_to(source)))
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    removed, added = [f"-{old[i]}" for i in changed], [f"+{new[i]}" for i in changed if new[i].strip(" )")]
    return [f"    {line}" for line in (f"@@ line {mutant.line} @@", *removed, *added)]


def _baselines(checkout: Checkout) -> list[str]:
    lines = ["Tests without a mutant, kernels compiled:", "", "| mutants of | tests | s |", "|---|---|---:|"]
    for name, tests in OWN_TESTS.items():
        if tests in checkout.baselines:
            shown = " ".join(f"`{path}`" for path in tests.paths) + (
                "" if tests.kernels == (HIDDEN,) else f", {' and '.join(tests.kernels)} kernels"
            )
            lines.append(f"| `{name}` | {shown} | {checkout.baselines[tests]:.1f} |")
    return lines


def write_between_markers(page: Path, text: str) -> None:
    """Put `text` between the markers of a page.

    Raises:
        ValueError: the page has no markers.
    """
    content = page.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} must hold the markers {BEGIN} and {END}; add them where the table belongs")
    page.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")
