"""Loss scaling: the policies' numbers, and that repeats, skips and compensation change no bit they must not change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu import training
from emu.autodiff import Value
from emu.formats import Fixed, parse
from emu.hardware import load_device
from emu.hardware.precision_table import PrecisionTable
from emu.precision import CounterTable, Policy
from emu.precision.loss_scaler import LossScaler, ScaleEvent, _logarithm
from emu.precision.loss_scaling import (
    BackoffScale,
    FixedScale,
    MaxGradientScale,
    Measured,
    NoScaling,
    ScaleState,
    StatisticalScale,
    headroom,
)
from emu.precision.redo import run_and_redo
from emu.training.folders.run_folder import RunFolder

HALF_LIMIT = 15
FP16 = parse("fp16")


def measured(exponent: int | None = 0, logarithm: float | None = 0.0) -> Measured:
    return Measured(exponent, logarithm, HALF_LIMIT)


class TestThePublishedNumbers:
    def test_a_small_gradient_is_lost_in_binary16_and_kept_by_scaling(self):
        g = np.float64(2.5e-8)
        assert emu.quantize(g, "fp16") == 0
        assert float(emu.quantize(1024 * g, "fp16")) / 1024 == pytest.approx(2.4971e-8, rel=1e-4)

    @pytest.mark.parametrize(
        ("largest", "x", "u"),
        [(0.003, -9, 24), (1.0, 0, 15), (1.999, 0, 15), (6.0, 2, 13), (70000, 16, -1), (2.0**-30, -30, 45)],
    )
    def test_the_largest_gradient_leaves_so_much_headroom(self, largest: float, x: int, u: int):
        register = emu.StatisticsRegister()
        emu.quantize(np.array([largest, -largest / 4, 0.0]), "fp32", register=register)
        assert register.max_exponent == x
        assert headroom(measured(x)) == u

    @pytest.mark.parametrize(
        ("exponent", "margin", "scale"),
        [(-9, 0, 2.0**24), (0, 0, 2.0**15), (0, 1, 2.0**14), (2, 0, 2.0**13), (16, 0, 0.5), (16, 4, 2.0**-5),
         (-30, 0, 2.0**24), (40, 0, 2.0**-14), (None, 1, 2.0**16)],
    )  # fmt: skip
    def test_max_gradient_sets_the_scale_from_the_headroom(self, exponent: int | None, margin: int, scale: float):
        policy = MaxGradientScale(policy="max_gradient", margin=margin)
        assert policy.after_update(policy.begin(), measured(exponent)).scale == scale

    @pytest.mark.parametrize("exponent", [-2, 1023 - 127, 1023 - 126, -1074])
    def test_max_gradient_of_fp64_stays_within_its_bounds(self, exponent: int):
        """2.0**1024 is no float, nor is any power of smaller gradients."""
        policy = MaxGradientScale(policy="max_gradient", margin=0, maximum=2.0**126)
        state = policy.after_update(policy.begin(), Measured(exponent, None, 1023))
        assert state.scale == 2.0**126

    def test_backoff_halves_on_an_overflow_and_doubles_at_exactly_step_2000(self):
        policy = BackoffScale(policy="backoff")
        state = policy.after_overflow(policy.begin())
        assert (policy.begin().scale, state.scale) == (2.0**16, 2.0**15)
        scales: list[float] = []
        for _ in range(2000):
            state = policy.after_update(state, measured())
            scales.append(state.scale)
        assert scales == [2.0**15] * 1999 + [2.0**16]

    def test_an_overflow_begins_the_count_of_clean_steps_again(self):
        policy = BackoffScale(policy="backoff", interval=3)
        state = policy.begin()
        for _ in range(2):
            state = policy.after_update(state, measured())
        state = policy.after_overflow(state)
        for _ in range(2):
            state = policy.after_update(state, measured())
        assert state.scale == 2.0**15
        assert policy.after_update(state, measured()).scale == 2.0**16

    def test_hysteresis_forgives_overflows_until_its_tokens_are_spent_and_an_update_refills_them(self):
        policy = BackoffScale(policy="backoff", hysteresis=3)
        state = policy.begin()
        scales: list[float] = []
        for _ in range(4):
            state = policy.after_overflow(state)
            scales.append(state.scale)
        assert scales == [2.0**16, 2.0**16, 2.0**15, 2.0**14]
        state = policy.after_update(state, measured())
        assert policy.after_overflow(state).scale == 2.0**14

    def test_statistics_follow_the_published_formula(self):
        policy = StatisticalScale(policy="statistical")
        state = policy.begin()
        logarithms = [-5.25, -7.0, -3.5, -6.75, -4.125]
        mean, variance = logarithms[0], 0.0
        for i, x in enumerate(logarithms):
            if i:
                mean = 0.99 * mean + 0.01 * x
                variance = 0.999 * variance + 0.001 * (x - mean) ** 2
            state = policy.after_update(state, measured(math.floor(x), x))
            wanted = min(max(2 ** (16 - (mean + 3.09 * math.sqrt(variance))), 1), 2.0**14)
            assert state.scale == 2.0 ** math.floor(math.log2(wanted))

    def test_running_statistics_of_half_and_half_are_exact(self):
        """Mean -4, then (-4 - 8) / 2 = -6 and a distance of -2: variance 4 / 2; then -6 + 1 and 2 / 2 + 1 / 2."""
        policy = StatisticalScale(
            policy="statistical", mean_decay=0.5, variance_decay=0.5, quantile=2.0, minimum=2.0**-9
        )
        state, found = policy.begin(), list[tuple[float | None, float, float]]()
        for x in (-4.0, -8.0, -4.0):
            state = policy.after_update(state, measured(math.floor(x), x))
            found.append((state.mean, state.variance, state.scale))
        # S is 2**floor(16 - (mean + 2 deviations)), at most 2**14
        assert found == [(-4.0, 0.0, 2.0**14), (-6.0, 2.0, 2.0**14), (-5.0, 1.5, 2.0**14)]
        assert policy.after_update(state, measured(0, 15.0)).scale == 2.0 ** math.floor(16 - (5 + 2 * 50.75**0.5))

    @pytest.mark.parametrize(("logarithm", "scale"), [(20.0, 1.0), (-300.0, 2.0**14), (10.0, 2.0**6), (9.5, 2.0**6)])
    def test_statistics_stay_within_their_bounds_and_give_powers_of_two(self, logarithm: float, scale: float):
        policy = StatisticalScale(policy="statistical")
        assert policy.after_update(policy.begin(), measured(0, logarithm)).scale == scale

    def test_where_all_gradients_are_zero_nothing_moves(self):
        for policy in (MaxGradientScale(policy="max_gradient"), StatisticalScale(policy="statistical")):
            assert policy.after_update(policy.begin(), measured(None, None)) == policy.begin()

    def test_a_fixed_scale_comes_back_after_repeats_and_skips(self):
        policy = FixedScale(policy="fixed", scale=1024.0)
        state = policy.after_overflow(policy.begin())
        assert state.scale == 512
        assert policy.after_update(state, measured()).scale == policy.after_skip(state).scale == 1024


class FakeRun:
    """An iteration whose gradients overflow above a scale."""

    def __init__(self, scale: float, most: float, counters: CounterTable, loss: float = 1.0) -> None:
        self.loss = loss
        x = np.array([65504.0, -1.0]) * (2.0 if scale > most else 0.5)
        counters.of("fc", "gradient")
        counts = counters.of("fc", "gradient")
        array = emu.quantize(x, "fp16", register=counts.register, flags=counts.flags)
        self.gradients = {"fc.weight": Value(array, FP16)}


class FakeGradients(NamedTuple):
    """An iteration with these gradients."""

    gradients: dict[str, Value]
    loss: float = 1.0


def scaler(**options: Any) -> LossScaler:
    formats = Policy(load_device("fp16").precision)
    return LossScaler(BackoffScale(policy="backoff", **options), formats, CounterTable(formats.register))


class TestTheShapeOfAnIteration:
    def test_a_repeat_finds_the_scale_that_fits_and_keeps_the_counts_of_that_run_only(self):
        s = scaler(on_overflow="repeat")
        iteration = s.iterate(lambda scale: FakeRun(scale, 2.0**13, s.counters), 0)
        assert (iteration.scale, iteration.is_applied, s.repeats, s.skips) == (2.0**13, True, 3, 0)
        counts = s._counts.of("fc", "gradient")
        assert (counts.register.total, counts.flags.overflow) == (2, 0)
        assert [event.event for event in s.take_events()] == ["start", *["overflow", "repeat"] * 3]

    def test_a_skip_backs_off_and_leaves_the_update_out(self):
        s = scaler()
        iteration = s.iterate(lambda scale: FakeRun(scale, 2.0**13, s.counters), 5)
        assert (iteration.is_applied, s.scale, s.repeats, s.skips) == (False, 2.0**15, 0, 1)
        assert s.take_events() == [
            ScaleEvent(5, "overflow", 2.0**16), ScaleEvent(5, "skip", 2.0**16), ScaleEvent(5, "change", 2.0**15)
        ]  # fmt: skip

    @pytest.mark.parametrize("most", [1, 3, 8])
    def test_repeats_that_do_not_help_end_in_a_skip_that_costs_one_step_down(self, most: int):
        s = scaler(on_overflow="repeat", max_repeats=most)
        iteration = s.iterate(lambda scale: FakeRun(scale, 2.0**24, s.counters, loss=math.nan), 0)
        assert (iteration.is_applied, s.repeats, s.skips, s.scale) == (False, most, 1, 2.0**15)

    def test_what_comes_back_after_repeats_is_no_growth(self):
        s = scaler(on_overflow="repeat")
        s.iterate(lambda scale: FakeRun(scale, 2.0**24, s.counters, loss=math.nan), 0)
        assert s.take_events()[-1] == ScaleEvent(0, "change", 2.0**15)

    @pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**-6])
    def test_gradients_are_measured_without_their_scale(self, scale: float):
        """The largest gradient is 0.003: its exponent is -9, and 2**-8.38 the number itself."""
        formats = Policy(load_device("fp16").precision)
        policies = (
            MaxGradientScale(policy="max_gradient", start=scale, margin=0),
            StatisticalScale(policy="statistical", start=scale, minimum=2.0**-10, quantile=0.0, maximum=2.0**30),
        )
        for policy, wanted in zip(policies, (2.0**24, 2.0**24), strict=True):
            s = LossScaler(policy, formats, CounterTable(formats.register))

            def run(at: float, s: LossScaler = s) -> Any:
                counts = s.counters.of("fc", "gradient")
                array = emu.quantize(np.array([0.003, -0.001, 0.0]) * at, "fp16", register=counts.register)
                return FakeGradients({"fc.weight": Value(array, FP16)})

            assert s.iterate(run, 0).is_applied
            assert s.scale == wanted, policy.policy

    @pytest.mark.parametrize("backend", ["reference", "numba"])
    def test_gradients_that_are_held_as_raws_are_measured_at_their_point(self, backend: str):
        """6 * 2**38 of a word with 40 fraction bits is 1.5; S is 4."""
        fmt = Fixed(60, 40)
        gradients = {"fc.weight": Value(np.array([6 * 2**38, -5, 0]), fmt), "fc.bias": Value(np.float32([0.25]), FP16)}
        # the logarithm is that of float64, within an ulp, divided by a ln 2 of 16 digits
        assert _logarithm(gradients, 4.0, backend) == pytest.approx(math.log2(1.5 / 4.0), rel=1e-14)
        found = _logarithm({"fc.weight": Value(np.array([3]), Fixed(60, -2))}, 1.0, backend)
        assert found == pytest.approx(math.log2(12.0), rel=1e-14)

    def test_without_scaling_an_iteration_runs_once_at_1_and_state_is_plain(self):
        formats = Policy(load_device("fp16").precision)
        plain = LossScaler(NoScaling(), formats, CounterTable(formats.register))
        assert (plain.scale, plain.is_active) == (1.0, False)
        assert plain.iterate(lambda scale: FakeRun(scale, 0.5, plain.counters), 0)[1:] == (1.0, True)
        empty = {"scale": 8.0, "clean": 0, "tokens": 0, "mean": None, "variance": 0.0}
        assert asdict(FixedScale(policy="fixed", scale=8.0).begin()) == empty

    def test_repeats_stop_at_the_smallest_scale(self):
        s = scaler(on_overflow="repeat", minimum=2.0**14)
        s.iterate(lambda scale: FakeRun(scale, 2.0**-14, s.counters), 0)
        assert (s.repeats, s.skips) == (2, 1)

    def test_a_forgiven_overflow_is_skipped_for_a_repeat_would_overflow_again(self):
        s = scaler(on_overflow="repeat", hysteresis=2)
        s.iterate(lambda scale: FakeRun(scale, 2.0**15, s.counters), 0)
        assert (s.repeats, s.skips, s.scale) == (0, 1, 2.0**16)
        iteration = s.iterate(lambda scale: FakeRun(scale, 2.0**15, s.counters), 1)
        assert (s.repeats, s.skips, iteration.scale) == (1, 1, 2.0**15)

    def test_what_is_saved_and_loaded_goes_on_alike(self):
        s, other = scaler(interval=3, hysteresis=2), scaler(interval=3, hysteresis=2)
        s.iterate(lambda scale: FakeRun(scale, 2.0**24, s.counters), 0)
        s.iterate(lambda scale: FakeRun(scale, 2.0**10, s.counters), 1)
        other.load(s.to_dict())
        assert (other.state, other.repeats, other.skips) == (s.state, s.repeats, s.skips)
        assert isinstance(other.state, ScaleState)

    @pytest.mark.parametrize("most", [0, 1, 5])
    def test_no_more_runs_are_made_than_allowed(self, most: int):
        runs: list[int] = []

        def run(scale: int) -> int:
            runs.append(scale)
            return scale

        settled = run_and_redo(0, run, lambda scale, _: scale + 1, most)
        assert (len(runs), settled) == (most + 1, (most, most, most))


SHORT: dict[str, Any] = {
    "training.steps": 8,
    "training.batch": 8,
    "data.test_images": 20,
    "training.log_every": 4,
    "network.input": [1, 8, 8],
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
}
OPTIMISERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 1e-2},
    "momentum": {"name": "momentum", "learning_rate": 0.02, "weight_decay": 1e-3},
    "adagrad": {"name": "adagrad", "learning_rate": 0.02, "weight_decay": 1e-3},
    "adam": {"name": "adam", "learning_rate": 0.003, "weight_decay": 1e-2},
}
ELSEWHERE = ["learning_rate", "clip_threshold", "weight_decay"]


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., training.Run]:
    """Train a small multilayer perceptron; keywords are laid over the recipe, tables by their dotted keys."""
    numbers = iter(range(1000))

    def run(device: str = "float32", backend: str = "numba", **tables: Any) -> training.Run:
        overrides = SHORT | {key.replace("__", "."): value for key, value in tables.items()}
        recipe = training.load_recipe("mlp").with_settings(overrides)
        return training.train(recipe, load_device(device), out=tmp_path / str(next(numbers)), backend=backend)

    return run


def scaling(policy: str = "backoff", **options: Any) -> dict[str, Any]:
    return {"policy": policy, **options}


class TestTraining:
    @most_are_slow(("optimiser", "clip"), product(OPTIMISERS, [None, 0.5]), keep=[("momentum", 0.5), ("adam", 0.5)])
    def test_in_float32_every_placement_gives_the_bits_of_no_scaling(
        self, trained: Callable[..., training.Run], optimiser: str, clip: float | None
    ):
        settings = {"training__optimiser": OPTIMISERS[optimiser]} | ({"training__clip_norm": clip} if clip else {})
        plain = trained(**settings)
        for places in (["gradient"], ELSEWHERE):
            # growing and set from measured gradients: S changes while momentum and moments carry it
            for policy in (
                scaling("backoff", interval=2, start=4.0, compensation=places),
                scaling("max_gradient", compensation=places),
            ):
                run = trained(**settings, loss_scaling=policy)
                assert run.weights_sha256 == plain.weights_sha256
                assert len(set(RunFolder(run.path).read_table("loss_scaling")["scale"])) > 1

    def test_clipping_shortens_what_is_longer_than_its_threshold(self, trained: Callable[..., training.Run]):
        assert trained(training__clip_norm=0.01).weights_sha256 != trained().weights_sha256
        assert trained(training__clip_norm=1e6).weights_sha256 == trained().weights_sha256

    def test_a_repeat_leaves_no_trace_but_the_scale(self, trained: Callable[..., training.Run]):
        one: dict[str, Any] = {"training__steps": 1, "precision": {"gradient": {"rounding": "stochastic"}}}
        # one step: later ones would begin from another scale
        repeated = trained("fp16", **one, loss_scaling=scaling(start=2.0**24, on_overflow="repeat"))
        scale = RunFolder(repeated.path).read_table("loss_scaling")["scale"][-1]
        assert repeated.info["metrics"]["repeats"] > 0
        never = trained("fp16", **one, loss_scaling=scaling("fixed", scale=scale))
        assert never.info["metrics"]["repeats"] == 0
        assert (repeated.weights_sha256, repeated.registers_sha256) == (never.weights_sha256, never.registers_sha256)

    def test_a_scale_forced_back_equals_never_having_overflowed(self, trained: Callable[..., training.Run]):
        # a fixed scale beyond what fits is repeated down in every step, and comes back for the next
        forced = trained("fp16", loss_scaling=scaling("fixed", scale=2.0**24, on_overflow="repeat", backoff=2.0**-14))
        never = trained("fp16", loss_scaling=scaling("fixed", scale=2.0**10))
        assert forced.info["metrics"]["repeats"] == SHORT["training.steps"]
        assert (forced.weights_sha256, forced.registers_sha256) == (never.weights_sha256, never.registers_sha256)

    def test_skipped_iterations_change_no_parameter(self, trained: Callable[..., training.Run]):
        endless = scaling("fixed", scale=2.0**24)
        skipped, longer = (trained("fp16", training__steps=n, loss_scaling=endless) for n in (2, 5))
        assert (skipped.info["metrics"]["skips"], longer.info["metrics"]["skips"]) == (2, 5)
        assert skipped.weights_sha256 == longer.weights_sha256

    def test_adam_counts_updates_and_not_iterations(self, trained: Callable[..., training.Run]):
        adam = {
            "training__optimiser": OPTIMISERS["adam"] | {"weight_decay": 0.0},
            "training__schedule": {"name": "constant"},
        }
        late = trained("fp16", **adam, training__steps=12, loss_scaling=scaling(start=2.0**24, maximum=2.0**24))
        assert late.info["metrics"]["skips"] > 1
        checkpoint = RunFolder(late.path).load_checkpoint()[1]
        assert checkpoint["update"]["applied"] == 12 - late.info["metrics"]["skips"]

    @pytest.mark.parametrize("policy", [
        scaling("fixed", scale=4096.0),
        scaling("max_gradient", on_overflow="repeat", margin=0),
        scaling("backoff", start=2.0**24, interval=2, compensation=ELSEWHERE),
        scaling("statistical", on_overflow="repeat"),
    ])  # fmt: skip
    def test_reference_and_numba_give_the_same_bits(self, trained: Callable[..., training.Run], policy: dict[str, Any]):
        settings = {"training__steps": 5, "training__clip_norm": 0.5, "loss_scaling": policy}
        runs = [trained("fp16", backend, **settings) for backend in ("numba", "reference")]
        assert len({(run.weights_sha256, run.registers_sha256) for run in runs}) == 1
        events = [RunFolder(run.path).read_table("loss_scaling") for run in runs]
        assert events[0] == events[1]

    def test_a_scale_of_no_power_of_two_warns_and_trains(self, trained: Callable[..., training.Run]):
        with pytest.warns(emu.EmuWarning, match="should be a power of two, got 1000"):
            run = trained(loss_scaling=scaling("fixed", scale=1000.0))
        loss = trained().info["metrics"]["train_loss"]
        # each gradient is rounded twice more, 2**-23 of it, in each of 8 steps; S left in would be 1000 times as much
        assert run.info["metrics"]["train_loss"] == pytest.approx(loss, rel=1e-4)


class TestMessages:
    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (
                scaling("backof"),
                "`policy` must be one of none, fixed, max_gradient, backoff, statistical, got 'backof'",
            ),
            (scaling(minimum=2.0, maximum=1.0), "`minimum` of [loss_scaling] must be at most `maximum`, got 2 and 1"),
            (scaling(margin=1), "`margin` is not a key of [loss_scaling]"),
            (scaling("max_gradient", margin=5), "`margin` must be at most 4, got 5"),
            (scaling("fixed"), "`scale` must be given, got nothing"),
            (scaling("fixed", scale=2.0**30), "must lie between `minimum` 6.10352e-05 and `maximum` 1.67772e+07"),
            (scaling(compensation=["clip_threshold"]), "S is taken out exactly once"),
            (scaling(compensation=["gradient", "learning_rate"]), "S is taken out exactly once"),
            (scaling(compensation=["gradient", "weight_decay"]), 'must have no entry beside "gradient"'),
            (scaling(backoff=1.0), "`backoff` must be below 1"),
            (scaling(backoff=0.0), "`backoff` must be above 0"),
            (scaling(minimum=0.0), "`minimum` must be above 0"),
            (scaling(maximum=0.0), "`maximum` must be above 0"),
            (scaling(maximum=2.0**127), "`maximum` must be below 1.7014118346046923e+38"),
            (scaling(start=0.0), "`start` must be above 0"),
            (scaling(growth=1.0), "`growth` must be above 1"),
            (scaling(interval=0), "`interval` must be at least 1"),
            (scaling(hysteresis=0), "`hysteresis` must be at least 1"),
            (scaling(max_repeats=0), "`max_repeats` must be at least 1"),
            (scaling("max_gradient", margin=-1), "`margin` must be at least 0"),
            (scaling("fixed", scale=0.0), "`scale` must be above 0"),
            (scaling("statistical", minimum=0.0), "`minimum` must be above 0"),
            (scaling("statistical", maximum=2.0**127), "`maximum` must be below 1.7014118346046923e+38"),
            (scaling("statistical", quantile=-0.1), "`quantile` must be at least 0"),
            (scaling("statistical", mean_decay=1.0), "`mean_decay` must be below 1"),
            (scaling("statistical", variance_decay=-0.1), "`variance_decay` must be at least 0"),
        ],
    )
    def test_a_table_that_breaks_a_rule_says_which(self, table: dict[str, Any], message: str):
        with pytest.raises(emu.ConfigError) as caught:
            training.load_recipe("mlp").with_settings({"loss_scaling": table})
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_what_a_table_leaves_out_is_as_documented(self):
        every = {
            "on_overflow": "skip", "compensation": ("gradient",), "minimum": 2.0**-14, "maximum": 2.0**24,
            "backoff": 0.5, "max_repeats": 8,
        }  # fmt: skip
        own: list[tuple[Any, dict[str, Any]]] = [
            (FixedScale(policy="fixed", scale=2.0), {"scale": 2.0}),
            (MaxGradientScale(policy="max_gradient"), {"start": 2.0**16, "margin": 1}),
            (BackoffScale(policy="backoff"), {"start": 2.0**16, "growth": 2.0, "interval": 2000, "hysteresis": 1}),
            (
                StatisticalScale(policy="statistical"),
                {"start": 2.0**16, "quantile": 3.09, "mean_decay": 0.99, "variance_decay": 0.999, "minimum": 1.0}
                | {"maximum": 2.0**14},
            ),
        ]
        for policy, more in own:
            assert policy.model_dump() == every | more | {"policy": policy.policy}
            assert policy.reads_limit == (policy.policy in ("max_gradient", "statistical"))
            assert policy.needs_logarithm == (policy.policy == "statistical")

    @pytest.mark.parametrize(
        ("fmt", "limit"),
        [("fp16", 15), ("bf16", 127), ("fix16f13", 1), ("ufix16f13", 2), ("fix8f0", 6), ("fix8f10", -4)],
    )
    def test_the_limit_is_the_exponent_of_the_largest_gradient_that_there_can_be(self, fmt: str, limit: int):
        table = PrecisionTable.model_validate({"gradient": {"format": fmt}})
        formats = Policy(table.over(load_device("fp16").precision))
        policy = MaxGradientScale(policy="max_gradient")
        assert LossScaler(policy, formats, CounterTable(formats.register))._limit("fc", "gradient") == limit
        assert math.frexp(float(parse(fmt).max))[1] - 1 == limit

    @pytest.mark.parametrize("table", [
        scaling(minimum=2.0**-140, maximum=2.0**126, start=2.0**-140, interval=1, hysteresis=1, max_repeats=1),
        scaling("statistical", minimum=2.0**-140, maximum=2.0**126, quantile=0.0, mean_decay=0.0, variance_decay=0.0),
        scaling("max_gradient", margin=0), scaling("max_gradient", margin=4),
        scaling("fixed", scale=2.0**126, maximum=2.0**126),
    ])  # fmt: skip
    def test_the_ends_of_every_range_are_taken_as_they_are(self, table: dict[str, Any]):
        held = training.load_recipe("mlp").with_settings({"loss_scaling": table}).loss_scaling
        assert table.items() <= held.model_dump().items()

    def test_a_placement_that_leaves_clipping_or_decay_scaled_is_refused(self):
        for settings, place in (
            ({"training.clip_norm": 1.0}, "clip_threshold"),
            ({"training.optimiser": OPTIMISERS["sgd"]}, "weight_decay"),
        ):
            table = {"loss_scaling": scaling(compensation=["learning_rate"])}
            with pytest.raises(emu.ConfigError, match=f"must have '{place}' if"):
                training.load_recipe("mlp").with_settings(table | settings)

    def test_a_loss_format_that_cannot_hold_the_scale_is_refused(self, tmp_path: Path):
        recipe = training.load_recipe("mlp").with_settings({"loss_scaling": scaling(), "precision.loss.format": "fp16"})
        with pytest.raises(emu.ConfigError, match=r"format of role `loss` must hold every S up to 1.67772e\+07"):
            training.train(recipe, load_device("fp16"), out=tmp_path / "run")

    def test_recipes_without_a_system_do_not_speak_of_it(self):
        dumped = training.load_recipe("mlp").model_dump(mode="json")
        assert "loss_scaling" not in dumped
        assert "clip_norm" not in dumped["training"]


class TestTheSelector:
    """`[[precision.layers]]` with `full`, `from_step` and `until_step`: which unit computes how, and when."""

    def layers(self, *entries: dict[str, Any]) -> dict[str, Any]:
        return {"precision": {"layers": list(entries)}}

    def test_everything_in_full_precision_is_float32(self, trained: Callable[..., training.Run]):
        full = trained("fp16", **self.layers({"match": "*", "full": True}))
        assert (full.weights_sha256, full.registers_sha256) == (
            (plain := trained("float32")).weights_sha256, plain.registers_sha256
        )  # fmt: skip

    def test_a_window_that_never_comes_and_one_that_never_goes_are_reduced_and_full(
        self, trained: Callable[..., training.Run]
    ):
        never = trained("fp16", **self.layers({"match": "*", "full": True, "from_step": 1000}))
        assert never.weights_sha256 == trained("fp16").weights_sha256
        always = trained("fp16", **self.layers({"match": "*", "full": True, "until_step": 1000}))
        assert always.weights_sha256 == trained("float32").weights_sha256

    def test_full_precision_ends_in_the_step_that_is_named(self, trained: Callable[..., training.Run]):
        window = self.layers({"match": "*", "full": True, "until_step": 3})
        head = trained("fp16", training__steps=3, training__schedule={"name": "constant"}, **window)
        float32 = trained("float32", training__steps=3, training__schedule={"name": "constant"})
        longer = trained("fp16", training__steps=4, training__schedule={"name": "constant"}, **window)
        assert head.weights_sha256 == float32.weights_sha256
        assert (
            longer.weights_sha256
            != trained("float32", training__steps=4, training__schedule={"name": "constant"}).weights_sha256
        )
        assert {row["format"] for row in longer.info["formats"] if row["role"] == "error"} == {"fp16"}

    def test_one_layer_is_switched_and_the_others_are_not(self):
        recipe = training.load_recipe("mlp").with_settings(
            self.layers({"match": "fc1", "full": True, "from_step": 2, "until_step": 4, "error": {"format": "bf16"}})
        )
        policy = Policy(load_device("fp16").with_precision(recipe.precision, origin="the recipe").precision)
        formats = [
            [str(policy.at(step).stage(layer, "error").format) for layer in ("fc1", "fc2")] for step in (1, 2, 3, 4)
        ]
        assert formats == [["fp16", "fp16"], ["bf16", "fp16"], ["bf16", "fp16"], ["fp16", "fp16"]]
        assert str(policy.at(2).stage("fc1", "weight").format) == "fp32"
        assert str(policy.at(2).mac("fc1").accumulator) == "fp32"
        assert policy.at(1) is policy.at(4)
        assert len(policy.every()) == 2

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (
                {"match": "fc1", "full": True, "from_step": 5, "until_step": 5},
                "`until_step` of layers fc1 must be above",
            ),
            ({"match": "fc1", "from_step": 5, "master": {"format": "fp16"}}, "must have no table of `master`"),
        ],
    )
    def test_a_window_that_cannot_be_says_why(self, entry: dict[str, Any], message: str):
        with pytest.raises(emu.ConfigError) as caught:
            training.load_recipe("mlp").with_settings(self.layers(entry))
        assert message in str(caught.value)
