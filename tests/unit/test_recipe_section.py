"""The recipe's section of a report: what stands in it, and how."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from emu.report.evidence import gather
from emu.report.texts.recipe import section


def test_empty_texts_are_left_out_and_letters_of_any_language_are_shown(tmp_path: Path):
    recipe = {"data": {"name": "mnist", "folder": "", "classes": ["größer", "小"]}, "training": {"seed": 0}}
    run = {"layers": [], "device": {"name": "float32"}, "recipe": recipe}
    (tmp_path / "run.json").write_text(json.dumps(run))
    text = html.unescape(re.sub("<[^>]+>", " ", section(gather(tmp_path)).body))
    assert '["größer", "小"]' in text
    assert "folder" not in text
    assert re.search(r"seed\s+0", text)
