"""What a search's file may say, and what is said of one that breaks a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ConfigError
from emu.hardware import load_device
from emu.search import load_search
from emu.search.design import distribution
from emu.search.file import Constraint, Variable
from emu.search.metrics import Metrics
from emu.search.space import Space, parts_of
from searches import SEARCH, written

ROOT = Path(__file__).resolve().parents[2]


def everything_of(path: Path) -> Metrics:
    search = load_search(path)
    return Metrics(search, Space(search, str(path)), str(path))


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        everything_of(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("device.precision.weight.format", "device.precision.weigth.format", "did you mean 'weight'?"),
        ("device.precision.weight.format", "device.precision.weight.formt", "did you mean 'format'?"),
        ("device.precision.weight.format", "device.compute.clok_hz", "did you mean 'clock_hz'?"),
        ("device.precision.weight.format", "recipe.training.bach", "did you mean 'batch'?"),
        ("device.precision.weight.format", "precision.weight.format", "must begin with `device.` or `recipe.`"),
        ("device.precision.weight.format", "device.precision..format", "must be written as part.part"),
        (
            "device.precision.weight.format",
            "device.precision.layers.weight.format",
            "device.precision.layers[GLOB].KEY",
        ),
        ("device.precision.weight.format", "recipe.training.seed", "must be given by `seeds` of the search"),
        ('"training.steps" = 3', '"training.seed" = 3', "must be given by `seeds` of the search"),
        ("device.precision.weight.format", "device.precision.layers[fc*]", "device.precision.layers[GLOB].KEY"),
        ("device.precision.weight.format", "device.precision.weight.", "must be written as part.part"),
        ("device.precision.weight.format", "device[fc*].precision.x", "must begin with `device.` or `recipe.`"),
        ("device.precision.weight.format", "device", "must begin with `device.` or `recipe.`"),
        ("seed = 3", "seed = 4294967296", "`seed` must be at most 4294967295, got 4294967296"),
        ("batch = 2", "batch = 0", "`batch` must be at least 1, got 0"),
        ("low = 4", "low = 16", "`low` of variable `width` must be below `high`, got 16 and 16"),
        ("start = 16", "start = 16\nstep = 0", "`step` must be above 0"),
        ("layers[fc*]", "layers[dense*]", "must match a layer of the network, got 'dense*'"),
        (
            "layers[fc*]",
            "layers[relu*]",
            "which changes nothing: relu1, relu2 have none; those that have one are fc1, ",
        ),
        ("{width}", "{widht}", "got {widht}; did you mean 'width'?"),
        ("ap_fixed<{width}, 3>", "ap_fixed<16, 3>", "every variable must be used by a [[set]], got 'width'"),
        ("ap_fixed<{width}, 3>", "apfixed<{width}, 3>", "apfixed<16, 3>"),
        ("low = 4", "low = 0", "`width_bits` must be in 1..64, got 0"),
        ("low = 4\n", "", "either `low` and `high` or `choices`, got neither"),
        ("low = 4", "low = 20", "`low` of variable `width` must be below `high`"),
        (
            "start = 16",
            "start = 17",
            "`start` of variable `width` must be one of its values, got 17; choose from 4 .. 16",
        ),
        ("start = 16", "start = 15.5", "`start` of variable `width` must be one of its values"),
        ("start = 16", "start = 16\nprobe = 3", "`probe` of variable `width`"),
        ('["nearest_even", "stochastic"]', '["nearest_even"]', "at least two different values"),
        ('["nearest_even", "stochastic"]', '["nearest_even", 1, true]', "of which 1, 1.0 and true are one, got"),
        ('metric = "joules_per_step"', 'metric = "joules_per_stp"', "did you mean 'joules_per_step'?"),
        ('metric = "joules_per_step"', 'metric = "simulated_seconds"', "its device has no clock"),
        ("at_least = -0.25", "at_least = -0.25\nat_most = 1", "either `at_least` or `at_most`, got both"),
        ("at_least = -0.25", "", "either `at_least` or `at_most`, got neither"),
        ("at_least = -0.25", "at_least = -0.25\nconfidence = 95", "`confidence` must be"),
        ('name = "mode"', 'name = "width"', "every variable must be listed once, got 'width' twice"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "every seed must be listed once"),
        ('direction = "minimize"', 'direction = "min"', "minimize"),
        ('model = "mlp"', 'model = "mpl"', "did you mean 'mlp'?"),
        ('baseline = "fixed16"', 'baseline = "float23"', "did you mean 'float32'?"),
        ("trials = 9", "trails = 9", "did you mean 'trials'?"),
        ('"training.steps" = 3', '"training.stps" = 3', "did you mean 'steps'?"),
    ],
)
def test_what_breaks_a_rule_is_named_with_the_nearest_word_before_anything_runs(
    tmp_path: Path, old: str, new: str, said: str
):
    assert said in refusal(written(tmp_path, old, new))
    assert [path.name for path in tmp_path.iterdir()] == ["search.toml"]


def test_the_ends_of_ranges_are_taken(tmp_path: Path):
    search = load_search(written(tmp_path, "seed = 3\nbatch = 2", "seed = 4294967295\nbatch = 1"))
    assert (search.sampler.seed, search.sampler.batch) == (4294967295, 1)
    assert Variable(name="x", low=0.0, high=1.0, start=0.5, step=0.5).has(1.0)
    assert [part.key for part in parts_of("device.a.b")] == ["device", "a", "b"]
    everything_of(written(tmp_path, "at_least = -0.25", "at_least = -0.25\nconfidence = 0.95"))  # of two seeds


def test_an_end_of_a_range_that_no_step_reaches_is_no_value(tmp_path: Path):
    """Of 4, 8 .. 64 up to 65: no trial has 65 bits, so none must be possible."""
    everything_of(written(tmp_path, "low = 4\nhigh = 16", "low = 4\nhigh = 65\nstep = 4"))


def test_an_interval_needs_two_seeds(tmp_path: Path):
    path = tmp_path / "one.toml"
    path.write_text(SEARCH.replace("[1, 2]", "[1]").replace("at_least = -0.25", "at_least = -0.25\nconfidence = 0.95"))
    assert "at least two `seeds`" in refusal(path)


def test_a_probe_is_the_end_of_the_range_that_is_farther_from_the_start():
    def probed(**keys: object) -> object:
        return Variable.model_validate({"name": "x", **keys}).probed()

    assert probed(low=4, high=16, start=16) == 4
    assert probed(low=4, high=16, start=5) == 16
    assert probed(low=4, high=16, start=7) == 16
    assert probed(low=4, high=16, start=10) == 4
    assert probed(low=4, high=16, start=16, probe=9) == 9
    assert probed(low=4, high=15, step=4, start=4) == 12
    assert probed(low=0.001, high=0.1, log=True, start=0.1) == 0.001
    assert probed(choices=["a", "b", "c"], start="b") == "c"
    assert probed(choices=["a", "b", "c"], start="c") == "a"


@pytest.mark.parametrize(
    ("low", "high", "step", "start", "last"),
    [
        (0, 10, 3, 0, 9),
        (0, 11, 3, 0, 9),
        (0.0, 0.3, 0.1, 0.0, 0.3),  # 0.0 + 3 * 0.1 is above 0.3
        (0.0, 0.35, 0.1, 0.1, 0.3),
        (-0.3, 0.3, 0.1, 0.0, -0.3),
        (0.0, 1.0, 0.4, 0.0, 0.8),
        (0, 2, 0.75, 0, 1.5),
        (0, 2, 3, 0, 0),
    ],
)
def test_a_probe_is_the_last_value_if_steps_do_not_meet_the_end(
    low: float, high: float, step: float, start: float, last: float
):
    variable = Variable(name="x", low=low, high=high, step=step, start=start)
    assert variable.probed() == last
    assert variable.has(last)
    for share in (0.3, 0.6, 0.99, 1.0):
        assert distribution(variable)._contains(variable.between(share))


def test_a_value_is_told_from_its_neighbours_by_the_step_also_near_0():
    about_zero = Variable(name="x", low=-0.3, high=0.3, step=0.1, start=0.0)
    assert all(about_zero.has(tenths / 10) for tenths in range(-3, 4))
    assert not any(about_zero.has(x) for x in (1e-7, 0.1001, 0.2999999, 0.4, -0.4))
    far = Variable(name="x", low=1e6, high=1e6 + 1, step=2.0**-20, start=1e6)
    assert far.has(1e6 + 3 * 2.0**-20)
    assert not far.has(1e6 + 3.5 * 2.0**-20)
    whole = Variable(name="x", low=0, high=2**60, step=2, start=0)
    assert whole.has(2**59)
    assert not whole.has(2**59 + 1)
    assert not whole.has(2.0)
    assert not Variable(name="x", low=0.0, high=1.0, step=0.4, start=0.0).has(1.0)


@pytest.mark.parametrize("key", ["at_least", "at_most", "prune_margin", "confidence"])
@pytest.mark.parametrize("value", ['"0.75"', "true"])
def test_bounds_and_margins_of_a_constraint_are_numbers(tmp_path: Path, key: str, value: str):
    other = "" if key in ("at_least", "at_most") else "at_least = -0.25\n"
    assert f"`{key}` must be a number" in refusal(written(tmp_path, "at_least = -0.25", f"{other}{key} = {value}"))


def test_bounds_and_margins_of_a_constraint_may_be_whole_numbers():
    bound = Constraint.model_validate({"metric": "test_accuracy_difference", "at_least": -1, "prune_margin": 2})
    assert (bound.at_least, bound.prune_margin) == (-1.0, 2.0)
    assert Constraint.model_validate({"metric": "joules_per_step", "at_most": 3}).at_most == 3.0


def test_a_share_of_the_way_lies_on_the_grid_of_the_variable():
    width = Variable(name="x", low=4, high=16, start=16, step=3)
    assert [width.between(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [16, 13, 10, 7, 4]
    rate = Variable(name="x", low=0.001, high=0.1, log=True, start=0.1)
    assert rate.between(0.5) == pytest.approx(0.01)
    for share in (0.1, 0.5, 0.9):
        assert width.has(width.between(share))


def test_parts_of_a_key_keep_dots_and_brackets_of_a_glob_together():
    parts = parts_of("device.precision.layers[relu[12]*.x].error.format")
    assert [(part.key, part.layers) for part in parts] == [
        ("device", None), ("precision", None), ("layers", "relu[12]*.x"), ("error", None), ("format", None),
    ]  # fmt: skip


def test_values_reach_the_layers_of_the_glob_the_recipe_and_other_keys_of_the_device(tmp_path: Path):
    path = written(
        tmp_path,
        '[[set]]\nkeys = ["device.precision.error.rounding"]\nvalue = "{mode}"',
        '[[set]]\nkeys = ["device.precision.error.rounding"]\nvalue = "{mode}"\n\n'
        '[[set]]\nkeys = ["recipe.training.log_every", "device.precision.register.bins"]\nvalue = "{width}"',
    )
    search = load_search(path)
    setup = Space(search, str(path)).setup({"width": 9, "mode": "stochastic"})
    precision = setup.device.precision
    assert setup.recipe.training.log_every == 9
    assert precision.register.bins == 9
    assert str(precision.stage("fc1", "weight").format) == "fix9f6"
    assert str(precision.stage("fc1", "bias").format) == "fix9f6"
    assert str(precision.stage("output", "bias").format) == "fix16f13"
    assert precision.stage("fc1", "error").rounding.value == "stochastic"


def test_devices_of_equal_values_have_one_name_and_others_another(tmp_path: Path):
    space = Space(load_search(written(tmp_path)), "search.toml")
    one, same, other = (space.setup({"width": width, "mode": "stochastic"}).device for width in (8, 8, 9))
    assert one == same
    assert one.name != other.name
    assert one.name.startswith("fixed16-")
    assert one.description.startswith(f"{load_device(space.search.device).description} Changed by a search: ")
    assert "ap_fixed<8, 3>" in one.description
    assert "ap_fixed<9, 3>" in other.description


def test_the_shipped_search_is_valid_and_begins_with_the_device_as_it_is():
    path = ROOT / "searches" / "lenet-narrow.toml"
    metrics = everything_of(path)
    setup = Space(metrics.search, str(path)).setup(metrics.search.starts())
    plain = load_device(metrics.search.device)
    for layer in ("input", "conv1", "relu1", "pool2", "flatten1", "fc1", "relu4", "output"):
        for role in ("weight", "bias", "activation", "error", "gradient", "update", "master"):
            asked, there = setup.device.precision.stage(layer, role), plain.precision.stage(layer, role)
            if (layer, role) != ("input", "activation"):  # the image has fewer integer bits than activations
                assert str(asked.format) == str(there.format), (layer, role)
            assert (asked.rounding, asked.overflow) == (there.rounding, there.overflow)
