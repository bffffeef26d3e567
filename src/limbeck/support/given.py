"""Objects given from Python where a recipe names folders and files: each has a reference, which leads to a folder.

Below everything that reads models, tokenizers and rows. A recipe holds nothing but text, so that a run from objects
names each `given:NAME@FINGERPRINT`. Readers call `place_of` for the folder, which is written at the first call
and removed when the run ends; no other code has to know about the object.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from limbeck.support.errors import LimbeckError, Problem

PREFIX = "given:"
Write = Callable[[Path], None]
"""Writes an object into an empty folder."""


class _Places:
    """The objects at hand, and the folders of the objects that have been requested."""

    def __init__(self, root: Path, writers: Mapping[str, Write]) -> None:
        self.root, self.writers = root, dict(writers)
        self.written: dict[str, Path] = {}

    def of(self, reference: str) -> Path:
        if reference not in self.written:
            # The name is part of messages.
            name = reference.removeprefix(PREFIX).replace("/", "-")
            folder = self.root / str(len(self.written)) / name
            folder.mkdir(parents=True)
            self.writers[reference](folder)
            self.written[reference] = folder
        return self.written[reference]


_HELD: WeakValueDictionary[str, Any] = WeakValueDictionary()


def hold(reference: str, thing: Any) -> None:
    """Register an object that has no files, a loss term, under a reference, for as long as it is referenced."""
    _HELD[reference] = thing


def held(reference: str) -> Any:
    """That object, or None."""
    return _HELD.get(reference)


_AT_HAND: ContextVar[_Places | None] = ContextVar("at_hand", default=None)


@contextmanager
def at_hand(writers: Mapping[str, Write]) -> Iterator[None]:
    """Inside, these references lead to folders."""
    if not writers:  # a run inside another one has that one's
        yield
        return
    with tempfile.TemporaryDirectory(prefix="limbeck-", ignore_cleanup_errors=True) as root:
        token = _AT_HAND.set(_Places(Path(root), writers))
        try:
            yield
        except LimbeckError as error:
            # The folders are gone by the time that anybody reads of them.
            rows = r"/\d+/([^/\s:,'\"]+)(?:/(train|dev|test)\.parquet)?[^\s:,'\"]*"
            place = re.compile(re.escape(root) + rows)
            error.problems = [
                replace(one, message=place.sub(_said, one.message)) for one in error.problems
            ]
            error.args = ("\n".join(map(str, error.problems)),)
            raise
        finally:
            _AT_HAND.reset(token)


def _said(place: re.Match[str]) -> str:
    name, split = place.groups()
    return f"{name} ({f'{split} rows, ' if split else ''}given from Python)"


def is_reference(place: str | Path | None) -> bool:
    """Whether a path or name refers to an object."""
    return place is not None and str(place).startswith(PREFIX)


def place_of(place: str | Path) -> str | Path:
    """The folder of an object's reference; any other path or name as it is.

    Raises:
        LimbeckError: the object is not at hand.
    """
    if not is_reference(place):
        return place
    problem = _absence(str(place), "")
    if problem is not None:
        raise LimbeckError(problem)
    known = _AT_HAND.get()
    assert known is not None
    return known.of(str(place))


def refuse_absent_rows(data: str) -> None:
    """Raise LimbeckError if a run's rows were objects that no longer exist."""
    if is_reference(data) and _absence(data, "data") is not None:
        raise LimbeckError(
            f"data: {data} refers to rows that were given from Python, which a run does not keep",
            "name rows of a file: --data FILE, with --text-columns and --label-column as it has them",
        )


def absent(settings: Mapping[str, Any]) -> list[Problem]:
    """The objects that a recipe's settings name and that are not at hand."""
    found = (_absence(text, name) for name, text in references_in(settings))
    return [problem for problem in found if problem is not None]


def references_in(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Every reference in a recipe's settings, with its key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from references_in(value, f"{above}{key}.")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and is_reference(text):
                yield f"{above}{key}", text


def note(settings: Mapping[str, Any]) -> str:
    """Comment lines for a recipe: which of its values were objects, and how to give them again."""
    keys = list(dict.fromkeys(key for key, _ in references_in(settings)))
    if not keys:
        return ""
    again = ", ".join(_argument(key) for key in keys)
    return (
        f"# {', '.join(keys)}: objects given from Python, which a recipe cannot contain. To resume or repeat the run\n"
        "# give them again, from this folder; behind the @ are fingerprints of their contents:\n"
        f'#   limbeck.distill("recipe.yaml", out=".", {again})\n'
    )


def _absence(reference: str, setting: str) -> Problem | None:
    known = _AT_HAND.get()
    if reference in _HELD or (known is not None and reference in known.writers):
        return None
    before = f"{setting}: " if setting else ""
    what, other = "an object", " with tokenizer= as before; or name a file or folder instead"
    if is_term(setting):
        what, other = "a term", ""
    return Problem(
        f"{before}{reference} refers to {what} that was given from Python, which a recipe cannot contain",
        f'give it again, limbeck.distill("…/recipe.yaml", out=…, {_argument(setting)}){other}',
    )


def is_term(setting: str) -> bool:
    """Whether a recipe's key names a term of the loss."""
    return setting.endswith(".compare")


def _argument(setting: str) -> str:
    if is_term(setting):
        return f'**{{"{setting}": TERM}}'
    known = {"": "…", "teachers": "teachers=[MODEL, …]", "student.init": "student=MODEL"}
    what = "ROWS" if setting in ("data", "unlabelled") else "MODEL"
    return known.get(setting, f"{setting}={what}")
