"""Whether a store holds the layers that a stage's terms compare, and how to make one that does.

Part of `limbeck.run`.
"""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from limbeck.activations import ActivationKey, Request
from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives import Objectives, TeamObjectives, TermSpec
from limbeck.objectives.predictions import SoftSpec
from limbeck.outputs.columns import LOGITS, name_of_key, word_of
from limbeck.outputs.key import digest_of_tokenizer
from limbeck.outputs.store import OutputStore
from limbeck.outputs.stored_teacher import GivenOutputs, StoredParts, by_layer
from limbeck.recipe import Recipe
from limbeck.run.prepared import StageInputs
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, checksum_of_text
from limbeck.support.given import is_reference
from limbeck.tasks import Processor, Task


def layer_problems(
    inputs: StageInputs, objectives: Objectives | TeamObjectives, tokenizer: Processor
) -> list[Problem]:
    """Layers that terms ask of stored teachers and that are not there, or not as these rows need them."""
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
    """What is wrong with a store's layers for these terms, and how to make the right ones."""
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
            f"what stands at padding counts in {', '.join(terms.sees_padding)}, and is not stored",
            "take the term out, or give the teacher's model: --teacher",
        )
    if all(seen.pool is not None for seen in wanted.items):
        return
    # States of tokens have to be those of these rows' tokens.
    about = layers.store.manifest.teacher.fingerprint
    made_by, length = about.get("tokenizer"), about.get("max_length")
    if made_by is not None and made_by != digest_of_tokenizer(tokenizer):
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
    """The `limbeck label` command that writes what is wanted, as a fix."""
    words = {
        one: word_of(one, exact=one in exact) for one in by_layer({*layers.columns} | {*wanted})
    }
    if None in words.values():
        what = ", ".join(str(one) for one, word in words.items() if word is None)
        return f"give the teacher's model (--teacher): {what} cannot be stored"
    # A store knows the end of its teacher's path.
    name = layers.store.manifest.teacher.name
    teacher = name if at_home(name).exists() else f"PATH/{name}"
    data = "DATA" if is_reference(recipe.data) else str(recipe.data)
    command = ["limbeck", "label", "--teacher", teacher, "--data", data]
    command += ["--max-length", str(recipe.max_length)]
    command += ["--outputs", LOGITS, *(word for word in words.values() if word is not None)]
    out = layers.store.files.url.rstrip("/") + "-layers"
    return f"label again: {shlex.join([*command, '--out', out])}"


# Whether stored outputs can teach a recipe's terms, before any is read.


def term_problems(recipe: Recipe, task: Task, outputs: GivenOutputs) -> list[Problem]:
    """Terms and settings that need what a store of outputs does not hold."""
    problems = []
    for stage in recipe.stages():
        if stage.recipe.outputs is None:
            continue
        transform = stage.recipe.transform
        if transform is not None and transform.why_live is not None:
            problems.append(
                Problem(
                    f"outputs: {transform.why_live} ({transform.name}), so stored ones cannot serve",
                    "leave the transform out, or give the teacher's model: --teacher",
                )
            )
        for name, term in stage.recipe.objectives.items():
            missing = _lacking(term, task, outputs) if term.needs_teacher else None
            if missing is not None:
                what, fix = missing
                setting = f"{stage.setting}objectives.{name}"
                problems.append(Problem(f"{setting}: {term.compare} compares {what}", fix))
    return problems


def _lacking(term: TermSpec, task: Task, outputs: GivenOutputs) -> tuple[str, str] | None:
    """What a term compares and outputs do not hold, and what helps."""
    place, margins = outputs.place, outputs.lists is not None
    if task.kind.stored_as is not task.kind and not (outputs.embedding or term.compares_candidates):
        held = "margins, differences of two scores," if margins else "scores"
        return (
            f"texts one by one, and {place} holds {held} of a query with a passage",
            "compare scores (--method embedding-margin, listwise-kl or ranknet), or give an embedding model: "
            "--teacher",
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
            "use soft_kl or soft_cross_entropy, or label with --outputs logits",
        )
    return None


# A text-to-text teacher's store in the teacher's place, held against a run's task, terms and
# tokenizer.


def about_store(store: OutputStore) -> dict[str, Any]:
    """What a record keeps of a store."""
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
        LimbeckError: the store keeps no tokens of a vocabulary, or was asked with other prompts.
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
            f"outputs: the prompts of {place} begin with {asked!r}, and those of this task with {task.name!r}",
            f"label again with --task {task.name}, or name the task as it was labelled: task={asked}",
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
    if made_by != digest_of_tokenizer(tokenizer):
        yield Problem(
            f"outputs: {place} holds tokens of another tokenizer than the student's",
            "save the student with the teacher's tokenizer, or label with a teacher of the student's",
        )
    for stage in recipe.stages():
        for name, term in stage.recipe.objectives.items() if stage.recipe.outputs else ():
            setting, asked = f"{stage.setting}objectives.{name}", getattr(term, "kept", None)
            if not (term.needs_teacher and term.reads_logits) or asked == kept:
                continue
            if isinstance(term, SoftSpec):
                said = f"it looks at {asked or 'all logits'} of the vocabulary, and {place} keeps {kept}"
                yield Problem(f"{setting}: {said}", _as_kept(setting, kept, term.temperature))
            else:
                yield Problem(
                    f"{setting}: {term.compare} reads all logits, and {place} keeps {kept} of them",
                    "use soft_kl or soft_cross_entropy, or give the teacher's model: --teacher",
                )


def _as_kept(setting: str, kept: KeptTokens, temperature: float) -> str:
    """The settings by which a term looks at what is kept, or the outputs that it would need."""
    asked = f"{setting}.tokens={kept.how}{kept.count}"
    if temperature == kept.temperature:
        return f"set {asked}"
    again = KeptTokens(kept.how, kept.count, temperature)
    return (
        f"set {asked} and {setting}.temperature={kept.temperature:g}, or label again with "
        f"--outputs {LOGITS}:{again}"
    )
