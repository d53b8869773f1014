"""The files of a search's folder that its report is made of: written when a trial ends, read without Optuna.

search.json   the search
trials.json   its trials, and how much each variable matters
"""

from __future__ import annotations

from typing import Any

from emu.report.search.trials import REPEATED, SEARCH, TRIALS
from emu.search.ledger import RESULTS, Ledger
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.study_folder import StudyFolder

# Optuna's states; trials that this search prunes are COMPLETE, with results of fewer seeds
_STATES = {"COMPLETE": "finished", "RUNNING": "running", "WAITING": "waiting", "FAIL": "failed", "PRUNED": "failed"}


class Snapshot:
    """The files of a search's folder.

    Attributes:
        home: the folder.
    """

    def __init__(self, home: StudyFolder) -> None:
        self.home = home

    def begin(self, ledger: Ledger) -> None:
        """Write the search."""
        RunFolder(self.home.path).write_json(SEARCH, ledger.search.model_dump(mode="json"))

    def write(self, ledger: Ledger) -> None:
        """Write the states and results of the trials; the same trials give the same bytes."""
        trials = [_plain(trial) for trial in ledger.trials()]
        content = {"trials": trials, "importances": ledger.importances()}
        RunFolder(self.home.path).write_json(TRIALS, content)


def _plain(trial: Any) -> dict[str, Any]:
    results: dict[str, Any] = trial.user_attrs.get(RESULTS, {})
    return {
        "number": trial.number,
        # a trial that repeats values is stored as failed, but nothing is wrong with them
        "state": REPEATED if "repeats" in results else _STATES[trial.state.name],
        "values": trial.params,
        "objectives": trial.values,
        "violations": trial.constraints,
        **results,
    }
