"""The text of every error in a device, a recipe or a setting: one line with key, rule, value, place and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu._config import Table, apply_settings
from emu.cluster.clipping import ConstantThresholds, VarianceThresholds
from emu.cluster.clipping.settings import ClippingTable
from emu.cluster.settings import ClusterTable
from emu.datapath import Rounding
from emu.errors import ConfigError, FormatError
from emu.formats import parse
from emu.hardware import device_names, load_device
from emu.training.recipe import load_recipe

DEVICES = ", ".join(device_names())
DEVICE = """
name = "x"
description = "x"
source = "x"
""" + "".join(
    f"[precision.{role}]\nformat = 'fp16'\n"
    for role in ("weight", "bias", "activation", "error", "gradient", "update", "master")
)


def message(action: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        action(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def device_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The message of a device file with something replaced or added."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()

    def of(added: str = "", **replaced: str) -> str:
        text = DEVICE
        for old, new in replaced.items():
            text = text.replace(f"[precision.{old}]\nformat = 'fp16'", new)
        (tmp_path / "d" / "x.toml").write_text(text + added)
        return message(load_device, "d/x.toml")

    return of


class TestNames:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("fixed61", "; did you mean 'fixed16'?"),
            ("fixed1", "; did you mean 'fixed16'?"),
            ("tpu", f"; known: {DEVICES}"),
            ("", f"; known: {DEVICES}"),
        ],
    )
    def test_an_unknown_device(self, name: str, hint: str):
        assert message(load_device, name) == (
            f"a device must be the name of a shipped device or the path of a .toml file, got {name!r}{hint}"
        )

    def test_an_unknown_model(self):
        assert message(load_recipe, "lent") == (
            "a model must be the name of a shipped model or the path of a .toml file, got 'lent'; did you mean 'lenet'?"
        )

    def test_a_device_file_that_is_not_there(self):
        assert message(load_device, "no/such.toml") == (
            f"a device file must exist, got 'no/such.toml'; check the path, or name a shipped device: {DEVICES}"
        )

    def test_a_device_file_of_a_name_that_no_file_can_have(self):
        name = f"{300 * 'x'}.toml"
        assert message(load_device, name).startswith(f"a device file must exist, got '{name}'; check the path")

    def test_a_path_is_no_shipped_name(self):
        assert message(load_device, Path("fixed16")) == (
            f"a device must be the name of a shipped device or the path of a .toml file, got {Path('fixed16')!r}; "
            "did you mean 'fixed16'?"
        )


class TestFiles:
    def test_a_file_that_is_not_toml(self, device_error: Any):
        text = device_error("\n[precision.weight\n")
        assert text.startswith("a configuration file must be TOML, got an error in d/x.toml: ")
        assert text.endswith("(at line 20, column 18)")

    def test_a_file_that_is_not_text(self, tmp_path: Path):
        path = tmp_path / "x.toml"
        path.write_bytes(b'name = "\xff"')
        assert message(load_device, path) == (
            f"a configuration file must be UTF-8 text, got byte 0xff at offset 8 in {path}; save it as UTF-8"
        )

    def test_a_folder(self, tmp_path: Path):
        (tmp_path / "x.toml").mkdir()
        assert message(load_device, tmp_path / "x.toml").startswith("a device file must exist, got ")


class TestDevices:
    def test_positions_of_registers_have_limits(self, device_error: Any):
        assert device_error("[precision.register]\nlowest = -1048577") == (
            "`lowest` must be at least -1048576, got -1048577 in d/x.toml: precision.register; choose a larger value"
        )

    def test_a_misspelt_key(self, device_error: Any):
        assert device_error("[precision.mac]\nacumulator = 'exact'") == (
            "`acumulator` is not a key of [precision.mac] in d/x.toml; did you mean 'accumulator'?"
        )

    def test_a_misspelt_role(self, device_error: Any):
        assert device_error(weight="[precision.wieght]\nformat = 'fp16'") == (
            "`wieght` is not a key of [precision] in d/x.toml; did you mean 'weight'?"
        )

    def test_a_missing_role(self, device_error: Any):
        assert device_error(error="") == (
            "a device must give every tensor role a format, got none for `error`; add [precision.error] with "
            "`format = ...` (in d/x.toml)"
        )

    @pytest.mark.parametrize("name", ["", ".x", "../x", "a/b", "a b"])
    def test_a_name_that_is_no_name_of_a_folder(self, device_error: Any, tmp_path: Path, name: str):
        (tmp_path / "y.toml").write_text(DEVICE.replace('name = "x"', f"name = {name!r}", 1))
        assert message(load_device, str(tmp_path / "y.toml")) == (
            f"`name` must be letters, digits, `.`, `_` and `-`, no `.` first, got {name!r} in {tmp_path / 'y.toml'}; "
            "choose another name; it also names folders"
        )

    @pytest.mark.parametrize(("width", "size"), [(0, "larger"), (65, "smaller")])
    def test_an_impossible_width(self, device_error: Any, width: int, size: str):
        assert device_error(weight=f"[precision.weight]\nformat = 'fix{width}f0'") == (
            f"`width_bits` must be in 1..64, got {width}; choose a {size} one (in d/x.toml: precision.weight.format)"
        )

    def test_a_format_that_does_not_exist(self, device_error: Any):
        text = device_error(weight="[precision.weight]\nformat = 'fp61'")
        assert text.startswith("a format must be written as fix16f8, ")
        assert text.endswith("got 'fp61'; did you mean 'fp64'? (in d/x.toml: precision.weight.format)")

    def test_a_format_of_another_type(self, device_error: Any):
        assert device_error(weight="[precision.weight]\nformat = 16") == (
            "`format` must be text, got 16 in d/x.toml: precision.weight; put it in quotes"
        )

    def test_a_rounding_mode_of_another_library(self, device_error: Any):
        assert device_error(weight="[precision.weight]\nformat = 'fp16'\nrounding = 'nearest'") == (
            "`rounding` must be a rounding mode, got 'nearest', which may be 'nearest_even' (IEEE 754, the default) or "
            "'nearest_up' (MATLAB); write the one that is meant (in d/x.toml: precision.weight.rounding)"
        )

    def test_an_overflow_rule_of_the_other_family(self, device_error: Any):
        assert device_error(weight="[precision.weight]\nformat = 'fp16'\noverflow = 'wrap'") == (
            "`overflow` of fp16 must be one of ieee, satfinite, satpropagate, got 'wrap': that rule belongs to the "
            "other family of formats "
            "(in d/x.toml: precision.weight)"
        )

    def test_too_many_random_bits(self, device_error: Any):
        assert device_error(weight="[precision.weight]\nformat = 'fp16'\nn_rbits = 33") == (
            "`n_rbits` must be at most 32, got 33 in d/x.toml: precision.weight; choose a smaller value"
        )

    def test_an_order_that_does_not_exist(self, device_error: Any):
        assert device_error("[precision.mac]\norder = 'tree'") == (
            "`order` must be sequential, pairwise, lanes(n), blocks(n, fraction_bits, ...) or promote(n, order, "
            "accumulator, rounding), got 'tree'; leave it out "
            "for sequential (in d/x.toml: precision.mac.order)"
        )

    def test_a_number_without_its_source(self, device_error: Any):
        assert device_error("[compute]\nclock_hz = { value = 1e9 }") == (
            "`source` must be given, got nothing in d/x.toml: compute.clock_hz; add `source = ...` there"
        )

    def test_a_bare_number(self, device_error: Any):
        assert device_error("[compute]\nclock_hz = 1e9") == (
            "`clock_hz` must be a table, got 1000000000.0 in d/x.toml: compute; write its keys under a [table] header"
        )

    @pytest.mark.parametrize(
        ("table", "rule"),
        [
            ("clock_hz = { value = 0.148, source = 's' }", "at least 1.0, got 0.148"),
            ("clock_hz = { value = 1e19, source = 's' }", "at most 1e+18, got 1e+19"),
            ("lanes = { value = 1.5, source = 's' }", "a whole number, got 1.5"),
            ("lanes = { value = 0.5, source = 's' }", "a whole number, got 0.5"),
            ("memory_bandwidth_bytes_per_s = { value = 0.9, source = 's' }", "at least 1.0, got 0.9"),
        ],
    )
    def test_a_rate_or_a_count_no_machine_has(self, device_error: Any, table: str, rule: str):
        assert device_error(f"[compute]\n{table}").startswith(f"`value` must be {rule} in d/x.toml: compute.")

    def test_an_exception_that_cannot_be(self, device_error: Any):
        assert device_error("[[precision.layers]]\nmatch = 'fc*'\nweight = { overflow = 'wrap' }") == (
            "weight of layers fc*: `overflow` of fp16 must be one of ieee, satfinite, satpropagate, got 'wrap': that "
            "rule belongs to the other family of formats (in d/x.toml: precision)"
        )


class TestRecipes:
    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            ("training.bath=3", "`bath` is not a key of [training] in --set training.bath=3; did you mean 'batch'?"),
            (
                "training.batch=2.0",
                "`batch` must be an integer, got 2.0 in --set training.batch=2.0; write a whole number without "
                "quotes and "
                "without a point",
            ),
            (
                "training.batch=true",
                "`batch` must be an integer, got True in --set training.batch=True; write a whole number without "
                "quotes and "
                "without a point",
            ),
            (
                "training.batch=0",
                "`batch` must be at least 1, got 0 in --set training.batch=0; choose a larger value",
            ),
            (
                "training.optimiser.learning_rate=-1",
                "`learning_rate` must be above 0.0, got -1 in --set training.optimiser.learning_rate=-1; choose a "
                "larger "
                "value",
            ),
            (
                "training.optimiser.learning_rate=nan",
                "`learning_rate` must be a finite number, got nan in --set training.optimiser.learning_rate=nan; "
                "write a "
                "number that is neither inf nor nan",
            ),
            (
                "training.optimiser.learning_rate=fast",
                "`learning_rate` must be a number, got 'fast' in --set training.optimiser.learning_rate='fast'; "
                "write a "
                "number without quotes",
            ),
            (
                "training.optimiser.name=sdg",
                "`name` must be one of sgd, momentum, adagrad, adam, muon, got 'sdg' in --set "
                "training.optimiser.name='sdg'; did you mean "
                "'sgd'?",
            ),
            (
                "network.loss=l2",
                "`loss` must be one of softmax_cross_entropy, mse, euclidean, got 'l2' in --set network.loss='l2'; "
                "choose one of them",
            ),
            (
                "network.layers.conv1.type=conv",
                "`type` must be one of linear, sparse_linear, conv2d, max_pool, avg_pool, relu, sigmoid, tanh, gelu, "
                "flatten, batch_norm, layer_norm, dropout, embedding, position, attention, residual, got 'conv' "
                "in --set "
                "network.layers.conv1.type='conv'; did you mean 'conv2d'?",
            ),
            (
                "network.layers.conv1.kernal=3",
                "`kernal` is not a key of [network.layers[0] (conv1)] in --set network.layers.conv1.kernal=3; did "
                "you mean "
                "'kernel'?",
            ),
            (
                "network.layers.conv2.kernel=15",
                "layer 'conv2' (conv2d) must have an input of shape (channels, 15 or more, 15 or more) for `kernel` "
                "15, got "
                "(6, 14, 14); choose a smaller kernel or more padding (in models/lenet.toml with --set "
                "network.layers.conv2.kernel=15: network)",
            ),
            (
                "network.layers.6.type=relu",
                "layer 'fc1' (linear) must have an input of shape (features,) or (length, features), got (16, 5, 5); "
                "put a flatten layer before it "
                "(in models/lenet.toml with --set network.layers.6.type='relu': network)",
            ),
            (
                "network.classes=11",
                "the last layer must give one value per class, shape (11,), got (10,) from layer 'output'; change "
                "its size "
                "or `classes` (in models/lenet.toml with --set network.classes=11: network)",
            ),
            (
                "network.layers.conv1.name=pool1",
                "`name` of a layer must not be taken, got 'pool1', which is another layer's; choose another name (in "
                "models/lenet.toml with --set network.layers.conv1.name='pool1': network)",
            ),
            (
                "network.layers.conv1.name=loss",
                "`name` of a layer must not be taken, got 'loss', which is kept for the network's own tensors; choose "
                "another name (in models/lenet.toml with --set network.layers.conv1.name='loss': network)",
            ),
            (
                "network.input=[28, 28]",
                "layer 'conv1' (conv2d) must have an input of shape (channels, rows, columns), got (28, 28); give it "
                "images, before any flatten layer (in models/lenet.toml with --set network.input=[28, 28]: network)",
            ),
            (
                "network.input=[1, 28, 0]",
                "`input[2]` must be at least 1, got 0 in --set network.input=[1, 28, 0]; choose a larger value",
            ),
            (
                "network.layers=3",
                "`layers` must be an array, got 3 in --set network.layers=3; put it in square brackets",
            ),
            (
                "precision.weight.format=fix0f3",
                "`width_bits` must be in 1..64, got 0; choose a larger one (in --set precision.weight.format='fix0f3')",
            ),
            (
                "name=../../evil",
                "`name` must be letters, digits, `.`, `_` and `-`, no `.` first, got '../../evil' in "
                "--set name='../../evil'; choose another name; it also names folders",
            ),
            (
                "precision.layers=[{match='flatten*'}]",
                "`match` of [[precision.layers]] must match a layer that computes, got 'flatten*', which only moves "
                "values; remove it, or match the layer before it (in "
                "models/lenet.toml with --set precision.layers=[{'match': 'flatten*'}])",
            ),
            (
                "precision.layers=[{match='relu*', weight={format='fix8f4'}}]",
                "`weight` must be set for layers that have a weight, got 'relu*' in [[precision.layers]], which "
                "changes nothing: relu1, relu2, relu3, relu4 have none; those that have one are conv1, conv2, fc1, "
                "fc2, output (in models/lenet.toml with --set precision.layers=[{'match': 'relu*', 'weight': "
                "{'format': 'fix8f4'}}])",
            ),
            (
                "precision.layers=[{match='loss', gradient={format='fix8f4'}}]",
                "`gradient` must be set for layers that have a weight or bias, got 'loss' in [[precision.layers]], "
                "which changes nothing: loss has none; those that have one are conv1, conv2, fc1, fc2, output (in "
                "models/lenet.toml with --set precision.layers=[{'match': 'loss', 'gradient': {'format': 'fix8f4'}}])",
            ),
            (
                "precision.layers=[{match='cnv1'}]",
                "`match` of [[precision.layers]] must match a layer of the network, got 'cnv1'; did you mean "
                "'conv1'? (in "
                "models/lenet.toml with --set precision.layers=[{'match': 'cnv1'}])",
            ),
            (
                "training.schedule={name='step', milestones=[0.5, 0.2]}",
                "`milestones` must ascend, got [0.5, 0.2]; sort them (in --set training.schedule={'name': 'step', "
                "'milestones': [0.5, 0.2]})",
            ),
            (
                "training.schedule={name='step'}",
                "`milestones` must be given, got nothing in --set training.schedule={'name': 'step'}; add "
                "`milestones = ...` "
                "there",
            ),
        ],
    )
    def test_a_setting_that_breaks_a_rule(self, setting: str, expected: str):
        assert message(load_recipe, "lenet", [setting]) == expected

    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            (
                "training.batch",
                "a setting must be written as key.path=value, got --set 'training.batch'; e.g. --set training.batch=32",
            ),
            ("=3", "a setting must be written as key.path=value, got --set '=3'; e.g. --set training.batch=32"),
            (
                "training..batch=3",
                "a setting must be written as key.path=value, got --set 'training..batch=3'; e.g. --set "
                "training.batch=32",
            ),
            (
                "network.input=[1,",
                "the value of a setting must be TOML or a bare word, got --set 'network.input=[1,': Invalid value "
                "(at end of document); quote the whole setting for the shell",
            ),
            (
                "network.layers.conv9.kernel=2",
                "`conv9` of --set network.layers.conv9.kernel must be the name or position of one of 12 items; did "
                "you mean 'conv2'?",
            ),
            ("name.x=3", "`x` of --set name.x must lie in a table, got 'lenet' there; remove `.x`"),
        ],
    )
    def test_a_setting_that_cannot_be_applied(self, setting: str, expected: str):
        assert message(load_recipe, "lenet", [setting]) == expected

    @pytest.mark.parametrize("key", ["\u00b2", 5000 * "9"])
    def test_a_position_that_is_none(self, key: str):
        said = message(apply_settings, {"layers": [{"name": "a"}]}, {f"layers.{key}.kernel": 3})
        assert said.startswith(f"`{key}` of --set layers.{key}.kernel must be the name or position of one of 1 items")

    def test_a_position_in_an_empty_array(self):
        assert message(apply_settings, {"layers": []}, {"layers.0.kernel": 3}) == (
            "`0` of --set layers.0.kernel must be the name or position of one of 0 items; remove `.0.kernel` to set "
            "the whole array"
        )

    def test_both_lengths_on_the_command_line(self):
        assert message(load_recipe, "lenet", ["training.steps=3", "training.epochs=4"]) == (
            "exactly one of `steps` and `epochs` must be given, got steps = 3 and epochs = 4; keep one of them (in "
            "models/lenet.toml with --set training.steps=3 --set training.epochs=4: training)"
        )

    def test_neither_length(self, tmp_path: Path):
        path = tmp_path / "m.toml"
        path.write_text(
            "name = 'm'\n[network]\ninput = [1, 1, 2]\nclasses = 2\n[[network.layers]]\ntype = 'flatten'\n"
            "[training]\nbatch = 2\n[training.optimiser]\nname = 'sgd'\nlearning_rate = 0.1\n"
        )
        assert message(load_recipe, path) == (
            f"exactly one of `steps` and `epochs` must be given, got neither; keep one of them (in {path}: training)"
        )

    def test_an_error_in_the_file_is_not_blamed_on_a_setting(self, tmp_path: Path):
        path = tmp_path / "m.toml"
        path.write_text("name = 'm'\n[network]\ninput = [1, 1, 2]\nclasses = 1\n[[network.layers]]\ntype = 'flatten'\n")
        text = message(load_recipe, path, ["training.batch=2", "training.seed=0"])
        assert text == f"`classes` must be at least 2, got 1 in {path}: network; choose a larger value"


LINK = """
[[links]]
to = "{to}"
bandwidth_bytes_per_s = {{ value = 6e9, source = "x" }}
latency_s = {{ value = 1e-6, source = "x" }}
{more}
"""
CROSSBAR = '[crossbar]\nports = { value = 8, source = "x" }\n'


def link(to: str, more: str = "") -> str:
    return LINK.format(to=to, more=more)


def topology(nodes: int, devices: int) -> str:
    counts = {"nodes": nodes, "devices": devices}
    return "[topology]\n" + "".join(f'{name} = {{ value = {n}, source = "x" }}\n' for name, n in counts.items())


class TestInterconnect:
    @pytest.mark.parametrize(
        ("added", "text"),
        [
            (
                link("crossbar"),
                "a link to the crossbar must come with a crossbar, got none; add [crossbar] with `ports` (in d/x.toml)",
            ),
            (
                topology(2, 1),
                "[topology] must come with a crossbar, got none; add [crossbar] with `ports` (in d/x.toml)",
            ),
            (
                CROSSBAR,
                'a device with [crossbar] must have one link with `to = "crossbar"`, got 0; add it to [[links]] '
                "(in d/x.toml)",
            ),
            (
                link("crossbar") * 2 + CROSSBAR,
                'a device with [crossbar] must have one link with `to = "crossbar"`, got 2; remove the others '
                "(in d/x.toml)",
            ),
            (
                link("crossbar", 'at = "host"') + CROSSBAR,
                'a device whose host is at the crossbar must have a link with `to = "host"`, got none; add it to '
                "[[links]] (in d/x.toml)",
            ),
            (
                link("crossbar") + CROSSBAR + topology(5, 2),
                "`ports` of [crossbar] must be at least 10, for 5 nodes x 2 devices, got 8; give it more, or take "
                "fewer nodes (in d/x.toml)",
            ),
            (
                link("host", 'at = "host"'),
                "`at` of a link must be device, except for a link to the crossbar, got host for a link to 'host'; "
                "remove `at` (in d/x.toml: links[0])",
            ),
            (
                link("crossbar", 'copy_engines = { value = 2, source = "x" }') + CROSSBAR,
                "`copy_engines` must be given in the link to the host, over which they copy, got them in a link to "
                "'crossbar'; remove `copy_engines` (in d/x.toml: links[0])",
            ),
            (
                link("crossbar") + CROSSBAR + 'arbitration = "fifo"',
                "`arbitration` must be one of first_come, lowest, round_robin, got 'fifo' in d/x.toml: crossbar; "
                "choose one of them",
            ),
            (
                link("crossbar", 'duplex = "both"') + CROSSBAR,
                "`duplex` must be one of full, half, got 'both' in d/x.toml: links[0]; choose one of them",
            ),
        ],
    )
    def test_links_crossbar_and_topology_must_fit_together(self, device_error: Any, added: str, text: str):
        assert device_error(added) == text

    def test_a_latency_below_zero_is_refused(self, device_error: Any):
        text = link("host").replace("1e-6", "-1e-6")
        assert device_error(text) == (
            "`value` must be at least 0.0, got -1e-06 in d/x.toml: links[0].latency_s; choose a larger value"
        )

    def test_devices_that_share_a_port_need_only_one(self, tmp_path: Path):
        for more in ("shared = true", 'at = "host"'):
            path = tmp_path / "x.toml"
            path.write_text(DEVICE + link("host") + link("crossbar", more) + CROSSBAR + topology(8, 4))
            assert load_device(path).topology.devices.value == 4


class TestTablesFromPython:
    @pytest.mark.parametrize(
        ("table", "given", "said"),
        [
            (
                ConstantThresholds, {"high": 1, "low": 2},
                "`high` of [clipping] must be above `low` in float32, got 1 and 2; raise `high` or lower `low` "
                "(in ConstantThresholds(...))",
            ),
            (
                VarianceThresholds, {"rule": "variance", "k": -1.0},
                "`k` must be above 0.0, got -1.0 in VarianceThresholds(...); choose a larger value",
            ),
            (
                ConstantThresholds, {"hgh": 1},
                "`hgh` is not a key of the top level in ConstantThresholds(...); did you mean 'high'?",
            ),
            (
                VarianceThresholds, {"k": 1.0},
                "`rule` must be given, got nothing in VarianceThresholds(...); add `rule = ...` there",
            ),
            (
                ClippingTable, {"rules": [{"rule": "variance", "k": -1}]},
                "`k` must be above 0.0, got -1 in ClippingTable(...): rules[0]; choose a larger value",
            ),
            (
                ClusterTable, {"nodes": 2.5},
                "`nodes` must be an integer, got 2.5 in ClusterTable(...); write a whole number without quotes and "
                "without a point",
            ),
        ],
    )  # fmt: skip
    def test_a_table_made_from_python_says_what_a_file_says(self, table: type[Table], given: dict[str, Any], said: str):
        assert message(lambda: table(**given)) == said

    def test_a_table_in_a_file_keeps_its_file_and_key(self):
        assert message(load_recipe, "mlp", ['clipping.rules=[{rule="constant", high=1, low=2}]']) == (
            "`high` of [clipping] must be above `low` in float32, got 1 and 2; raise `high` or lower `low` (in --set "
            "clipping.rules=[{'rule': 'constant', 'high': 1, 'low': 2}])"
        )


class TestBeginningsOfNames:
    def test_a_mode_that_is_the_beginning_of_several_names_the_default_first(self):
        with pytest.raises(FormatError) as caught:
            Rounding.parse("neares")
        assert str(caught.value) == (
            "`rounding` must be a rounding mode, got 'neares'; did you mean 'nearest_even' (the default), "
            "'nearest_away', 'nearest_down', 'nearest_odd', 'nearest_up' or 'nearest_zero'?"
        )

    def test_a_format_that_is_the_beginning_of_several_lists_them(self):
        with pytest.raises(FormatError, match=r"got 'fp8_e'; did you mean 'fp8_e4m3', 'fp8_e5m2' or 'fp8_e8m0'\?$"):
            parse("fp8_e")

    def test_a_device_that_is_the_beginning_of_several_lists_them(self):
        assert message(load_device, "dgx").endswith(
            "got 'dgx'; did you mean 'dgx-a100-8x', 'dgx-h200-8x' or 'dgx-v100-8x'?"
        )

    def test_a_model_that_is_the_beginning_of_one_is_that_one(self):
        assert message(load_recipe, "trans").endswith("got 'trans'; did you mean 'transformer'?")

    def test_a_layer_that_is_the_beginning_of_several_lists_them(self):
        text = message(load_recipe, "lenet", ["network.layers.conv1.type=re"])
        assert text.endswith("network.layers.conv1.type='re'; did you mean 'relu' or 'residual'?")
