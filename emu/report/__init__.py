"""The report of a run: one self-contained HTML page that needs no network and no other file.

    run folder ──► read ──► sections (a picture each) ──► page ──► report.html

Each picture has a file in `pictures/`. `page` makes HTML and does not depend on runs: the reports of a study (`study/`)
and of a search (`search/`), and the comparison of runs (`comparison/`), are other lists of sections. Altair is imported
when a page is built, never by `import emu.report`.
"""

from emu.report.build import build_report
from emu.report.comparison import build_comparison

__all__ = ["build_comparison", "build_report"]
