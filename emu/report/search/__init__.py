"""The page of a search, from the files of its folder alone.

    search.json, trials.json ──► trials ──► front, table, importances, history ──► report.html, report.md

Source: docs/search.md.
"""

from emu.report.search.page import build_search_report, search_page
from emu.report.search.trials import Searched, Trial, read_search

__all__ = ["Searched", "Trial", "build_search_report", "read_search", "search_page"]
