"""Commands of typer, and what all of ours share: `-h`, plain help, one line for a wrong word, what Ctrl-C says.

Help is plain text: in the boxes that typer draws with rich, a flag has a column `<bool>`, and lines end with blanks.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from emu._interrupt import Interrupted
from emu.errors import ConfigError, nearest_name

#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: Most columns of help: longer lines are hard to read.
HELP_COLUMNS = 100
#: Base of the errors that typer raises for a command line which it cannot read.
#: Typer does not export the class; it is the base of `BadParameter`.
_USAGE_ERROR: Any = typer.BadParameter.__base__


class Command(TyperCommand):
    """A command."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _refusing(self, ctx):
            return super().parse_args(ctx, args)

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _fit(formatter)
        super().format_help(ctx, formatter)

    @override
    def get_help(self, ctx: Any) -> str:
        # a usage that is too long for its first line leaves a blank at its end
        return "\n".join(line.rstrip() for line in super().get_help(ctx).splitlines())

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            _report(interrupt, str(ctx.find_root().info_name))
            raise typer.Exit(INTERRUPTED) from None


class Group(TyperGroup):
    """The program: a group of commands."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Without arguments typer raises a usage error whose text is the help: `_refusing` would make one line of it.
        if not args:
            return super().parse_args(ctx, args)  # prints the help
        with _refusing(self, ctx):
            return super().parse_args(ctx, args)

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # A shell that completes a line parses it resiliently: half of a command's name is no error there.
        if args[0] not in self.commands and not ctx.resilient_parsing:
            known = [name for name, command in self.commands.items() if not command.hidden]
            near = nearest_name(args[0], known)
            raise ConfigError(f"a command must be one that `{ctx.command_path} -h` lists, got {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _fit(formatter)
        super().format_help(ctx, formatter)

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their whole first sentence, which typer would cut to a line."""
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join((command.help or "").split())) for name, command in shown])


class App(typer.Typer):
    """A program of our commands."""

    def __init__(self, **options: Any) -> None:
        """Make a program without commands.

        Args:
            **options: of `typer.Typer`.
        """
        ours: dict[str, Any] = {
            "cls": Group,
            "context_settings": {"help_option_names": ["-h", "--help"]},
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
        }
        super().__init__(**(ours | options))

    @override
    def command(self, name: str | None = None, **options: Any) -> Any:
        """Return a decorator that makes a command of a function; see `typer.Typer.command`."""
        ours: dict[str, Any] = {"cls": Command}
        return super().command(name, **(ours | options))


def completed_by(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what completes an unfinished word for the shell.

    Args:
        names: returns all words.
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _fit(formatter: Any) -> None:
    """Make help fit the screen: by itself, typer writes at least 50 columns."""
    formatter.width = min(shutil.get_terminal_size().columns, HELP_COLUMNS)


@contextmanager
def _refusing(command: Any, ctx: Any) -> Generator[None]:
    """Turn typer's error for a wrong command line into one of ours, which is printed as one line."""
    try:
        yield
    except _USAGE_ERROR as error:
        # A misspelt option gets the nearest name; every other error of usage keeps typer's sentence, as a line of ours.
        option = getattr(error, "option_name", None)
        known = [name for parameter in command.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)]
        if option is not None and option not in known:
            near = nearest_name(option, [name for name in known if name.startswith("-")])
            rule = f"an option must be one that `{ctx.command_path} -h` lists, got {option!r}{near}"
            raise ConfigError(rule) from None
        said = " ".join(error.format_message().split()).rstrip(".")
        raise ConfigError(f"{said[:1].lower()}{said[1:]}; `{ctx.command_path} -h` lists what it takes") from None


def _report(interrupt: KeyboardInterrupt, program: str) -> None:
    """Print what an interrupted command has kept, and the command that continues it."""
    if not isinstance(interrupt, Interrupted):
        print("emu: interrupted", file=sys.stderr)
        return
    arguments = interrupt.arguments
    if arguments is None:
        # The same command goes on, without options such as --retry-failed, which would undo what is done.
        arguments = [word for word in sys.argv[1:] if word not in interrupt.dropped]
    print(f"emu: interrupted; {interrupt.kept}", file=sys.stderr)
    print(f"emu: go on with: {program} {shlex.join(arguments)}", file=sys.stderr)
