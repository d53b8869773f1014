"""A search that starts from the rows: a variable for each tensor that tolerates a narrower format.

search.toml      variables, each with the narrowest tolerated format as its probe; baseline, objectives, constraint
device.toml      the device, its fixed points placed as in the rows: so each width is the format that was measured
baseline.toml    the device itself, if it cannot be loaded by its name
model.toml       the recipe, likewise
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emu._paths import from_here
from emu._toml import toml_of, toml_string
from emu.errors import ConfigError
from emu.formats import DynamicFixed, Fixed, parse_number
from emu.hardware import load_device
from emu.report.sensitivity.rows import Row, Sensitivity
from emu.report.study.difference import points
from emu.search.design import MIXTURES
from emu.sensitivity.change import Change, changed
from emu.sensitivity.question import Question, SensitivityOptions
from emu.training import Recipe, load_recipe
from emu.training.folders.run_folder import RunFolder

SEARCH_FILE = "search.toml"
DEVICE_FILE, BASELINE_FILE, MODEL_FILE = "device.toml", "baseline.toml", "model.toml"
#: Seeds of each trial, and trials that the sampler proposes after the warm start.
_SEEDS, _PROPOSED = 3, 16
#: A trial is given up if it misses the constraint by more than this many margins, or by this many points.
_GIVEN_UP_MARGINS, _GIVEN_UP = 2, 0.01


def write_search(question: Question, options: SensitivityOptions, measured: Sensitivity) -> str | None:
    """Write the search file and the files that it names into the folder; return its name, None if there is none.

    There is none if the unchanged device is at chance, if no tensor tolerates a narrower format, or if the layers of
    every tensor that does have names with one of `[]*?`.
    """
    # keys of a search stand in brackets and may be globs: a name with such characters cannot be written as one
    best = {
        tensor: row
        for tensor, row in measured.narrowest().items()
        if not set("[]*?") & set("".join((*tensor, *row.passes)))
    }
    home = RunFolder(measured.path)
    if not best:
        for name in (SEARCH_FILE, DEVICE_FILE, BASELINE_FILE, MODEL_FILE):
            # files of an earlier analysis of this folder would contradict its page
            (measured.path / name).unlink(missing_ok=True)
        return None
    device = changed(question.device, _placed(best.values())).model_copy(
        update={"name": f"{question.device.name}-placed"}
    )
    where = "its fixed points where the rows of the sensitivity analysis have them"
    home.write_text(DEVICE_FILE, toml_of(device, f"{question.device.name}, {where}."))
    text = [
        *_head(question, options, measured, len(best)),
        *_objectives(options, inference=question.trained is not None),
    ]
    names: list[str] = []
    for tensor, row in best.items():
        names.append(_free("_".join(tensor), names))
        text += _variable(names[-1], row, [other for other in measured.rows if other.tensor == tensor])
    home.write_text(SEARCH_FILE, "\n".join(text) + "\n")
    return SEARCH_FILE


def _placed(rows: Any) -> list[Change]:
    """Return the changes that move the points of fixed-point formats, and leave their widths."""
    changes: list[Change] = []
    for row in rows:
        own, narrow = parse_number(row.own), parse_number(row.format)
        # so that width alone decides the format in the search: the point stays where the narrow format has it
        if isinstance(own, Fixed) and isinstance(narrow, Fixed) and own.signed == narrow.signed:
            placed = replace(own, frac_bits=own.width_bits - _integer_bits(narrow))
            changes.append(Change(row.layer, row.role, row.passes, row.own, str(placed)))
    return changes


def _integer_bits(fmt: Fixed) -> int:
    """Return the bits in front of the point, the sign among them."""
    return fmt.width_bits - fmt.frac_bits


def _head(question: Question, options: SensitivityOptions, measured: Sensitivity, variables: int) -> list[str]:
    home = RunFolder(measured.path)
    settings: dict[str, Any] = {} if options.steps is None else {"training.steps": options.steps}
    model, device = _model_of(question, settings, home), _baseline_of(question, home)
    first = question.recipe.training.seed
    how = "evaluation of trained weights" if measured.is_evaluation else f"runs of {options.steps} steps"
    given = "".join(f", {toml_string(key)} = {value}" for key, value in settings.items())
    return [
        f"# From a sensitivity analysis of {question.name} on {question.device.name}, by {how}, one role of one layer",
        f"# at a time: a variable for each that lost at most {100 * options.margin:g} points in a narrower format.",
        "# Trial 0 is the device as device.toml has it; each of the next ones has one variable alone at its probe.",
        f'name = "{re.sub(r"[^A-Za-z0-9._-]", "-", measured.path.name)}-search"',
        f'description = "Together, how narrow may they be that are narrow alone: {question.recipe.name}?"',
        f"model = {toml_string(model)}",
        f"device = {toml_string(str(from_here(measured.path / DEVICE_FILE)))}",
        f"baseline = {toml_string(device)}",
        f"seeds = {[first + i for i in range(_SEEDS)]}",
        f"trials = {1 + variables + len(MIXTURES) + _PROPOSED}",
        *([f"settings = {{ {given.removeprefix(', ')} }}"] if given else []),
    ]


def _objectives(options: SensitivityOptions, *, inference: bool) -> list[str]:
    energy = "joules_per_inference" if inference else "joules_per_step"
    given_up = max(_GIVEN_UP_MARGINS * options.margin, _GIVEN_UP)
    return [
        *("", "[[objective]]", f'metric = "{energy}"', 'direction = "minimize"'),
        *("", "[[objective]]", 'metric = "test_accuracy_difference"', 'direction = "maximize"'),
        *("", "[[constraint]]", 'metric = "test_accuracy_difference"'),
        *(f"at_least = {-options.margin!r}", f"prune_margin = {given_up!r}"),
    ]


def _variable(name: str, best: Row, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a variable and of what it sets: a range of widths if the formats have a text for it."""
    keys = [f"device.precision.layers[{layer}].{best.role}.format" for layer in (best.layer, *best.passes)]
    listed = ["keys = [", *(f"    {toml_string(key)}," for key in keys), "]"]
    lost = f"{points(best.lost).lstrip('+')} points" if best.lost and best.lost > 0 else "nothing"
    says = f"# {best.role} of {best.layer}: {best.format} alone loses {lost}"
    text = _text_of_width(best)
    # rows whose points differ are no range of widths: they are listed instead
    if text is not None and not all(_text_of_width(row) == text for row in rows):
        text = None
    least = min(row.bits for row in rows)
    # a range goes from a narrower width up to the device's own
    if text is None or least >= best.own_bits or any(row.bits > best.own_bits for row in rows):
        text = None
        listed_formats = ", ".join(map(toml_string, dict.fromkeys([best.own, *(row.format for row in rows)])))
        values = [f"choices = [{listed_formats}]", f"start = {toml_string(best.own)}"]
        values.append(f"probe = {toml_string(best.format)}")
    else:
        values = [f"low = {least}", f"high = {best.own_bits}", f"start = {best.own_bits}", f"probe = {best.bits}"]
    value = f'value = "{(text or "{}").replace("{}", "{" + name + "}")}"'
    return ["", says, "[[variable]]", f'name = "{name}"', *values, "", "[[set]]", *listed, value]


def _text_of_width(row: Row) -> str | None:
    """Return the text of a row's format with its width replaced by {}; None if a width does not say the format."""
    own, narrow = parse_number(row.own), parse_number(row.format)
    if isinstance(own, DynamicFixed):
        # the search moves the point of every width, so a format of another family is no width of it
        kind = own.signed, own.sign_magnitude
        if not isinstance(narrow, (Fixed, DynamicFixed)) or (narrow.signed, narrow.sign_magnitude) != kind:
            return None
        return f"{'sm' if own.sign_magnitude else '' if own.signed else 'u'}fix{{}}f?"
    if isinstance(own, Fixed) and isinstance(narrow, Fixed) and own.signed == narrow.signed and not own.sign_magnitude:
        # `ap_fixed` also names modes; the keys `rounding` and `overflow` of device.toml override those
        return f"ap_{'' if own.signed else 'u'}fixed<{{}}, {_integer_bits(narrow)}>"
    return None


def _free(name: str, taken: Sequence[str]) -> str:
    """Return the name of a variable: letters, digits and underscores, and not taken."""
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    plain = plain if plain[0].isalpha() else f"_{plain}"
    return (
        plain
        if plain not in taken
        else next(other for n in range(2, len(taken) + 3) if (other := f"{plain}_{n}") not in taken)
    )


def _model_of(question: Question, settings: dict[str, Any], home: RunFolder) -> str:
    """Return the name by which the recipe is loaded, or the path of a file that is written for it."""
    # by the name that was asked for, or its own, if that still loads the very same recipe; else it is written out
    for name in dict.fromkeys((question.asked.get("model", question.recipe.name), question.recipe.name)):
        try:
            known = load_recipe(name).with_settings({**settings, "training.seed": question.recipe.training.seed})
        except ConfigError:
            continue
        if known == question.recipe:
            return name
    recipe: Recipe = question.recipe
    home.write_text(MODEL_FILE, toml_of(recipe, f"The recipe of {question.name}."))
    return str(from_here(home.path / MODEL_FILE))


def _baseline_of(question: Question, home: RunFolder) -> str:
    """Return the name by which the unchanged device is loaded, or the path of a file that is written for it."""
    for name in dict.fromkeys((question.asked.get("device", question.device.name), question.device.name)):
        try:
            if load_device(name) == question.device:
                return name
        except ConfigError:
            continue
    home.write_text(BASELINE_FILE, toml_of(question.device, f"The device of {question.name}."))
    return str(from_here(home.path / BASELINE_FILE))
