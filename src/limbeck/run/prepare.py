"""Load and encode everything that a recipe names. Part of `limbeck.run`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck import students
from limbeck.data import encoding
from limbeck.evaluation.measuring import vocabulary_facts
from limbeck.outputs.key import digest_of_model, digest_of_tokenizer
from limbeck.recipe import Recipe, Stage
from limbeck.recipe.augment_spec import augmentation
from limbeck.records.facts import VocabularyFacts
from limbeck.run import in_place, models
from limbeck.run.bound_rows import StudentTokens, bound, with_outputs
from limbeck.run.inputs import missing
from limbeck.run.prepared import FinalRows, Prepared, StageInputs
from limbeck.run.rows import EncodedRows, add_unlabelled, check_left, load_rows, stage_rows
from limbeck.static import StaticStudent, token_vectors
from limbeck.students import depth
from limbeck.students.build import BY_ROWS, Layers
from limbeck.students.four_bits import tables_of
from limbeck.students.static import build_static
from limbeck.students.vocabulary import shrink_vocabulary
from limbeck.support.errors import LimbeckError, check_choice, raise_problems
from limbeck.tasks import Processor, Task
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import SampledSpec
from limbeck.training.feeding import hold_out


def prepare(
    recipe: Recipe, live_teacher: Teacher | None = None, *, progress: bool = False
) -> Prepared:
    """Load and encode everything that the recipe names; the teacher only if it is not given.

    Raises:
        LimbeckError: missing or unsuitable inputs, several problems at once if they are known.
    """
    problems = missing(recipe)
    raise_problems(problems)
    task, splits = load_rows(recipe)
    recipe = _with_pick(recipe, task)
    splits, unlabelled = add_unlabelled(recipe, task, splits)
    augmenter = None
    if recipe.augment is not None:
        augmenter = augmentation().load(recipe, task, splits["train"])
    named, student, tokenizer = build_models(recipe, task, live_teacher, splits["train"])
    student, tokenizer, vocabulary = _smaller(recipe, task, splits, student, tokenizer)
    before = len(splits["train"])
    splits["train"] = with_outputs(recipe, task, splits["train"], named)
    if len(splits["train"]) < before and unlabelled.kept:
        labelled = labelled_rows(splits["train"].with_format("numpy")[task.label_column][:])
        check_left(recipe, task, labelled)
        unlabelled = replace(unlabelled, kept=int((~labelled).sum()))
    scored = task.kind.scored_length(recipe.max_length)
    final = FinalRows.taken_from(splits, task, tokenizer, scored, progress=progress)
    encoded = {
        split: EncodedRows.of(splits[split], task, tokenizer, scored, progress=progress)
        for split in task.dev_splits
        if split in splits
    }
    in_turn = _in_turn(recipe, task, len(splits["train"]), tokenizer, named)
    train = EncodedRows.of(
        splits["train"], task, tokenizer, recipe.max_length, progress=progress, in_turn=in_turn
    )
    stages = _stages(recipe, named, train, tokenizer, progress=progress)
    prepared = Prepared(
        recipe=recipe,
        task=task,
        splits=splits,
        tokenizer=tokenizer,
        student=student,
        named=tuple(named),
        dev=encoded,
        stages=stages,
        final=final,
        vocabulary=vocabulary,
        unlabelled=unlabelled,
        augmenter=augmenter,
        without_outputs=before - len(splits["train"]),
    )
    prepared = prepared.on(train, progress=progress)
    # Rows taken out of training for a team that learns which teacher to sample.
    if isinstance(recipe.team, SampledSpec) and recipe.team.by == "adaptive":
        held, trained = hold_out(prepared.train.encoded, recipe.team.holdout, recipe.seed)
        return prepared.holding_out(held, trained)
    return prepared


def _with_pick(recipe: Recipe, task: Task) -> Recipe:
    """The recipe, with `student.pick` if it is left out and layers are usually picked by rows."""
    spec = recipe.student
    if spec.pick or not isinstance(spec.layers, int) or spec.init == "fresh":
        return recipe
    if task.kind.usual_pick != BY_ROWS:
        return recipe
    return recipe.model_copy(update={"student": spec.model_copy(update={"pick": BY_ROWS})})


Loaded = tuple[Task, DatasetDict]


def refuse_wrong(
    recipe: Recipe, live_teacher: Teacher | None = None, loaded: Loaded | None = None
) -> Loaded:
    """Raise LimbeckError for what `prepare` would refuse in settings, rows (which may be loaded) or models."""
    problems = missing(recipe)
    raise_problems(problems)
    task, splits = loaded or load_rows(recipe)
    build_models(recipe, task, live_teacher, splits["train"])
    return task, splits


def _in_turn(
    recipe: Recipe, task: Task, rows: int, tokenizer: Processor, named: list[models.Named]
) -> bool:
    """Whether there are enough training rows to encode each batch when it is needed.

    Not if something reads all of them before the first step anyway.
    """
    describe = task.kind.reads.describe
    return (
        rows > encoding.AT_ONCE
        and task.kind.encodes_in_turn
        and recipe.cache != "always"
        and recipe.augment is None
        and all(describe(one.tokenizer) == describe(tokenizer) for one in named)
    )


def _stages(
    recipe: Recipe,
    named: list[models.Named],
    train: EncodedRows,
    tokenizer: Processor,
    *,
    progress: bool,
) -> tuple[StageInputs, ...]:
    """The inputs of each stage; the run's own rows are not yet encoded for the teachers."""
    team = models.form_team(recipe, named)
    tokens = StudentTokens(tokenizer, train.task, train.raw)
    found = []
    for stage in recipe.stages():
        own = _own_teacher(recipe, stage, train.task, named)
        readers = tuple(named) if own is None else (own,)
        teacher = team if own is None else own.teacher
        inputs = StageInputs(stage, train, readers, own=own is not None).taught_by(teacher)
        found.append(inputs if stage.same_rows else _on_own_rows(inputs, tokens, progress=progress))
    return tuple(found)


def _on_own_rows(inputs: StageInputs, tokens: StudentTokens, *, progress: bool) -> StageInputs:
    """A stage on the rows that it alone has, which its teachers read if its terms look at any."""
    stage, reads = inputs.stage, inputs.rows.kind.reads
    task, rows = stage_rows(stage, tokens.tokenizer, reads, progress=progress)
    readers = inputs.readers if stage.recipe.needs_teacher else ()
    known = with_outputs(stage.recipe, task, rows, readers, stage)
    length = stage.recipe.max_length
    encoded = EncodedRows.of(known, task, tokens.tokenizer, length, progress=progress)
    encoded, read = bound(encoded, readers, tokens, own_tokens=False, progress=progress)
    left_out = len(rows) - len(known)
    inputs = replace(inputs, readers=readers, without_outputs=left_out)
    return inputs.on(encoded, {id(one.teacher.model): one for one in read})


def _own_teacher(
    recipe: Recipe, stage: Stage, task: Task, named: list[models.Named]
) -> models.Named | None:
    """A stage's own teacher, for a stage before the last; it replaces the run's teachers there."""
    path = stage.recipe.teacher
    alone = recipe.team is not None and stage.recipe.team is None
    run_s = stage.recipe.taught_by == recipe.taught_by and not alone
    if stage.last or not stage.recipe.needs_teacher or run_s:
        return None
    known = next((one for one in named if one.path == path), None)
    return known or teacher_of_stage(recipe, stage, task)


# The models of a run: its teachers, the student, and the tokenizer or processor.


def build_models(
    recipe: Recipe, task: Task, live_teacher: Teacher | None = None, rows: Dataset | None = None
) -> tuple[list[models.Named], PreTrainedModel, Processor]:
    """The teachers that the recipe names, the student and its tokenizer or processor.

    Args:
        recipe: the run's.
        task: the task to predict.
        live_teacher: the teacher, if it is loaded already.
        rows: training rows, in which a static student's tokens are counted, and a narrower student's units weighed.

    Raises:
        LimbeckError: a model that cannot be read or built, or an unknown `select_by`.
    """
    choices = ("primary", *task.metrics)
    check_choice("select_by", recipe.select_by, choices)
    stored = bool(recipe.outputs) and models.learns_from_its_teacher(recipe)
    named = [] if stored else models.named_teachers(recipe, task, live_teacher)
    start = models.start_of(recipe, task)
    if stored:
        named = in_place.stored_teachers(recipe, task, start.tokenizer)
    lead = models.lead_model(recipe, task, named)
    teacher = named[0].teacher.model if models.learns_from_its_teacher(recipe) and named else None
    names = models.names_for_students(teacher, task)
    if recipe.student.static:
        student: PreTrainedModel = _static(recipe, task, names, start, lead, rows)
    else:
        student = _student(recipe, task, names, start, lead, rows)
    return named, student, start.tokenizer


def teacher_of_stage(recipe: Recipe, stage: Stage, task: Task) -> models.Named:
    """The teacher that one stage of the run names and no other, loaded."""
    path = str(stage.recipe.teacher)
    # Pretrained encoders teach too, as long as no term needs their logits.
    terms = stage.recipe.objectives.values()
    compared = any(term.reads_logits and term.needs_teacher for term in terms)
    model = students.load_model(
        path,
        head="required" if compared else "optional",
        auto=task.kind.auto,
        loading=students.placement(recipe.teacher_device_map),
    )
    teacher = Teacher(model, dropout=recipe.teacher_dropout)
    return models.Named(models.ALONE, path, teacher, models.processor_of(recipe, task, path))


_WEIGHED = 256
"""Rows on which layers and units are weighed, or up to twice as many."""


def _student(
    recipe: Recipe,
    task: Task,
    names: Task,
    start: models.Start,
    teacher: PreTrainedModel | None,
    rows: Dataset | None,
) -> PreTrainedModel:
    """The student, its classes called as in `names`: a head that knows them by either name is kept."""
    spec = recipe.student
    renamed = names is not task and not spec.from_teacher
    own = models.names_at(start.init) if renamed and isinstance(start.init, str) else ()
    layers: Layers = spec.layers
    batches = []
    if spec.ranks_layers or spec.narrower:
        if start.init == "fresh" or isinstance(start.init, PretrainedConfig):
            raise LimbeckError(
                "student: layers and units of random weights are not cut by importance",
                "leave student.pick, student.hidden, student.heads and student.ffn out (sizes are set in "
                "student.config), or set student.init to teacher or a checkpoint",
            )
        batches = _weighed(recipe, task, start, rows)
        if spec.ranks_layers:
            source = teacher if start.init == "teacher" else None
            if source is None:
                source, _ = students.pretrained.load_checkpoint(start.init, auto=task.kind.auto)
            layers = students.important_layers(source, layers, batches)
    student = students.build_student(
        start.init,
        task=task if own == task.labels else names,
        layers=layers,
        pick=spec.pick,
        config=spec.config,
        teacher=teacher,
        seed=recipe.seed,
        kind=task.kind,
    )
    if spec.ranks_layers:
        setattr(student.config, depth.PICKED, layers)
    if spec.narrower:
        student = students.narrowed(student, **spec.narrower, batches=batches)
    if spec.embedding_bits and not tables_of(student):
        raise LimbeckError(
            f"student.embedding_bits: a {type(student).__name__} has no embedding table",
            "leave it out",
        )
    if names is not task:
        student.config.id2label = dict(enumerate(names.labels))
        student.config.label2id = {name: number for number, name in enumerate(names.labels)}
    return student


_COUNTED = 100_000
"""Rows in which a static student's tokens are counted, and that a smaller vocabulary is looked at on."""
_BATCH = 10_000


def _smaller(
    recipe: Recipe, task: Task, splits: DatasetDict, student: PreTrainedModel, tokenizer: Processor
) -> tuple[PreTrainedModel, Processor, VocabularyFacts | None]:
    """Student and tokenizer with only the training text's tokens, if the recipe requires it, and their facts."""
    wanted = recipe.student.vocabulary
    if wanted is None:
        return student, tokenizer, None
    if models.learns_from_its_teacher(recipe) and not task.kind.repeats:
        raise LimbeckError(
            f"student.vocabulary: outputs of task type {task.kind.name} belong to tokens, which teacher and student "
            "have to share",
            "leave it out and shrink the finished student: limbeck shrink RUN --vocabulary "
            f"{wanted} --data TEXT --out DIR",
        )
    found = shrink_vocabulary(student, tokenizer, _texts(task, splits["train"]), wanted)
    some = {
        split: rows.select(range(0, len(rows), max(1, len(rows) // _COUNTED)))
        for split, rows in splits.items()
        if split in ("train", task.dev_splits[0])
    }
    read = {split: _texts(task, rows) for split, rows in some.items()}
    return found.model, found.tokenizer, vocabulary_facts(found, read)


def _texts(task: Task, rows: Dataset) -> Iterator[list[str]]:
    """The texts of rows, in batches."""
    for start in range(0, len(rows), _BATCH):
        yield from task.kind.texts(task, rows[start : start + _BATCH])


def _weighed(
    recipe: Recipe, task: Task, start: models.Start, rows: Dataset | None
) -> list[dict[str, Tensor]]:
    """Training rows for `important_layers` and `narrowed`, in batches."""
    if rows is None:
        return []
    some = rows.select(range(0, len(rows), max(1, len(rows) // _WEIGHED)))
    encoded = encoding.LazyRows(some, task, start.tokenizer, recipe.max_length)
    collate = encoding.Collator(start.tokenizer, kind=task.kind)
    return [*encoding.batches_of(encoded, collate, 16, "cpu")]


def _static(
    recipe: Recipe,
    task: Task,
    names: Task,
    start: models.Start,
    teacher: PreTrainedModel | None,
    rows: Dataset | None,
) -> StaticStudent:
    """A static student, from the teacher's or another encoder's vectors of its tokens, or from random numbers."""
    spec, init = recipe.student, start.init
    source = None if init == "fresh" else teacher
    if isinstance(init, str) and init not in ("teacher", "fresh"):
        source, _ = students.pretrained.load_checkpoint(init, auto=task.kind.auto)
    own = recipe.lead if spec.from_teacher else init
    if isinstance(source, StaticStudent):
        raise LimbeckError(
            f"student.init {init}: {own} is a static student, and only an encoder reads tokens for a new one",
            f"leave student.static out and set student.init={own} to train that student on, or set student.init to "
            "an encoder or to fresh",
        )
    texts = []
    if rows is not None:
        some = rows.select(range(0, len(rows), max(1, len(rows) // _COUNTED)))
        texts = [text for column in task.kind.texts(task, some[:]) for text in column]
    other = students.read_tokenizer(str(own)) if source and spec.tokenizer else None
    return build_static(
        source,
        start.tokenizer,
        texts,
        task=names,
        kind=task.kind,
        settings=spec.static_settings,
        teacher_tokenizer=other,
        read=_token_vectors,
        seed=recipe.seed,
    )


_READ: dict[str, np.ndarray] = {}
"""The vectors of the last vocabulary that was read, by who read it: seeds and trials of a process share them."""


def _token_vectors(
    source: PreTrainedModel, tokenizer: Processor, other: Processor | None, pooling: None
) -> np.ndarray:
    """`token_vectors`; the same model reads the same vocabulary once."""
    known = [digest_of_tokenizer(one) for one in (tokenizer, other) if one is not None]
    key = " ".join([digest_of_model(source), *known])
    if key not in _READ:
        _READ.clear()
        _READ[key] = token_vectors(source, tokenizer, other)
    return _READ[key]
