"""The report of a study: all models on all devices in a table, with their widths and what went wrong first.

comparison.py           runs side by side, differences paired by seed
difference.py           mean and interval of paired differences, and when an interval is a statement
seeds.py                intervals that are not settled, and how many more seeds would settle them
breaking.py             the tensor whose arithmetic went wrong first
accuracy_picture.py     accuracy against bits, for each seed
difference_picture.py   differences of each seed, intervals as bars
page.py                 the page; markdown.py: the tables as text
"""

from emu.report.study.page import build_study_report

__all__ = ["build_study_report"]
