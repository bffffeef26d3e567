"""Settings searched on dev by Optuna, trial by trial, with every trial kept on disk.

Optuna is imported where a search begins: the package is an extra.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from limbeck.lab.study.shared_runs import StudyRun
from limbeck.lab.study.study_fields import Cell, SearchSpec, Tried, Verdict, is_range
from limbeck.support.errors import LimbeckError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage

STORAGE = "search.db"
"""The file of a study's searches in its folder, an Optuna storage (SQLite)."""


class SearchStorage:
    """Where a study's searches are kept; without a folder they are forgotten at the end."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / STORAGE
        self._opened: BaseStorage | None = None

    @property
    def is_there(self) -> bool:
        """Whether anything has been kept."""
        return self._opened is not None or (self.path is not None and self.path.is_file())

    def open(self) -> BaseStorage:
        """Optuna's storage; the folder and the file are made at the first call."""
        if self._opened is None:
            from optuna.storages import InMemoryStorage, RDBStorage

            if self.path is None:
                self._opened = InMemoryStorage()
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                waiting = {"connect_args": {"timeout": 60}}  # another process may be writing
                self._opened = RDBStorage(f"sqlite:///{self.path}", engine_kwargs=waiting)
        return self._opened


@final
class DevSearch:
    """One group's search: a tree-structured Parzen estimator over the ranges of a study's `search`.

    A trial is a cell that has been suggested. It is in the storage before its first run begins, so that a
    study that was killed resumes with the same one. Each suggestion depends only on the search's name and
    the trials before it.
    """

    def __init__(
        self,
        storage: SearchStorage,
        spec: SearchSpec,
        name: str,
        runs_of: Callable[[Cell], tuple[StudyRun, ...]],
    ) -> None:
        """`name`: identifies the search; another name is another search."""
        said = json.dumps(spec.space, sort_keys=True)
        digest = hashlib.blake2b(f"{name} {said}".encode(), digest_size=4)
        self.name = f"{name} {digest.hexdigest()}"
        self.trials = spec.trials
        self._seed = int.from_bytes(digest.digest())
        self._space = {key: _distribution(values) for key, values in spec.space.items()}
        self._storage, self._runs_of = storage, runs_of
        self._tried: tuple[Tried, ...] | None = None
        self._told: set[int] = set()

    def tried(self) -> tuple[Tried, ...]:
        """The cells so far, in the order in which they were suggested."""
        if self._tried is None:
            if not self._storage.is_there:
                return ()
            self._read()
        assert self._tried is not None  # read just now
        return self._tried

    def advance(self, score_of: Callable[[Tried], Verdict | None], room: int) -> None:
        """Report ended cells, and suggest cells until `room` of them are open or all have been suggested.

        A cell that was tried before has ended as soon as it is suggested.
        """
        while True:
            tried = self.tried()
            verdicts = [score_of(one) for one in tried]
            for number, verdict in enumerate(verdicts):
                if verdict is not None and number not in self._told:
                    self._tell(number, verdict)
            missing = min(room - verdicts.count(None), self.trials - len(tried))
            if missing <= 0:
                return
            for _ in range(missing):
                self._ask()
            self._read()

    def _study(self) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(
            storage=self._storage.open(),
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
        )

    def _ask(self) -> None:
        import optuna

        study = self._study()
        study.sampler = optuna.samplers.TPESampler(seed=self._seed + len(study.trials))
        study.ask(self._space)

    def _tell(self, number: int, verdict: Verdict) -> None:
        from optuna.trial import TrialState

        # A process that was killed may have reported it; a run that failed may have been made since.
        state = None if verdict.score is not None else TrialState.FAIL
        self._study().tell(number, verdict.score, state=state, skip_if_finished=True)
        self._told.add(number)

    def _read(self) -> None:
        cells = [_cell(trial.params) for trial in self._study().get_trials(deepcopy=False)]
        known = dict(enumerate(self._tried or ()))
        self._tried = tuple(
            known[number] if number in known else (cell, self._runs_of(cell))
            for number, cell in enumerate(cells)
        )


def _cell(params: Cell) -> dict[str, Any]:
    """Three significant digits: a rate of more has no meaning, and runs are named by it."""
    return {
        key: float(f"{value:.3g}") if isinstance(value, float) else value
        for key, value in params.items()
    }


def _distribution(values: list[Any]) -> BaseDistribution:
    from optuna import distributions

    if is_range(values):
        low, high = values
        if type(low) is int and type(high) is int:
            return distributions.IntDistribution(low, high)
        return distributions.FloatDistribution(float(low), float(high), log=low > 0)
    return distributions.CategoricalDistribution(values)


def needs_optuna() -> None:
    """Raises LimbeckError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise LimbeckError(
            "select.search: Optuna is not installed",
            "pip install 'limbeck[optuna]', or use select.grid instead",
        )
