"""The models that a recipe names: where its student starts, its teachers by short names, formed into a team.

Part of `limbeck.run`.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from limbeck import students
from limbeck.data import Labelling, text_rows
from limbeck.outputs.store import open_store, place_and_member
from limbeck.recipe import Recipe
from limbeck.static import StaticConfig, train_tokenizer
from limbeck.support import files, machine, words
from limbeck.support.errors import LimbeckError
from limbeck.support.given import is_reference
from limbeck.support.positions import table_length
from limbeck.tasks import IMAGE, TEXT_READING, Processor, Task
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import Team, form
from limbeck.vision import image_processor, side_of, with_side

log = logging.getLogger(__name__)

# Values of `student.init` that name no model of their own.
_NO_FOLDERS = ("teacher", "fresh", "pretrained", "pocket")


@dataclass(frozen=True)
class Start:
    """The weights and the tokenizer or processor that `build_student` starts from."""

    init: str | PretrainedConfig
    tokenizer: Processor


def with_tokenizer(recipe: Recipe, runs: Path) -> Recipe:
    """Name a tokenizer that is trained on the recipe's texts, if the recipe gives only its number of tokens.

    The first process writes it once, next to the run folder.

    Raises:
        LimbeckError: a student whose weights belong to another tokenizer; texts that cannot be read.
    """
    size, student = recipe.student.tokenizer, recipe.student
    if not isinstance(size, int):
        return recipe
    if not (student.static or student.init == "fresh"):
        raise LimbeckError(
            f"student.tokenizer: {size}, and the student's word embeddings come from {student.init}",
            "add student.static=true or student.init=fresh; or name the tokenizer's folder",
        )
    rows = text_rows.read_text_rows(
        recipe.data, task=recipe.task, text_columns=recipe.text_columns or ()
    )
    texts = [text for column in rows.take(rows.first).values() for text in column]
    name = files.checksum_of_text(json.dumps([size, rows.ids[rows.first].tobytes().hex()]))[:12]
    folder = runs / files.TEACHER_LABELS / f"tokenizer-{name}"
    if machine.is_first() and not folder.is_dir():
        part = folder.with_suffix(".part")
        train_tokenizer(texts, size).save_pretrained(part)
        files.put_in_place(part, folder)
    machine.agreed([])
    return recipe.model_copy(
        update={"student": student.model_copy(update={"tokenizer": str(folder)})}
    )


def with_max_length(recipe: Recipe) -> Recipe:
    """Shorten `max_length`, if it is left out, to the shortest table of positions of the run's models."""
    if "max_length" in recipe.model_fields_set:
        return recipe
    first = recipe.first_stage and recipe.first_stage.teacher
    named = [*(recipe.teachers or ()), recipe.teacher, first, recipe.student.init]
    lengths = {}
    for name in filter(None, dict.fromkeys(named)):
        # What cannot be read is reported when it is loaded.
        with suppress(LimbeckError):
            if name not in _NO_FOLDERS and not students.names_cnn(name):
                shape = students.named_model(name)
                lengths[name] = None if shape else table_length(students.read_config(name))
    known = {name: length for name, length in lengths.items() if length is not None}
    shortest = min(known, key=known.__getitem__, default=None)
    if shortest is None or known[shortest] >= recipe.max_length:
        return recipe
    if machine.is_first():
        log.warning("max_length is %d: %s has no more positions", known[shortest], shortest)
    return recipe.model_copy(update={"max_length": known[shortest]})


def start_of(recipe: Recipe, task: Task) -> Start:
    """The student's start from the recipe, with names of shapes resolved.

    The tokenizer is `student.tokenizer`, or comes with the weights; with random weights the pocket
    tokenizer for pocket models and pocket data, otherwise BERT's.

    Raises:
        LimbeckError: no such shape, or the Hub or a folder does not have it.
    """
    _check_form(recipe, task)
    init, named_one = recipe.student.init, recipe.student.tokenizer
    given = None if named_one is None else str(named_one)
    if task.kind.reads is not TEXT_READING:
        return _picture_start(recipe, task)
    if init == "pocket":
        return _toy_start(task, given)
    named = students.named_model(init)
    if named is None:
        source = str(recipe.lead if recipe.student.from_teacher else init)
        if source != "fresh":  # a model's problem is more informative than its missing tokenizer
            students.read_config(source)
        return Start(init, students.read_tokenizer(given or source))
    if named.family == "pocket":
        shape = {"layers": named.layers, "width": named.width, "heads": named.heads}
        return _toy_start(task, given, **shape)
    if not named.random:
        repository = str(named.repository)
        said = f"{named.name} is {repository} on the Hub"
        fix = (
            "check the network and HF_HUB_OFFLINE, give a folder with a copy of it instead of "
            f"the name, or take random weights: {named.name}{students.RANDOM}"
        )
        with _read_for(said, fix):
            students.read_config(repository)
            return Start(repository, students.read_tokenizer(given or repository))
    if recipe.data == "pocket" and given is None:
        tokenizer = students.TOY_MODELS.get("pocket", "student.init:").tokenizer_of(task)
    else:
        fix = "name one: student.tokenizer=FOLDER, a folder that holds a tokenizer or any checkpoint's or run's"
        with _read_for(
            f"{named.name}{students.RANDOM} has random weights and needs a tokenizer", fix
        ):
            tokenizer = students.read_tokenizer(given or students.BERT_VOCABULARY)
    return Start(named.config(tokenizer), tokenizer)


def _toy_start(task: Task, given: str | None, **shape: int) -> Start:
    toys = students.TOY_MODELS.get("pocket", "student.init:")
    tokenizer = students.read_tokenizer(given) if given is not None else toys.tokenizer_of(task)
    return Start(toys.config_of(task, **shape), tokenizer)


def _check_form(recipe: Recipe, task: Task) -> None:
    """Raise for a student of its own name that reads something else than the task's rows."""
    init, wanted = recipe.student.init, task.kind.reads.name
    if students.names_cnn(init):
        form, others = IMAGE.reads.name, "pocket, or a shape such as bert-8-128-2"
    elif init == "pocket" or students.named_model(init) is not None:
        form, others = TEXT_READING.name, "one of " + ", ".join(students.NAMED_CNNS)
    else:
        return
    if form != wanted:
        raise LimbeckError(
            f"student.init: {init} reads {form}, and the rows of {task.name} are {wanted}",
            f"start from a checkpoint that reads them, or from {others}",
        )


def _picture_start(recipe: Recipe, task: Task) -> Start:
    """A named CNN reads as its teacher does."""
    init = recipe.student.init
    if not students.names_cnn(init):
        source = recipe.lead if recipe.student.from_teacher else init
        return Start(init, processor_of(recipe, task, str(source)))
    if recipe.lead is not None:
        processor = processor_of(recipe, task, recipe.lead)
    else:
        own = image_processor(task.image_traits.side, task.image_traits.normalisation)
        processor = _at_size(recipe, own)
    return Start(students.NAMED_CNNS.get(init).config(image_size=side_of(processor)[0]), processor)


def processor_of(recipe: Recipe, task: Task, source: str) -> Processor:
    """The tokenizer or processor of a run, a checkpoint's folder or a Hub name.

    Raises:
        LimbeckError: it does not exist or cannot be read.
    """
    return _at_size(recipe, students.read_processor(source, task.kind.reads))


def _at_size(recipe: Recipe, processor: Processor) -> Processor:
    size = None if recipe.images is None else recipe.images.size
    return processor if size is None else with_side(processor, size)


@contextmanager
def _read_for(said: str, fix: str) -> Iterator[None]:
    """Read errors inside are attributed to the student's start."""
    try:
        yield
    except LimbeckError as error:
        raise LimbeckError(f"student.init: {said}: {error.problems[0].message}", fix) from error


ALONE = "teacher"
"""A teacher's name if there is only one."""


@dataclass(frozen=True)
class Named:
    """A teacher that the recipe names.

    `name`: in logs, messages and records. `path`: as the recipe has it.
    """

    name: str
    path: str
    teacher: Teacher
    tokenizer: Processor

    @property
    def setting(self) -> str:
        """What messages call it."""
        return ALONE if self.name == ALONE else f"teacher {self.name}"

    @property
    def stored(self) -> bool:
        """Whether nothing is there of it but stored outputs."""
        return self.teacher.outputs is not None

    def only(self, numbers: Sequence[int]) -> "Named":
        """The same, of the rows with these numbers alone where it reads them by its own tokenizer."""
        words = self.teacher.own_tokens
        if words is None:
            return self
        return replace(self, teacher=self.teacher.reading(None, words.only(numbers)))


def learns_from_its_teacher(recipe: Recipe) -> bool:
    """Whether a stage learns from the run's own teacher: not if the only one that does has another."""
    return any(
        stage.recipe.needs_teacher and stage.recipe.taught_by == recipe.taught_by
        for stage in recipe.stages()
    )


def named_teachers(recipe: Recipe, task: Task, live_teacher: Teacher | None) -> list[Named]:
    """The teachers, loaded; several have distinct names.

    A given teacher is there even if no term uses it: the student can be compared with it.
    """
    if recipe.teachers and recipe.team is not None:
        paths, names = recipe.teachers, words.short_names(recipe.teachers)
    elif live_teacher or learns_from_its_teacher(recipe) or recipe.student.from_teacher:
        paths, names = [str(recipe.teacher)], [ALONE]
    else:
        return []
    found = []
    for name, path in zip(names, paths, strict=True):
        if live_teacher is not None and path == str(recipe.teacher):  # it may be one of several
            teacher = live_teacher
        else:
            model = load_teacher(path, task, students.placement(recipe.teacher_device_map))
            teacher = Teacher(model, dropout=recipe.teacher_dropout)
        found.append(Named(name, path, teacher, processor_of(recipe, task, path)))
    return found


def load_teacher(
    path: str, task: Task, loading: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """A fine-tuned model with the task's head; `loading` as `load_model` takes it.

    Raises:
        LimbeckError: it cannot be read, or has no trained head.
    """
    return students.load_model(
        path,
        regression=task.one_number,
        head="required",
        auto=task.kind.of_teacher(students.read_config(path)).auto,
        loading=loading or {},
    )


def lead_model(recipe: Recipe, task: Task, named: list[Named]) -> PreTrainedModel | None:
    """The model that gives a student its layers or its configuration, if one does."""
    if not recipe.student.from_teacher:
        return None
    known = next((one for one in named if one.path == recipe.lead), None)
    if task.kind.of_teacher(students.read_config(str(recipe.lead))) is not task.kind:
        raise LimbeckError(
            f"student.init: it would start from {recipe.lead}, a cross-encoder, which gives no embedding of a text",
            "name an encoder or an embedding model: --student PATH",
        )
    model: PreTrainedModel | None = None if known is None else known.teacher.model
    if model is None or machine.is_spread(model):  # whose weights are elsewhere
        return load_teacher(str(recipe.lead), task)
    return model


def form_team(recipe: Recipe, named: Sequence[Named]) -> Teacher | Team | None:
    """Whoever teaches the run, as its recipe has it; where scores decide, all count alike as yet.

    In a chain it is the smallest, in whose place its distilled form is put later.
    """
    members, names = [one.teacher for one in named], [one.name for one in named]
    if recipe.team is None:
        return members[0] if members else None
    return form(recipe.team, members, names)


# A run's classes before the rows are read: from the recipe, and the teacher's names.

_HEAD = "Classification"


def labelling_of(recipe: Recipe) -> Labelling:
    """The classes that the recipe names, or whether there are any; and the names of its (first) teacher's."""
    given = Labelling(
        tuple(map(str, recipe.classes or ())), recipe.labels, separator=recipe.label_separator
    )
    path = recipe.teachers[0] if recipe.teachers else recipe.teacher
    # Only data of the user's own have classes to find.
    own = is_reference(recipe.data) or files.at_home(recipe.data).exists()
    if own and recipe.outputs:  # by name, in whatever order the data's are
        return replace(given, stored=_classes_of_store(recipe.outputs[0]))
    if path is None or not own:
        return given
    return replace(given, teacher=names_at(path))


def _classes_of_store(place: str) -> tuple[str, ...]:
    """The classes of stored outputs; () if they have no names or cannot be read, which is reported later."""
    try:
        return open_store(place_and_member(place)[0]).classes
    except LimbeckError:
        return ()


def names_at(path: str | Path) -> tuple[str, ...]:
    """A checkpoint's names of its outputs, in id order; () if it cannot be read or has no such head."""
    try:
        return names_of(students.read_config(path))
    except LimbeckError:  # reported when the model itself is loaded
        return ()


def names_of(config: PretrainedConfig) -> tuple[str, ...]:
    """A classifier's names of its outputs, in id order; () for another head."""
    heads = config.architectures or []
    # A static student's class names no head.
    static = config.model_type == StaticConfig.model_type and not config.embeds
    known = static or any(name.endswith(_HEAD) for name in heads)
    return students.labels_of(config) if known else ()


def names_for_students(teacher: PreTrainedModel | None, task: Task) -> Task:
    """The task with its teacher's names of the classes, which its students inherit; id by id.

    Pre-flight checks whether ids have the same meaning on both sides.
    """
    if teacher is None:
        return task
    names = task.kind.class_names(students.labels_of(teacher.config))
    if not names or len(names) != len(task.labels) or students.generic_labels(names):
        return task
    return replace(task, labels=names)
