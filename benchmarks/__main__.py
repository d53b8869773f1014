"""`python -m benchmarks`: how fast emu is on this machine, beside the machine's limits and beside peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measuring.command import NAME, bench
from emu.cli.app import App
from emu.cli.frame import run

app = App(add_completion=False)


@app.command()
def measure(
    against: Annotated[
        str | None, typer.Option(help="Peers to time on the same work: `peers` for all, or names: qtorch,apytypes.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Rows by a part of their name or with *: stage, 'matrix/*'; all of the table: table; all: '*'. "
            "Repeatable. Without: a choice of about a minute.",
        ),
    ] = None,
    threads: Annotated[str | None, typer.Option(help="Numbers of threads, e.g. 1,2; without: one, and all.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: to see that it runs, not for the record.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the tables (.md) or the data (.json).")] = None,
) -> None:
    """Measure emu's speed on this machine, beside the machine's limits and beside peers."""
    session = bench(against, rows or [], threads, out, quick=quick)
    if any(result.failure for result in session.results):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    run(app, NAME)


if __name__ == "__main__":
    main()
