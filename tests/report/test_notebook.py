"""What emu's objects show in a notebook: complete HTML, readable anywhere, with every text escaped."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import write_run

import emu
from emu._drawn import Drawn
from emu.engine.planner import Plan
from emu.precision import CounterTable
from emu.training import Run
from emu.training.evaluation import Evaluation
from emu.training.study import Grid, Study

FORMATS = (
    *("fix8f4", "ufix8f0", "fix16f-3", "fix16f20", "fix16f?", "fix64f32", "fp16", "fp8_e4m3", "e4m3fnuz", "fp64"),
    *("e3m0 finite nans=none ftz", "e8m0", "ue5m3", "e0m4 finite nans=none"),
)
VOID = {"br", "hr"}


class Balanced(HTMLParser):
    """Checks that every element that begins ends, and keeps names, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(thing: Any) -> Balanced:
    """The picture of a thing, which must stand alone."""
    page = Balanced(thing._repr_html_())
    assert not {"script", "link", "img", "iframe", "style"} & set(page.names)
    assert "var(--" not in thing._repr_html_()  # of the report's page, which is not here
    return page


@pytest.fixture(scope="module")
def register() -> emu.StatisticsRegister:
    """Of 8 results: two beyond fix8f4, one below it, one zero, NaN."""
    found = emu.StatisticsRegister(lowest=-8, bins=16)
    x = [0.5, 1.5, -3.0, 20.0, -9.0, 2.0**-6, 0.0, np.nan]
    emu.quantize(x, "fix8f4", register=found, flags=emu.Flags(), backend="reference")
    return found


@pytest.mark.parametrize("text", FORMATS)
def test_a_format_shows_every_bit_of_its_word(text: str):
    fmt = emu.parse(text)
    page = shown(fmt)
    assert page.names.count("rect") == fmt.width_bits
    assert text in page.text or str(fmt) in page.text


def test_a_format_says_range_step_and_special_codes():
    assert all(said in shown(emu.parse("fix8f4")).text for said in ("-8 .. 7.9375", "0.0625", "no NaN, no infinity"))
    assert all(said in shown(emu.parse("fp16")).text for said in ("65504", "+inf 0x7c00, NaN 0x7e00", "2⁻¹⁴"))
    assert "no infinity, NaN 0x7f" in shown(emu.parse("fp8_e4m3")).text


def test_flags_show_every_count():
    flags = emu.Flags(overflow=1234, tininess="after_rounding")
    text = shown(flags).text
    assert "1 of 7 raised, underflow: tiny after_rounding" in text
    assert "1,234" in text
    assert all(name in text for name in emu.datapath.FLAG_NAMES)


def test_a_mac_shows_product_accumulator_and_order():
    page = shown(emu.Mac.preset("h100", inputs="fp8_e4m3", instruction="wgmma"))
    assert "e8m13" in page.text
    assert "toward_zero" in page.text
    assert "blocks(32, 13), drawn for 32 products" in page.text
    assert "the order of the adds is irrelevant" in shown(emu.Mac()).text


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(3)", "lanes(1000)", "blocks(1024, 3)"])
def test_every_order_is_drawn(order: str):
    assert "details" in shown(emu.Mac(accumulator="fp32", order=order)).names


def test_a_unit_shows_its_stage_and_what_it_counted():
    unit = emu.Unit("fix8f4", rounding="stochastic", flags=emu.Flags(), backend="reference")
    unit.add(7.0, 7.0)
    text = shown(unit).text
    assert all(said in text for said in ("saturate", "stochastic", "24 of Philox", "2 of 7 raised"))


@pytest.mark.parametrize("mode", emu.Rounding)
def test_a_unit_shows_its_random_bits_if_its_rounding_draws_them(mode: emu.Rounding):
    draws = {"stochastic", "stochastic_nearest_even", "stochastic_nearest_odd", "stochastic_nearest_up"}
    text = shown(emu.Unit("fix8f4", rounding=mode, backend="reference")).text
    assert ("24 of Philox" in text) == (mode.value in draws)


def test_a_value_shows_numbers_beside_their_bits():
    text = shown(emu.value([[0.5, -1.0]], "fix8f4")).text
    assert all(said in text for said in ("shape (1, 2), float32", "00001000", "11110000"))
    assert "and 84 more" in shown(emu.value(np.zeros(100), "fp16")).text
    assert "no format" in shown(emu.Value(np.arange(3))).text
    assert "shape (0,)" in shown(emu.value([], "fp16")).text


def test_a_plan_shows_its_proof_with_text_escaped():
    plan = Plan("wide", "a < b & <script>alert(1)</script>", emu.Mac())
    assert "a < b & <script>alert(1)</script>" in shown(plan).text


def test_a_study_shows_its_grids_with_text_escaped():
    grid = Grid(models=("mlp",), devices=("float32", "fixed16"), seeds=(1, 2, 3))
    text = shown(Study(name="s", description="<b>bold</b>", grid=(grid,))).text
    assert "<b>bold</b>" in text
    assert "6 runs, compared with float32, seed by seed" in text


def test_a_cost_shows_energy_and_area_by_part_and_layer():
    cost = emu.cost_of("mlp", "fixed16", batch=8)
    page = shown(cost)
    step, one = (f"{1e6 * joules:.3g} uJ" for joules in (cost.joules_per_step, cost.joules_per_inference))
    expected = (
        "energy and area",
        "mlp on fixed16",
        f"{step}, of 8 examples",
        one,
        "0.0126 mm2",
        "energy of a step",
        "65%",
    )
    assert all(text in page.text for text in expected)
    assert "microjoules of a step" in page.text
    assert page.text.index("fc1") < page.text.index("relu1") < page.text.index("fc2")  # as in the network
    only = emu.cost_of("mlp", "fixed16", inference=True)
    assert (cost.is_of_inference, only.is_of_inference) == (False, True)
    assert "energy of an inference" in shown(only).text
    assert "a step" in shown(only).text  # its energy is known, too
    assert sum(cost.area_shares().values()) == pytest.approx(1)


def test_a_cost_is_one_line_elsewhere():
    cost = emu.cost_of("mlp", "fixed16", batch=8)
    assert repr(cost) == (
        "<Cost of mlp on fixed16: 5.98e-05 J for a step of 8 examples, 2.97e-06 J for an inference, 0.0126 mm2, "
        f"{len(cost.rows)} rows>"
    )


def test_a_class_without_a_picture_shows_its_text():
    class Plain(Drawn):
        def __repr__(self) -> str:
            return "a < b"

    assert shown(Plain()).text == "a < b"


def test_an_evaluation_shows_what_was_counted():
    counters = CounterTable(emu.StatisticsRegister)
    counters.of("fc1", "activation").register.merge(one_result())
    text = shown(Evaluation(0.25, 0.9375, 16, "5ea1", counters)).text
    assert "93.8% of 16 right, loss 0.25" in text
    assert "fc1" in text


def one_result() -> emu.StatisticsRegister:
    found = emu.StatisticsRegister()
    emu.quantize([1.0], "fix8f4", register=found, backend="reference")
    return found


def test_a_run_shows_its_outcome_its_loss_and_the_way_to_its_report(tmp_path: Path):
    folder = write_run(tmp_path / "a&b")
    run = Run(folder, {"weights_sha256": "5ea1", "registers_sha256": "c0de"})
    before = shown(run)
    assert "svg" in before.names
    assert "Loss over 2,000 steps: training ends at " in before.text
    assert 'role="img" aria-label="Loss over 2,000 steps: training ends at ' in run._repr_html_()
    assert f"emu report '{folder}' builds it." in before.text
    (folder / "report.html").write_text("")
    after = shown(run)
    assert after.links == [(folder / "report.html").as_posix()]
    assert "Trained" in after.text


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path):
    assert "a run folder must exist, got" in shown(Run(tmp_path / "gone", {})).text
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    assert "run.json" in shown(Run(tmp_path / "damaged", {})).text


def rows_of(chart: Any) -> list[dict[str, Any]]:
    """The rows of a chart, those that several of its layers have once."""
    data = {json.dumps(layer["data"]["values"]): layer["data"]["values"] for layer in chart.to_dict()["layer"]}
    return [row for rows in data.values() for row in rows]


class TestRegisters:
    def test_a_register_is_drawn_as_its_histogram(self, register: emu.StatisticsRegister):
        page = shown(register)
        assert "Leading bits of 8 results" in page.text
        assert "NaN, ∞" in page.text
        assert "svg" not in shown(emu.StatisticsRegister()).names

    def test_a_plot_against_a_format_marks_what_lies_beyond_it(self, register: emu.StatisticsRegister):
        plot = register.plot("fix8f4")
        assert plot.to_dict()["title"]["text"] == "Leading bits of 8 results against fix8f4"
        rows = {row["magnitude"]: row for row in rows_of(plot) if "magnitude" in row}
        outside = {name for name, row in rows.items() if not row["inside"]}
        assert outside == {"2³ to 2⁴", "2⁴ to 2⁵", "2⁻⁶ to 2⁻⁵", "NaN, ∞"}
        assert (rows["zero"]["text"], rows["NaN, ∞"]["text"]) == ("1 (12%)", "1 (12%)")
        labels = [row["label"] for row in rows_of(plot) if "label" in row]
        assert labels == ["largest 7.9375, overflow above", "smallest step 0.062, underflow below"]

    def test_the_bars_are_all_results(self, register: emu.StatisticsRegister):
        assert sum(row["share"] for row in rows_of(register.plot())) == 1

    def test_without_a_format_the_histogram_stands_alone(self, register: emu.StatisticsRegister):
        for plot in (register.plot(), register.plot("fix16f?")):
            assert plot.to_dict()["title"]["text"] == "Leading bits of 8 results"
            assert not any("label" in row for row in rows_of(plot))

    def test_nothing_observed_is_said(self):
        assert emu.StatisticsRegister().plot("fp16").to_dict()["title"]["subtitle"] == ["Nothing was observed yet."]

    def test_charts_stand_beside_each_other(self, register: emu.StatisticsRegister):
        assert len((register.plot("fp16") | register.plot()).to_dict()["hconcat"]) == 2

    def test_an_unknown_format_is_refused(self, register: emu.StatisticsRegister):
        with pytest.raises(emu.FormatError, match="got 'fp61'; did you mean 'fp64'"):
            register.plot("fp61")


def test_every_picture_of_shapes_is_an_svg_of_its_own():
    page = emu.parse("fp16")._repr_html_()
    drawn = page[page.index("<svg") : page.index("</svg>") + 6]
    assert ET.fromstring(drawn).get("role") == "img"
