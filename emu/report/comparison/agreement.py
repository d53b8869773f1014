"""Up to which step two runs have the same bits: hashes of their weights, and training losses, at common log points.

weights          the hash of `metrics.parquet` at steps that both have logged
training loss    the mean of an interval, where both begin and end the interval at the same steps
the end          hashes of weights, and of registers and flags, if both have ended after the same number of steps
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emu.formats.numerals import number
from emu.report.comparison.runs import Compared
from emu.report.words import integer
from emu.training.folders.status import FINISHED

#: What a hash of weights covers, for a reader.
COVERS = (
    "A hash of weights is taken at every log point. It covers names, formats, shapes and codes of the master weights, "
    "and the running moments of normalisation. Between two log points nothing is compared. A loss is the mean of the "
    "steps since the log point before; it is compared bit for bit, where both runs took it over the same steps."
)


@dataclass(frozen=True)
class Agreement:
    """Up to where two runs agree in one quantity.

    Attributes:
        compared: steps at which both have it, ascending.
        differs_at: the first of these steps at which they differ; None if they never do.
        values: the two values there, in words; empty if words say nothing.
    """

    compared: tuple[int, ...]
    differs_at: int | None = None
    values: str = ""

    @property
    def equal_to(self) -> int | None:
        """The last compared step before the first difference; None if there is none."""
        before = [step for step in self.compared if self.differs_at is None or step < self.differs_at]
        return before[-1] if before else None


def weights_agree(first: Compared, other: Compared) -> Agreement:
    """Return up to which log point the hashes of weights are equal."""
    left, right = _hashes(first), _hashes(other)
    common = tuple(sorted(left.keys() & right.keys()))
    # Only the first difference tells anything: what follows is trained on other weights.
    return Agreement(common, next((step for step in common if left[step] != right[step]), None))


def losses_agree(first: Compared, other: Compared) -> Agreement:
    """Return up to which log point the training losses are equal bit for bit."""
    left, right = _losses(first), _losses(other)
    # Sorted by the last step: a mean belongs to the end of its interval.
    intervals = sorted(left.keys() & right.keys(), key=lambda interval: interval[1])
    compared = tuple(step for _, step in intervals)
    for interval in intervals:
        a, b = left[interval], right[interval]
        if not _same_bits(a, b):
            return Agreement(compared, interval[1], f"{number(a, 6)} and {number(b, 6)}")
    return Agreement(compared)


def sentences(first: Compared, other: Compared) -> list[str]:
    """Return what is equal in two runs, and from where on it differs."""
    return [_weights(first, other), _loss(first, other), *_ends(first, other)]


def _hashes(run: Compared) -> dict[int, str]:
    columns = run.evidence.run.metrics or {}
    if "weights_sha256" not in columns:
        return {}
    pairs = zip(columns["step"].tolist(), columns["weights_sha256"].tolist(), strict=True)
    return {int(step): text for step, text in pairs if isinstance(text, str)}


def _losses(run: Compared) -> dict[tuple[int, int], float]:
    """Return (step before the interval, its last step) -> its loss."""
    columns = run.evidence.run.metrics
    if columns is None:
        return {}
    steps, before = [int(step) for step in columns["step"].tolist()], 0
    losses: dict[tuple[int, int], float] = {}
    for step, loss in zip(steps, columns["train_loss"].astype(float).tolist(), strict=True):
        # Targets are assigned from left to right: `before` in the key is still the step of the row above.
        losses[before, step], before = loss, step
    return losses


def _same_bits(a: float, b: float) -> bool:
    # NaN equals no number, and 0.0 == -0.0: neither comparison is that of bits.
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def _weights(first: Compared, other: Compared) -> str:
    # The hash covers formats: other formats or layers give other hashes even for the same values.
    if reason := _why_hashes_differ(first, other):
        return reason
    agreement = weights_agree(first, other)
    if not agreement.compared:
        without = [run.name for run in (first, other) if not _hashes(run)]
        if without:
            names = " and ".join(without)
            return f"Weights cannot be compared step by step: {names} kept no hash of them at log points."
        return "Weights cannot be compared step by step: the runs have no logged step in common."
    return f"Weights {_until(agreement, 'are', 'differ')}"


def _loss(first: Compared, other: Compared) -> str:
    agreement = losses_agree(first, other)
    if not agreement.compared:
        return "Training losses cannot be compared: the runs logged none over the same steps."
    return f"The training loss {_until(agreement, 'is', 'differs')}"


def _until(agreement: Agreement, verb: str, differ: str) -> str:
    """Return the rest of a sentence about where two quantities agree."""
    values = f" ({agreement.values})" if agreement.values else ""
    if agreement.differs_at is None:
        count = len(agreement.compared)
        points = "the only common log point" if count == 1 else f"all {count} common log points"
        return f"{verb} equal bit for bit at {points}, up to step {integer(agreement.compared[-1])}."
    at = integer(agreement.differs_at)
    if agreement.equal_to is None:
        return f"{differ} from the first common log point on, step {at}{values}."
    equal_to = integer(agreement.equal_to)
    return f"{verb} equal bit for bit up to step {equal_to}, and {differ} at step {at}, the next log point{values}."


def _why_hashes_differ(first: Compared, other: Compared) -> str:
    """Return why no hash of weights can be equal, whatever the weights are; empty if there is no such reason."""
    left, right = _masters(first), _masters(other)
    if not left or not right:
        return ""
    if left.keys() != right.keys():
        return "Weights cannot be equal: the networks have different layers with weights."
    for layer, fmt in left.items():
        if right[layer] != fmt:
            return (
                f"Weights cannot be equal bit for bit: masters are kept in different formats ({layer}: {fmt} and "
                f"{right[layer]})."
            )
    return ""


def _masters(run: Compared) -> Mapping[str, str]:
    return {layer: row.format for (layer, role), row in run.evidence.run.formats.items() if role == "master"}


def _ends(first: Compared, other: Compared) -> Iterator[str]:
    """Yield a sentence about the last weights, and about registers and flags, of runs that ended at the same step."""
    left, right = first.evidence.run.info, other.evidence.run.info
    if not all(info.get("status") == FINISHED for info in (left, right)) or left.get("steps") != right.get("steps"):
        return
    names = {"weights_sha256": "weights", "registers_sha256": "registers and flags"}
    known = {name: (left.get(key), right.get(key)) for key, name in names.items() if left.get(key) and right.get(key)}
    verdicts = {name: "equal bit for bit" if a == b else "different" for name, (a, b) in known.items()}
    if verdicts:
        if len(set(verdicts.values())) == 1:
            said = f"{', '.join(verdicts)} are {next(iter(verdicts.values()))}"
        else:
            said = " and ".join(f"{name} are {verdict}" for name, verdict in verdicts.items())
        yield f"At the end, after {_steps(left)} steps, {said}."


def _steps(info: Mapping[str, Any]) -> str:
    steps = info.get("steps")
    return integer(steps) if isinstance(steps, int) else "the same"
