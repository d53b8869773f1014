"""The page of a sensitivity analysis: conclusions, grids, loss against saving, the ranked table."""

from __future__ import annotations

from pathlib import Path

from emu.report.html import bullets, element, join, paragraph, table
from emu.report.page import Section, page
from emu.report.sensitivity.grid_picture import grid_section
from emu.report.sensitivity.rows import Sensitivity, read_sensitivity
from emu.report.sensitivity.saving_picture import saving_section
from emu.report.sensitivity.words import cells, conclusions, failures, header, headline, limits, warning
from emu.training.folders.run_folder import RunFolder

FILE_NAME = "report.html"


def build_sensitivity_report(folder: Path) -> Path:
    """Write the report of a sensitivity analysis into its folder, and return its path.

    Raises:
        ConfigError: the folder has no analysis, or cannot be written.
    """
    RunFolder(folder).write_text(FILE_NAME, sensitivity_page(read_sensitivity(folder)))
    return folder / FILE_NAME


def sensitivity_page(measured: Sensitivity) -> str:
    """Return the page of a sensitivity analysis."""
    about = measured.about
    title = element("h1", element("span", str(about["network"]), class_="model"), " in narrower formats")
    notice = warning(measured)
    box = element("div", element("h2", "At chance"), paragraph(notice), class_="diagnosis") if notice else ""
    done, asked = len(measured.rows), len(about["asked"])
    unfinished = f"{done} of {asked} changes are measured; the same command goes on." if done < asked else ""
    parts = [
        title,
        box,
        paragraph(headline(measured), class_="outcome"),
        *([paragraph(unfinished)] if unfinished else []),
        *([bullets(conclusions(measured))] if measured.rows and not notice else []),
    ]
    sections = [
        grid_section(measured),
        saving_section(measured),
        _table(measured),
        _failed(measured),
        _limits(measured),
    ]
    footer = paragraph("Every number is from sensitivity.json and rows.json beside this page.")
    return page(f"{about['network']}: emu sensitivity", join(parts), [part for part in sections if part], footer)


def _table(measured: Sensitivity) -> Section | None:
    if not measured.rows:
        return None
    names = header(measured)
    order = "in the network's order" if measured.is_at_chance else "the most sensitive first"
    rows = [cells(measured, row) for row in measured.ranked()]
    passing = [row for row in measured.rows if row.passes]
    # By the name in the table, so each name is explained once.
    passes = {f"{row.layer} +{len(row.passes)}": f"with {', '.join(row.passes)}" for row in passing}
    grid = table(f"All changes, {order}", names, rows, numeric_from=3, stacks=True)
    notes: list[str] = []
    if passes:
        text = "; ".join(f"{name}: {layers}" for name, layers in passes.items())
        notes.append(f"Layers that only pass values on were narrowed with the layer that writes them. {text}.")
    if measured.is_evaluation:
        notes.append("Changed: how many test answers differ, of them spoilt (-) and mended (+).")
    notes.append("Loss: how much the mean loss of the test examples rises.")
    notes.append(f"Saved: share of the energy of {measured.about['energy_of']}, by the device's cost table.")
    notes.append(
        "Events: shares of the results in the narrower format that fell below its smallest step and became 0 (under), "
        "or were too large for it (over)."
    )
    return Section("rows", "All changes", join([grid, bullets(notes)]))


def _failed(measured: Sensitivity) -> Section | None:
    lines = failures(measured)
    return Section("failures", "Changes that could not be measured", bullets(lines)) if lines else None


def _limits(measured: Sensitivity) -> Section:
    search = measured.about.get("search")
    lines = limits(measured)
    if search:
        lines.append(f"{search} beside this page is a search that starts from here: emu search tries them together.")
    return Section("limits", "What this does not tell", bullets(lines))
