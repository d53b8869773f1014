"""Ask the GPU's own matrix instructions what presets leave open, and write the answers into docs/gpu.md.

    python benchmarks/matrix_units.py [tiles]      tiles of each kind, 64 unless given

Without a GPU it makes the cases, compiles the kernels where NVRTC is, and says what is missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.measuring.markdown import fill
from emu.backends.cuda import nvrtc
from emu.backends.cuda.loader import CupyDevice, compiled, status
from emu.testing.matrix_probe import INSTRUCTIONS, cases_of, page, probe

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"


def main(arguments: list[str]) -> None:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return
    tiles = int(arguments[0]) if arguments else 64
    found = status()
    if found.state != "ready":
        cases = sum(len(cases_of(instruction, 1)) for instruction in INSTRUCTIONS)
        sizes = (
            [compiled("probes/matrix_units", a).stat().st_size for a in nvrtc.ARCHITECTURES] if nvrtc.is_here() else []
        )
        print(f"{len(INSTRUCTIONS)} instructions, {cases} kinds of tiles; compiled for {len(sizes)} architectures")
        sys.exit(f"benchmarks/matrix_units.py needs a GPU from here on: {found.reason}")
    device = CupyDevice()
    properties = device.xp.cuda.runtime.getDeviceProperties(device.xp.cuda.Device().id)
    architecture = str(device.xp.cuda.Device().compute_capability)
    answers = probe(device, architecture, tiles)
    text = page(properties["name"].decode(), architecture, answers)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"probe": text}), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
