"""Which layers tolerate a narrower format: one role of one layer at a time is narrowed, and the effect is measured.

    narrower.py      which format a number of bits is
    ranges.py        how large the values of each tensor are, from leading-bit registers
    change.py        a change: a role of a layer, and its narrower format; the device that has it, and what that saves
    question.py      what is asked: a trained network or a recipe, a device, the formats to try
    evaluated.py     changes measured by evaluation of a trained network
    trained.py       changes measured by short paired runs
    measure.py       from the question to measured rows, in a folder
    search_file.py   a search that starts from the rows

The terminal's part is `emu/cli/sensitivity.py`; the page is made by `emu/report/sensitivity/`.

Source: docs/sensitivity.md.
"""

from emu.sensitivity.measure import Measuring
from emu.sensitivity.question import Question, SensitivityOptions, question_of

__all__ = ["Measuring", "Question", "SensitivityOptions", "question_of"]
