"""Published claims on the results page: they hold, and data, pictures and texts are what is computed now."""

from __future__ import annotations

import copy
import json
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import emu
from benchmarks import results
from benchmarks.claims import machines, recipes, sums
from benchmarks.claims.__main__ import CLAIMS, data_of, main, shown
from benchmarks.claims.drawing import WIDTH
from emu.training.folders.study_folder import StudyFolder
from emu.training.study import load_study

ROOT = Path(__file__).resolve().parents[2]
SUMS, MACHINES = data_of("sums"), data_of("machines")
#: arXiv 2511.10909, version 2, table 8.
TABLE_8 = {
    "V100 fp16": 0.0,
    "T4 fp16": -0.5,
    "A100 fp16": -0.5,
    "Ada fp16": -0.5,
    "H100 fp16": -0.75,
    "B200 fp16": -0.75,
    "Ada FP8": 0.0,
    "H100 FP8": 0.0,
    "B200 FP8": -0.75,
    "B200 MXFP8": -0.75,
    "B200 NVFP4": -0.875,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_page_the_picture_and_the_file_show_what_was_measured(name: str):
    texts = shown(name, data_of(name))
    assert {path: path.read_text(encoding="utf-8") for path in texts} == texts


def test_the_commands_that_the_page_names_are_those_that_there_are():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert re.findall(r"^Made by `python -m benchmarks\.claims (\w+)`", page, re.MULTILINE) == list(CLAIMS)


# ---- sums ------------------------------------------------------------------------------------------------------------


def short(depths: tuple[int, ...]) -> sums.Data:
    """What the file has of some depths."""
    return {n: {u: {str(k): row[str(k)] for k in depths} for u, row in units.items()} for n, units in SUMS.items()}


def test_errors_of_short_sums_are_those_of_the_file():
    depths = (128, 512, 1024)
    assert sums.measure(depths) == short(depths)


@pytest.mark.slow
def test_errors_of_all_sums_are_those_of_the_file():
    assert sums.measure() == short(sums.DEPTHS) == SUMS


@pytest.mark.parametrize("numbers", sums.NUMBERS)
def test_the_error_of_sums_in_22_bits_grows_with_k(numbers: str):
    errors = [SUMS[numbers][sums.CHAIN][str(k)] for k in sums.DEPTHS]
    assert errors == sorted(errors)
    assert errors[-1] >= 10 * errors[0]


@pytest.mark.parametrize("numbers", sums.NUMBERS)
def test_promotion_removes_the_growth_and_at_least_nine_tenths_of_the_error(numbers: str):
    chain, promoted = (list(SUMS[numbers][unit].values()) for unit in (sums.CHAIN, sums.PROMOTED))
    assert promoted[0] == chain[0]  # 128 products are promoted once
    assert max(promoted) == promoted[0]
    for k in (sums.CLAIMED_DEPTH, sums.DEPTHS[-1]):
        at = sums.DEPTHS.index(k)
        assert promoted[at] * 10 <= chain[at]


def test_the_published_error_lies_between_those_of_the_distributions():
    errors = [SUMS[numbers][sums.CHAIN][str(sums.CLAIMED_DEPTH)] for numbers in sums.NUMBERS]
    assert min(errors) < sums.CLAIMED < max(errors)


def rational_sum(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))


@pytest.mark.parametrize("numbers", sums.NUMBERS)
def test_errors_are_relative_to_the_exact_result_or_to_the_largest(numbers: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sums, "SIZE", 3)
    depth = 160
    rng = np.random.default_rng([sums.SEED, depth])
    a, b = (emu.quantize(sums.NUMBERS[numbers](rng, (3, depth)), "fp8_e4m3") for _ in "ab")
    exact = [[rational_sum(x, y) for y in b] for x in a]
    largest = max(abs(value) for row in exact for value in row)
    for unit, mac in sums.UNITS.items():
        got = emu.matmul(
            a, b.T, a_format="fp8_e4m3", b_format="fp8_e4m3", out_format="fp32", mac=mac, backend="reference"
        )
        errors = [
            abs(Fraction(got[i, j].item()) - exact[i][j]) / (largest if numbers == "normal" else abs(exact[i][j]))
            for i in range(3)
            for j in range(3)
        ]
        assert sums.measure((depth,))[numbers][unit][str(depth)] == float(f"{float(max(errors)):.4g}")


def test_the_three_kinds_of_numbers_are_what_they_are_called():
    draw = {name: make(np.random.default_rng(1), (100, 100)) for name, make in sums.NUMBERS.items()}
    assert 0 <= draw["uniform"].min() < 0.01 < 0.99 < draw["uniform"].max() < 1
    assert np.array_equal(draw["|normal|"], np.abs(draw["normal"]))
    assert abs(draw["normal"].mean()) < 0.05
    assert abs(draw["normal"].std() - 1) < 0.05


def test_every_figure_of_the_text_comes_from_the_data():
    data = copy.deepcopy(SUMS)
    data["uniform"][sums.CHAIN] |= {"128": 0.0123, "8192": 0.345, "4096": 0.25}
    data["uniform"][sums.PROMOTED]["4096"] = 0.001
    data["normal"][sums.CHAIN]["4096"] = 0.0099
    text = sums.section(data)
    for words in ("from 1.2% to 34% for uniform", "it is 250, ", "numbers give 25%, ", " and 0.99%."):
        assert words in text


# ---- machines --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_data_of_machines_are_what_they_compute_now():
    assert machines.measure() == MACHINES


def test_every_machine_has_the_published_sum():
    assert {name: row["sum"] for name, row in MACHINES.items()} == TABLE_8
    assert {machine.name: machine.published for machine in machines.MACHINES} == TABLE_8


@pytest.mark.parametrize("machine", machines.MACHINES, ids=lambda machine: machine.name)
def test_the_terms_of_the_sum_are_those_that_are_said(machine: machines.Machine):
    a, b = (np.asarray(side, np.float64) for side in machines._terms(machine.inputs))
    terms = [x for x in a * b if x]
    large = terms[:-3]
    assert (sum(large), terms[-3:]) == (-machines.LARGE, [-0.5, -0.25, -0.125])
    assert len(large) == (8 if machine.inputs == "nvfp4" else 1)
    assert sum([machines.LARGE, *terms]) == -0.875


def test_rows_name_operands_scales_and_instructions():
    cells = [line.strip("| ").split(" | ") for line in machines.section(MACHINES).splitlines() if line.startswith("| ")]
    rows = {name: others[:3] for name, *others in cells}
    assert rows["V100 fp16"] == ["`fp16`", "none", "`mma`"]
    assert rows["H100 fp16"] == ["`fp16`", "none", "`mma`, `wgmma`"]
    assert rows["H100 FP8"] == ["`fp8_e5m2`", "none", "`wgmma`"]
    assert rows["B200 MXFP8"] == ["`fp8_e4m3`", "powers of two, for each 32", "`tcgen05.mxf8f6f4`"]
    assert rows["B200 NVFP4"] == ["`fp4_e2m1`", "`fp8_ue4m3`, for each 16", "`tcgen05.mxf4nvf4`"]


def test_machines_with_the_same_operands_are_compared_with_each_other():
    for name, row in MACHINES.items():
        kind = name.partition(" ")[2]
        assert list(row["unlike"]) == [other for other in TABLE_8 if other != name and other.endswith(f" {kind}")]
        for other, count in row["unlike"].items():
            assert count == MACHINES[other]["unlike"][name]


def test_results_are_unlike_if_their_bits_are():
    left = np.float32([1, 0, 2, np.nan])
    assert machines.unlike(left, left.copy()) == 0
    assert machines.unlike(left, np.float32([1, -0.0, 3, np.nan])) == 2


def test_the_text_says_which_machines_give_the_same_bits():
    text = machines.section(MACHINES)
    assert "T4, A100 and Ada give the same bits, as do H100 and B200; V100 and T4 differ in 80%" in text
    assert "With the same FP8 operands, Ada and H100 differ in 16%" in text
    data = copy.deepcopy(MACHINES)
    for one, other in (("Ada FP8", "H100 FP8"), ("H100 FP8", "Ada FP8")):
        data[one]["unlike"][other] = 0
    assert "operands, Ada and H100 give the same bits; Ada and B200 differ in 75%" in machines.section(data)


# ---- pictures and the command ----------------------------------------------------------------------------------------


def shapes_of(name: str, data: object) -> dict[str, list[ElementTree.Element]]:
    """Shapes of a picture by their names."""
    root = ElementTree.fromstring(CLAIMS[name].picture(data))
    assert root.get("viewBox") == f"0 0 {WIDTH} {root.get('height')}"
    found: dict[str, list[ElementTree.Element]] = {}
    for shape in root:
        found.setdefault(shape.tag.rpartition("}")[2], []).append(shape)
    return found


def test_the_picture_of_sums_has_a_line_for_each_unit_and_distribution():
    shapes = shapes_of("sums", SUMS)
    lines = [[tuple(map(float, p.split(","))) for p in line.get("points", "").split()] for line in shapes["polyline"]]
    assert [len(line) for line in lines] == [len(sums.DEPTHS)] * 6
    ups = [line[0][1] - line[-1][1] for line in lines]  # y grows downward
    assert [up > 50 for up in ups] == [True] * 3 + [False] * 3
    assert [text.text for text in shapes["text"]][-3:] == [
        "DeepSeek-V3",
        "sums in 22 bits",
        "promoted to binary32 every 128",
    ]
    places = [float(shape.get("cy", 0)) for shape in shapes["circle"]]
    assert len(places) == 6 * len(sums.DEPTHS) + 1
    assert sums.TOP < min(places) <= max(places) < sums.BOTTOM


def test_lines_that_end_side_by_side_share_a_text():
    assert sums._together([(10, "a"), (40, "b"), (50, "c")]) == [(10, "a"), (45, "b, c")]


def test_the_picture_of_machines_fills_the_terms_that_are_left():
    boxes = shapes_of("machines", MACHINES)["rect"]
    rows = [boxes[i : i + 5] for i in range(0, len(boxes), 5)]
    left = [[box.get("fill") != "none" for box in row[:3]] for row in rows]
    terms = {0.0: [], -0.5: [0], -0.75: [0, 1], -0.875: [0, 1, 2]}
    assert left == [[i in terms[value] for i in range(3)] for value in TABLE_8.values()]
    shares = [float(row[4].get("width", 0)) / float(row[3].get("width", 0)) for row in rows]
    assert [round(share, 2) for share in shares] == [round(row["inexact"] / 4096, 2) for row in MACHINES.values()]


@pytest.mark.parametrize("names", [["sums"], []])
def test_the_command_writes_data_picture_and_text(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder in ("benchmarks/claims", "docs/pictures/claims"):
        (tmp_path / folder).mkdir(parents=True)
    page = tmp_path / "docs" / "results.md"
    places = "\n".join(f"<!-- bench:{name} begin -->\n<!-- bench:{name} end -->" for name in CLAIMS)
    page.write_text(f"before\n{places}\nafter\n", encoding="utf-8")
    for name, claim in CLAIMS.items():
        monkeypatch.setattr(claim, "measure", lambda name=name: data_of(name))
    main(names, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    for name, claim in CLAIMS.items():
        picture = tmp_path / "docs" / "pictures" / "claims" / f"{name}.svg"
        is_named = name in (names or CLAIMS)
        assert picture.exists() == (claim.section(data_of(name)) in text) == is_named
        if is_named:
            assert data_of(name, tmp_path) == data_of(name)
            assert picture.read_text(encoding="utf-8") == claim.picture(data_of(name))


def test_a_name_that_no_claim_has_is_refused():
    with pytest.raises(
        SystemExit, match="a claim must be one of sums, machines, recipes, got nope; name some, or none for all"
    ):
        main(["sums", "nope"])


def test_the_page_is_made_of_its_own_sections_again():
    """`benchmarks/results.py` writes sections of models, and leaves what claims have written."""
    page = results.PAGE.read_text(encoding="utf-8")
    models = results.sections(page)
    assert next(iter(models)) == "mlp"
    assert results.page(page, models, list(models)) == page
    fewer = results.page(page, {"mlp": "a table"}, ["mlp", "lenet"])
    assert "Not measured yet: `lenet`." in fewer
    assert fewer.endswith("### mlp\n\na table\n")
    assert sums.section(SUMS) in fewer


# ---- recipes ---------------------------------------------------------------------------------------------------------

SETTINGS = [recipes.BASELINE, *(recipe.setting for recipe in recipes.RECIPES)]


def losses(**changed: tuple[float, ...]) -> dict[str, dict[str, float]]:
    """Three seeds of every setting, the losses of bfloat16 1, 2 and 3, of others a tenth more."""
    base = {setting: tuple(seed + 0.1 * (setting != recipes.BASELINE) for seed in (1, 2, 3)) for setting in SETTINGS}
    base |= {name.replace("_", "-"): values for name, values in changed.items()}
    return {name: {str(i): v for i, v in enumerate(values, 1)} for name, values in base.items()}


def test_the_study_has_a_run_for_every_recipe_and_every_claim_is_about_two_of_them():
    cases = list(load_study(recipes.STUDY).cases())
    assert {case.setting.name for case in cases} == set(SETTINGS)
    assert len(cases) == 5 * len(SETTINGS)
    named = {name for claim in recipes.CLAIMS for name in (claim.worse, claim.better)} | {c[0] for c in recipes.CLOSE}
    assert named <= set(SETTINGS)


def test_each_part_of_nvfp4_is_left_out_alone():
    policies = {
        case.setting.name: case.recipe.machine(case.machine).precision
        for case in load_study(recipes.STUDY).cases()
        if case.seed == 1 and case.setting.name.startswith("nvfp4")
    }

    def casts(name: str) -> dict[tuple[str, str], str]:
        products = [(layer, product) for layer in ("think1.wide", "think4.wide") for product in recipes.PRODUCTS]
        return {key: str([str(c) for c in policies[name].casts(*key) or ()]) for key in products}

    whole = casts("nvfp4")
    changed = {name: {key for key, cast in casts(name).items() if cast != whole[key]} for name in policies}
    assert changed == {
        "nvfp4": set(),
        "nvfp4-nearest": {("think1.wide", "error"), ("think1.wide", "gradient")},
        "nvfp4-no-hadamard": {("think1.wide", "gradient")},
        "nvfp4-1x16": {("think1.wide", "forward"), ("think1.wide", "error")},
        "nvfp4-all-blocks": {("think4.wide", product) for product in recipes.PRODUCTS},
    }
    assert "stochastic" in whole["think1.wide", "error"]
    assert "stochastic" not in casts("nvfp4-nearest")["think1.wide", "error"]
    assert "hadamard" not in casts("nvfp4-no-hadamard")["think1.wide", "gradient"]
    assert "16x16" not in casts("nvfp4-1x16")["think1.wide", "forward"]
    assert whole["think4.wide", "forward"] == "[]"


def test_only_seeds_for_which_all_runs_are_there_count():
    measured = losses()
    del measured["mxfp4"]["2"]
    assert recipes.whole_seeds(measured) == ["1", "3"]
    assert recipes.between(measured, "mxfp4", "bf16").values == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        ((1.2, 2.2, 3.26), "holds here: +0.2200 (+0.1339 .. +0.3061)"),
        ((0.8, 1.8, 2.74), "the other way here: -0.2200 (-0.3061 .. -0.1339)"),
        ((1.2, 1.8, 3.1), "not told apart: +0.0333 (-0.4838 .. +0.5505)"),
        ((1.2,), "+0.2000, one seed: nothing is sure"),
    ],
)
def test_a_claim_holds_if_the_interval_of_paired_differences_says_so(worse: tuple[float, ...], words: str):
    measured = losses(mxfp8_floor=worse, mxfp8_rceil=(1.0, 2.0, 3.0))
    assert recipes.verdict(recipes.between(measured, "mxfp8-floor", "mxfp8-rceil")) == words


def test_figures_of_recipes_come_from_the_data():
    shown = recipes.section({"identity": "", "losses": losses(nvfp4=(1.01, 2.01, 3.01), fp8_tile=(1.2, 2.2, 3.2))})
    text = " ".join(shown.split())
    assert "bfloat16 ends at a test loss of 2.0000. Of 5 planned seeds 3 are measured so far." in text
    assert "| NVFP4 | e2m1; e4m3 scales for 16; all four parts below | +0.0100 (+0.50%, +0.0100 .. +0.0100) |" in text
    assert "| NVFP4 loses less than 1.50% | arXiv 2509.25149, against FP8 | holds here: +0.50% |" in text
    assert "| FP8 tiles, promoted loses less than 0.25% | DeepSeek-V3, 3.3 | not here: +10.00% |" in text
    one = {name: {"1": seeds["1"]} for name, seeds in losses().items()}
    alone = recipes.section({"identity": "", "losses": one})
    assert "Of 5 planned seeds 1 is measured so far." in alone
    assert "not here, in one seed: +10.00%" in alone


def test_runs_that_are_finished_join_those_that_are_known(tmp_path: Path):
    cases = [case for case in load_study(recipes.STUDY).cases() if case.seed == 1][:2]
    info = {"status": "finished", "metrics": {"test_loss": 2.71828182}}
    recipe, device = cases[0].described
    folder = tmp_path / "runs" / cases[0].key
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(info | {"recipe": recipe, "device": device}))
    known = recipes.Data("x", {cases[0].setting.name: {"2": 3.0}})
    found = recipes.with_runs(known, cases, StudyFolder(tmp_path))
    assert found == recipes.Data("x", {cases[0].setting.name: {"2": 3.0, "1": 2.71828}})
    assert known.losses == {cases[0].setting.name: {"2": 3.0}}, "what was known is as it was"


def test_the_picture_has_a_dot_for_each_seed_of_each_recipe():
    root = ElementTree.fromstring(recipes.picture({"identity": "", "losses": losses()}))
    circles = [node for node in root.iter() if node.tag.endswith("circle")]
    assert len(circles) == 3 * len(recipes.RECIPES)
    assert all(recipes.LEFT <= float(node.attrib["cx"]) <= recipes.RIGHT for node in circles)
    words = "".join(root.itertext())
    assert all(recipe.name in words for recipe in recipes.RECIPES)
