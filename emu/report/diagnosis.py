"""What went wrong in a run's arithmetic, and why, in sentences that a reader can act on.

Each rule reads one kind of evidence and yields findings; the worst come first. A rule estimates nothing: its sentence
has the measured numbers, and the consequence for the network depends only on the role of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emu.datapath.overflow import Overflow, default_rule
from emu.formats import Fixed, Float
from emu.formats.numerals import number, power_of_two
from emu.report.histories import FlagCounts, LeadingBits, Noise
from emu.report.outcome import Outcome
from emu.report.run_data import RunData, Tensor, table_of
from emu.report.words import decibels, family_limit_in_words, integer, parse_or_none, percent

#: Shares of written elements from which a finding is worth a sentence, and from which it is severe.
UNDERFLOW_NOTABLE, UNDERFLOW_SEVERE = 0.30, 0.80
OVERFLOW_NOTABLE, OVERFLOW_SEVERE = 0.01, 0.10
#: Signal-to-noise in dB below which a tensor is noisy (10**(-10/20): noise is 32% of the signal), and lost (10**0:
#: noise is as large as the signal).
NOISY_DB, LOST_DB = 10.0, 0.0
#: Bits of a gradient on its way from which the learning rate of a recipe needs no second look.
_FEW_BITS = 4
#: Most groups of findings that get a sentence; the tables have all.
MOST_FINDINGS = 8

_AFTER_UNDERFLOW = {
    "error": "the layers below it receive {how} gradient",
    "gradient": "those parameters of {layer} are not updated",
    "update": "those parameters of {layer} stay where they are, however often the same update comes",
    "master": "those parameters are 0 for the optimiser",
    "weight": "{layer} computes as if those weights were 0",
    "bias": "{layer} computes as if those biases were 0",
    "activation": "the layers above it see 0 there",
    "loss": "the loss does not see those values",
}
_AFTER_OVERFLOW = {
    "error": "the gradient below it points elsewhere",
    "gradient": "those parameters of {layer} move by less, or elsewhere, than the loss asks",
    "update": "those parameters move by less, or elsewhere, than the optimiser asks",
    "master": "those parameters cannot grow any further",
    "weight": "{layer} computes with other weights than the optimiser keeps",
    "bias": "{layer} computes with other biases than the optimiser keeps",
    "activation": "the layers above it see other values than {layer} computed",
    "loss": "the loss is not the one the network has",
}
_WRITTEN_INSTEAD = {
    "wrap": "wrapped around, sign included",
    "saturate_zero": "were written as 0",
    "ieee": "became infinite",
}


@dataclass(frozen=True)
class Finding:
    """Something that went wrong.

    Attributes:
        severity: 0..1 for notable, above 1 for severe; findings are sorted by it.
        subject: a tensor, such as `error of conv1`, or the run as a whole.
        sentence: what happened, and its consequence.
        section: identifier of the section whose picture shows it.
        kind: kind of event; findings of the same kind and role are reported together.
        amount: the amount in words.
        tensor: the tensor, or None for the run.
    """

    severity: float
    subject: str
    sentence: str
    section: str
    kind: str
    amount: str = ""
    tensor: Tensor | None = None


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return groups of findings of the same kind and role, the worst group first, and in each the worst first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for i, finding in enumerate(findings):
        # Groups keep the order of the findings, which are sorted: the first finding of a group is its worst.
        role = finding.tensor[1] if finding.tensor else str(i)  # a finding about the run is a group of its own
        groups.setdefault((finding.kind, role), []).append(finding)
    return list(groups.values())


def findings(
    run: RunData,
    outcome: Outcome,
    bits: dict[Tensor, LeadingBits],
    flags: dict[Tensor, FlagCounts],
    noise: dict[Tensor, Noise],
) -> list[Finding]:
    """Return all findings: those about the run first, then those about tensors, the worst first."""
    events = [
        *_underflows(run, flags),
        *_overflows(run, flags),
        *_invalids(flags),
        *_coarse_accumulators(run, bits, noise),
    ]
    # Overflow and underflow are causes, noise is what they lead to: a tensor that has both gets one sentence.
    causes = [_with_noise(finding, noise) for finding in events]
    explained = {finding.tensor for finding in causes}
    rest = [finding for finding in _noise(flags, noise) if finding.tensor not in explained]
    return [*_run_findings(run, outcome), *sorted([*causes, *rest], key=lambda f: -f.severity)]


def _with_noise(finding: Finding, noise: dict[Tensor, Noise]) -> Finding:
    """Add the signal-to-noise of a noisy tensor to the finding that explains it, so that it needs no own finding."""
    history = noise.get(finding.tensor) if finding.tensor else None
    # `not <` and not `>=`: a NaN has no ratio to speak of.
    if history is None or not history.last < NOISY_DB:
        return finding
    return replace(finding, sentence=f"{finding.sentence} Its signal-to-noise is {decibels(history.last)}.")


def _of_few_bits(run: RunData) -> str:
    """Return what to try if nodes exchange gradients of few bits; "" if they do not."""
    cluster = table_of(run.section("recipe").get("cluster"))
    # 1 is what the exchange takes if the recipe names no bits.
    bits = cluster.get("bits", 1)
    if not cluster or not isinstance(bits, int) or bits > _FEW_BITS:
        return ""
    word = "one bit" if bits == 1 else f"{bits} bits"
    return (
        f" Its nodes exchange gradients of {word}, which need a lower learning rate, or a warm start "
        "(cluster.warm_start); cluster.bits=32 tells whether that is the reason."
    )


def _run_findings(run: RunData, outcome: Outcome) -> Iterator[Finding]:
    if outcome.first_nonfinite_step is not None:
        step = integer(outcome.first_nonfinite_step)
        sentence = f"the loss is not a finite number from step {step} on: training stopped meaning anything there."
        yield Finding(9.0, "The run", sentence, "curves", "loss")
    elif outcome.at_chance:
        assert outcome.test_accuracy is not None
        assert outcome.chance is not None
        sentence = (
            f"{percent(outcome.test_accuracy)} of the test images are right, and guessing gets "
            f"{percent(outcome.chance)}: the network has learned nothing.{_of_few_bits(run)}"
        )
        yield Finding(8.0, "The run", sentence, "curves", "chance")
    if outcome.collapsed_from is not None:
        best, step = outcome.collapsed_from
        now = percent(outcome.test_accuracy or 0.0)
        sentence = f"test accuracy was {percent(best)} at step {integer(step)} and has fallen to {now} since."
        yield Finding(7.0, "The run", sentence, "curves", "collapse")
    for failure in outcome.failures:
        yield Finding(7.5, "The run", failure, "curves", "failure")
    if outcome.passing_nonfinite_step is not None:
        step = integer(outcome.passing_nonfinite_step)
        sentence = (
            f"the loss was not a finite number in the interval up to step {step}, and is one again later: some step "
            "there gave infinity or NaN."
        )
        yield Finding(2.0, "The run", sentence, "curves", "passing loss")


def _underflows(run: RunData, flags: dict[Tensor, FlagCounts]) -> Iterator[Finding]:
    for tensor, history in flags.items():
        share = history.share("underflow")
        if share < UNDERFLOW_NOTABLE:
            continue
        layer, role = tensor
        fmt = run.formats.get(tensor)
        # For errors: what reaches the layers below, if so much of it is 0.
        how = "no" if share > 0.95 else "almost no" if share > UNDERFLOW_SEVERE else "only part of the"
        after = _AFTER_UNDERFLOW.get(role, "whatever reads them sees 0").format(layer=layer, how=how)
        limit = family_limit_in_words(fmt.format if fmt else None)
        sentence = f"{percent(share)} of results fell below {limit} and were written as 0: {after}."
        yield _range_finding(tensor, history, "underflow", sentence, share / UNDERFLOW_SEVERE)


def _overflows(run: RunData, flags: dict[Tensor, FlagCounts]) -> Iterator[Finding]:
    for tensor, history in flags.items():
        layer, role = tensor
        share = history.share("overflow")
        if share >= OVERFLOW_NOTABLE:
            after = _AFTER_OVERFLOW.get(role, "whatever reads them sees another value").format(layer=layer)
            sentence = f"{percent(share)} of results were too large and {_written_instead(run, tensor)}: {after}."
            yield _range_finding(tensor, history, "overflow", sentence, share / OVERFLOW_SEVERE)
        yield from _accumulator_overflows(run, tensor, history.share("accumulator_overflow"))


def _range_finding(tensor: Tensor, history: FlagCounts, flag: str, sentence: str, severity: float) -> Finding:
    (layer, role), share = tensor, history.share(flag)
    text = sentence + _worst_interval(history, flag, share)
    return Finding(severity, f"{role} of {layer}", text, "range", flag, percent(share), tensor)


def _accumulator_overflows(run: RunData, tensor: Tensor, share: float) -> Iterator[Finding]:
    layer, role = tensor
    # An accumulator that saturates loses a little; one that becomes infinite loses the sum, so any share is worth a
    # sentence.
    infinite = _becomes_infinite(run, tensor)
    if infinite is not None and share > 0:
        largest = number(infinite.max)
        sentence = (
            f"the unit's {infinite} became infinite in {percent(share)} of the dot products, although everything they "
            f"add up is finite: it ends at {largest}, and what follows is infinity or not a number; scale data or "
            "loss down, or give the accumulator more exponent bits."
        )
        # severity above 2: before the NaNs that result from it
        yield Finding(3.0 + share, f"{role} of {layer}", sentence, "range", "accumulator", percent(share), tensor)
    elif share >= OVERFLOW_NOTABLE:
        sentence = (
            f"the accumulator touched its limit in {percent(share)} of the dot products, before the result was "
            "rounded: those sums lost whatever came on top; give the accumulator more bits in front of the point."
        )
        severity = share / OVERFLOW_SEVERE
        yield Finding(severity, f"{role} of {layer}", sentence, "range", "accumulator", percent(share), tensor)


def _coarse_accumulators(
    run: RunData, bits: dict[Tensor, LeadingBits], noise: dict[Tensor, Noise]
) -> Iterator[Finding]:
    """Yield a finding for each tensor whose small values an accumulator of fixed point has lost.

    It has, if its step is coarser than the tensor's format, no result below its step was ever seen, and the tensor is
    noisy, or mostly 0 where noise was not measured.
    """
    for tensor, register in bits.items():
        layer, role = tensor
        accumulator, fmt = _accumulator_of(run, tensor), _format_of(run, tensor)
        seen = register.exponents()
        # The step of the accumulator is 2**-frac_bits. It is no finding if the format has no finer steps itself.
        if accumulator is None or fmt is None or seen is None or _finest(fmt) >= -accumulator.frac_bits:
            continue
        # "none" counts results without a leading bit: zeros, and in a fixed-point accumulator the raw -1, too.
        zeros = float(register.scalars["none"].sum() / max(int(register.scalars["total"].sum()), 1))
        history = noise.get(tensor)
        is_lost = zeros >= UNDERFLOW_NOTABLE if history is None else history.last < NOISY_DB
        # A result below the step cannot come from this accumulator: something else writes the tensor, too.
        if seen[0] < -accumulator.frac_bits or not is_lost:
            continue
        step, finest = power_of_two(-accumulator.frac_bits), power_of_two(_finest(fmt))
        after = _AFTER_UNDERFLOW.get(role, "whatever reads them sees 0").format(layer=layer, how="only part of the")
        own = " or give that pass a unit of its own ([precision.backward_mac])" if role in ("error", "gradient") else ""
        sentence = (
            f"the accumulator {accumulator} has steps of {step}, while {fmt} goes down to {finest}: products below a "
            f"step are rounded away, and {percent(zeros)} of the sums are 0: {after}; give the accumulator more "
            f"fraction bits{own}. If the device shall only run the network, train it in float32 and ask emu evaluate."
        )
        # above the noise that results from it
        yield Finding(
            1.0 + zeros, f"{role} of {layer}", sentence, "leading-bits", "coarse accumulator", percent(zeros), tensor
        )


def _accumulator_of(run: RunData, tensor: Tensor) -> Fixed | None:
    """Return the accumulator of the unit that computes a tensor, if it is of fixed point and its layer has products."""
    datapath = run.formats.get(tensor)
    mac: Mapping[str, Any] = datapath.mac if datapath is not None and isinstance(datapath.mac, Mapping) else {}
    accumulator = parse_or_none(str(mac.get("accumulator", "")))
    # Only these three roles are written by products; that a layer has products is known by its weights.
    has_products = (tensor[0], "weight") in run.formats and tensor[1] in ("activation", "error", "gradient")
    return accumulator if has_products and isinstance(accumulator, Fixed) else None


def _format_of(run: RunData, tensor: Tensor) -> Fixed | Float | None:
    datapath = run.formats.get(tensor)
    fmt = parse_or_none(datapath.format) if datapath is not None else None
    return fmt if isinstance(fmt, Fixed | Float) else None


def _finest(fmt: Fixed | Float) -> int:
    """Return the exponent of a format's smallest positive number."""
    return math.frexp(float(fmt.smallest_positive))[1] - 1


def _becomes_infinite(run: RunData, tensor: Tensor) -> Float | None:
    """Return the format of a unit's sums, or of its products, if a number beyond its range becomes infinite there."""
    datapath = run.formats.get(tensor)
    mac: Mapping[str, Any] = datapath.mac if datapath is not None and isinstance(datapath.mac, Mapping) else {}
    for part in ("accumulator", "product"):
        fmt = parse_or_none(str(mac.get(part, "")))
        if isinstance(fmt, Float) and default_rule(fmt) is Overflow.IEEE:
            return fmt
    return None


def _written_instead(run: RunData, tensor: Tensor) -> str:
    datapath = run.formats.get(tensor)
    fmt = parse_or_none(datapath.format) if datapath else None
    # An open point is fixed point, which saturates by default. An unknown format is taken for one.
    default = default_rule(fmt).value if isinstance(fmt, Fixed | Float) else "saturate"
    rule = datapath.overflow if datapath and datapath.overflow else default
    if rule in _WRITTEN_INSTEAD:
        return _WRITTEN_INSTEAD[rule]
    if datapath and isinstance(fmt, Fixed | Float):
        return f"were written as a limit of {datapath.format} ({number(fmt.min)} or {number(fmt.max)})"
    return "were written as a limit of their format"


def _worst_interval(history: FlagCounts, flag: str, overall: float) -> str:
    shares = history.shares(flag)
    worst = int(np.argmax(shares))
    # An interval stands out if it is half again as bad as the whole run; of two intervals, one always is the worse.
    if len(shares) < 3 or shares[worst] < 1.5 * overall:
        return ""
    until = integer(int(history.steps[worst]))
    return f" At its worst, in the interval up to step {until}, it was {percent(float(shares[worst]))}."


def _invalids(flags: dict[Tensor, FlagCounts]) -> Iterator[Finding]:
    for (layer, role), history in flags.items():
        if (counts := history.counts.get("invalid")) is not None and counts.any():
            first = int(history.steps[np.flatnonzero(counts)[0]])
            sentence = (
                f"{percent(history.share('invalid'))} of results were not a number (first in the interval up to step "
                f"{first}): an operation such as infinity minus infinity, or a NaN that came in."
            )
            share = history.share("invalid")
            yield Finding(
                2.0 + share, f"{role} of {layer}", sentence, "range", "invalid", percent(share), (layer, role)
            )


def _noise(flags: dict[Tensor, FlagCounts], noise: dict[Tensor, Noise]) -> Iterator[Finding]:
    for tensor, history in noise.items():
        last = history.last
        if not last < NOISY_DB:
            continue
        layer, role = tensor
        # 20 and not 10: the ratio in dB is one of powers, the noise is given as an amplitude.
        relative = percent(10 ** (-last / 20)) if last > LOST_DB else "as large as the signal or larger"
        meaning = f"noise is {relative} of the signal" if last > LOST_DB else f"noise is {relative}"
        sentence = (
            f"signal-to-noise is {last:.1f} dB against float32 with the same weights: {meaning}{_cause(tensor, flags)}."
        )
        severity = min((NOISY_DB - last) / (NOISY_DB - LOST_DB), 1.0)  # a symptom: causes come first
        yield Finding(severity, f"{role} of {layer}", sentence, "noise", "noise", decibels(last), tensor)


def _cause(tensor: Tensor, flags: dict[Tensor, FlagCounts]) -> str:
    history = flags.get(tensor)
    if history is None:
        return ""
    causes = {flag: history.share(flag) for flag in ("overflow", "underflow")}
    flag, share = max(causes.items(), key=lambda item: item[1])
    # The smaller of the two limits: what lies below it explains no noise.
    if share < OVERFLOW_NOTABLE:
        return (
            "; it wrote hardly any overflow or underflow itself, so the noise came in with its operands or is rounding"
        )
    return f"; {percent(share)} of its own results raised {flag}"


def is_severe(finding: Finding) -> bool:
    """Return whether a finding makes a tensor, or the run, nearly useless."""
    return finding.severity >= 1.0 and math.isfinite(finding.severity)
