"""The report of a sensitivity analysis: which layers and roles tolerate a narrower format.

rows.py             what was measured, read from the folder; losses, ranks, what is tolerated
words.py            sentences that the terminal and the page share
grid_picture.py     a grid of layers and roles for each width, coloured by the loss
saving_picture.py   loss against saving
page.py             the page
"""

from emu.report.sensitivity.page import build_sensitivity_report
from emu.report.sensitivity.rows import Sensitivity, read_sensitivity

__all__ = ["Sensitivity", "build_sensitivity_report", "read_sensitivity"]
