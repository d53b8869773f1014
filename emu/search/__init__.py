"""Search for the narrowest hardware that still works: variables of device and recipe, objectives, constraints.

    search.toml ──► file ──► space      values of variables ──► recipe and device
                         ├─► metrics    shapes, runs, baseline ──► objectives and constraints
                         ├─► design     which values trial n has
                         ├─► ledger     which process holds which trial; storage keeps them in a study of Optuna
                         └─► drive      trials ──► runs ──► `emu.jobs`; snapshot ──► `emu.report.search`

Source: docs/search.md.
"""

from emu.search.command import SearchOptions, run_search
from emu.search.file import Search, load_search

__all__ = ["Search", "SearchOptions", "load_search", "run_search"]
