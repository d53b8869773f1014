"""The command `emu watch`: serve a live page until Ctrl-C."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from emu.watch import WatchServer


def watch_folder(folder: Path, port: int = 0, opens: bool = False) -> None:
    """Serve the live page of a folder until the user ends it.

    Args:
        folder: folder of a run, a study or a search, which may not have begun yet.
        port: port; 0 for any free one.
        opens: whether to open a browser.

    Raises:
        ConfigError: the folder cannot be watched, or the port is not free.
    """
    with WatchServer(folder, port) as server:
        print(f"watching {folder} at {server.address} (Ctrl-C ends)", flush=True)
        if waiting := server.pages.waiting():
            print(waiting, flush=True)
        if opens:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nended; the folder is as it was")
