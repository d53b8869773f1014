"""Ctrl-C in work that keeps what it has done."""

from __future__ import annotations

from collections.abc import Sequence


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what is kept of the work; the command line prints it. Code that handles emu's errors lets it pass.

    Attributes:
        kept: what is kept, and where; a sentence without its dot.
        arguments: arguments of the command that continues; None for those of this command.
        dropped: options of this command that the one that continues does not have.
    """

    def __init__(self, kept: str, arguments: Sequence[str] | None = None, dropped: Sequence[str] = ()) -> None:
        super().__init__(kept)
        self.kept, self.arguments, self.dropped = kept, arguments, dropped
