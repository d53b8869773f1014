"""Which mutants are made: a seeded draw, spread over folders by share and over files by how much can go wrong there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path

from .mutants import Mutant, has_effect, mutants_of

#: Of 100 mutants, how many in each folder (a file counts for the first line it fits).
SHARES = {
    "emu/formats": 16,
    "emu/datapath": 12,
    "emu/engine": 22,
    "emu/backends/reference": 20,
    "emu/backends/numba": 22,
    "emu/backends/interface.py": 5,
    "emu/backends/proofs.py": 3,
}
#: The same of a hundred in folders that are drawn from only where they are asked for by name.
NEWER = {
    "emu/autodiff": 5,
    "emu/operations": 5,
    "emu/interop": 9,
    "emu/checkpoints": 5,
    "emu/cluster": 13,
    "emu/sparse": 8,
    "emu/search": 6,
    "emu/jobs": 5,
    "emu/precision": 9,
    "emu/hardware/energy.py": 2,
    "emu/hardware/cost_table.py": 2,
    "emu/training/cost.py": 2,
    "emu/testing/vectors": 15,
    "emu/prove": 8,
    "emu/export": 4,
    "emu/_tables.py": 1,
    "emu/training/data/svmlight.py": 1,
}
#: Files whose tests start processes of their own, which see no mutant.
UNSEEN = ("emu/cluster/mpi.py", "emu/cluster/launcher.py", "emu/cluster/sentinel.py", "emu/jobs/dask.py")
#: Files whose tests need PyTorch, which the tests of the project do without.
OF_TORCH = "emu/interop/torch/"


def share_of(path: str) -> str | None:
    """Return the folder or file of `SHARES` or `NEWER` that `path` belongs to; None where no test sees a mutant."""
    if path in UNSEEN or path.startswith(OF_TORCH):
        return None
    return next((share for share in SHARES | NEWER if path == share or path.startswith(f"{share}/")), None)


def candidates_of(root: Path, only: Sequence[str] = ()) -> dict[str, list[Mutant]]:
    """Return every edit of the sources, by folder, files in order.

    Args:
        root: the checkout.
        only: paths that start with one of these; none is the folders of `SHARES`.
    """
    found: dict[str, list[Mutant]] = {}
    for file in sorted((root / "emu").rglob("*.py")):
        path = file.relative_to(root).as_posix()
        share = share_of(path)
        if share is not None and (path.startswith(tuple(only)) if only else share in SHARES):
            found.setdefault(share, []).extend(mutants_of(path, file.read_bytes()))
    return {share: mutants for share, mutants in found.items() if mutants}


def counts_of(shares: dict[str, int], n: int) -> dict[str, int]:
    """Divide `n` in proportion to `shares`: largest remainders, earlier ones first."""
    whole = sum(shares.values())
    counts = {name: n * share // whole for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: -(n * shares[name] % whole))
    for name in by_remainder[: n - sum(counts.values())]:
        counts[name] += 1
    return counts


def drawn(
    root: Path,
    n: int,
    seed: int,
    only: Sequence[str] = (),
    is_equivalent: Callable[[Mutant], bool] = lambda mutant: False,
) -> list[Mutant]:
    """Return `n` mutants with an effect, no edit twice: a folder's edits in equal runs, one drawn from each.

    An edit that `is_equivalent` is asked for as it is drawn; where it is, the next of its run stands in its place.
    """
    candidates = candidates_of(root, only)
    generator = random.Random(seed)
    chosen: list[Mutant] = []
    for share, count in counts_of({share: (SHARES | NEWER)[share] for share in candidates}, n).items():
        edits = candidates[share]
        bounds = [i * len(edits) // count for i in range(count + 1)] if count else []
        for start, stop in pairwise(bounds):
            run = generator.sample(edits[start:stop], stop - start)
            effective = (m for m in run if has_effect(m, (root / m.path).read_bytes()))
            chosen.extend(islice((m for m in effective if not is_equivalent(m)), 1))
    return chosen
