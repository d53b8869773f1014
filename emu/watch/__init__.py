"""A live page of a run, a study, a search or a folder of runs: served to this computer only, made in memory, read-only.

    folder ──► kinds    the files that a page depends on, and how it is made
           ──► state    what runs, and its progress
           ──► pages    a page for each version; if a new one fails, the last good one stays
           ──► server   http.server on 127.0.0.1; assets/ is the frame that checks for new versions

Source: docs/watch.md.
"""

from emu.watch.server import WatchServer

__all__ = ["WatchServer"]
