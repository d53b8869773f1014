"""A live page of a run, a study or a search: served to this computer, made in memory, read only.

    folder ──► kinds    which files a page follows from, and how it is made
           ──► state    what runs, and how far it is
           ──► pages    a page for each version; the last good one stays
           ──► server   http.server on 127.0.0.1; assets/ is the frame that looks for new versions

Source: docs/watch.md.
"""

from emu.watch.server import WatchServer

__all__ = ["WatchServer"]
