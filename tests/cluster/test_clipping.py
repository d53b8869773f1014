"""Rules of clipping against loops in Python, and the published times of layers clipped behind backpropagation."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu._config import checked
from emu.cluster.clipping import (
    ClippingTable,
    ConstantThresholds,
    LayerGradients,
    MomentumThresholds,
    ParameterNorm,
    VarianceThresholds,
    apply_rules,
    schedule,
)
from emu.cluster.clipping.layer import joined, mean_and_variance
from emu.errors import ConfigError
from emu.hardware import Event

F = np.float32
NAN, INF = float("nan"), float("inf")


def layer(*columns: Any, **options: Any) -> LayerGradients:
    return LayerGradients({"weight": np.array(columns, F)}, **options)


def bits(array: Any) -> list[int]:
    return np.asarray(array, F).view(np.uint32).ravel().tolist()


def lanes(values: Any) -> Any:
    """The sum of 64 lanes, in Python: lane j takes values j, j + 64, ...; then neighbours are joined."""
    sums = [F(0)] * 64
    for i, value in enumerate(values):
        sums[i % 64] = F(sums[i % 64] + F(value))
    while len(sums) > 1:
        sums = [F(sums[i] + sums[i + 1]) for i in range(0, len(sums), 2)]
    return sums[0]


# ---- D2: thresholds ----


def test_parameters_and_momentum_are_read_where_any_rule_asks_for_them_d2():
    constant, variance = {"rule": "constant", "high": 1.0}, {"rule": "variance"}
    for own, name in (({"rule": "parameter_norm"}, "reads_masters"), ({"rule": "momentum"}, "reads_momentum")):
        rules: Any = [[own], [constant, own], [own, variance], [constant, variance]]
        assert [getattr(ClippingTable(rules=some), name) for some in rules] == [True, True, True, False]


def test_a_layer_without_thresholds_has_nothing_clipped_d2():
    """NaN alone gives no mean; a first update no momentum."""
    seen = LayerGradients({"weight": np.full((2, 3), np.nan, np.float32)}, buffers={"weight": np.full((2, 3), np.nan)})
    for rule in (VarianceThresholds(rule="variance"), MomentumThresholds(rule="momentum")):
        found = rule.apply(seen, {})
        assert (found.counts, found.limits) == ({"weight": 0}, None)
        assert found.gradients["weight"] is seen.gradients["weight"]


@pytest.mark.parametrize(("rules", "said"), [
    ([], "`rules`"), ([{"rule": "parameter_norm", "least": 0}], "`least`"),
    ([{"rule": "parameter_norm", "ratio": 0}], "`ratio`"), ([{"rule": "variance", "k": 0}], "`k`"),
    ([{"rule": "variance", "decay": 1}], "`decay`"), ([{"rule": "momentum", "k": -1}], "`k`"),
])  # fmt: skip
def test_numbers_of_rules_out_of_range_are_refused_by_name(rules: Any, said: str):
    with pytest.raises(ConfigError, match=said):
        checked(ClippingTable, {"rules": rules}, file="mine.toml")
    small = [{"rule": "parameter_norm", "least": 0.001, "ratio": 0.001}, {"rule": "variance", "k": 0.001, "decay": 0}]
    assert len(checked(ClippingTable, {"rules": small}, file="mine.toml").rules) == 2


def test_the_published_workers_are_clipped_before_the_mean_and_not_behind_it_d2_d3():
    rule = ConstantThresholds(high=1.0, low=-1.0)
    a = rule.apply(layer([2, 0.5, -3]), {}).gradients["weight"]
    b = rule.apply(layer([0, 0.5, 1]), {}).gradients["weight"]
    assert (a.tolist(), b.tolist()) == ([[1, 0.5, -1]], [[0, 0.5, 1]])
    assert ((a + b) / F(2)).tolist() == [[0.5, 0.5, 0]]
    whole = rule.apply(layer([(2 + 0) / 2, 0.5, (-3 + 1) / 2]), {})
    assert (whole.gradients["weight"].tolist(), whole.counts) == ([[1, 0.5, -1]], {"weight": 0})


def test_nan_zeros_and_thresholds_stay_and_infinities_become_the_threshold_d2():
    values = [NAN, INF, -INF, -0.0, 0.0, 1.0, -2.0, np.nextafter(F(1), F(2)), np.nextafter(F(-2), F(-3))]
    done = ConstantThresholds(high=1.0, low=-2.0).apply(layer(values), {})
    assert bits(done.gradients["weight"]) == bits([NAN, 1.0, -2.0, -0.0, 0.0, 1.0, -2.0, 1.0, -2.0])
    assert done.counts == {"weight": 4}
    zero = ConstantThresholds(high=0.0, low=-1.0).apply(layer([-0.0, 0.0, 0.5]), {})
    assert bits(zero.gradients["weight"]) == bits([-0.0, 0.0, 0.0])


def test_a_rule_without_thresholds_hands_the_array_itself_on_d2():
    seen = layer([INF, -INF, 1e38])
    for rule in (ConstantThresholds(), ConstantThresholds(high=1e38 * 2, low=None)):
        done = rule.apply(seen, {})
        assert bits(done.gradients["weight"])[1:] == bits(seen.gradients["weight"])[1:]
    assert ConstantThresholds().apply(seen, {}).gradients["weight"] is seen.gradients["weight"]
    assert ConstantThresholds(high=1.0).apply(layer([-INF, 3]), {}).gradients["weight"].tolist() == [[-INF, 1]]


@pytest.mark.parametrize(("high", "carried"), [(1e300, 1.0), (1e38, 65536.0)])
def test_a_threshold_beyond_float32_is_none_d2(high: float, carried: float):
    seen = layer([INF, -1e38, NAN], carried=carried)
    done = ConstantThresholds(high=high, low=-high).apply(seen, {})
    assert done.gradients["weight"] is seen.gradients["weight"]


def test_parameters_that_have_diverged_shorten_nothing_d2():
    for master, ratio in (([INF, 3e38], 0.01), ([1.0, 1.0], 1e300)):
        seen = layer([3e38, 1.0], masters={"weight": F([master])})
        done = ParameterNorm(rule="parameter_norm", ratio=ratio).apply(seen, {})
        assert done.gradients["weight"] is seen.gradients["weight"]


@pytest.mark.parametrize("carried", [1024.0, 0.25])
def test_constant_thresholds_are_multiplied_by_what_gradients_carry_d2(carried: float):
    done = ConstantThresholds(high=0.5, low=-0.25).apply(layer([1e6, -1e6], carried=carried), {})
    assert done.gradients["weight"].tolist() == [[0.5 * carried, -0.25 * carried]]


def model_of_variance(steps: list[Any], k: float, decay: float) -> list[tuple[Any, Any]]:
    """Thresholds of each step, in float32 scalars."""
    m = v = None
    found = []
    for step in steps:
        values = [F(x) for x in step]
        counted = [x for x in values if math.isfinite(x)]
        count = F(len(counted))
        mean = F(lanes([x if math.isfinite(x) else 0 for x in values]) / count)
        squares = [F(F(x - mean) * F(x - mean)) if math.isfinite(x) else F(0) for x in values]
        variance = F(lanes(squares) / count)
        m = mean if m is None else F(F(F(decay) * m) + F(F(F(1) - F(decay)) * mean))
        v = variance if v is None else F(F(F(decay) * v) + F(F(F(1) - F(decay)) * variance))
        reach = F(F(k) * np.sqrt(v))
        found.append((F(m + reach), F(m - reach)))
    return found


def test_variance_thresholds_run_from_the_first_gradient_on_weight_and_bias_together_d2():
    rng = np.random.default_rng(4)
    rule, memory = VarianceThresholds(rule="variance", k=1.5), dict[str, Any]()
    steps = [rng.standard_normal((3, 67)).astype(F) * F(1 + step) for step in range(5)]
    steps[2][0, :3] = NAN, INF, -INF
    expected = model_of_variance([array.ravel() for array in steps], 1.5, 0.99)
    for step, (high, low) in zip(steps, expected, strict=True):
        seen = LayerGradients({"weight": step[:2], "bias": step[2:]})
        done = rule.apply(seen, memory)
        memory = done.memory
        assert done.limits is not None
        assert bits(done.limits) == bits([high, low])
        for part, array in seen.gradients.items():
            wanted = [high if x > high else low if x < low else x for x in array.ravel()]
            assert bits(done.gradients[part]) == bits(wanted)
            assert done.counts[part] == sum(x > high or x < low for x in array.ravel()) > 0


def test_running_mean_and_variance_follow_the_scale_d2():
    """m *= S2/S1, v *= (S2/S1)**2: with S a power of two, the same clipping times S."""
    rng = np.random.default_rng(5)
    rule, plain, scaled = VarianceThresholds(rule="variance", k=1.0), dict[str, Any](), dict[str, Any]()
    for step, scale in enumerate([1.0, 1024.0, 1024.0, 0.5]):
        array = rng.standard_normal((2, 40)).astype(F) * F(step + 1)
        one = rule.apply(LayerGradients({"weight": array}), plain)
        other = rule.apply(LayerGradients({"weight": array * F(scale)}, scale), scaled)
        plain, scaled = one.memory, other.memory
        assert bits(other.gradients["weight"]) == bits(one.gradients["weight"] * F(scale))


@pytest.mark.filterwarnings("error")
def test_a_variance_that_the_scale_would_make_overflow_waits_d2():
    """v of 4e36 times 32**2 is beyond float32, and after four halvings it is not; S is a power of two."""
    rng = np.random.default_rng(6)
    rule = VarianceThresholds(rule="variance", k=1e-3, decay=0.5)
    plain, scaled, carried, clipped = dict[str, Any](), dict[str, Any](), list[float](), 0
    for step, scale in enumerate([1.0, 32.0, 32.0, 32.0, 32.0, 32.0, 1.0, 1024.0, 1.0]):
        array = rng.standard_normal((2, 40)).astype(F) * F(1e15 if step else 2e18)
        one = rule.apply(LayerGradients({"weight": array}), plain)
        other = rule.apply(LayerGradients({"weight": array * F(scale)}, scale), scaled)
        plain, scaled, clipped = one.memory, other.memory, clipped + one.counts["weight"]
        assert bits(other.gradients["weight"]) == bits(one.gradients["weight"] * F(scale))
        carried.append(float(scaled["carried"]))
    assert carried[:7] == [1, 1, 1, 1, 1, 32, 1], "m and v follow S as soon as they can"
    assert clipped > 100


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [32.0, 2.0**70, 2.0**130])
def test_a_scale_that_rises_and_falls_leaves_thresholds_d2(scale: float):
    rule = VarianceThresholds(rule="variance", k=0.5)
    first = rule.apply(layer([1e18, -1e18]), {})
    above = rule.apply(layer([1.0, 2.0], carried=scale), first.memory)
    again = rule.apply(layer([1e18, -1e18]), above.memory)
    assert again.counts == {"weight": 2}
    assert 0 < np.abs(again.gradients["weight"]).max() < 1e18


def test_a_gradient_without_finite_mean_and_variance_leaves_the_running_ones_d2():
    rule = VarianceThresholds(rule="variance")
    first = rule.apply(layer([NAN, INF]), {})
    assert (first.memory, first.limits) == ({}, None)
    known = rule.apply(layer([1.0, 2.0, 4.0]), {}).memory
    for values in ([NAN, INF], [1e30, -1e30], [3e38, 3e38]):
        done = rule.apply(layer(values), known)
        assert done.memory is known
    assert mean_and_variance(joined({"a": np.array([3e38, 3e38], F)}, F)) is None
    assert rule.apply(layer([2.0, 2.0]), {}).limits is None, "both thresholds are one number: nothing is clipped"


def test_momentum_thresholds_are_multiples_of_the_root_mean_square_of_the_buffer_d2():
    rng = np.random.default_rng(6)
    buffers = {"weight": rng.standard_normal((3, 50)).astype(F), "bias": rng.standard_normal((1, 3)).astype(F)}
    gradients = {part: (array * F(4)).astype(F) for part, array in buffers.items()}
    values = [x for array in buffers.values() for x in array.ravel()]
    root = np.sqrt(F(lanes([F(x * x) for x in values]) / F(len(values))))
    for carried, buffers_carry in ((1.0, 1.0), (1024.0, 256.0)):
        seen = LayerGradients(gradients, carried, buffers=buffers, buffers_carry=buffers_carry)
        done = MomentumThresholds(rule="momentum", k=2.0).apply(seen, {})
        high = F(F(F(2) * root) * F(carried / buffers_carry))
        assert done.limits is not None
        assert bits(done.limits) == bits([high, -high])
        assert done.counts["weight"] == int((np.abs(gradients["weight"]) > high).sum()) > 0


@pytest.mark.parametrize("k", [-147, -126, -100, -80, -60, 40, 60, 64, 100, 125])
def test_momentum_of_any_size_decides_thresholds_of_its_size_d2(k: int):
    """Powers of two move exponents alone: 2**k times the momentum has 2**k times the thresholds."""
    ordinary, size = np.array([[1, -1, 0.5, 0.25], [1, 1.5, -1.25, 0]], F), 2.0**k
    rule, gradients = MomentumThresholds(rule="momentum", k=1.0), np.array([[size / 2, -1.5 * size, size, 0]], F)
    expected = rule.apply(LayerGradients({"weight": gradients}, buffers={"weight": ordinary}), {}).limits
    done = rule.apply(LayerGradients({"weight": gradients}, buffers={"weight": (ordinary * F(size)).astype(F)}), {})
    assert expected is not None
    assert done.limits is not None
    assert bits(done.limits) == bits([F(float(expected.high) * size), F(float(expected.low) * size)])
    assert done.counts["weight"] == int((np.abs(gradients) > done.limits.high).sum()) > 0


def test_momentum_with_infinities_decides_no_threshold_d2():
    for bad in (INF, NAN):
        seen = LayerGradients({"weight": np.array([[1e30]], F)}, buffers={"weight": np.array([[bad, 1]], F)})
        assert MomentumThresholds(rule="momentum").apply(seen, {}).limits is None


def test_without_momentum_there_are_no_thresholds_of_it_d2():
    done = MomentumThresholds(rule="momentum").apply(layer([1e9, -1e9]), {})
    assert (done.limits, done.counts, done.gradients["weight"].tolist()) == (None, {"weight": 0}, [[1e9, -1e9]])


def test_momentum_thresholds_leave_the_first_step_d2():
    seen = LayerGradients({"weight": np.array([[5, -7]], F)}, buffers={"weight": np.zeros((1, 2), F)})
    done = MomentumThresholds(rule="momentum").apply(seen, {})
    assert done.limits is None
    assert done.gradients["weight"] is seen.gradients["weight"]


def model_of_norm(gradient: Any, weights: Any, carried: float) -> Any:
    """g * (max_norm / ||g||) in float32 scalars, without anything that could over- or underflow."""
    found = np.empty_like(gradient)
    for unit, (g, w) in enumerate(zip(gradient, weights, strict=True)):
        norm, own = (np.sqrt(lanes([F(x * x) for x in column])) for column in (g, w))
        longest = F(F(F(0.01) * max(own, F(1e-3))) * F(carried))
        found[unit] = [F(x * F(longest / norm)) for x in g] if norm > longest else g
    return found


@pytest.mark.parametrize("carried", [1.0, 64.0])
def test_units_that_are_long_beside_their_parameters_are_shortened_d2(carried: float):
    rng = np.random.default_rng(7)
    lengths = np.array([1e-5, 0.01, 1, 100, 0], F)[:, None] * F(carried)
    gradient = rng.standard_normal((5, 130)).astype(F) * lengths
    weights = rng.standard_normal((5, 130)).astype(F)
    weights[1] = 0
    done = ParameterNorm(rule="parameter_norm").apply(
        LayerGradients({"weight": gradient}, carried, {"weight": weights}), {}
    )
    assert bits(done.gradients["weight"]) == bits(model_of_norm(gradient, weights, carried))
    assert done.counts == {"weight": 3 * 130}
    assert bits(done.gradients["weight"][0]) == bits(gradient[0])


def test_units_of_any_size_and_with_infinities_get_the_norm_they_may_have_d2():
    weights = np.array([[3, 4]] * 5, F)
    seen = layer([3e38, 3e38], [INF, 5], [-INF, INF], [NAN, 7], [INF, NAN], masters={"weight": weights})
    done = ParameterNorm(rule="parameter_norm").apply(seen, {}).gradients["weight"]
    longest = F(F(0.01) * F(5))
    assert np.hypot(*done[0].astype(float)) == pytest.approx(longest, rel=1e-6)
    assert done[1].tolist() == [longest, 0]
    assert done[2][0] == -done[2][1] == pytest.approx(-longest / math.sqrt(2), rel=1e-6)
    assert bits(done[3:]) == bits([[NAN, 7], [INF, NAN]])


def test_rules_are_applied_in_their_order_each_to_what_the_one_before_left_d2():
    constant, variance = ConstantThresholds(high=2.0, low=-2.0), VarianceThresholds(rule="variance", k=1.0)
    seen = layer([1, -1, 0.5, -0.5, 100])
    first, memories = apply_rules([constant, variance], seen, [{}, {}])
    other, others = apply_rules([variance, constant], seen, [{}, {}])
    clipped = constant.apply(seen, {})
    assert bits(first.gradients["weight"]) == bits(
        variance.apply(LayerGradients(clipped.gradients), {}).gradients["weight"]
    )
    assert memories[1]["m"] == F(0.4)
    assert others[0]["m"] == F(20)
    assert other.gradients["weight"].tolist() == [[1, -1, 0.5, -0.5, 2.0]]
    assert other.limits == (2.0, -2.0)
    assert first.counts == {"weight": 1 + 2}, "100 twice, and -1 once"


def test_float64_carriers_are_clipped_in_float64_d2():
    value = 1.0 + 2.0**-40
    for dtype, clipped in ((np.float64, 1), (np.float32, 0)):
        done = ConstantThresholds(high=1.0).apply(LayerGradients({"weight": np.array([[value]], dtype)}), {})
        assert done.counts == {"weight": clipped}
        assert done.gradients["weight"].dtype == dtype


@pytest.mark.parametrize(("high", "low"), [(1.0, 1.0), (-1.0, 1.0), (1.0 + 1e-12, 1.0)])
def test_thresholds_in_the_wrong_order_are_refused_d2(high: float, low: float):
    text = (
        rf"`high` of .clipping. must be above `low` in float32, got {high:g} and {low:g}; raise `high` or lower `low`"
    )
    with pytest.raises(ValueError, match=text):
        ConstantThresholds(high=high, low=low)


# ---- D1, D4: when layers are clipped and sent ----


def by_task(events: list[Event]) -> dict[tuple[str, str], Event]:
    found = {(event.kind, event.details["layer"]): event for event in events}
    assert len(found) == len(events), "every task once"
    return found


@pytest.mark.parametrize(("trigger", "end"), [("next", 13), ("own", 12), ("after_all", 21), ("serial", 30)])
def test_ten_layers_of_equal_costs_take_the_published_times_d4(trigger: Any, end: int):
    assert schedule([(1, 1, 1)] * 10, trigger).end_ps == end


costs = st.integers(0, 50)


@given(st.integers(1, 20), costs, costs, costs)
def test_the_closed_forms_hold_for_equal_costs_d4(layers: int, b: int, c: int, x: int):
    ends = {trigger: schedule([(b, c, x)] * layers, trigger).end_ps for trigger in ("own", "after_all", "serial")}
    assert ends == {
        "own": b + c + x + (layers - 1) * max(b, c, x),
        "after_all": b + x + (layers - 1) * max(b, x) + layers * c,
        "serial": layers * (b + c + x),
    }


@given(st.integers(2, 20), costs, st.data())
def test_the_published_form_holds_from_two_layers_on_where_clip_and_send_fit_behind_a_gradient_d4(
    layers: int, b: int, data: st.DataObject
):
    c, x = (data.draw(st.integers(0, b)) for _ in range(2))
    assert schedule([(b, c, x)] * layers).end_ps == layers * b + c + max(c, x) + x


@given(st.integers(2, 20), costs, costs, costs)
def test_the_published_trigger_has_a_form_for_any_costs_d4(layers: int, b: int, c: int, x: int):
    slow = max(b, c)
    expected = 2 * b + c + max(c + (layers - 2) * slow, x + (layers - 2) * max(slow, x)) + x
    assert schedule([(b, c, x)] * layers).end_ps == expected


@given(costs, costs, costs)
def test_one_layer_has_nothing_to_hide_behind_d4(b: int, c: int, x: int):
    for trigger in ("next", "own", "after_all", "serial"):
        assert schedule([(b, c, x)], trigger).end_ps == b + c + x


@given(st.integers(2, 20), costs, costs, costs)
def test_a_worker_that_clips_on_its_own_processor_waits_d3_d4(layers: int, b: int, c: int, x: int):
    own = b + c + x + (layers - 1) * max(b + c, x)
    assert schedule([(b, c, x)] * layers, "own", "worker").end_ps == own
    if x <= b + c:
        after = layers * b + (layers - 1) * c + max(c, x) + x
        assert schedule([(b, c, x)] * layers, "next", "worker").end_ps == after


each = st.lists(st.tuples(costs, costs, costs), min_size=1, max_size=12)


@given(each)
def test_the_published_recurrences_hold_for_costs_of_every_layer_d4(layers: list[tuple[int, int, int]]):
    grads, total = [], 0
    for b, _, _ in layers:
        total += b
        grads.append(total)
    clip = send = 0
    for i, (_, c, x) in enumerate(layers):
        clip = max(grads[min(i + 1, len(layers) - 1)], clip) + c
        send = max(clip, send) + x
    assert schedule(layers).end_ps == send


@given(
    st.lists(st.tuples(st.integers(1, 50), costs, costs), min_size=2, max_size=12),
    st.sampled_from(["worker", "separate"]),
)
def test_layers_are_clipped_behind_their_gradient_when_the_next_one_is_ready_and_then_sent_d1(
    layers: list[tuple[int, int, int]], on: Any
):
    names = [f"fc{len(layers) - i}" for i in range(len(layers))]
    events = by_task(schedule(layers, on=on, layers=names, node=3).events)
    assert len(events) == 3 * len(layers), "every layer once"
    for a, b in zip(names, [*names[1:], names[-1]], strict=True):
        assert events["clip", a].begin_ps >= events["grad", b].end_ps >= events["grad", a].end_ps, "triggered by b"
        assert events["send", a].begin_ps >= events["clip", a].end_ps
    for before, after in pairwise(names):
        for kind in ("grad", "clip", "send"):
            assert events[kind, before].end_ps <= events[kind, after].begin_ps, "one at a time, in order"
    resources = {kind: events[kind, names[0]].resource for kind in ("grad", "clip", "send")}
    assert (resources["clip"] == resources["grad"]) == (on == "worker")


def test_a_send_overlaps_the_gradient_of_a_later_layer_d1():
    events = by_task(schedule([(4, 2, 3)] * 5).events)
    for layer in "123":
        send = events["send", layer]
        over = [
            e
            for (kind, _), e in events.items()
            if kind == "grad" and e.begin_ps < send.end_ps and send.begin_ps < e.end_ps
        ]
        assert over
        assert all(int(e.details["layer"]) > int(layer) for e in over)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"costs": []}, "a schedule of clipping must have layers, got none; give the costs of at least one"),
        ({"costs": [(1, -1, 1)]}, r"must be 0 or more picoseconds, got \[1, -1, 1\] of layer '1'"),
        ({"costs": [(1, 1, 1)], "layers": ["a", "b"]}, "there must be a name for each of 1 layers, got 2"),
        (
            {"costs": [(1, 1, 1)], "trigger": "nxt"},
            "`trigger` of .clipping. must be one of next, own, .* did you mean 'next'",
        ),
        ({"costs": [(1, 1, 1)], "on": "gpu"}, "`on` of .clipping. must be one of worker, separate, got 'gpu'"),
    ],
    ids=str,
)
def test_schedules_that_do_not_fit_are_refused_d4(options: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        schedule(**options)
