"""RTL as a function: a module or an entity in a simulator, called with arrays.

    arrays ──► codes ──► a.hex, b.hex ──► testbench, simulator, unit ──► dump.hex ──► codes ──► arrays

The first call builds the testbench, finds the latency, and drives a sample in three manners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from emu.datapath import Flags, Mac, Rounding
from emu.errors import ConfigError, EmuError, FormatError, RtlError, ShapeError
from emu.testing.rtl.arrays import Operands, count_flags, hard_operands, operands_of, require_flags, results_of
from emu.testing.rtl.bench import BACK_TO_BACK, BOUND_CYCLES, HELD, WATCHED, Bench
from emu.testing.rtl.checking import check_vectors
from emu.testing.rtl.functions import function_of
from emu.testing.rtl.handshakes import handshake_of
from emu.testing.rtl.latency import VECTORS, watched_latency
from emu.testing.rtl.manners import Difference, difference
from emu.testing.rtl.options import UnitOptions, require_known
from emu.testing.rtl.pictures import fault_of
from emu.testing.rtl.ports import Port
from emu.testing.rtl.simulation import Answers, Run, Simulation, SourcesError
from emu.testing.rtl.simulators import simulators_for
from emu.testing.rtl.simulators.simulator import Sources
from emu.testing.vectors import Finding, Vectors

#: Vectors that the first call drives in three manners: its own, and difficult ones if they are fewer.
SAMPLE = 64


class Unit:
    """A unit in RTL, called like a function of emu.

    Args:
        sources: files in Verilog or in VHDL, in the order in which they are compiled.
        top: module or entity.
        ports: what each port carries: In, Out, Flags, Mode, RandomBits, Constant, End. Clock, reset and handshake are
            named below. The operands of a call are those of the inputs, in order.
        **options: see `UnitOptions`: clock, reset, handshake, signals, holds, latency, parameters, simulator, include,
            defines, options, data, bound_cycles, verify.

    Raises:
        ConfigError: something does not fit together, a source is missing or does not compile, a port is missing or has
            another width, or the latency given is wrong. It may be raised by the first call.
        FormatError: there is no such format or mode.
        BackendUnavailable: the simulator, or any, is missing.
        TypeError: there is no such option.

    Exactness: results are the bits that the unit drives.

    Source: docs/howto/rtl.md.
    """

    def __init__(
        self,
        sources: str | Path | Iterable[str | Path],
        top: str,
        ports: Mapping[str, Port],
        **options: Unpack[UnitOptions],
    ) -> None:
        require_known(options)
        latency = options.get("latency")
        if latency is not None and (type(latency) is not int or latency < 0):
            raise ConfigError(f"`latency` must be a number of cycles, got {latency!r}; leave it out, and it is found")
        row = handshake_of(options.get("handshake", "none")).with_signals(options.get("signals") or {})
        self._bench = Bench(
            top,
            dict(ports),
            replace(row, holds=row.holds or options.get("holds", False)),
            options.get("clock"),
            options.get("reset"),
            latency or 0,
            dict(options.get("parameters") or {}),
            # sums have as many terms as the operands of each call
            depth=0,
            bound_cycles=options.get("bound_cycles", BOUND_CYCLES),
        )
        self._stated = latency
        self._sources = Sources(
            tuple(map(Path, _several(sources))),
            tuple(map(Path, _several(options.get("include") or ()))),
            dict(options.get("defines") or {}),
            tuple(map(str, _several(options.get("options") or ()))),
            tuple(map(Path, _several(options.get("data") or ()))),
        )
        self._simulators = simulators_for(self._sources, options.get("simulator"))
        # without `verify` no manners are compared; the latency is measured when a run needs it
        self._verified = not options.get("verify", True)
        self._refused: EmuError | None = None

    def __repr__(self) -> str:
        return f"Unit({self.top}, {', '.join(f'{name}={port}' for name, port in self._bench.ports.items())})"

    @property
    def top(self) -> str:
        """Name of the module or entity."""
        return self._bench.top

    @property
    def bench(self) -> Bench:
        """What its testbenches drive."""
        return self._bench

    @cached_property
    def simulation(self) -> Simulation:
        """The built unit.

        Raises:
            ConfigError: it does not compile, or a port is missing or has another width.
        """
        errors: list[SourcesError] = []
        for simulator in self._simulators:
            try:
                described = simulator.described(self._bench, self._sources)
                simulation = Simulation(described, simulator, self._sources)
                simulation.build()
            except SourcesError as error:
                # another simulator may know more of the language; if none does, the first one's error is raised
                errors.append(error)
                continue
            return simulation
        raise errors[0]

    @property
    def simulator(self) -> str:
        """Name of the simulator that runs it."""
        return self.simulation.simulator.name

    @cached_property
    def latency(self) -> int | None:
        """Cycles from operands to result; None if they depend on the operands.

        Raises:
            ConfigError: another latency was given.
            RtlError: the unit does not answer.
        """
        bench = self._bench
        if bench.clock is None:
            cycles = 0
        elif bench.handshake.result is not None:
            sample = hard_operands(bench, VECTORS)
            # held: each vector has the unit to itself, so nothing but its own operands decides how long it takes
            answers = self._measured(sample, self.how(sample, HELD))
            cycles = int(answers.cycles[0]) if len(set(answers.cycles.tolist())) == 1 else None
        elif bench.is_serial:
            if self._stated is None:
                raise ConfigError(
                    f"`latency` of {self.top} must be given: terms come one after the other; count from the last one"
                )
            cycles = self._stated
        else:
            sample = hard_operands(bench, VECTORS)

            def watch(window: int) -> Answers:
                return self._measured(sample, replace(self.how(sample, WATCHED), window=window))

            try:
                cycles = watched_latency(bench, watch)
            except RtlError:  # its results depend on more than its operands: golden vectors judge the latency then
                if self._stated is None:
                    raise
                cycles = self._stated
        # a latency that was given is checked: back to back a wrong one would pair operands with other vectors' results
        if self._stated is not None and cycles != self._stated:
            must, remedy = (
                ("left out", "it depends on the operands")
                if cycles is None
                else (str(cycles), f"give latency={cycles}")
            )
            raise ConfigError(
                f"`latency` of {self.top} must be {must}, got {self._stated}: results come "
                f"after {cycles} cycles; {remedy}"
            )
        return cycles

    def __call__(
        self, *operands: Any, rounding: str | Rounding | None = None, flags: Flags | None = None, rbits: Any = None
    ) -> Any:
        """Return what the unit computes from arrays.

        Args:
            *operands: carrier arrays, or codes in unsigned dtypes, that broadcast against each other. The factors of
                sums have the terms along their last axis.
            rounding: mode, if a port chooses it; None: the first one of the port.
            flags: are counted here, as far as ports have them.
            rbits: random bits per result, if a port takes them.

        Returns:
            Carrier array of the result, or codes if all operands are codes; a tuple if there are several.

        Raises:
            FormatError: a value is none of the format.
            ShapeError: shapes or the number of operands do not fit.
            RtlError: the unit gives no result, an undriven one, one too many, or others in another manner.
        """
        given = operands_of(self._bench, operands, rbits)
        require_flags(self._bench, flags)
        answers = self.answers(given, rounding=rounding)
        if flags is not None and answers.flags is not None:
            count_flags(self._bench, answers.flags, flags)
        return results_of(self._bench, given, answers.results)

    def answers(
        self, operands: Operands, *, rounding: str | Rounding | None = None, manner: int = BACK_TO_BACK
    ) -> Answers:
        """Return codes and flags of all vectors.

        Raises:
            RtlError: a vector has no result, an undriven one, one too many, or another one in another manner.
        """
        self._require_verified(operands, rounding)
        how = self.how(operands, manner, rounding)
        answers = self.run(operands, how)
        if (fault := fault_of(self._bench, operands, answers, how)) is not None:
            raise RtlError(fault[1])
        return answers

    def compare(
        self, *operands: Any, rounding: str | Rounding | None = None, rbits: Any = None, seed: int = 1
    ) -> Difference | None:
        """Return the difference between held operands, back to back, and random stalls; None if there is none.

        Args:
            *operands: as in a call.
            rounding: mode, if a port chooses it.
            rbits: random bits per result, if a port takes them.
            seed: of the stalls.
        """
        given = operands_of(self._bench, operands, rbits)
        return self._difference(given, rounding, seed)

    def check(
        self, vectors: Vectors | str | Path, *, any_nan: bool = False, keep: str | Path | None = None
    ) -> Finding | None:
        """Return what golden vectors find, as `emu check` does; None if every result and flag is right in each manner.

        Args:
            vectors: golden vectors, or the folder they are in.
            any_nan: whether one NaN is as good as another.
            keep: folder of the waveform around the first wrong vector; None: that of the vectors, or the current one.

        Raises:
            ConfigError: formats, operands or mode of the vectors are none of the unit's.
            RtlError: the unit gives no result, an undriven one, or one too many.
        """
        return check_vectors(self, vectors, any_nan=any_nan, keep=keep)

    def trace(
        self, operands: Iterable[Any], path: str | Path, *, rounding: str | Rounding | None = None, rbits: Any = None
    ) -> Path:
        """Write the waveform of some operands, driven back to back; return its path.

        Args:
            operands: as in a call.
            path: file, whose ending says its kind: .vcd, and .fst or .ghw if the simulator writes it.
            rounding: mode, if a port chooses it.
            rbits: random bits per result, if a port takes them.

        Raises:
            ConfigError: the simulator does not write waveforms of this kind, or the folder does not exist.
            ShapeError: there are no operands.
        """
        given = operands_of(self._bench, tuple(operands), rbits)
        if given.count == 0:
            raise ShapeError("a waveform must have operands, got empty arrays; give one number at least")
        self.run(given, replace(self.how(given, BACK_TO_BACK, rounding), trace=self._waveform(path)))
        return Path(path)

    def as_function(
        self,
        operation: str,
        *,
        rounding: str | Rounding = Rounding.NEAREST_EVEN,
        overflow: str | None = None,
        mac: Mac | None = None,
    ) -> Callable[..., Any]:
        """Return the unit as emu's own function of an operation, with its arguments, for `check_backend`.

        Args:
            operation: quantize, add, subtract, multiply, divide, fma, sqrt, remainder, round_to_integral or matmul.
            rounding: mode of a unit without a port for it.
            overflow: rule that the unit has; None: the format's default.
            mac: the unit of `matmul`; None: the exact one.

        Raises:
            FormatError: there is no such operation, mode or rule, or it has another number of operands.
        """
        return function_of(self, operation, rounding=rounding, overflow=overflow, mac=mac)

    def how(self, operands: Operands, manner: int, rounding: str | Rounding | None = None) -> Run:
        """Return how operands are driven in a manner."""
        # WATCHED is how the latency is measured: asking for it here would recur
        needs_latency = self._bench.handshake.result is None and manner != WATCHED
        latency = (self.latency or 0) if needs_latency else 0
        terms = next(iter(self._bench.ins.values())).terms
        steps = operands.depth // terms if self._bench.is_serial else 1
        return Run(manner, latency, steps, self._modes(rounding))

    def _modes(self, rounding: str | Rounding | None) -> dict[str, int]:
        modes = self._bench.modes
        if rounding is None:
            return {name: next(iter(mode.codes.values())) for name, mode in modes.items()}
        wanted = Rounding.parse(rounding)
        for name, mode in modes.items():
            if wanted not in mode.codes:
                known = ", ".join(known.value for known in mode.codes)
                raise FormatError(
                    f"`rounding` must be a mode of port {name}, {known}, got {wanted.value}; choose one of them"
                )
        if not modes:
            raise FormatError(f"`rounding` must be left out, got {wanted.value}: no port of {self.top} chooses a mode")
        return {name: mode.codes[wanted] for name, mode in modes.items()}

    def run(self, operands: Operands, how: Run) -> Answers:
        """Return what the unit answers, whatever it is."""
        if operands.count == 0:
            none = np.zeros(0, np.uint64)
            return Answers((none,) * len(self._bench.outs), none, {}, none.astype(np.int64), None, (0, 0))
        return self.simulation.run(operands.columns(self._bench), operands.count, how)

    def _difference(self, operands: Operands, rounding: str | Rounding | None, seed: int = 1) -> Difference | None:
        def run(manner: int) -> Answers:
            return self.run(operands, replace(self.how(operands, manner, rounding), seed=seed))

        return difference(self._bench, operands, run)

    def _require_verified(self, operands: Operands, rounding: str | Rounding | None) -> None:
        """Find the latency and compare manners, once.

        Raises:
            RtlError: results depend on the manner; said by every call.
        """
        # the same error for every call: a unit that was refused once is not driven again
        if self._refused is not None:
            raise self._refused
        if self._verified or operands.count == 0:
            return
        try:
            # of a unit that signals its results the latency is only compared with that which was given
            if self._stated is not None or self._bench.handshake.result is None:
                _ = self.latency
            several = operands.taking(slice(0, SAMPLE))
            # few operands may all take the same path through the unit
            if several.count < SAMPLE:
                several = several.with_more(hard_operands(self._bench, SAMPLE - several.count, operands.depth))
            if (seen := self._difference(several, rounding)) is not None:
                raise RtlError(str(seen))
        except EmuError as error:
            self._refused = error
            raise
        self._verified = True

    def _measured(self, sample: Operands, how: Run) -> Answers:
        """Return answers from which the latency is read.

        Raises:
            RtlError: there is none, or some are missing where outputs are watched.
        """
        answers = self.run(sample, how)
        if answers.count == 0 or (answers.stuck is not None and how.manner == WATCHED):
            fault = fault_of(self._bench, sample, answers, how)
            assert fault is not None
            raise RtlError(fault[1])
        return answers

    def _waveform(self, path: str | Path) -> Path:
        known = self.simulation.simulator.waveforms
        if Path(path).suffix not in known:
            raise ConfigError(
                f"a waveform of {self.simulator} must end in {' or '.join(known)}, got {path}; name it so"
            )
        if not Path(path).parent.is_dir():
            raise ConfigError(f"a waveform must lie in a folder that exists, got {path}; make the folder first")
        return Path(path)


def _several(given: str | Path | Iterable[str | Path]) -> Iterable[str | Path]:
    """Return what was given as a list; a single text is one, not its characters."""
    return [given] if isinstance(given, str | Path) else given
