"""Progress on a terminal: lines that fit its width, in which the step and the time that is left stay longest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from emu.report.words import seconds
from emu.training.folders.progress import METRICS, RunProgress, progress_of, read_object
from emu.training.folders.run_folder import RUN

#: Most runs that have a line each.
MOST_RUNS = 4
#: Columns of a bar, of a title that is cut, and of the name of a run: its parts differ, and lines may stand below
#: each other.
BAR_COLUMNS, TITLE_COLUMNS, NAME_COLUMNS = 24, 8, 20
#: Drawings a second.
_PER_SECOND = 4
_GAP = "  "
#: The characters of a bar on a terminal that has no others.
_ASCII = str.maketrans("━─", "#-")


@dataclass(frozen=True)
class Part:
    """A part of a line.

    Attributes:
        text: its text.
        rank: parts of the highest rank leave a line that is too long first; those of rank 0 stay.
        least: columns to which it may be cut before others leave; None if it is never cut.
        style: style of rich.
    """

    text: str
    rank: int = 0
    least: int | None = None
    style: str = ""


def fitted(parts: Sequence[Part], width: int) -> Text:
    """Return a line of at most `width` columns, if the parts of rank 0 have room in it.

    Args:
        parts: in their order; one of them may be cut.
        width: columns.
    """
    kept = [part for part in parts if part.text]
    while _columns(kept, cut=True) > width and (top := max(part.rank for part in kept)):
        # of parts with the same rank, the last leaves first
        kept.remove(next(part for part in reversed(kept) if part.rank == top))
    # negative if the part that may be cut must be
    room = width - _columns(kept)
    line = Text(overflow="ellipsis", no_wrap=True)
    for number, part in enumerate(kept):
        text = part.text if room >= 0 or part.least is None else shortened(part.text, cell_len(part.text) + room)
        line.append(_GAP * bool(number)).append(text, part.style)
    return line


def _columns(parts: Sequence[Part], *, cut: bool = False) -> int:
    # columns of the terminal, not characters: some characters take two
    sizes = [min(cell_len(p.text), p.least) if cut and p.least is not None else cell_len(p.text) for p in parts]
    return sum(sizes) + len(_GAP) * (len(sizes) - 1)


def shortened(name: str, width: int) -> str:
    """Return a name of at most `width` columns, 2 or more, without its middle: names of runs differ at their ends.

    Examples:
        >>> shortened("mlp-fixed8-plain-seed12", 14)
        'mlp-fi..seed12'
    """
    if cell_len(name) <= width:
        return name
    # two columns for the dots; the end gets the odd column
    shown = max(width, 2) - 2
    first = _beginning(name, shown // 2)
    return f"{first}..{_beginning(name[::-1], shown - shown // 2)[::-1]}"


def _beginning(text: str, columns: int) -> str:
    """Return as many of the first characters as have room in these columns."""
    # by character, because some take two columns and some none
    count = len(text)
    while cell_len(text[:count]) > columns:
        count -= 1
    return text[:count]


def bar(share: float) -> str:
    """Return a bar of `BAR_COLUMNS` columns.

    Examples:
        >>> bar(0.25)
        '━━━━━━──────────────────'
    """
    full = round(min(max(share, 0.0), 1.0) * BAR_COLUMNS)
    return "━" * full + "─" * (BAR_COLUMNS - full)


def clock(elapsed_s: float) -> str:
    """Return hours, minutes and seconds.

    Examples:
        >>> clock(3723.9)
        '1:02:03'
    """
    minutes, rest = divmod(int(elapsed_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def left(value_s: float | None) -> str:
    """Return about how long something still takes; an empty text if that is not known."""
    return "" if value_s is None else f"{seconds(value_s)} left"


class Screen:
    """Lines at the bottom of a terminal, on stderr.

    Attributes:
        console: where other lines can be printed.
        is_live: whether there is a terminal; without one nothing is drawn.
    """

    def __init__(self, lines: Callable[[int], Sequence[Text]]) -> None:
        """Draw nothing yet.

        Args:
            lines: returns the lines for a number of columns.
        """
        self.console = Console(stderr=True, emoji=False)
        self.is_live = self.console.is_terminal
        self._lines = lines
        # `self` is drawn again at each refresh, so the clock goes on without an `update`
        self._live = Live(self, console=self.console, refresh_per_second=_PER_SECOND)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self._lines(options.max_width):
            if options.ascii_only:
                line.plain = line.plain.translate(_ASCII)
            yield line

    def start(self) -> None:
        """Draw the lines from now on."""
        if self.is_live:
            self._live.start()

    def stop(self) -> None:
        """Draw the lines once more, and leave them on the screen."""
        if self.is_live:
            self._live.stop()


class RunsBar:
    """How many runs or trials have ended, which run is at which step, and about how long the rest takes."""

    def __init__(
        self,
        what: str,
        total: int,
        attempts: Path,
        part: Callable[[str, float], float] = lambda _, share: share,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Draw nothing yet.

        Args:
            what: what is counted: "runs" or "trials".
            total: how many there are.
            attempts: folder of the runs that have begun.
            part: returns how much of one that is counted a run is, from its name and the share of its steps that is
                done.
            now: returns seconds.
        """
        self._what, self._total, self._attempts, self._part, self._now = what, total, attempts, part, now
        self._screen = Screen(self.lines)
        self._ended, self._waits_for = 0, ""
        self._running: list[tuple[str, RunProgress | None]] = []
        self._began: tuple[float, float] | None = None  # seconds and amount at the first update
        self._known: dict[str, tuple[int, RunProgress]] = {}  # by run: time of its table, and what was read then

    def __enter__(self) -> Self:
        self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._screen.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def update(self, ended: int, running: Sequence[str], waits_for: str = "") -> None:
        """Draw a new state.

        Args:
            ended: how many have ended.
            running: names of the runs that are trained.
            waits_for: what is waited for if there are none.
        """
        self._ended, self._waits_for = ended, waits_for
        # without a terminal nobody sees progress: no file is read
        if self._screen.is_live:
            self._running = [(key, self._progress(key)) for key in running]
        # what earlier commands have done must not count as speed of this command
        if self._began is None:
            self._began = self._now(), self._done()

    def _progress(self, key: str) -> RunProgress | None:
        """Return how far a run is; None if it has not written anything, or writes it elsewhere."""
        folder = self._attempts / key
        try:
            # of no file: `max` of nothing is a ValueError
            stamp = max(path.stat().st_mtime_ns for path in (folder / RUN, folder / METRICS) if path.exists())
        except (OSError, ValueError):
            return None
        # tables grow with the run: a table is read again only if it was replaced
        if key not in self._known or self._known[key][0] != stamp:
            self._known[key] = stamp, progress_of(folder, read_object(folder / RUN))
        return self._known[key][1]

    def _done(self) -> float:
        shares = [self._part(key, (progress and progress.share) or 0.0) for key, progress in self._running]
        # never above the total, even if a run that has ended is still listed as running
        return min(self._ended + sum(shares), self._total)

    def _left_s(self) -> float | None:
        """Return about how many seconds the rest takes, at the speed since the first update."""
        if self._began is None:
            return None
        began, before = self._began
        done = self._done()
        return (self._now() - began) / (done - before) * (self._total - done) if done > before else None

    def lines(self, width: int) -> list[Text]:
        """Return a line about all, and one for each run."""
        done = self._done()
        passed_s = self._now() - self._began[0] if self._began else 0.0
        lines = [
            fitted(
                [
                    Part(f"{self._ended}/{self._total} {self._what}"),
                    Part(bar(done / self._total if self._total else 1.0), 3, style="cyan"),
                    Part(clock(passed_s), 2, style="dim"),
                    Part(left(self._left_s()), 1),
                ],
                width,
            )
        ]
        for key, progress in self._running[:MOST_RUNS]:
            step = f"step {progress.done}/{progress.planned}" if progress else "starting"
            rest = left(progress.left_s) if progress else ""
            name = Part(key, 0, NAME_COLUMNS, "dim")
            lines.append(Text(_GAP) + fitted([name, Part(step), Part(rest, 1)], width - len(_GAP)))
        if not self._running and self._waits_for:
            lines.append(Text(_GAP) + fitted([Part(self._waits_for, 0, NAME_COLUMNS, "dim")], width - len(_GAP)))
        if (more := len(self._running) - MOST_RUNS) > 0:
            lines.append(Text(f"{_GAP}and {more} more"))
        return lines
