"""What the figures were taken on: processor, versions, date."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measuring.environment import CORE_TYPE
from benchmarks.measuring.peer import Peer

_PROCESSOR = Path("/proc/cpuinfo")
#: Instruction sets that decide which kernels are chosen.
_SETS = ("avx2", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_fp16", "amx_int8")
_PACKAGES = ("numpy", "numba", "llvmlite")


def processor_flags() -> set[str]:
    """Return the instruction sets the system names; empty where it names none."""
    return set(_field("flags").split())


def describe(peers: list[Peer]) -> dict[str, str]:
    """Return name -> text: processor, instruction sets, system, versions of emu and of the peers, commit, date."""
    flags = processor_flags()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "processor": f"{_field('model name') or platform.processor() or platform.machine()}, {os.cpu_count()} threads",
        "instruction sets": " ".join(name for name in _SETS if name in flags) or "unknown",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "OPENBLAS_CORETYPE": os.environ.get(CORE_TYPE) or "not set: OpenBLAS chooses",
        "versions": ", ".join(f"{name} {_version(name)}" for name in ("emu-numerics", *_PACKAGES)),
        "peers": ", ".join(f"{peer.package} {peer.version}" for peer in peers) or "none",
    }


def _field(name: str) -> str:
    """Return a field of the first processor."""
    if not _PROCESSOR.exists():
        return ""
    for line in _PROCESSOR.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    folder = Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
