"""Notes that a reader needs next to the numbers: runs that differ in more than the method.

Part of `limbeck.tables`. Nothing here changes a number; it makes visible what may explain one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from limbeck.records import Record
from limbeck.records.words import grouped, repeated_said
from limbeck.support.words import count_of, short_name
from limbeck.tables.model import place_of, place_title, several_sources

_SHOWN_FAILURES = 5
_NAMED_METHODS = 6


def _settings(record: Record) -> str:
    but = f" but for {', '.join(record.departures)}" if record.departures else ""
    return record.settings + but


def _epochs(record: Record) -> Any:
    said = _length(record.recipe)
    first = record.recipe.get("first_stage")
    if said is None or not first or record.recipe.get("joint"):
        return said
    own = {key: first.get(key) or record.recipe.get(key) for key in ("max_steps", "epochs")}
    return f"{_length(own)} + {said}"


def _length(settings: Mapping[str, Any]) -> str | None:
    steps, epochs = settings.get("max_steps"), settings.get("epochs")
    return f"{steps} steps" if steps else None if epochs is None else f"{epochs:g}"


def teacher_of(record: Record) -> Any:
    """A run's teacher or teachers in a few words; None without one."""
    if record.team is not None and len(record.team.members) > 1:
        names = [one.name for one in record.team.members]
        return f"{names[0]} to {names[-1]}, {len(names)} of them"
    if record.outputs:
        return f"outputs in {short_name(record.outputs[0].path)}"
    if record.teacher is None:
        return None
    layers = f", {count_of(record.teacher.layers, 'layer')}" if record.teacher.layers else ""
    return f"{short_name(record.teacher.path or 'unnamed')}{layers}"


def _start(record: Record) -> Any:
    student = record.recipe.get("student") or {}
    start = student.get("init")
    if start is None:
        return None
    # A finetune run names the checkpoint that a distill run calls its teacher's.
    return start if start in ("teacher", "pocket", "fresh") else short_name(start)


def _rows(record: Record) -> Any:
    count, augmented = record.examples.train, record.examples.augmented
    if augmented:
        return f"{count}, {augmented} of them augmented"
    without = record.examples.unlabelled
    return f"{count}, {without} of them without a label" if without else count


def _dev_rows(record: Record) -> Any:
    """The number of rows, and which; a record of an earlier version does not identify them."""
    count, rows = record.examples.dev, record.examples.fingerprints.get("dev")
    return count if rows is None else f"{count} #{rows[:8]}"


# Settings that runs in one column should share: a key of their recipes, or its form in a record.
_SHARED: dict[str, str | Callable[[Record], Any]] = {
    "training rows": _rows,
    "label noise": lambda record: f"{100 * (record.recipe.get('label_noise') or 0):g} %",
    "dev rows": _dev_rows,
    "settings": _settings,
    "epochs": _epochs,
    "teacher": teacher_of,
    "student's start": _start,
    "longest input": "max_length",
    "batch size": lambda record: _batch(record.recipe),
    "learning rate": "lr",
    "course of the rate": "lr_schedule",
    "warm-up": "warmup",
    "optimizer": "optimizer",
    "weight decay": "weight_decay",
    "gradient norm": "max_grad_norm",
    "precision": "precision",
    "patience": "patience",
    "epoch chosen by": "select_by",
    "share of labeled examples": "labelled_share",
    "weight of unlabeled examples": "unlabelled_weight",
    "confidence needed": "min_confidence",
    "thresholds": "thresholds",
    "sample of training rows": "train_rows_seed",
}
# Settings that do not affect a student, or are shown by a run's column, row and seed.
_NOT_COMPARED = frozenset(
    {
        "method", "family", "summary", "paper", "formula", "seed", "data", "task", "plugins", "floor",
        "report_to", "workers", "cache", "cache_limit", "log_steps", "checkpoint_steps",
        "keep_texts", "keep_first_stage", "skip_unused_embeddings", "compile", "attention",
        "activation_checkpointing", "packing", "teacher_device_map",
        "dev", "test", "first_stage.data",
    }
)  # fmt: skip
# Another machine has these elsewhere.
_FOLDERS = frozenset(
    {"teacher", "teachers", "outputs", "unlabelled", "student.init", "first_stage.teacher"}
)


def _batch(recipe: Mapping[str, Any]) -> Any:
    size = recipe.get("batch_size")
    return None if size is None else size * (recipe.get("accumulation") or 1)


def _plain(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else str(value) if value is not None else None


def dotted(recipe: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of a recipe at every depth with their values, as `--by` takes them."""
    for key, value in recipe.items():
        yield f"{above}{key}", value
        if isinstance(value, Mapping):
            yield from dotted(value, f"{above}{key}.")


def _named_alike(value: Any) -> Any:
    if isinstance(value, list):
        return [short_name(str(one)) for one in value]
    return value if value is None else short_name(str(value))


def other_settings(runs: Sequence[Record]) -> list[str]:
    """Keys in which finished runs of one row, one task and data and one seed differ, so that they are no repetitions.

    A key that is missing from one of the records, as in an earlier version, is ignored.
    """
    differ: set[str] = set()
    for repeated in grouped(_ended(runs), lambda run: (place_of(run), run.seed)).values():
        settings = [
            {
                key: _named_alike(value) if key in _FOLDERS else value
                for key, value in dotted(run.recipe)
                if not isinstance(value, Mapping) and key not in _NOT_COMPARED
            }
            for run in repeated
        ]
        for key in set[str].intersection(*({*one} for one in settings)):
            if any(one[key] != settings[0][key] for one in settings):
                differ.add(key)
    return sorted(differ)


def _ended(runs: Iterable[Record]) -> list[Record]:
    return [run for run in runs if run.status == "finished"]


def comparability_notes(runs: Sequence[Record]) -> list[str]:
    """One note for each setting in which the student runs of one task and data differ."""
    notes = []
    many = several_sources(runs)
    for own in grouped(_ended(runs), place_of).values():
        title = place_title(own[0], many)
        for what, read in _SHARED.items():
            groups: dict[Any, dict[str, None]] = {}
            for run in own:
                value = _plain(run.recipe.get(read)) if isinstance(read, str) else read(run)
                if value is not None:
                    groups.setdefault(value, {})[run.method] = None
            if len(groups) > 1:
                said = "; ".join(f"{value} ({who})" for value, who in _who(groups).items())
                notes.append(f"Not alike in {title}: {what} {said}.")
    return notes


def _who(groups: Mapping[Any, Mapping[str, None]]) -> dict[Any, str]:
    """The methods of each group by name, a large group's as the others, which come last."""
    names = {value: ", ".join(methods) for value, methods in groups.items()}
    most = max(groups, key=lambda value: len(groups[value]))
    if len(groups[most]) > _NAMED_METHODS:
        del names[most]
        names[most] = "the others"
    return names


def latency_notes(runs: Sequence[Record], bench: str | None = None) -> list[str]:
    """Under which conditions latency was measured, and whether they were the same.

    `bench`: the one that timed all of them in turns.
    """
    conditions = {
        (
            run.student.latency_ms.batch_size,
            run.student.latency_ms.tokens,
            run.student.latency_ms.threads,
            run.hardware.get("accelerator") or run.hardware.get("processor"),
        )
        for run in runs
        if run.student.latency_ms is not None
    }
    said = [
        f"batch {batch}, {tokens} tokens"
        + (f", {count_of(threads, 'thread')}" if threads else "")
        + (f", {machine}" if machine else "")
        for batch, tokens, threads, machine in sorted(conditions, key=str)
    ]
    if not said:
        return []
    if len(said) > 1:
        notes = [f"Latency was measured under different conditions: {'; '.join(said)}."]
    else:
        notes = [f"Latency: median ± distance between the quartiles of a forward pass; {said[0]}."]
    if bench is not None:
        notes.append(
            f"One bench ({bench}) timed all of them in turns: latencies of different rows may be compared."
        )
    elif sum(run.student.latency_ms is not None for run in runs) > 1:
        notes.append(
            "Each run timed its own student and teacher in turns, at another time than the other "
            "runs: latencies of different rows are not to be compared, also where their models are "
            "the same; × teacher's speed is."
        )
    return notes


def teacher_notes(runs: Sequence[Record]) -> list[str]:
    """Runs with several teachers, of which one is compared, and runs whose records do not identify its rows."""
    scored = [run for run in runs if run.teacher is not None and run.teacher.scores.get("dev")]
    several = [run for run in scored if run.team is not None and len(run.team.members) > 1]
    unsure = [run for run in scored if "dev" not in run.examples.fingerprints]
    notes = (
        ("are of the best single teacher on dev, not of the team", several),
        ("may be on other dev rows, which records of an earlier version do not record", unsure),
    )
    return [
        f"Teacher's score, and % of teacher, {said}: {', '.join({run.method: None for run in found})}."
        for said, found in notes
        if found
    ]


def failure_notes(runs: Sequence[Record]) -> list[str]:
    """Failed runs with their reasons, and runs that have not ended."""
    notes = []
    failed = [run for run in runs if run.status == "failed"]
    for run in failed[:_SHOWN_FAILURES]:
        reason = (run.error or "no reason recorded").strip().splitlines()[0]
        notes.append(f"Failed: {_named(run)}: {reason}")
    if len(failed) > _SHOWN_FAILURES:
        notes.append(f"Failed: {len(failed) - _SHOWN_FAILURES} more runs.")
    unfinished = [_named(run) for run in runs if run.status == "running"]
    if unfinished:
        notes.append(f"Not finished (running or stopped), not counted: {'; '.join(unfinished)}.")
    return notes


def seen_notes(runs: Sequence[Record]) -> list[str]:
    """Rows of other data that a run was scored on, and trained on as well."""
    said = (one for run in _ended(runs) for one in repeated_said(run.examples, own=False))
    return [*dict.fromkeys(said)]


def repeat_notes(runs: Sequence[Record], row_of: Callable[[Record], Any]) -> list[str]:
    """Runs that share row, column and seed: they count as one, their mean."""
    alike = grouped(_ended(runs), lambda run: (row_of(run), place_of(run), run.seed)).values()
    return [
        f"{len(same)} runs of {_named(same[-1])} are averaged into one."
        for same in alike
        if len(same) > 1
    ]


def _named(run: Record) -> str:
    return f"{run.method} on {run.task}, seed {run.seed}"
