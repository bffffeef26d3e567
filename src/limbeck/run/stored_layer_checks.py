"""Whether a store holds the layers that a stage's terms compare, and how to make one that does.

Part of `limbeck.run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from limbeck.activations import ActivationKey, Request
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.outputs import digest_of_tokenizer
from limbeck.outputs.columns import LOGITS, name_of_key
from limbeck.outputs.stored_teacher import StoredLayers, StoredTeacher, by_layer
from limbeck.outputs.words import word_of
from limbeck.recipe import Recipe
from limbeck.run.stage_inputs import StageInputs
from limbeck.support.errors import Problem
from limbeck.support.files import at_home
from limbeck.support.given import is_reference
from limbeck.tasks import TASKS, Processor


def layer_problems(
    inputs: StageInputs, objectives: Objectives | TeamObjectives, tokenizer: Processor
) -> list[Problem]:
    """Layers that terms ask of stored teachers and that are not there, or not as these rows need them."""
    problems = []
    for place, member in enumerate(inputs.members):
        layers = member.outputs.layers if isinstance(member, StoredTeacher) else None
        own = objectives.of(place)
        wanted = Request(own.ever("teacher").items)
        if layers is None or not wanted.items:
            continue
        url, exact = layers.store.files.url, Request(own.differences("teacher").items)
        again = label_line(inputs.recipe, layers, wanted.items, exact.items)
        if absent := layers.absent(wanted):
            problems.append(
                Problem(
                    f"outputs: {_terms(own)} may compare {', '.join(map(str, absent))}, and {url} lacks "
                    f"{', '.join(map(name_of_key, absent))}",
                    again,
                )
            )
        if coarse := layers.coarse(exact):
            problems.append(
                Problem(
                    f"outputs: {_terms(own)} looks at differences of nearly equal states, and {url} holds "
                    f"{', '.join(map(name_of_key, coarse))} in float16",
                    again,
                )
            )
        if own.sees_padding:
            problems.append(
                Problem(
                    f"outputs: what stands at padding counts in {', '.join(own.sees_padding)}, and is not stored",
                    "take the term out, or give the teacher's model: --teacher",
                )
            )
        if any(seen.pool is None for seen in wanted.items):
            problems += _token_problems(inputs.recipe, layers, tokenizer, again)
    return problems


def _terms(objectives: Objectives) -> str:
    names = [name for name in objectives.terms if objectives[name].ever("teacher").items]
    return f"objectives.{' and objectives.'.join(names)}"


def _token_problems(
    recipe: Recipe, layers: StoredLayers, tokenizer: Processor, again: str
) -> Iterator[Problem]:
    """States of tokens that are not the tokens of these rows."""
    made_by, length = layers.made_for
    url = layers.store.files.url
    if made_by is not None and made_by != digest_of_tokenizer(tokenizer):
        yield Problem(
            f"outputs: {url} holds states of tokens that another tokenizer made than the student's",
            "save the student with the teacher's tokenizer; or compare pooled states, or logits (method kd)",
        )
    if length is not None and length != recipe.max_length:
        yield Problem(
            f"outputs: {url} holds states of at most {length} tokens a row, and max_length is {recipe.max_length}",
            f"set max_length={length}; or {again}",
        )


def label_line(
    recipe: Recipe,
    layers: StoredLayers,
    wanted: Iterable[ActivationKey],
    exact: frozenset[ActivationKey],
) -> str:
    """The `limbeck label` command that writes what is wanted, as a fix."""
    seen = by_layer({*layers.columns} | {*wanted})
    words = [word_of(one, exact=one in exact) for one in seen]
    if None in words:
        what = ", ".join(str(one) for one, word in zip(seen, words, strict=True) if word is None)
        return f"give the teacher's model (--teacher): {what} cannot be stored"
    # A store knows the end of its teacher's path.
    name = layers.store.manifest.teacher.name
    teacher = name if at_home(name).exists() else f"PATH/{name}"
    command = ["limbeck", "label", "--teacher", teacher]
    command += [*_rows(recipe), "--max-length", str(recipe.max_length)]
    command += ["--outputs", LOGITS, *(word for word in words if word is not None)]
    out = layers.store.files.url.rstrip("/") + "-layers"
    return f"label again: {shlex.join([*command, '--out', out])}"


def _rows(recipe: Recipe) -> list[str]:
    """The options that name a recipe's rows."""
    data = str(recipe.data)
    found = ["--data", "DATA" if is_reference(data) else data]
    if recipe.task in TASKS:
        found += ["--task", str(recipe.task)]
    if recipe.text_columns:
        found += ["--text-columns", *recipe.text_columns]
    more = [name for name in recipe.unlabelled if not is_reference(name)]
    return found + (["--unlabelled", *more] if more else [])
