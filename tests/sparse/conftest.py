"""Cases of sparse products are found here, by the tests of the CUDA backend too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
