"""Stored outputs that replace teachers: opened, checked for the classes and layers that the terms compare.

Part of `limbeck.run`.
"""

import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.activations import ActivationKey, Request
from limbeck.data import candidates, files, outputs_file
from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives import Objectives, TeamObjectives, TermSpec
from limbeck.objectives.predictions import DistributionSpec
from limbeck.outputs import key
from limbeck.outputs.columns import LOGITS, name_of_key, word_of
from limbeck.outputs.store import OutputStore, open_store, place_and_member
from limbeck.outputs.stored_teacher import GivenOutputs, StoredParts, StoredTeacher, by_layer
from limbeck.recipe import Recipe
from limbeck.run.models import ALONE, Named
from limbeck.run.prepared import StageInputs
from limbeck.students import class_places, numbered_places, places_by_name
from limbeck.support import given, words
from limbeck.support.errors import LimbeckError, Problem, collecting, problem_list, raise_problems
from limbeck.support.files import at_home, checksum, checksum_of_text
from limbeck.tasks import Processor, Task, get_task_type


def layer_problems(
    inputs: StageInputs, objectives: Objectives | TeamObjectives, tokenizer: Processor
) -> list[Problem]:
    """Layers that terms request of stored teachers and that are missing, or not as these rows require them."""
    problems = []
    for place, member in enumerate(inputs.members):
        layers = None if member.outputs is None else member.outputs.layers
        own = objectives.of(place)
        if layers is not None and own.ever("teacher").items:
            found = _layer_problems(inputs.recipe, layers, own, tokenizer)
            problems += [Problem(f"outputs: {what}", fix) for what, fix in found]
    return problems


def _layer_problems(
    recipe: Recipe, layers: StoredParts, terms: Objectives, tokenizer: Processor
) -> Iterator[tuple[str, str]]:
    """The problems with a store's layers for these terms, and how to make the right ones."""
    wanted, exact = (
        Request(terms.ever("teacher").items),
        Request(terms.differences("teacher").items),
    )
    url, again = layers.store.files.url, _label_line(recipe, layers, wanted.items, exact.items)
    names = [name for name in terms.terms if terms[name].ever("teacher").items]
    who = f"objectives.{' and objectives.'.join(names)}"
    if absent := layers.absent(wanted):
        listed = ", ".join(map(str, absent))
        yield f"{who} may compare {listed}, and {url} lacks {_named(absent)}", again
    if coarse := layers.coarse(exact):
        yield (
            f"{who} looks at differences of nearly equal states, and {url} holds {_named(coarse)} in float16",
            again,
        )
    if terms.sees_padding:
        yield (
            f"padding counts in {', '.join(terms.sees_padding)}, and is not stored",
            "take the term out, or give the teacher's model: --teacher",
        )
    if all(seen.pool is not None for seen in wanted.items):
        return
    # States of tokens require the same tokens as these rows.
    about = layers.store.manifest.teacher.fingerprint
    made_by, length = about.get("tokenizer"), about.get("max_length")
    if made_by is not None and made_by != key.digest_of_tokenizer(tokenizer):
        yield (
            f"{url} holds states of tokens that another tokenizer made than the student's",
            "save the student with the teacher's tokenizer; or compare pooled states, or logits (method kd)",
        )
    if length is not None and length != recipe.max_length:
        yield (
            f"{url} holds states of at most {length} tokens a row, and max_length is {recipe.max_length}",
            f"set max_length={length}; or {again}",
        )


def _named(seen: Iterable[ActivationKey]) -> str:
    return ", ".join(map(name_of_key, seen))


def _label_line(
    recipe: Recipe,
    layers: StoredParts,
    wanted: Iterable[ActivationKey],
    exact: frozenset[ActivationKey],
) -> str:
    """The `limbeck label` command that writes the required outputs, as a fix."""
    words = {
        one: word_of(one, exact=one in exact) for one in by_layer({*layers.columns} | {*wanted})
    }
    if None in words.values():
        what = ", ".join(str(one) for one, word in words.items() if word is None)
        return f"give the teacher's model (--teacher): {what} cannot be stored"
    # A store knows the end of its teacher's path.
    name = layers.store.manifest.teacher.name
    teacher = name if at_home(name).exists() else f"PATH/{name}"
    data = "DATA" if given.is_reference(recipe.data) else str(recipe.data)
    command = ["limbeck", "label", "--teacher", teacher, "--data", data]
    command += ["--max-length", str(recipe.max_length)]
    command += ["--outputs", LOGITS, *(word for word in words.values() if word is not None)]
    out = layers.store.files.url.rstrip("/") + "-layers"
    return f"label again: {shlex.join([*command, '--out', out])}"


# Whether stored outputs can teach a recipe's terms, before any is read.


@problem_list
def term_problems(recipe: Recipe, task: Task, outputs: GivenOutputs) -> Iterator[Problem]:
    """Terms and settings that need data which a store of outputs does not contain."""
    for stage in recipe.stages():
        if stage.recipe.outputs is None:
            continue
        transform = stage.recipe.transform
        if transform is not None and transform.why_live is not None:
            yield Problem(
                f"outputs: {transform.why_live} ({transform.name}), so stored ones cannot serve",
                "leave the transform out, or give the teacher's model: --teacher",
            )
        for name, term in stage.recipe.objectives.items():
            missing = _lacking(term, task, outputs) if term.needs_teacher else None
            if missing is not None:
                what, fix = missing
                setting = f"{stage.setting}objectives.{name}"
                yield Problem(f"{setting}: {term.compare} compares {what}", fix)


def _lacking(term: TermSpec, task: Task, outputs: GivenOutputs) -> tuple[str, str] | None:
    """Data that a term compares and outputs do not contain, and the fix."""
    place, margins = outputs.place, outputs.lists is not None
    if task.kind.stored_as is not task.kind and not (outputs.embedding or term.compares_candidates):
        held = "margins, differences of two scores," if margins else "scores"
        return (
            f"texts one by one, and {place} holds {held} of a query with a passage",
            "compare scores (--method embedding-margin, listwise-kl or ranknet), or give an embedding model: --teacher",
        )
    if margins and not term.compares_candidates:
        return (
            f"each score, and {place} holds margins: differences of two scores",
            "compare a query's candidates (--method margin-mse, listwise-kl or ranknet), or give the scores "
            "themselves: columns query, passage and score",
        )
    if term.needs_layers and outputs.embedding:
        return (
            f"layers, and {place} holds embeddings alone",
            "compare embeddings (--method embedding-mse, embedding-cosine, embedding-similarity), or give the "
            "teacher's model: --teacher",
        )
    if term.needs_layers and outputs.layers is None:
        return (
            f"layers, and {place} holds {outputs.what} alone",
            "compare the logits (method kd or kd-soft); or store layers with `limbeck label --outputs logits "
            "hidden:LAYER`, or give the teacher's model: --teacher",
        )
    if term.shifts_matter and outputs.what not in ("logits", "score") and not outputs.several:
        return (
            f"logits themselves, and of {outputs.what} they are known but for a constant an example",
            "use soft_kl or soft_cross_entropy, set centered=true, or label with --outputs logits",
        )
    return None


# A text-to-text teacher's store in the teacher's place, held against a run's task, terms and
# tokenizer.


def about_store(store: OutputStore) -> dict[str, Any]:
    """A record's entry for a store."""
    manifest = store.manifest
    return {
        "teacher": manifest.teacher.name,
        "fingerprint": manifest.teacher.fingerprint,
        "rows": manifest.rows.fingerprint,
        "settings": manifest.settings,
        "content": checksum_of_text(" ".join(shard.checksum for shard in manifest.shards)),
    }


def of_targets(place: str, store: OutputStore, task: Task, limit: int) -> GivenOutputs:
    """The outputs of a text-to-text teacher for a task that a decoder answers.

    Args:
        limit: bytes that all entries of the local cache together may take.

    Raises:
        LimbeckError: the store has no tokens of a vocabulary, or was made with other prompts.
    """
    tokens, rows = store.manifest.tokens, store.manifest.rows
    if tokens is None or not rows.target:
        raise LimbeckError(
            f"outputs: {place} holds {', '.join(c.name for c in store.columns) or 'nothing'}, and no logits of a "
            "vocabulary about texts and targets",
            f"label again with --outputs {LOGITS}:top64",
        )
    asked = store.manifest.teacher.fingerprint.get("task")
    if asked != task.name:
        raise LimbeckError(
            f"outputs: the prompts of {place} begin with {asked!r}, and the prompts of this task with {task.name!r}",
            f"label again with --task {task.name}, or name the task as in labeling: task={asked}",
        )
    return GivenOutputs(
        place,
        LOGITS,
        task.labels,
        np.unique(store.row_ids),
        _nothing,
        about_store(store) | {"tokens": tokens.model_dump(mode="json")},
        parts=StoredParts(store, limit, kept=tokens.rule),
    )


def _nothing(ids: np.ndarray) -> np.ndarray:
    raise LimbeckError(
        "outputs: a text-to-text teacher's are of tokens, not of classes",
        "read them by their tokens",
    )


def token_problems(
    recipe: Recipe, outputs: GivenOutputs, tokenizer: Processor
) -> Iterator[Problem]:
    """Terms that look at another part of the vocabulary, several stores, a student with other tokens."""
    kept, parts, place = outputs.tokens, outputs.parts, outputs.place
    if kept is None or parts is None:
        return
    if recipe.team is not None:
        yield Problem(
            f"outputs: {place} keeps a part of a vocabulary, and a team's members have nothing in common to weigh",
            "give one store",
        )
    made_by = parts.store.manifest.teacher.fingerprint.get("tokenizer")
    if made_by != key.digest_of_tokenizer(tokenizer):
        yield Problem(
            f"outputs: {place} holds tokens of another tokenizer than the student's",
            "save the student with the teacher's tokenizer, or label with a teacher of the student's",
        )
    for stage in recipe.stages():
        for name, term in stage.recipe.objectives.items() if stage.recipe.outputs else ():
            setting, asked = f"{stage.setting}objectives.{name}", getattr(term, "kept", None)
            if not (term.needs_teacher and term.reads_logits) or asked == kept:
                continue
            if isinstance(term, DistributionSpec):
                said = f"it looks at {asked or 'all logits'} of the vocabulary, and {place} keeps {kept}"
                yield Problem(f"{setting}: {said}", _as_kept(setting, kept, term.temperature))
            else:
                yield Problem(
                    f"{setting}: {term.compare} reads all logits, and {place} keeps {kept} of them",
                    "use soft_kl or soft_cross_entropy, or give the teacher's model: --teacher",
                )


def _as_kept(setting: str, kept: KeptTokens, temperature: float) -> str:
    """The settings by which a term reads the kept tokens, or the outputs that it would need."""
    asked = f"{setting}.tokens={kept.how}{kept.count}"
    if temperature == kept.temperature:
        return f"set {asked}"
    again = KeptTokens(kept.how, kept.count, temperature)
    return f"set {asked} and {setting}.temperature={kept.temperature:g}, or label again with --outputs {LOGITS}:{again}"


def stored_teachers(recipe: Recipe, task: Task, tokenizer: Processor) -> list[Named]:
    """A teacher for each of a recipe's outputs; several have distinct names.

    Raises:
        LimbeckError: outputs that cannot be read, or whose classes are not the data's; terms that need more
            of a teacher than outputs.
    """
    places, kind = recipe.outputs or [], task.kind.stored_as
    problems = _of_task(recipe, task)
    # The task as of which outputs are stored: its own, or of a query with a passage in each row.
    stored = task
    if kind is not task.kind:
        stored = replace(task, kind=kind, text_columns=(candidates.QUERY, candidates.PASSAGE))
    teachers = []
    for place in places if not problems else ():
        with collecting(problems):
            outputs = embeddings_of(place, recipe) if task.kind.embeds else None
            if outputs is None:
                outputs = open_outputs(place, stored, recipe)
            # For texts other than the student's there is no layer to compare.
            own = outputs if stored is task else replace(outputs, parts=None)
            teachers.append(StoredTeacher(own))
    for teacher in teachers:
        problems += term_problems(recipe, task, teacher.outputs)
        problems += token_problems(recipe, teacher.outputs, tokenizer)
    raise_problems([*dict.fromkeys(problems)])
    names = [ALONE] if recipe.team is None else words.short_names(places)
    return [
        Named(name, place, teacher, tokenizer)
        for name, place, teacher in zip(names, places, teachers, strict=True)
    ]


@problem_list
def _of_task(recipe: Recipe, task: Task) -> Iterator[Problem]:
    if not (task.kind.stored_as.labels_texts and task.kind.reads.in_columns):
        yield Problem(
            f"outputs: they are of complete texts, and {task.name} is of kind {task.kind.name}",
            "give the teacher's model: --teacher",
        )
    if recipe.output_classes and not task.kind.class_names(task.labels):
        yield Problem(f"output_classes: outputs for {task.name} are of no classes", "leave it out")


def open_outputs(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    """The outputs in a store or a file, as the task has its classes.

    Raises:
        LimbeckError: they cannot be read, or are of other classes or another type of task.
    """
    if files.form_of(Path(place)) is not None and at_home(place).is_file():
        return _of_file(place, task, recipe)
    return outputs_of_store(place, task, recipe)


def _of_file(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    if task.kind.key_columns:
        raise LimbeckError(
            f"outputs: {place} is a file, and {task.name} is of kind {task.kind.name}: its teacher has logits over a "
            "vocabulary at every token of a target",
            "name the store that `limbeck label --outputs logits:top64` of a text-to-text teacher makes, or read the "
            "task as kind sentence",
        )
    # As the user's own file calls them; of candidates the columns of triplets are more.
    named = recipe.text_columns or ()
    fits = len(named) == len(task.text_columns) or (task.kind.candidates and len(named) > 2)
    found = outputs_file.read_outputs_file(
        at_home(place),
        named if fits else task.text_columns,
        classes=task.labels,
        order=recipe.output_classes or (),
        several=_several(task),
        candidates=task.kind.candidates is not None,
    )
    width = found.values.shape[1]
    columns = columns_of(place, found.what, found.classes, width, task, recipe)
    return _in_memory(place, found, columns, {"classes": [*found.classes]}, task)


def embeddings_of(place: str, recipe: Recipe) -> GivenOutputs | None:
    """The embeddings of single texts in a file; None if it contains other outputs.

    Raises:
        LimbeckError: they cannot be read.
    """
    path = at_home(place)
    if files.form_of(path) in (None, "text") or not path.is_file():
        return None
    found = outputs_file.read_embeddings_file(path, recipe.text_columns or ())
    if found is None:
        return None
    width = found.values.shape[1]
    outputs = _in_memory(place, found, slice(None), {"width": width})
    return replace(outputs, embedding=width)


def _in_memory(
    place: str,
    found: outputs_file.FileOutputs,
    columns: np.ndarray | slice,
    about: Mapping[str, Any],
    task: Task | None = None,
) -> GivenOutputs:
    """A file's content, read into memory; `columns` are its values in the order of the data's classes."""
    path, values = at_home(place), found.values[:, columns]
    return GivenOutputs(
        place,
        found.what,
        () if task is None else task.labels,
        found.ids,
        lambda ids: values[np.searchsorted(found.ids, ids)],
        {"file": path.name, "checksum": checksum(path), **about},
        several=_several(task),
        lists=found.lists,
    )


# A store of outputs that replaces a teacher: the selected member of a team, and its contents
# for it.


_GIB = 2**30


def outputs_of_store(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    """The outputs in a store, `STORE`, or the outputs of one member of its team, `STORE#MEMBER`.

    Raises:
        LimbeckError: they cannot be read, or are of other classes or another type of task.
    """
    where, member = place_and_member(place)
    if "://" not in where and not at_home(where).exists():
        raise LimbeckError(f"outputs: {where} does not exist", "check the path")
    store = open_store(where)
    if not _answers(store, task):
        raise LimbeckError(
            f"outputs: {place} is of task type {store.kind}, and {task.name} is {task.kind.name}",
            f"name outputs of type {task.kind.name}",
        )
    limit = int(recipe.cache_limit * _GIB)
    if task.kind.key_columns:
        return of_targets(place, store, task, limit)
    names, several = store.outputs_of(member), _several(task)
    what = next((name for name in outputs_file.quantities(several=several) if name in names), None)
    if what is None:
        members = f"; or name its members: {where}#{store.members[0]}" if store.members else ""
        raise LimbeckError(
            f"outputs: {place} holds {', '.join(names) or 'nothing'}, and none of {', '.join(outputs_file.QUANTITIES)}",
            f"label again with --outputs {LOGITS}{members}",
        )
    outputs_file.check_votes(place, what, several=several)
    name = names[what]
    column = store.manifest.column(name)
    assert column is not None  # one of the store's own
    # A regression model outputs a number, whatever the output's name.
    held = "score" if task.regression else what
    columns = columns_of(place, held, store.classes, column.sizes()[-1], task, recipe)
    classes = store.classes or tuple(recipe.output_classes or ())
    own = store.manifest.teacher.thresholds
    return GivenOutputs(
        place,
        what,
        task.labels,
        np.unique(store.row_ids),
        lambda ids: store.take(ids, [name])[name][:, columns],
        about_store(store) | {"classes": [*classes]} | ({"member": member} if member else {}),
        None if member else StoredParts.layers_of(store, limit),
        several=several,
        thresholds=tuple(own[column] for column in columns) if own and not member else (),
    )


def _several(task: Task | None) -> bool:
    """Whether outputs are read class by class: a row may be of several."""
    return task is not None and task.kind.row_layout == "several labels"


def _answers(store: OutputStore, task: Task) -> bool:
    """Whether a store is of the task's type, or of one with the same head: it does not record whether a number is
    a score of a candidate or a regression, nor whether classes are ordered.
    """
    own, number = task.kind, task.regression
    if store.kind == own.name:
        return True
    other = get_task_type(store.kind)
    same_head = other.auto is own.auto and other.problem_of(number) == own.problem_of(number)
    return same_head and not (number and store.classes)


# Map stored values to the data's classes. Names are compared with the data's as a live
# teacher's are (`limbeck.students.class_places`). If they leave it open, `output_classes` decides: the
# data's names for the outputs' classes, in the outputs' order.


log = logging.getLogger(__name__)


def columns_of(
    place: str, what: str, classes: Sequence[str], width: int, task: Task, recipe: Recipe
) -> np.ndarray:
    """The stored columns of the data's classes, int64 (C,), in the classes' order.

    Args:
        place: where the outputs are.
        what: the type of the stored values of each class, or of a number.
        classes: the outputs' names for them, in order; () if they have no names.
        width: the number of stored values of a row.

    Raises:
        LimbeckError: numbers for classes or the other way round; classes that are not the data's, with both lists.
    """
    if (what in ("score", outputs_file.MARGIN)) != task.regression:
        of = "numbers" if task.regression else f"the classes {', '.join(task.labels)}"
        raise LimbeckError(
            f"outputs: {place} holds {what}, and the labels of {task.name} are {of}",
            "name outputs of this task",
        )
    if task.regression:
        return np.array([0])
    wanted, said = task.labels, recipe.output_classes
    theirs, ours = ", ".join(classes), ", ".join(wanted)
    places = places_by_name(classes, wanted)
    if places is not None:
        # For a team's outputs the order may apply to the others.
        if said and recipe.team is None and places_by_name(said, wanted) != places:
            raise LimbeckError(
                f"output_classes: {', '.join(said)}; {place} itself names {theirs}, which are the data's",
                "leave it out",
            )
    elif said:
        named = places_by_name(said, wanted)
        if named is None or len(said) != width:
            raise LimbeckError(
                f"output_classes: {', '.join(said)}; the data's classes are {ours}, the classes of {place} "
                f"{theirs or f'{width} without names'}",
                "name each of the data's classes once, in the order of the outputs",
            )
        order = numbered_places(classes) if classes else [*range(width)]
        places = [order[one] for one in named]
    else:
        places = class_places(classes, wanted)
        if places is None:
            raise LimbeckError(
                f"outputs: {place} holds the classes {theirs or 'of no name'}; the data's are {ours}",
                _other_names(classes, wanted),
            )
        log.warning(
            "outputs: the classes of %s have no names (%s) and are taken in the data's order, %s; "
            "output_classes='[CLASS, CLASS, …]' sets another one",
            place, ", ".join(classes[at] for at in places), ours,
        )  # fmt: skip
    return np.array(places, dtype=np.int64)


def _other_names(classes: Sequence[str], wanted: Sequence[str]) -> str:
    """What helps where outputs have other classes than the data."""
    if set(wanted) < set(classes):
        return (
            "if the data's rows are of only some of them, name all of them: "
            f"classes='[{', '.join(classes)}]'; otherwise name outputs of this task"
        )
    return (
        "if they mean the same, give the data's names for them, in the order of the outputs: "
        "output_classes='[CLASS, CLASS, …]'; otherwise name outputs of this task"
    )
