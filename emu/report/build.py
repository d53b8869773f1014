"""The report of a run: its sections, their order, and its title."""

from __future__ import annotations

from pathlib import Path

from emu.errors import ConfigError, EmuError
from emu.report.evidence import gather
from emu.report.header import footer, header
from emu.report.page import page
from emu.report.pictures import (
    all_ranges,
    batch_sizes,
    clipping,
    cluster,
    curves,
    energy,
    leading_bits,
    loss_scale,
    network,
    noise,
    range_events,
    scales,
    simulated_time,
    sparse_products,
    time_spent,
)
from emu.report.texts import machine, provenance, recipe
from emu.training.folders.run_folder import RunFolder

#: Sections in reading order: the run's course, its numbers, its costs, the machine, the origin of everything.
SECTIONS = (
    curves,
    loss_scale,
    clipping,
    cluster,
    batch_sizes,
    network,
    all_ranges,
    leading_bits,
    scales,
    range_events,
    noise,
    simulated_time,
    energy,
    sparse_products,
    time_spent,
    machine,
    recipe,
    provenance,
)
FILE_NAME = "report.html"


def build_report(run_folder: Path) -> Path:
    """Write the report of a run into its folder and return its path.

    The page needs no network and no other file. Equal folders give equal pages.

    Args:
        run_folder: a folder that `emu train` wrote, finished or not. Files other than `run.json` may be missing; then
            the page has a sentence instead of their pictures.

    Raises:
        ConfigError: the folder or its `run.json` cannot be read, or the report cannot be written.
    """
    folder = RunFolder(run_folder)
    folder.write_text(FILE_NAME, run_page(folder.path))
    return folder.path / FILE_NAME


def run_page(folder: Path, *, refuse_damaged: bool = False) -> str:
    """Return the report of a run, and write nothing.

    Args:
        folder: a folder that `emu train` wrote, finished or not.
        refuse_damaged: whether a table that cannot be read is an error; if not, the page has a sentence instead.

    Raises:
        ConfigError: the folder or its `run.json` cannot be read; with `refuse_damaged`, a table cannot.
    """
    try:
        return _page_of(folder, refuse_damaged)
    # What pictures raise if a recipe or device in `run.json` is not what their code expects. A valid one is an error of
    # ours, and stays as it is.
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if not isinstance(error, EmuError):  # some of emu's are ValueErrors, and explain themselves
            RunFolder(folder).read_setup()  # raises a ConfigError that explains a damaged recipe or device
        raise


def _page_of(folder: Path, refuse_damaged: bool) -> str:
    evidence = gather(folder)
    # Asked by the live page: while a folder is copied, the last good page is better than a page without a table.
    if refuse_damaged and evidence.run.damaged:
        raise ConfigError(evidence.run.missing[evidence.run.damaged[0]])
    sections = [section for module in SECTIONS if (section := module.section(evidence)) is not None]
    model, device = evidence.run.name()
    return page(f"{model} on {device}: emu report", header(evidence), sections, footer(evidence))
