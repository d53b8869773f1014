"""The pictures of rounding modes, drawn from what `emu.quantize` writes.

python tests/docs/pictures.py        writes docs/pictures/rounding-*.svg
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import emu

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
#: Units in the last place to either side of 0, and pixels of one.
REACH, UNIT = 3, 34
#: Random bits of the pictures of stochastic rounding: as many shades; of those that round to them first, so few that
#: they differ.
RANDOM_BITS = {emu.Rounding.STOCHASTIC: 4}
FEW_RANDOM_BITS = 1
SIDE = 2 * REACH * UNIT + 40
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#555}.grid{stroke:#ddd}.axis{stroke:#888}"
    ".step{stroke:#0072b2;stroke-width:3}.open{fill:#fff;stroke:#0072b2;stroke-width:1.5}.tie{fill:#d55e00}"
    ".cloud{fill:#0072b2}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}.grid{stroke:#333}.axis{stroke:#777}.open{fill:#111}}"
)


def place(x: float, y: float) -> tuple[float, float]:
    """Where a point lies in the picture."""
    return SIDE / 2 + UNIT * x, SIDE / 2 - UNIT * y


def picture(mode: emu.Rounding) -> str:
    """Return the picture of a mode as SVG: what is written, over what is rounded."""
    name = mode.value
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" height="{SIDE}">'
    ]
    parts += [f"<title>Rounding {name}: what is written, over what is rounded</title><style>{STYLE}</style>"]
    for i in range(-REACH, REACH + 1):
        (x, top), (_, bottom) = place(i, REACH), place(i, -REACH)
        kind = "axis" if i == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x:g}" y1="{top:g}" x2="{x:g}" y2="{bottom:g}"/>')
        (left, y), (right, _) = place(-REACH, i), place(REACH, i)
        parts.append(f'<line class="{kind}" x1="{left:g}" y1="{y:g}" x2="{right:g}" y2="{y:g}"/>')
        parts.append(f'<text x="{x:g}" y="{SIDE - 4}" text-anchor="middle">{i}</text>')
        parts.append(f'<text x="{2}" y="{y + 4:g}">{i}</text>')
    parts += _cloud(mode) if mode.draws else _steps(mode)
    return "\n".join([*parts, "</svg>", ""])


def written(x: np.ndarray, mode: emu.Rounding) -> np.ndarray:
    return emu.quantize(x, "fix8f0", rounding=mode, backend="reference")


def _steps(mode: emu.Rounding) -> list[str]:
    parts: list[str] = []
    edges = np.arange(-REACH, REACH, 0.5)
    for left in edges:  # between a value and a tie nothing changes
        y = float(written(np.array([left + 0.25]), mode)[0])
        (x1, height), (x2, _) = place(left, y), place(left + 0.5, y)
        parts.append(f'<line class="step" x1="{x1:g}" y1="{height:g}" x2="{x2:g}" y2="{height:g}"/>')
    for tie in np.arange(-REACH + 0.5, REACH):
        x, y = place(tie, float(written(np.array([tie]), mode)[0]))
        parts.append(f'<circle class="tie" cx="{x:g}" cy="{y:g}" r="4"/>')
    for value in range(-REACH, REACH + 1):
        if (y := float(written(np.array([value]), mode)[0])) != value and abs(y) <= REACH:
            x, height = place(value, y)
            parts.append(f'<circle class="cloud" cx="{x:g}" cy="{height:g}" r="4"/>')
    return parts


def _cloud(mode: emu.Rounding) -> list[str]:
    """Draw each value as dark as it is likely: one dot per random number."""
    parts: list[str] = []
    n_rbits = RANDOM_BITS.get(mode, FEW_RANDOM_BITS)
    drawn = np.arange(2**n_rbits)
    for x in np.linspace(-REACH, REACH, 2 * REACH * 8 + 1):
        values = emu.quantize(
            np.full(drawn.size, x),
            "fix8f0",
            rounding=mode,
            rbits=drawn,
            n_rbits=n_rbits,
            backend="reference",
        )
        for value in np.unique(values):
            share = float((values == value).mean())
            left, top = place(x, float(value))
            parts.append(f'<circle class="cloud" cx="{left:g}" cy="{top:g}" r="3" opacity="{share:.3g}"/>')
    return parts


def pictures() -> dict[Path, str]:
    """Return every picture by its path."""
    return {FOLDER / f"rounding-{mode.value}.svg": picture(mode) for mode in emu.Rounding}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
        print(path)
