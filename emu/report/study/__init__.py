"""The report of a study: every model on every device in one table, what it cost in bits, and where it broke.

comparison.py           runs side by side, differences paired by seed
difference.py           mean and interval of paired differences, and what the interval can say
seeds.py                what intervals leave open, and how many more seeds would settle it
breaking.py             which tensor's arithmetic went wrong first
accuracy_picture.py     accuracy against bits, every seed
difference_picture.py   differences of every seed, intervals as bars
page.py                 the page; markdown.py: the tables as text
"""

from emu.report.study.page import build_study_report

__all__ = ["build_study_report"]
