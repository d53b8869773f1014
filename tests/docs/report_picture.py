"""The README's picture: the report of the run that its first command trains.

python tests/docs/report_picture.py        trains for about a minute, and writes docs/pictures/report.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import emu
from emu.report.build import FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "report.png"
#: Width of the page, the scale of its picture, pixels below the last line; and what is left out.
WIDTH, SCALE, BELOW = 1050, 0.8, 14
LEFT_OUT = "nav, #curves, #leading-bits figcaption, #leading-bits details { display: none; }"
SHOWN = f"""(() => {{
  const style = document.createElement("style");
  style.textContent = {LEFT_OUT!r};
  document.head.append(style);
  return document.querySelector("#leading-bits figure").getBoundingClientRect().bottom + {BELOW};
}})()"""


def take(page: Path, picture: Path, profile: Path) -> None:
    """Write the picture of a report's page."""
    sys.path.append(str(ROOT / "tests" / "report"))
    from browser import browser

    with browser(profile) as shown:
        shown.show(WIDTH)
        shown.open(page.as_uri())
        shown.picture(picture, round(shown.run(SHOWN)), SCALE)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = emu.train("lenet", "fixed16", out=Path(folder) / "run")
        take(run.path / FILE_NAME, PICTURE, Path(folder) / "profile")
    print(PICTURE)
