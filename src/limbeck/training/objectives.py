"""The terms between a student and its teacher, bound to their shapes. Part of `limbeck.training`."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.trainer_utils import has_length

from limbeck.activations import Request, packing_problems
from limbeck.data.row_facts import facts_of
from limbeck.mappings.maps import kept_features
from limbeck.objectives import Loss, ModelShape, Objectives, Shape, TeamObjectives
from limbeck.recipe import Recipe
from limbeck.recipe.paper_settings import flat
from limbeck.recipe.recipe import LOSS_KEYS
from limbeck.students import generic_labels, labels_of, spelling
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.words import listed
from limbeck.tasks import TaskType, task_type_of
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import Team, members_of
from limbeck.training.step import head_of


def objectives_for(
    student: PreTrainedModel,
    teacher: Teacher | Team | None,
    loss: Loss,
    examples: Any,
    *,
    kind: TaskType | None = None,
) -> Objectives | TeamObjectives:
    """The terms between a student and its teacher.

    Args:
        student: the model that is trained.
        teacher: the model or team that it learns from.
        loss: the terms.
        examples: the training rows, for terms that count their classes or remember examples by their number.
        kind: of the student, if its model alone does not determine it.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    own = ModelShape.of(student)
    teachers = [ModelShape.of(member.model) for member in members_of(teacher)] or [own]
    kind = kind or task_type_of(student)
    facts = None if examples is None else facts_of(examples)
    labels = None if facts is None else facts.label_column
    balanced = None
    # Weights by which all classes count alike, where a term asks for them.
    if labels is not None and any(spec.counts_classes for spec in loss.objectives.values()):
        balanced = kind.balanced_weights(labels, student.config.num_labels or 0)
    numbers = None if facts is None else facts.numbers
    bound = 0 if numbers is None or not len(numbers) else int(numbers.max()) + 1
    kept = kept_features(student.config)
    shape = Shape(own, own, kind, bound, labels_of(student.config), balanced, kept)
    shapes = [replace(shape, teacher=other) for other in teachers]
    if loss.curriculum is not None and loss.curriculum.then == "head" and not head_of(student):
        raise LimbeckError(
            "curriculum.then: head: the student has no weights of its own behind its last layer",
            "train all of it, curriculum.then=student",
        )
    if teacher is not None and teacher.separate:
        return TeamObjectives(loss, shapes, teacher.names)
    return Objectives(loss, shapes[0])


# Compare the terms that made a checkpoint with the terms of the training that would continue from it.


_SAID = {*LOSS_KEYS}


def terms_of(recipe: Recipe) -> dict[str, Any]:
    """The terms and settings of the stage that made a checkpoint, as plain values."""
    return recipe.model_dump(mode="json", include=_SAID)


def check_terms(began: Mapping[str, Any] | None, recipe: Recipe, checkpoint: str) -> None:
    """Raise LimbeckError if a checkpoint was trained with other terms than a recipe's, naming the keys.

    `began` is what `terms_of` returned then; None, from a checkpoint of an older version, fits any.
    """
    if began is None:
        return
    then, now = dict(flat(began)), dict(flat(terms_of(recipe)))
    # A key that only one of them has comes from an older or newer version; terms are in both.
    wholes = _terms(began) ^ _terms(terms_of(recipe))
    keys = {key for key in then.keys() & now.keys() if then[key] != now[key]}
    if wholes or keys:
        raise LimbeckError(
            f"{checkpoint} was trained by other terms: {', '.join(sorted(wholes | keys))} differ",
            "train with the terms it was made by, or from the beginning, into another output_dir; to start "
            "from its weights give the saved student as model=",
        )


def _terms(said: Mapping[str, Any]) -> set[str]:
    given = {key for key in _SAID - {"objectives"} if said.get(key) is not None}
    return given | {f"objectives.{name}" for name in said.get("objectives") or {}}


# Whether a student can learn from its teachers at all: whose weights are whose, what classes are
# called.


logger = logging.getLogger(__name__)

_SHOWN = 3
_ROUNDING = 128
"""Tables of embeddings are rounded up to a multiple of at most this many rows."""


def pair_problems(
    student: PreTrainedModel, teachers: Sequence[Teacher], names: Sequence[str], *, compared: bool
) -> list[Problem]:
    """The reasons why a student and its teachers cannot be compared.

    Args:
        student: the model that is trained.
        teachers: the models that it learns from, and `names`: their names.
        compared: whether their logits are compared, so that classes have to mean the same.
    """
    problems = []
    for teacher, name in zip(teachers, names, strict=True):
        called = "the teacher" if len(teachers) == 1 else f"teacher {name}"
        _warn_of_other_tokens(student, teacher, called)
        problems += _shared_weights(student, teacher, called)
        if compared:
            problems += _moved_classes(student, teacher, called)
    return problems


def _warn_of_other_tokens(student: PreTrainedModel, teacher: Teacher, called: str) -> None:
    """Warn that a teacher reads the ids of the student's tokenizer, where it seems to have another one."""
    own, theirs = (getattr(one.config, "vocab_size", 0) for one in (student, teacher.model))
    own_ids = teacher.inputs is not None and "input_ids" in teacher.inputs.own
    reads_theirs = teacher.live and not (own_ids or teacher.own_tokens)
    if reads_theirs and abs(own - theirs) > _ROUNDING:
        logger.warning(
            "%s has %s tokens and the student %s, but both read the same token ids; where their tokenizers differ, use "
            "limbeck.distill, or name the teacher's columns: teacher.inputs = ModelInputs(own={'input_ids': …})",
            called,
            f"{theirs:,}",
            f"{own:,}",
        )


@problem_list
def _shared_weights(student: PreTrainedModel, teacher: Teacher, called: str) -> Iterator[Problem]:
    """A teacher is frozen, and with it every weight that the student has in common with it."""
    theirs = {id(weight) for weight in teacher.model.parameters()}
    own = dict(student.named_parameters())
    shared = [name for name, weight in own.items() if id(weight) in theirs]
    if not shared:
        return
    count = (
        f"all {len(own)} of its" if len(shared) == len(own) else f"{len(shared)} of its {len(own)}"
    )
    yield Problem(
        f"the student shares {count} weights with {called}, which is frozen, so they would not be "
        f"trained: {listed(shared, _SHOWN)}",
        "give it weights of its own: limbeck.build_student(teacher, layers=…), or copy.deepcopy "
        "of the modules that it takes from the teacher",
    )


@problem_list
def _moved_classes(student: PreTrainedModel, teacher: Teacher, called: str) -> Iterator[Problem]:
    """A class that both know by name, at another output of the teacher than of the student."""
    own, theirs = labels_of(student.config), labels_of(teacher.config)
    if not _moved(own, theirs):
        return
    yield Problem(
        f"{called} has its classes in another order than the student: {', '.join(theirs)} against {', '.join(own)}",
        "reorder the rows of one model's head and its id2label; or, if the names are wrong, "
        "correct them in model.config.id2label",
    )


def _moved(own: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether a class that both know by name has another id in each."""
    if len(own) < 2 or generic_labels(own) or generic_labels(theirs):
        return False
    spelled = spelling(own, theirs)
    places = {spelled(label): place for place, label in enumerate(own)}
    return any(places.get(spelled(label), place) != place for place, label in enumerate(theirs))


def check_class_ids(student: PreTrainedModel, rows: Any) -> None:
    """Raise LimbeckError for a `Dataset` whose own class names give the labels' ids another meaning."""
    features = getattr(rows, "features", None) or {}
    column = next((name for name in ("labels", "label") if name in features), "")
    theirs = list(getattr(features.get(column), "names", None) or ())
    if _moved(own := labels_of(student.config), theirs):
        raise LimbeckError(
            f"{column}: the rows have their classes in another order than the student: {', '.join(theirs)} against "
            f"{', '.join(own)}",
            f'rows = rows.align_labels_with_mapping(student.config.label2id, "{column}")',
        )


def check_trainable(student: PreTrainedModel) -> None:
    """Raise LimbeckError for a student that training would leave as it is; warn of one held in half precision."""
    trained = [weight for weight in student.parameters() if weight.requires_grad]
    if not trained:
        raise LimbeckError(
            "no weight of the student requires a gradient, so nothing of it would be trained; a model that "
            "has been a teacher is frozen, and so are copies of it",
            "student.requires_grad_(True)",
        )
    half = {weight.dtype for weight in trained} & {torch.bfloat16, torch.float16}
    if half:
        logger.warning(
            "weights of the student are %s, in which small updates are rounded away; load it with "
            "dtype=torch.float32, or call student.float(), and set TrainingArguments(bf16=True) for speed",
            " and ".join(sorted(str(one).removeprefix("torch.") for one in half)),
        )


@problem_list
def foreign_optimizer(
    optimizer: torch.optim.Optimizer | None, student: nn.Module
) -> Iterator[Problem]:
    """An optimiser that steps no weight of the student."""
    if optimizer is None:
        return
    own = {id(weight) for weight in student.parameters()}
    if any(id(weight) in own for group in optimizer.param_groups for weight in group["params"]):
        return
    yield Problem(
        "optimizers: the optimizer has no weights of the student, so the student would not be trained",
        "make it from the parameters of the model that is passed as model=",
    )


# Warns when a teacher that distinguishes two texts is given pairs as one text.


@problem_list
def packing_refusals(
    objectives: Objectives | TeamObjectives, models: Mapping[str, PreTrainedModel], **others: object
) -> Iterator[Problem]:
    """Find why the batches of a training cannot be packed.

    Args:
        objectives: the terms, for all teachers.
        models: the student and the teachers that run, by what messages call them.
        others: settings that do not go together with packing, by name.
    """
    for name, given in others.items():
        if given:
            yield Problem(f"packing: it does not work with {name}", "leave one of the two out")
    for name in objectives.of(0).sees_padding:
        yield Problem(
            f"packing: padding counts in objectives.{name}", "leave packing out, or that term"
        )
    for side, model in models.items():
        asked = objectives.ever("student" if side == "student" else "teacher")
        yield from packing_problems(side, model, asked | Request.of_logits())


_TYPES = "token_type_ids"
_SAMPLE = 64


def warn_of_lost_segments(teachers: Iterable[Teacher], rows: Any) -> None:
    """Warn once for tokenised rows that hold pairs and no segment ids, if a teacher has segments.

    A tokenizer of a family without segments (DistilBERT's, RoBERTa's) leaves them out, and the teacher
    then reads both texts as the first.
    """
    columns = getattr(rows, "column_names", None) or ()
    if not facts_of(rows).encoded:  # a run has bound its teachers to them
        return
    if "input_ids" not in columns or _TYPES in columns or not has_length(rows) or not len(rows):
        return
    if any(_has_segments(teacher) for teacher in teachers) and _has_pairs(rows):
        logger.warning(
            "train_dataset has pairs of texts and no %s, so the teacher reads both as one text; "
            "if it was fine-tuned with them, tokenize with its own tokenizer and keep that column (a student "
            "without segments is not given it); if not, add a column of zeros",
            _TYPES,
        )


def _has_segments(teacher: Teacher) -> bool:
    known = teacher.inputs is not None or teacher.own_tokens is not None
    kinds = getattr(teacher.model.config, "type_vocab_size", None)
    return not known and isinstance(kinds, int) and kinds > 1


def _has_pairs(rows: Any) -> bool:
    """Whether the token that ends every row also occurs in the middle of some."""
    some = [list(ids) for ids in rows[: min(_SAMPLE, len(rows))]["input_ids"]]
    last = {ids[-1] for ids in some if ids}
    return len(last) == 1 and any(ids.count(ids[-1]) > 1 for ids in some if ids)
