"""`python -m emu`: the `emu` command."""

from emu.cli import main

if __name__ == "__main__":
    main()
