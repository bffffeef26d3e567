"""`limbeck outputs list`, `show`, `copy` and `clear`: stored teacher outputs, endpoint answers and augmented examples.

Those of training, and the answers of endpoints, lie in one folder under keys; stores that `limbeck label` made lie
wherever they were put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from limbeck.cli import stored_view as view
from limbeck.cli.console import output, say
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.words import human_size

if TYPE_CHECKING:
    from limbeck.labelling.language_models.answer_journal import AnswerJournal
    from limbeck.outputs import OutputStore, Store, StoredEntry

outputs = typer.Typer(
    help="Stored teacher outputs, of training and of `limbeck label`, endpoint answers, and augmented examples.",
    no_args_is_help=True,
)

_STORE = "A folder or URL that `limbeck label` wrote, or a key as listed."
Places = Annotated[list[str] | None, typer.Argument(metavar="STORE", help=_STORE)]


@outputs.command("list")
def list_entries(stores: Places = None) -> None:
    """List what is stored for training, the last used first, endpoint answers, and the stores that are named."""
    kept = _Kept.read()
    others, problems = _opened(stores or (), kept)
    if kept.count or others:
        folder = str(kept.store.folder)
        output().print(view.stored_table(folder, kept.entries, kept.journals, others))
    else:
        say(f"nothing is stored in {kept.store.folder}")
    if problems:
        raise LimbeckError(problems)


@outputs.command()
def show(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    rows: Annotated[int, typer.Option(min=0, help="How many rows of a store to print.")] = 5,
) -> None:
    """Show a store, or what a key names: whose outputs, about which rows, its columns and size, and some rows."""
    from limbeck.outputs import StoreManifest, open_store

    named = _Kept([], []) if _is_place(place) else _one_each([place], _Kept.read())
    for entry in named.entries[:1]:
        manifest, where = entry.manifest, str(entry.path)
        if not isinstance(manifest, StoreManifest):
            output().print(view.facts_table(view.examples_facts(manifest, where)))
            return
        if not manifest.row_ids:
            output().print(view.facts_table(view.store_facts(manifest, where)))
            return
        place = where
    for journal in named.journals[:1]:
        output().print(view.facts_table(view.journal_facts(journal)))
        return
    store = open_store(place, allow_incomplete=True)
    output().print(view.facts_table(view.store_facts(store.manifest, store.files.url)))
    if rows and len(store):
        output().print(view.some_rows(store, rows))


@outputs.command()
def copy(
    place: Annotated[str, typer.Argument(metavar="STORE", help=_STORE)],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A new folder, or a URL.")],
) -> None:
    """Copy a store, or what a training stored under a key, to a folder or URL as a store that students learn from.

    Every bit of the outputs stays. A copy that was stopped is continued by the same command.
    """
    from limbeck.labelling.fill import labelling_progress
    from limbeck.outputs import StoreFiles, copy_store, open_store

    kept = _Kept([] if _is_place(place) else _Kept.read().entries, [])
    named = _one_each([place], kept).entries
    store = open_store(named[0].path if named else place)
    with labelling_progress(output(), len(store), 0) as advance:
        made = copy_store(store, StoreFiles(out), advance)
    say(f"{out}: {made.stored_rows:,} rows, {human_size(made.bytes)}")


@outputs.command()
def clear(
    places: Places = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="Also all endpoint answers, which were paid for."),
    ] = False,
) -> None:
    """Remove what is stored for training, or the keys and stores that are named; who reads it reads on.

    A key may be typed as far as it begins no other one. Endpoint answers go only by their key or with --answers.
    """
    from limbeck.outputs.writer import remove_store

    kept = _Kept.read()
    stores = [place for place in places or () if _is_place(place)]
    keys = [place for place in places or () if place not in stores]
    if unknown := [key for key in keys if not kept.named([key]).count]:
        raise LimbeckError(
            f"nothing is stored under {', '.join(unknown)}", "limbeck outputs list shows the keys"
        )
    chosen = _one_each(keys, kept) if places else _Kept(kept.entries, [])
    freed = sum(remove_store(place) for place in stores)
    journals = kept.journals if answers else chosen.journals
    for entry in chosen.entries:
        kept.store.remove(entry)
    for journal in journals:
        journal.remove()
    if not places:
        kept.store.sweep()
    freed += sum(entry.bytes for entry in chosen.entries)
    freed += sum(journal.size for journal in journals)
    count = len(chosen.entries) + len(journals) + len(stores)
    output().print(f"removed {count} of {kept.count + len(stores)} entries, {human_size(freed)}")
    left = len(kept.journals) - len(journals)
    if left and not places:
        output().print(f"{view.ANSWERS} were paid for and stay ({left}): --answers removes them")


@dataclass(frozen=True)
class _Kept:
    """What lies under keys: entries of training, and journals of an endpoint's answers."""

    entries: list[StoredEntry]
    journals: list[AnswerJournal]

    @classmethod
    def read(cls) -> _Kept:
        from limbeck.labelling.language_models.answer_journal import JOURNALS, journals_in
        from limbeck.outputs import default_store

        store = default_store()
        return cls(store.entries(), journals_in(store.folder / JOURNALS))

    @property
    def store(self) -> Store:
        from limbeck.outputs import default_store

        return default_store()

    @property
    def count(self) -> int:
        return len(self.entries) + len(self.journals)

    @property
    def keys(self) -> list[str]:
        """Of all of it."""
        return [entry.key for entry in self.entries] + [journal.key for journal in self.journals]

    def named(self, keys: Sequence[str]) -> _Kept:
        """Those whose keys begin so."""
        begins = tuple(key for key in keys if key)
        return _Kept(
            [entry for entry in self.entries if entry.key.startswith(begins)],
            [journal for journal in self.journals if journal.key.startswith(begins)],
        )


def _one_each(keys: Sequence[str], kept: _Kept) -> _Kept:
    """What some keys name, each in full or by a beginning that no other key has; what is not there is left out.

    Raises:
        LimbeckError: beginnings of several keys, with these keys.
    """
    found = {key: kept.named([key]).keys for key in keys}
    problems = [
        Problem(
            f"{key} begins several keys: {', '.join(begun)}", "name one of them, or each in full"
        )
        for key, begun in found.items()
        if len(begun) > 1 and key not in begun
    ]
    if problems:
        raise LimbeckError(problems)
    meant = {key if key in begun else begun[0] for key, begun in found.items() if begun}
    return _Kept(
        [entry for entry in kept.entries if entry.key in meant],
        [journal for journal in kept.journals if journal.key in meant],
    )


def _opened(places: Sequence[str], kept: _Kept) -> tuple[list[OutputStore], list[Problem]]:
    """The stores that are named, and what is wrong with the others; keys are listed anyway."""
    from limbeck.outputs import open_store

    found, problems = [], []
    for place in places:
        try:
            if _is_place(place) or not kept.named([place]).count:
                found.append(open_store(place, allow_incomplete=True))
        except LimbeckError as error:
            problems += error.problems
    return found, problems


def _is_place(place: str) -> bool:
    """Whether a store's folder or URL is named rather than a key."""
    from limbeck.outputs import StoreFiles
    from limbeck.outputs.manifest import MANIFEST

    return "://" in place or StoreFiles(place).exists(MANIFEST)
