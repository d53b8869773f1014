"""The report of a study: every model on every device in one table, what it cost in bits, and where it broke.

comparison.py   runs side by side, differences paired by seed
breaking.py     which tensor's arithmetic went wrong first
page.py         the page; markdown.py: the tables as text
"""

from emu.report.study.page import build_study_report

__all__ = ["build_study_report"]
