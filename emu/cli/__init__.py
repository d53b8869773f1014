"""The `emu` command: its commands and options in `commands.py`, what each does in a file of its own."""

from emu.cli.commands import app, main

__all__ = ["app", "main"]
