"""Pictures of emu's objects in a notebook, and charts of Altair.

    object ──► html_of ──► picture of its class (formats, datapath, units, runs) ──► HTML with inline SVG

A picture needs no script, no other file and no network. Its text has the colour of the text around it, and its other
colours can be read on light and on dark backgrounds. All text is escaped. A class that is drawn has the base
`emu._drawn.Drawn`; its picture is a function in one of these files, registered with `picture`.

Source: docs/notebook.md.
"""

from emu.notebook.picture import html_of
from emu.notebook.registers import plot_register

__all__ = ["html_of", "plot_register"]
