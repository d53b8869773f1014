"""The page that compares runs: their numbers, curves, formats and settings side by side, and their first difference.

    run folders ──► runs ──► numbers, agreement, curves, datapaths, settings ──► page ──► compare.html

The first run is what the others are compared with. Source: docs/compare.md.
"""

from emu.report.comparison.page import build_comparison, comparison_page
from emu.report.comparison.runs import Compared, read_compared

__all__ = ["Compared", "build_comparison", "comparison_page", "read_compared"]
