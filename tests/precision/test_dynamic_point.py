"""Dynamic fixed point: the published numbers of its rules, and what a redo must and must not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu import training
from emu.autodiff import Operation, Value
from emu.formats import Fixed, parse
from emu.hardware import Device, DynamicPoint, load_device
from emu.hardware.quantity import Quantity
from emu.precision import CounterTable, DatapathRunner, Policy
from emu.precision.dynamic_point import DynamicPointRunner, Points, Tensor
from emu.precision.point_rules import by_leading_bits, by_single_bits, next_point, range_exponent
from emu.precision.profile import Profile
from emu.precision.shapes import ShapeArray, ShapeRunner
from emu.training.folders.run_folder import RunFolder

W16, W8, U8 = (parse(text) for text in ("fix16f?", "fix8f?", "ufix8f?"))
PUBLISHED = {-12: 10, -9: 100, -6: 3000, -3: 5000, -1: 1500, 0: 300, 1: 80, 2: 9, 3: 1}


def register_of(counts: dict[int, int], none: int = 0, lowest: int = -40, bins: int = 80) -> emu.StatisticsRegister:
    held = {"lowest": lowest, "bins": bins, "none": none, "below": 0, "above": 0, "nonfinite": 0, "max_exponent": None}
    positive = {str(exponent): count for exponent, count in counts.items()}
    return emu.StatisticsRegister.from_dict(
        held | {"total": sum(counts.values()) + none, "positive": positive, "negative": {}}
    )


class TestThePublishedNumbers:
    @pytest.mark.parametrize(("r_max", "wide", "narrow"), [(0.0, 11, 3), (1e-4, 12, 4), (1e-3, 13, 5), (1e-2, 14, 6)])
    def test_the_histogram_gives_these_points(self, r_max: float, wide: int, narrow: int):
        register = register_of(PUBLISHED)
        assert register.total == 10000
        assert by_leading_bits(register, W16, 0, r_max) == wide
        assert by_leading_bits(register, W8, 0, r_max) == narrow

    def test_one_percent_leaves_90_of_10000_beyond(self):
        point = by_leading_bits(register_of(PUBLISHED), W16, 0, 1e-2)
        assert register_of(PUBLISHED).count_from(range_exponent(W16, point)) == 90

    def test_zeros_count_in_the_total_and_nothing_else(self):
        # 10 in 10000 leave the range at m = 2; among ten times as many results they are 1e-4
        assert by_leading_bits(register_of(PUBLISHED, none=90000), W16, 0, 1e-4) == 13

    def test_all_zero_keeps_the_point(self):
        assert by_leading_bits(register_of({}, none=7), W16, 5, 1e-4) == 5
        assert by_single_bits(register_of({}), W16, 5, 1e-4) == 5
        assert by_single_bits(register_of({}, none=7), W16, 5, 1e-4) == 5

    def test_an_unsigned_word_has_a_bit_more(self):
        assert by_leading_bits(register_of({3: 5}), U8, 0, 0.0) == 4
        assert by_leading_bits(register_of({3: 5}), W8, 0, 0.0) == 3

    @pytest.mark.parametrize(("exponent", "point"), [(3, 3), (-20, 26), (30, -24)])
    def test_one_value_fits_exactly(self, exponent: int, point: int):
        assert by_leading_bits(register_of({exponent: 1}), W8, 0, 0.0) == point
        x = np.array([2.0**exponent * 1.5, -(2.0**exponent) * 1.5])
        register = emu.StatisticsRegister(-40, 80)
        flags = emu.Flags()
        emu.quantize(x, Fixed(8, point), register=register, flags=flags)
        assert flags.overflow == 0
        emu.quantize(x, Fixed(8, point + 1), flags=flags)
        assert flags.overflow == 2

    def test_what_lies_above_the_positions_asks_for_a_range_beyond_them(self):
        register = emu.StatisticsRegister(-4, 6)
        emu.quantize(np.array([2.0**10, 1.0]), "fp32", register=register)
        assert by_leading_bits(register, W8, 0, 0.0) == 7 - 3

    def test_what_lies_below_the_positions_counts_as_if_it_lay_in_the_next_one(self):
        register = emu.StatisticsRegister(-4, 6)
        emu.quantize(np.array([2.0**-10, 2.0**-20]), "fp32", register=register)
        assert by_leading_bits(register, W8, 0, 0.0) == 7 - -4

    @pytest.mark.parametrize(
        ("point", "wanted"),
        # the share beyond 2**(7 - point) of the published counts, r_max 1e-3: 1 at m 3, 10 at m 2, 90 at m 1
        [(2, 3), (3, 4), (4, 5), (5, 5), (6, 5), (7, 6)],
    )
    def test_courbariauxs_rule_moves_one_bit_at_a_time(self, point: int, wanted: int):
        assert by_single_bits(register_of(PUBLISHED), W8, point, 1e-3) == wanted

    def test_limits_hold_a_point_back(self):
        table = DynamicPoint(r_max=0.0, step_limit=2, highest_point=9)
        assert next_point(register_of({0: 1}), W16, 4, table) == 6
        assert next_point(register_of({0: 1}), W16, 12, table) == 9
        assert next_point(register_of({0: 1}), W16, 20, DynamicPoint(r_max=0.0)) == 14

    def test_the_published_product_in_three_formats(self):
        a, b = np.array([[3217 / 1024]]), np.array([[-11776 / 16384]])
        assert 3217 * -11776 == -37883392
        register = emu.StatisticsRegister()
        options: dict[str, Any] = {
            "a_format": "fix16f10",
            "b_format": "fix16f14",
            "mac": emu.Mac(accumulator="fix40f24"),
        }
        codes = [
            int(Fixed(16, f).encode(emu.matmul(a, b, **options, out_format=f"fix16f{f}", register=register))[0, 0])
            for f in (10, 13, 14)
        ]
        assert [code - 65536 for code in codes] == [-2312, -18498, -32768]
        assert register.negative == {1: 3}  # p = 25 of the raw, 24 of them fraction


def runner_of(
    schedule: str, threshold: int = 1, start: dict[Tensor, int] | None = None, backend: str = "reference", **table: Any
) -> DynamicPointRunner:
    policy = Policy(load_device("dlu16").precision)
    points = Points(DynamicPoint(schedule=schedule, threshold=threshold, r_max=0.0, **table), policy)
    points.of.update(start or {})
    return DynamicPointRunner(policy, points, backend=backend, counters=CounterTable(policy.register))


FC = Tensor("fc", "activation", "")
#: Leading bit 0, so that 14 fraction bits hold it: 1.5 fits between -2 and 2.
X = Value(np.array([1.5, -0.3, 1e-5, 0.0], np.float32), parse("fp32"))


class TestARedo:
    @pytest.mark.parametrize(
        ("start", "threshold", "redos", "point"),
        [(14, 0, 0, 14), (13, 0, 1, 14), (13, 1, 0, 13), (15, 1, 0, 15), (12, 1, 1, 14), (16, 1, 1, 14), (9, 5, 0, 9),
         (8, 5, 1, 14)],
    )  # fmt: skip
    def test_it_happens_only_where_the_point_is_off_by_more_than_the_threshold_and_the_next_run_begins_at_the_new_one(
        self, start: int, threshold: int, redos: int, point: int
    ):
        runner = runner_of("conditional_redo", threshold, {FC: start})
        for at in (point, 14):
            result = runner.run(Operation("quantize", (X,)), "activation", "fc")
            assert (runner.points.redos, runner.points.of[FC]) == (redos, 14)
            assert result.format == Fixed(16, at)
            assert np.array_equal(result.array, emu.quantize(X.array, Fixed(16, at)))

    @pytest.mark.parametrize("start", [-3, 2, 13, 14, 15, 30])
    def test_the_result_and_the_counts_are_those_of_a_run_that_started_at_the_new_point(self, start: int):
        redone, there = (runner_of("always_redo", start={FC: point}) for point in (start, 14))
        results = [runner.run(Operation("quantize", (X,)), "activation", "fc") for runner in (redone, there)]
        assert results[0].format == results[1].format
        assert np.array_equal(results[0].array, results[1].array)
        assert redone.counters is not None
        assert there.counters is not None
        assert redone.counters.to_dict() == there.counters.to_dict()
        assert redone.counters.of("fc", "activation").register.total == X.array.size

    @pytest.mark.parametrize("role", ["activation", "error", "gradient"])
    @pytest.mark.parametrize("schedule", ["always_redo", "conditional_redo"])
    @pytest.mark.parametrize("backend", ["reference", "numba"])
    def test_a_product_that_runs_again_writes_what_it_would_have_written_at_that_point(
        self, schedule: str, role: str, backend: str
    ):
        """Sums that saturate at 40 bits behind a thousand terms and come back, so that every add counts."""
        rng = np.random.default_rng(7)
        raws = [rng.integers(2**14, 2**15, shape) for shape in ((9, 1500), (1500, 5))]
        raws[1][1300:] *= -1
        a, b = (Value(Fixed(16, f).from_raw(raw), Fixed(16, f)) for f, raw in zip((3, 2), raws, strict=True))
        operation, here = Operation("matmul", (a, b)), Tensor("fc", role, "")
        redone = runner_of(schedule, start={here: 9}, backend=backend)
        result = redone.run(operation, role, "fc")
        assert redone.points.redos == 1
        point = redone.points.of[here]
        straight = DatapathRunner(redone.policy, backend="reference", counters=CounterTable(redone.policy.register))
        expected = straight.run(operation, role, "fc", point)
        assert result.format == expected.format == Fixed(16, point)
        assert np.array_equal(result.array, expected.array)
        assert redone.counters is not None
        assert straight.counters is not None
        assert redone.counters.to_dict() == straight.counters.to_dict()
        assert straight.counters.of("fc", role).flags.accumulator_overflow > 0

    def test_the_second_run_draws_the_first_ones_random_numbers(self):
        table = load_device("dlu16").precision
        role = table.activation.model_copy(update={"rounding": "stochastic"})
        policy = Policy(table.model_copy(update={"activation": role}))
        results: list[Any] = []
        for start in (5, 14):
            points = Points(DynamicPoint(schedule="always_redo", r_max=0.0), policy)
            points.of[FC] = start
            runner = DynamicPointRunner(policy, points, backend="reference", counters=CounterTable(policy.register))
            runner.step = 3
            results.append(runner.run(Operation("quantize", (X,)), "activation", "fc").array)
        assert np.array_equal(*results)

    def test_a_selection_keeps_its_operands_point_and_counts_nothing(self):
        runner = runner_of("conditional_redo")
        held = Value(emu.quantize(X.array, "fix16f9"), Fixed(16, 9))
        result = runner.run(Operation("relu", (held,)), "activation", "relu1")
        assert result.format == Fixed(16, 9)
        assert not runner.points.of
        assert runner.counters is not None
        assert all(counts.elements == 0 for _, counts in runner.counters.items())

    @pytest.mark.parametrize("held", [Fixed(16, 9, signed=False), Fixed(15, 9), parse("fp32")])
    def test_a_selection_of_another_word_is_written_into_the_roles(self, held: Any):
        value = Value(emu.quantize(np.abs(X.array), held), held)
        runner = runner_of("always_redo", start={Tensor("relu1", "activation", ""): 3})
        assert runner.run(Operation("relu", (value,)), "activation", "relu1").format == Fixed(16, 14)
        shapes = ShapeRunner(Policy(load_device("dlu16").precision))
        asked = shapes.run(Operation("relu", (value.with_array(ShapeArray((4,), np.float32)),)), "activation", "relu1")
        assert asked.format == Fixed(16, 8), "the middle of a word whose point is open"

    def test_a_step_in_shapes_keeps_the_point_of_a_selections_word(self):
        shapes = ShapeRunner(Policy(load_device("dlu16").precision))
        held = Value(ShapeArray((4,), np.float32), Fixed(16, 9))
        assert shapes.run(Operation("relu", (held,)), "activation", "relu1").format == Fixed(16, 9)

    def test_parts_of_a_role_have_points_of_their_own(self):
        runner = runner_of("always_redo")
        for part, factor in (("weight", 1.0), ("bias", 64.0)):
            x = X.with_array(X.array * np.float32(factor))
            runner.run(Operation("quantize", (x,), part=part), "gradient", "fc")
        assert {tensor.part: point for tensor, point in runner.points.of.items()} == {"weight": 14, "bias": 8}


class TestMainTraining:
    def test_points_are_set_every_interval_from_everything_since_the_last_time(self):
        runner = runner_of("conditional_redo", pretraining_steps=0, interval=3)
        points: list[int] = []
        for step, factor in enumerate((1.0, 256.0, 1.0, 1.0, 1.0, 1.0, 1.0)):
            runner.step = step
            x = X.with_array(X.array * np.float32(factor))
            runner.run(Operation("quantize", (x,)), "activation", "fc")
            if runner.points.is_due(step + 1):
                runner.flush()
                runner.points.set_all(step + 1)
            points.append(runner.points.of[FC])
        assert points == [8, 8, 6, 6, 6, 14, 14]
        assert runner.points.redos == 0

    @pytest.mark.parametrize(
        ("schedule", "due"), [("conditional_redo", [7, 10, 13]), ("float_pretraining", [4, 7, 10, 13])]
    )
    def test_points_are_due_every_interval_behind_pretraining_and_at_the_end_of_one_in_float(
        self, schedule: str, due: list[int]
    ):
        points = runner_of(schedule, pretraining_steps=4, interval=3).points
        assert [steps for steps in range(14) if points.is_due(steps)] == due

    def test_what_is_counted_by_tensor_goes_to_the_layer_when_it_is_read(self):
        runner = runner_of("conditional_redo", pretraining_steps=0)
        runner.run(Operation("quantize", (X,)), "activation", "fc")
        assert runner.counters is not None
        for _ in range(2):
            runner.flush()
            assert runner.counters.of("fc", "activation").register.total == X.array.size

    def test_what_several_processes_ran_again_is_added_to_what_was_run_before(self):
        points = runner_of("conditional_redo").points
        points.redos, points.runs = 5, 20

        def every(mine: dict[str, Any]) -> list[dict[str, Any]]:
            return [mine, mine | {"redos": 5 + 3, "runs": 20 + 7}]

        with points.joined_afterwards(every):
            points.redos, points.runs = 5 + 2, 20 + 4
        assert (points.redos, points.runs) == (5 + 2 + 3, 20 + 4 + 7)

    def test_an_operation_that_runs_again_says_so_to_the_machine(self):
        policy, profile = Policy(load_device("dlu16").precision), Profile()
        points = Points(DynamicPoint(schedule="always_redo", r_max=0.0), policy)
        profile.demands = []
        runner = DynamicPointRunner(
            policy, points, backend="reference", counters=CounterTable(policy.register), profile=profile
        )
        runner.run(Operation("quantize", (X,)), "activation", "fc")
        runs = [one.again for one in profile.demands if one.operation == "quantize"]
        assert runs == [False, True]

    def test_evaluation_moves_nothing(self):
        runner = runner_of("conditional_redo", start={FC: 9})
        policy = Policy(load_device("dlu16").precision)
        frozen = DynamicPointRunner(
            policy, runner.points, backend="reference", counters=CounterTable(policy.register), frozen_at=0
        )
        assert frozen.run(Operation("quantize", (X,)), "activation", "fc").format == Fixed(16, 9)
        assert runner.points.of == {FC: 9}


SHORT: dict[str, Any] = {
    "training.steps": 9,
    "training.batch": 8,
    "data.test_images": 20,
    "training.log_every": 4,
    "network.input": [1, 8, 8],
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
    "dynamic_point.pretraining_steps": 4,
    "dynamic_point.interval": 2,
}


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., training.Run]:
    numbers = iter(range(1000))

    def run(device: str = "dlu16", backend: str = "numba", **tables: Any) -> training.Run:
        overrides = SHORT | {key.replace("__", "."): value for key, value in tables.items()}
        recipe = training.load_recipe("mlp").with_settings(overrides)
        return training.train(recipe, load_device(device), out=tmp_path / str(next(numbers)), backend=backend)

    return run


def bits(run: training.Run) -> tuple[str, str]:
    return run.weights_sha256, run.registers_sha256


def rows_of(run: training.Run, table: str) -> list[dict[str, Any]]:
    columns = RunFolder(run.path).read_table(table)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def spent_on(run: training.Run, kind: str) -> int:
    return sum(row["picoseconds"] for row in rows_of(run, "simulation") if row["kind"] == kind)


class TestTraining:
    @pytest.mark.parametrize("device", ["dlu16", "dlu8"])
    def test_at_threshold_0_conditional_redo_is_always_redo_bit_for_bit(
        self, trained: Callable[..., training.Run], device: str
    ):
        always = trained(device, dynamic_point__schedule="always_redo")
        conditional = trained(device, dynamic_point__schedule="conditional_redo", dynamic_point__threshold=0)
        assert bits(always) == bits(conditional)
        assert conditional.info["metrics"]["redos"] < always.info["metrics"]["redos"]

    def test_the_default_threshold_takes_less_simulated_time(self, trained: Callable[..., training.Run]):
        always, few = (trained(dynamic_point__schedule=name) for name in ("always_redo", "conditional_redo"))
        assert few.info["simulated_seconds"] < always.info["simulated_seconds"]
        redos = [spent_on(run, "redo") for run in (always, few)]
        assert 0 < redos[1] < redos[0]

    def test_the_default_threshold_runs_fewer_operations_again(self, trained: Callable[..., training.Run]):
        metrics = [trained(dynamic_point__threshold=threshold).info["metrics"] for threshold in (0, 1, 40)]
        redos, runs = ([one[name] for one in metrics] for name in ("redos", "pretraining_runs"))
        assert redos[0] > redos[1] > redos[2] == 0
        assert [run - redo for run, redo in zip(runs, redos, strict=True)] == [runs[2]] * 3

    @most_are_slow("schedule", ["float_pretraining", "always_redo", "conditional_redo"], keep=["conditional_redo"])
    def test_reference_and_numba_give_the_same_bits(self, trained: Callable[..., training.Run], schedule: str):
        runs = [trained(backend=backend, dynamic_point__schedule=schedule) for backend in ("numba", "reference")]
        assert bits(runs[0]) == bits(runs[1])
        tables = [RunFolder(run.path).read_table("points") for run in runs]
        assert tables[0] == tables[1]
        assert tables[0]["step"]

    def test_pre_training_in_float_is_float32_until_its_last_step(self, trained: Callable[..., training.Run]):
        settings: dict[str, Any] = {"training__schedule": {"name": "constant"}, "precision__master__format": "fp32"}
        steps = {"training__steps": 4}
        float32 = trained("dlu16", **settings, **steps, dynamic_point__schedule="float_pretraining")
        recipe = training.load_recipe("mlp").with_settings(
            {key: value for key, value in SHORT.items() if not key.startswith("dynamic_point")}
            | {"training.steps": 4, "training.schedule": {"name": "constant"}}
        )
        plain = training.train(recipe, load_device("float32"), out=float32.path.parent / "plain", backend="numba")
        assert float32.weights_sha256 == plain.weights_sha256

    def test_six_roles_of_every_layer_have_points(self, trained: Callable[..., training.Run]):
        run = trained()
        _, state = RunFolder(run.path).load_checkpoint()
        there = {(layer, role) for layer, role, _, _ in state["dynamic_point"]["points"]}
        for layer in ("fc1", "fc2", "output"):
            assert {(layer, role) for role in ("weight", "bias", "activation", "gradient", "update")} <= there
        assert {("fc2", "error"), ("output", "error"), ("input", "activation")} <= there

    @pytest.mark.parametrize("schedule", ["float_pretraining", "conditional_redo"])
    def test_an_evaluation_of_the_run_finds_its_points_and_its_accuracy(
        self, trained: Callable[..., training.Run], schedule: str
    ):
        run = trained(dynamic_point__schedule=schedule)
        assert training.evaluate(run.path, backend="numba").test_accuracy == run.test_accuracy

    def test_weights_on_another_device_find_points_of_their_own(self, trained: Callable[..., training.Run]):
        run = trained()
        found = training.evaluate(run.path, device=load_device("dlu8"), backend="numba")
        assert found.test_accuracy > 0
        assert found.counters.of("fc1", "activation").flags.overflow <= 1e-3 * 20 * 24

    def test_courbariauxs_rule_moves_every_point_by_single_bits(self, trained: Callable[..., training.Run]):
        run = trained(dynamic_point__rule="courbariaux", dynamic_point__schedule="always_redo")
        at: dict[tuple[str, ...], int] = {}
        for row in rows_of(run, "points"):
            tensor = (row["layer"], row["role"], row["part"])
            assert abs(row["point"] - at.get(tensor, 8)) <= 1
            at[tensor] = row["point"]
        assert max(at.values()) > 12

    def test_points_follow_a_scaled_loss_so_that_no_weight_changes(self, trained: Callable[..., training.Run]):
        """Integer words never become infinite; errors and gradients 256 times as large have 8 fraction bits less."""
        table = {"dynamic_point__schedule": "always_redo"}
        run = trained(loss_scaling={"policy": "fixed", "scale": 256.0, "on_overflow": "repeat"}, **table)
        assert (run.info["metrics"]["repeats"], run.info["metrics"]["skips"]) == (0, 0)
        assert run.weights_sha256 == trained(**table).weights_sha256

    def test_a_repeat_leaves_points_and_counts_as_if_it_had_never_been(self, trained: Callable[..., training.Run]):
        """Binary16 errors overflow at 2**24, and fit at 2**10, which the first repeat reaches."""
        halves = {"precision__error__format": "fp16", "precision__gradient__format": "fp16"}
        table = {"training__steps": 25, "training__schedule": {"name": "constant"}, **halves}
        policy = {"policy": "fixed", "scale": 2.0**24, "on_overflow": "repeat", "backoff": 2.0**-14}
        repeated = trained(loss_scaling=policy, **table)
        straight = trained(loss_scaling={"policy": "fixed", "scale": 2.0**10}, **table)
        assert repeated.info["metrics"]["repeats"] == 25
        assert bits(repeated) == bits(straight)
        assert rows_of(repeated, "points") == rows_of(straight, "points")
        assert repeated.info["simulated_seconds"] > straight.info["simulated_seconds"]
        assert spent_on(repeated, "redo") > spent_on(straight, "redo")

    def test_points_of_a_layer_that_was_in_full_precision_for_a_while_move_behind_it(
        self, trained: Callable[..., training.Run]
    ):
        window = {"match": "fc2", "full": True, "until_step": 6}
        run = trained(training__steps=16, precision__layers=[window])
        moved = {row["step"] for row in rows_of(run, "points") if row["layer"] == "fc2" and row["role"] == "activation"}
        assert moved
        assert min(moved) > 6

    def test_an_evaluation_inside_float_pretraining_is_float32s_in_every_batch(
        self, trained: Callable[..., training.Run]
    ):
        """Two batches of test images, behind one step of pre-training in float32."""
        settings = {"training__steps": 1, "data__test_images": 400, "dynamic_point__pretraining_steps": 9}
        run = trained(dynamic_point__schedule="float_pretraining", precision__master__format="fp32", **settings)
        recipe = training.load_recipe("mlp").with_settings(
            {key: value for key, value in SHORT.items() if not key.startswith("dynamic_point")}
            | {"training.steps": 1, "data.test_images": 400}
        )
        plain = training.train(recipe, load_device("float32"), out=run.path.parent / "float32", backend="numba")
        assert run.info["metrics"]["test_loss"] == plain.info["metrics"]["test_loss"]
        found = training.evaluate(run.path, backend="numba")
        assert found.test_loss == run.info["metrics"]["test_loss"]


class TestMessages:
    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("threshold", -1, "`threshold` must be at least 0, got -1"),
            ("r_max", 1.5, "`r_max` must be at most 1.0, got 1.5"),
            ("rule", "leading_bit", "`rule` must be one of leading_bits, courbariaux, got 'leading_bit'"),
            ("schedule", "never", "`schedule` must be one of float_pretraining, always_redo, conditional_redo"),
            ("lowest_point", 60, "`lowest_point` of [dynamic_point] must be at most `highest_point`, got 60 and 48"),
        ],
    )
    def test_a_table_that_breaks_a_rule_says_which(self, key: str, value: object, message: str):
        with pytest.raises(emu.ConfigError) as caught:
            training.load_recipe("mlp").with_settings({f"dynamic_point.{key}": value})
        assert message in str(caught.value)

    def test_a_device_without_open_points_names_what_is_missing(self, tmp_path: Path):
        recipe = training.load_recipe("mlp").with_settings({"dynamic_point.threshold": 2})
        with pytest.raises(
            emu.ConfigError, match=r"must be used with a device whose words have open points.*got device fp16"
        ):
            training.train(recipe, load_device("fp16"), out=tmp_path / "run")

    def test_a_device_without_statistics_registers_names_what_is_missing(self):
        device = load_device("dlu16")
        units = {name: unit for name, unit in device.compute.units.items() if unit.kind != "statistics"}
        data = replace_units(device, units)
        with pytest.raises(ValueError, match="must have a unit of kind 'statistics'"):
            Device.model_validate(data)

    def test_statistics_registers_of_too_few_lanes_are_refused(self):
        device = load_device("dlu16")
        few = device.compute.units["statistics"].model_copy(update={"lanes": Quantity(value=4, source="half")})
        with pytest.raises(ValueError, match=r"unit 'statistics' must have at least the 8 lanes of 'vector'.* got 4"):
            Device.model_validate(replace_units(device, {**device.compute.units, "statistics": few}))

    @pytest.mark.parametrize(
        ("device", "settings", "message"),
        [
            ("fixed16", {"precision.weight.format": "fix16f?"}, "must have a unit of kind 'statistics'"),
            ("dlu16", {"precision.master.format": "fix32f?"}, "role `master` must have a fixed binary point"),
            (
                "dlu16",
                {"loss_scaling": {"policy": "max_gradient"}},
                "must have gradients of a format whose point is fixed",
            ),
            (
                "dlu16",
                {"loss_scaling": {"policy": "statistical"}},
                "must have gradients of a format whose point is fixed",
            ),
        ],
    )
    def test_a_recipe_cannot_make_a_machine_that_is_none(
        self, device: str, settings: dict[str, Any], message: str, tmp_path: Path
    ):
        recipe = training.load_recipe("mlp").with_settings(settings)
        with pytest.raises(emu.ConfigError, match=message):
            training.train(recipe, load_device(device), out=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_master_word_must_have_its_point_in_place(self):
        with pytest.raises(ValueError, match="format of role `master` must have a fixed binary point"):
            Device.model_validate(
                {**load_device("dlu16").model_dump(exclude_none=True),
                 "precision": {**load_device("dlu16").precision.model_dump(exclude_none=True),
                               "master": {"format": "fix32f?"}}}
            )  # fmt: skip


def replace_units(device: Device, units: dict[str, Any]) -> dict[str, Any]:
    data = device.model_dump(exclude_none=True)
    data["compute"] = {
        **data["compute"],
        "units": {name: unit.model_dump(exclude_none=True) for name, unit in units.items()},
    }
    return data
