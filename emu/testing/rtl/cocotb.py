"""cocotb: handles as numbers, drivers and monitors for the handshakes, results compared with the definition.

    @cocotb.test()
    async def multiplies(dut):
        bench = Bench(dut, {"a": In("fp16"), "b": In("fp16"), "y": Out("fp16")}, clock="clk", handshake="valid_ready")
        await bench.start()
        assert (finding := await bench.check("vectors/mul")) is None, finding

In every cycle a bench sets the inputs right after the rising edge, and reads all signals at the next one, before the
unit's registers change. This module needs cocotb 2 (`pip install cocotb`), and is imported inside a simulation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from emu._files import replace_file
from emu.datapath import Flags, Rounding
from emu.errors import BackendUnavailable, ConfigError, RtlError
from emu.formats import Format, parse_number
from emu.testing.rtl.arrays import Operands, count_flags, operands_of, require_flags, results_of
from emu.testing.rtl.bench import (
    BACK_TO_BACK,
    BOUND_CYCLES,
    DRAINED_CYCLES,
    HELD,
    MANNERS,
    RESET_CYCLES,
    STALLS,
    Signal,
)
from emu.testing.rtl.bench import Bench as Plan
from emu.testing.rtl.checking import compared, require_fitting
from emu.testing.rtl.handshakes import Handshake, handshake_of
from emu.testing.rtl.kept import Kept, code_of, words_of
from emu.testing.rtl.monitor import Cells, Monitor
from emu.testing.rtl.pictures import fault_of
from emu.testing.rtl.ports import Mode, Port
from emu.testing.rtl.simulation import Answers, Run
from emu.testing.rtl.simulators.simulator import MISSING, WIDTH
from emu.testing.vectors import Finding, Vectors, read_vectors

__all__ = ["Bench", "Cells", "Monitor", "Word"]

#: Period of clocks, and the time in which a unit without a clock settles.
_PERIOD_NS = 10


# imported when it is first needed, so that a missing cocotb gives a sentence and the module loads without it
@cache
def _library(name: str) -> Any:
    """Return a module of cocotb.

    Raises:
        BackendUnavailable: cocotb is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise BackendUnavailable(
            "emu.testing.rtl.cocotb needs cocotb, which is not installed; pip install 'emu-numerics[cocotb]'"
        ) from None


class Word:
    """A handle as a number of a format.

    Args:
        handle: of a port or signal.
        fmt: format of its bits.

    Examples: `Word(dut.y, "fp16").value` is a float, `Word(dut.a, "fix16f8").value = 1.5` writes its code.
    """

    def __init__(self, handle: Any, fmt: str | Format) -> None:
        self.handle = handle
        self.format: Format = parse_number(fmt)

    @property
    def code(self) -> int:
        """The bits.

        Raises:
            RtlError: some are x or z.
        """
        return code_of(self.handle, "wait for a result")

    @code.setter
    def code(self, code: int) -> None:
        self.handle.value = int(code)

    @property
    def value(self) -> Any:
        """The number: a float, or a raw if the format carries raws."""
        return self.format.decode(np.array(self.code, np.uint64)).item()

    @value.setter
    def value(self, value: Any) -> None:
        self.code = int(self.format.encode(np.asarray(value, self.format.carrier)))


class Bench:
    """Driver and monitor of a unit in a cocotb simulation; its arguments are those of `emu.testing.rtl.Unit`.

    Args:
        dut: handle of the unit.
        ports: what each port carries.
        clock: name of the clock, None without.
        reset: name of the reset; `!name` is active low, and so is a name that ends in `_n`, `_ni`, `_b`, `resetn`,
            `rstn`, `nreset` or `nrst`.
        handshake: none, valid_ready, stb_ack, start_done, or a row of your own.
        signals: names of its signals that differ, by role.
        holds: whether operands must stay until the result is there.
        latency: cycles from operands to result if no signal says that it is there.
        bound_cycles: cycles without any transfer after which the unit is stuck.

    Raises:
        ConfigError: something does not fit together.
    """

    def __init__(
        self,
        dut: Any,
        ports: Mapping[str, Port],
        *,
        clock: str | None = None,
        reset: str | None = None,
        handshake: str | Handshake = "none",
        signals: Mapping[str, str | None] | None = None,
        holds: bool = False,
        latency: int = 0,
        bound_cycles: int = BOUND_CYCLES,
    ) -> None:
        # depth 0: the terms of a sum follow from the operands of each call
        row = handshake_of(handshake).with_signals(signals or {})
        row = replace(row, holds=row.holds or holds)
        self.plan = Plan(str(dut._name), dict(ports), row, clock, reset, latency, bound_cycles=bound_cycles, depth=0)
        self.dut = dut
        self._require_handles()

    def _require_handles(self) -> None:
        """Look whether the unit has each port, of the width that is described.

        Raises:
            ConfigError: a port is missing, or has another width.
        """
        plan = self.plan
        signals = [*plan.offers, *plan.watched(), plan.take, plan.reset_signal]
        names = [signal.name for signal in signals if signal is not None] + ([plan.clock] if plan.clock else [])
        for name, bits in {**dict.fromkeys(names, 1), **plan.widths()}.items():
            handle = getattr(self.dut, name, None)
            if handle is None:
                raise ConfigError(MISSING.format(port=name, top=plan.top))
            if len(handle) != bits:
                raise ConfigError(WIDTH.format(len(handle), port=name, top=plan.top, bits=bits))

    async def start(self, period_ns: int = _PERIOD_NS) -> None:
        """Start the clock, and reset the unit."""
        plan = self.plan
        for row in plan.inputs:
            self.handle(row.port).value = 0
        for name, port in plan.constants.items():
            self.handle(name).value = port.code
        for name, mode in plan.modes.items():
            self.handle(name).value = next(iter(mode.codes.values()))
        for name in plan.ends:
            self.handle(name).value = 0
        # nothing is offered or taken during reset
        for signal in [*plan.offers, *([plan.take] if plan.take else [])]:
            self._set(signal, 0)
        if plan.clock is None:
            return
        _library("cocotb").start_soon(
            _library("cocotb.clock").Clock(self.handle(plan.clock), period_ns, unit="ns").start()
        )
        if plan.reset_signal is not None:
            self._set(plan.reset_signal, 1)
        for _ in range(RESET_CYCLES):
            await self.edge()
        if plan.reset_signal is not None:
            self._set(plan.reset_signal, 0)

    async def run(
        self,
        *operands: Any,
        rounding: str | Rounding | None = None,
        flags: Flags | None = None,
        rbits: Any = None,
        manner: str = MANNERS[BACK_TO_BACK],
    ) -> Any:
        """Return what the unit computes from arrays, as a call of `emu.testing.rtl.Unit` does.

        Raises:
            FormatError: a value is none of the format, or there are flags and no port has them.
            ShapeError: shapes or the number of operands do not fit.
            ConfigError: no port has the mode, or there is no such manner.
            RtlError: a vector has no result, or an undriven one.
        """
        given = operands_of(self.plan, operands, rbits)
        require_flags(self.plan, flags)
        answers = await self.answers(given, rounding=rounding, manner=manner)
        self.require_answered(given, answers, manner)
        if flags is not None and answers.flags is not None:
            count_flags(self.plan, answers.flags, flags)
        return results_of(self.plan, given, answers.results)

    async def check(
        self,
        vectors: Vectors | str | Path,
        *,
        manner: str = MANNERS[BACK_TO_BACK],
        dump: str | Path | None = None,
        cells: Cells | None = None,
    ) -> Finding | None:
        """Return what golden vectors find, as `emu check` does; None if all is right.

        Args:
            vectors: golden vectors, or their folder.
            manner: "back to back", "held" or "with stalls".
            dump: file to which results and flags are written, a line for each vector.
            cells: counts what the vectors cover; its counts are logged.

        Raises:
            ConfigError: the vectors are none of the unit's.
            RtlError: a vector has no result, or an undriven one.
        """
        golden = vectors if isinstance(vectors, Vectors) else read_vectors(Path(vectors))
        d = golden.description
        require_fitting(self.plan, d)
        operands = Operands(golden.operands, (d.count,), are_codes=True, rbits=golden.rbits)
        rounding = d.stage.rounding if self.plan.modes else None
        answers = await self.answers(operands, rounding=rounding, manner=manner)
        self.require_answered(operands, answers, manner)
        if dump is not None:
            content = self._dumped(answers).encode()
            replace_file(Path(dump), lambda file: file.write(content))
        if cells is not None:
            for name, count in cells(golden).items():
                self.dut._log.info("%6d  %s", count, name)
        return compared(self.plan, golden, answers)

    async def answers(
        self,
        operands: Operands,
        *,
        rounding: str | Rounding | None = None,
        manner: str = MANNERS[BACK_TO_BACK],
        seed: int = 1,
    ) -> Answers:
        """Return codes and flags of all vectors, undriven and missing ones too.

        Raises:
            ConfigError: there is no such manner, or no port has the mode.
        """
        if manner not in MANNERS[:3]:
            raise ConfigError(f"`manner` must be one of {', '.join(MANNERS[:3])}, got {manner!r}; choose one of them")
        if rounding is not None and not self.plan.modes:
            raise ConfigError(f"`rounding` must be left out, got {rounding}: no port of {self.plan.top} chooses a mode")
        for name, mode in self.plan.modes.items():
            self.handle(name).value = _mode_code(name, mode, rounding)
        if operands.count == 0:
            return Kept(self.plan).answers(None, (0, 0))
        if self.plan.clock is None:
            return await self._combinational(operands)
        return await self._clocked(operands, MANNERS.index(manner), random.Random(seed))

    async def _combinational(self, operands: Operands) -> Answers:
        kept = Kept(self.plan)
        columns = words_of(self.plan, operands)
        for i in range(operands.count):
            for handle, codes in columns:
                self.dut[handle].value = codes[i]
            await _library("cocotb.triggers").Timer(_PERIOD_NS, unit="ns")
            kept.add(self.dut, 0)
        return kept.answers(None, (0, 0))

    async def _clocked(self, operands: Operands, manner: int, noise: random.Random) -> Answers:
        """Drive all vectors; the same program as that of the testbenches (`languages/testbench.sv`)."""
        plan, row = self.plan, self.plan.handshake
        kept, columns = Kept(plan), words_of(plan, operands)
        inputs = plan.inputs
        handles = [self.handle(name) for name, _ in columns]
        widths = [entry.width_bits * entry.terms for entry in inputs]
        # transfers of a sum: the first operand has a word for each
        steps = len(columns[0][1]) // operands.count
        sent_at, sent, step, gap, idle, cycle, extra, extra_after = list[int](), 0, 0, 0, 0, 0, 0, 0
        # channels whose operands are offered and not taken yet; the next vector is loaded when it is empty
        pending: set[int] = set()
        while kept.count < operands.count and idle <= plan.bound_cycles:
            moved = False
            loading = not pending and gap == 0 and sent < operands.count
            # a gap is not idleness: it must not count against `bound_cycles`
            if not pending and gap:
                gap, moved = gap - 1, True
            elif loading and (kept.count == sent or (row.overlaps and manner != HELD)):
                # vectors overlap only if the handshake allows it; held operands stay until their result is there
                index = sent * steps + step
                for entry, handle, (_, codes) in zip(inputs, handles, columns, strict=True):
                    # an addend comes with the first term of its sum, and stays
                    if not entry.once or step == 0:
                        handle.value = codes[sent if entry.once else index]
                pending = set(range(plan.channels))
            self._mark_ends(bool(pending), step, steps)
            # what is not offered may be anything: a unit that reads it too late computes with noise
            if manner == STALLS and not (row.holds and sent != kept.count):
                for entry, handle, width in zip(inputs, handles, widths, strict=True):
                    if entry.channel not in pending:
                        handle.value = noise.getrandbits(width)
            for channel, signal in enumerate(plan.offers):
                self._set(signal, channel in pending and not (row.offers_first_alone and step))
            takes = plan.take is None or manner != STALLS or noise.random() < 0.5  # half of the cycles
            if plan.take is not None:
                self._set(plan.take, takes)
            await self.edge()
            cycle += 1
            # None: no signal says it, so the latency decides below
            is_there = self.is_active(plan.result) and takes if plan.result else None
            before = sent
            if pending:
                # without a signal for it operands are taken at every edge
                taken = {c for c in pending if not plan.accepts or self.is_active(plan.accepts[c])}
                pending -= taken
                moved |= bool(taken)
                if not pending:
                    step = (step + 1) % steps
                    if step == 0:
                        # the edge at which the last transfer was taken: cycles and the latency count from here
                        sent_at.append(cycle)
                        sent += 1
                    # no gap within a sum whose further terms follow by themselves, one a cycle
                    if manner == STALLS and (step == 0 or (row.offer and not row.offers_first_alone)):
                        gap = noise.getrandbits(2)
            # a result may belong to operands taken at this very edge only if the handshake has it so
            known = sent if row.result_at_once else before
            if is_there is None:
                is_there = kept.count < sent and cycle == sent_at[kept.count] + plan.latency
            if is_there and kept.count < known:
                kept.add(self.dut, cycle - sent_at[kept.count])
                moved = True
            elif is_there and not row.result_may_stay:
                # of several results too many the first place is kept
                extra, extra_after = extra + 1, extra_after if extra else kept.count - 1
            idle = 0 if moved else idle + 1
        stuck = None
        if kept.count < operands.count:
            what = "its operands to be taken" if pending else "its result"
            state = ", ".join(f"{s.name}={self.handle(s.name).value}" for s in plan.watched())
            # the vector that waits: the one offered, or the oldest without a result
            stuck = (sent if pending else kept.count, plan.bound_cycles, f"{what} ({state or 'no signal'})")
        self._idle()
        if plan.result is not None and stuck is None and not row.result_may_stay:
            # a result too many may come behind the last one
            for _ in range(DRAINED_CYCLES):
                await self.edge()
                if self.is_active(plan.result):
                    extra, extra_after = extra + 1, extra_after if extra else kept.count - 1
        return kept.answers(stuck, (extra, extra_after))

    def _idle(self) -> None:
        """Offer no operands, and take each result."""
        for signal in self.plan.offers:
            self._set(signal, 0)
        for name in self.plan.ends:
            self.handle(name).value = 0
        if self.plan.take is not None:
            self._set(self.plan.take, 1)

    def _mark_ends(self, loaded: bool, step: int, steps: int) -> None:
        for name, end in self.plan.ends.items():
            self.handle(name).value = int(loaded and step == (0 if end.of == "first" else steps - 1))

    def require_answered(self, operands: Operands, answers: Answers, manner: str) -> None:
        """Raise an RtlError unless every vector has its one result."""
        fault = fault_of(self.plan, operands, answers, Run(MANNERS.index(manner)))
        if fault is not None:
            raise RtlError(fault[1])

    def _dumped(self, answers: Answers) -> str:
        columns = [
            [f"{int(code):0{-(-out.width_bits // 4)}x}" for code in codes]
            for out, codes in zip(self.plan.outs.values(), answers.results, strict=True)
        ]
        if answers.flags is not None:
            columns.append([f"{int(code):02x}" for code in answers.flags])
        return "".join(f"{' '.join(words)}\n" for words in zip(*columns, strict=True))

    async def edge(self) -> None:
        """Wait for the rising edge of the clock."""
        await _library("cocotb.triggers").RisingEdge(self.handle(str(self.plan.clock)))

    def start_soon(self, coroutine: Any) -> Any:
        """Start a coroutine beside this one; return its task."""
        return _library("cocotb").start_soon(coroutine)

    def handle(self, name: str) -> Any:
        """Return the handle of a port."""
        return getattr(self.dut, name)

    def _set(self, signal: Signal, is_active: object) -> None:
        self.handle(signal.name).value = int(bool(is_active) != signal.is_low)

    def is_active(self, signal: Signal) -> bool:
        """Return whether a signal is driven and active."""
        return _bit(self.handle(signal.name)) == (0 if signal.is_low else 1)


def _bit(handle: Any) -> int | None:
    value = handle.value
    return int(value) if value.is_resolvable else None


def _mode_code(name: str, mode: Mode, rounding: str | Rounding | None) -> int:
    if rounding is None:
        return next(iter(mode.codes.values()))
    wanted = Rounding.parse(rounding)
    if wanted not in mode.codes:
        known = ", ".join(known.value for known in mode.codes)
        raise ConfigError(f"`rounding` must be a mode of port {name}, {known}, got {wanted.value}; choose one of them")
    return mode.codes[wanted]
