"""The pictures of the documentation are what the arithmetic draws now."""

from __future__ import annotations

from pictures import FOLDER, pictures


def test_every_picture_of_a_rounding_mode_is_drawn_by_the_arithmetic():
    assert {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.svg"))} == dict(
        sorted(pictures().items())
    )
