"""The columns with a model's texts, and the columns kept next to its predictions. Part of `limbeck.predicting`."""

from collections.abc import Mapping, Sequence

from limbeck.data import candidates, files, table
from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.readers import EMBEDDINGS
from limbeck.predicting.settings import PredictSettings
from limbeck.support.errors import LimbeckError, raise_problems

ALL, NONE = "all", "none"
_USUAL = {
    "tokens": (("tokens",), ("words",), (files.TEXT_COLUMN,), ("sentence",)),
    "spans": (("question", "context"),),
    "image": ((files.IMAGE_COLUMN,), ("img",), ("file",)),
    "causal-lm": (("prompt",), (files.TEXT_COLUMN,)),
}
_WIDTHS = {
    "tokens": (1, 1),
    "spans": (2, 2),
    "image": (1, 1),
    "pair-score": (2, 2),
    "causal-lm": (1, 1),
}

Heads = Mapping[str, Sequence[str]]


def text_columns(facts: AboutModel, heads: Heads, settings: PredictSettings) -> tuple[str, ...]:
    """The columns that the model reads, the same in all sources; () where no source has a row.

    Args:
        facts: of the model.
        heads: the columns of each source.
        settings: the columns that the user named, and whether only hidden states are requested, of texts of any type.

    Raises:
        LimbeckError: missing columns, with the existing ones; another number than the model reads.
    """
    named, embeds_only = settings.text_columns, settings.asked == {EMBEDDINGS}
    width = _width(facts, embeds_only=embeds_only)
    if named:
        found = [table.miscounted_texts(named, *width, reader=facts.name)]
        found += [
            table.missing_columns(source, there, named) for source, there in heads.items() if there
        ]
        raise_problems([one for one in found if one is not None])
        return tuple(named)
    filled = {source: columns for source, columns in heads.items() if columns}
    if not filled:
        return ()
    known = _known(facts, width, embeds_only=embeds_only)
    for names in known:
        if all(set(names) <= set(columns) for columns in filled.values()):
            return names
    only = {tuple(columns) for columns in filled.values()}
    if len(only) == 1 and len(one := only.pop()) == 1 and width[0] == 1:
        _check_single(facts, next(iter(filled)), one[0])
        return one
    raise _not_found(facts, filled, known, width)


def _not_found(
    facts: AboutModel, filled: Heads, known: Sequence[tuple[str, ...]], width: tuple[int, int]
) -> LimbeckError:
    """No source has the columns, or all have some, but not the same ones."""
    lacking = [
        source
        for source, columns in filled.items()
        if not any(set(names) <= set(columns) for names in known)
    ]
    source = lacking[0] if lacking else next(iter(filled))
    wanted = " or ".join("+".join(names) for names in known)
    what = f"no column holds the {facts.kind.reads.noun}s (looked for {wanted})"
    if not lacking:
        others = ", ".join([*filled][1:])
        what = f"its columns differ from those in {others} (looked for {wanted} in all)"
    return LimbeckError(
        f"{source}: {what}",
        f"name {'it' if width == (1, 1) else 'them'} with --text-columns; "
        f"columns that are there: {', '.join(filled[source])}",
    )


def _check_single(facts: AboutModel, source: str, column: str) -> None:
    """Raise LimbeckError for images that are no model's text, and for a header like several columns in one."""
    if column == files.IMAGE_COLUMN and facts.kind.name != "image":
        raise LimbeckError(
            f"{source} holds images, and {facts.name} reads {facts.kind.reads.noun}s",
            "name files of rows, or a model of images",
        )
    if {*column} & {*";\t|"}:
        raise LimbeckError(
            f"{source} has one column, {column!r}, which looks like several",
            "use --format tsv for tabs, otherwise write the file with commas; if it is one column, name it with "
            "--text-columns",
        )


def _width(facts: AboutModel, *, embeds_only: bool) -> tuple[int, int]:
    """How many columns at least and at most."""
    if facts.texts is not None:
        return (facts.texts, facts.texts)
    return (1, 2) if embeds_only else _WIDTHS.get(facts.kind.name, (1, 2))


def _known(
    facts: AboutModel, width: tuple[int, int], *, embeds_only: bool
) -> list[tuple[str, ...]]:
    usual = table.USUAL_TEXTS if embeds_only else _USUAL.get(facts.kind.name, table.USUAL_TEXTS)
    if facts.regression and not embeds_only:
        usual = (*candidates.LISTED_TEXTS, *usual)
    low, high = width
    every = dict.fromkeys((*facts.columns, *usual))
    return [names for names in every if low <= len(names) <= high]


def kept_columns(keep: Sequence[str] | None, heads: Heads) -> tuple[str, ...] | None:
    """The user's columns that are written next to the predictions; None: all.

    Args:
        keep: names, `all` or `none`; None: all.
        heads: the columns of each source.

    Raises:
        LimbeckError: a name that no source has.
    """
    there = {name for columns in heads.values() for name in columns}
    if not keep or (list(keep) == [ALL] and ALL not in there):
        return None
    if list(keep) == [NONE] and NONE not in there:
        return ()
    lacking = [name for name in keep if name not in there]
    # JSON lines may have a column that their first line leaves out; an error would be worse than none.
    if lacking and there:
        raise LimbeckError(
            f"keep: no column {', '.join(map(repr, lacking))}",
            f"choices: {', '.join(sorted(there))}; or {ALL}, or {NONE}",
        )
    return tuple(dict.fromkeys(keep))
