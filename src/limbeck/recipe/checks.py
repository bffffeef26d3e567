"""Settings of a recipe that contradict each other, or would have no effect. Part of `limbeck.recipe`."""

from collections.abc import Iterator

from limbeck.input_transforms import InputTransform, chosen
from limbeck.objectives import TermSpec
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.groups import FirstStage
from limbeck.recipe.paper_settings import flat, stated_of
from limbeck.students import names_cnn, starts_random
from limbeck.support.errors import Problem, problem_list
from limbeck.tasks.abstract_type import TASK_TYPES
from limbeck.teachers.team import ChainSpec, EnsembleSpec

_ROWS = ("task", "data", "text_columns", "label_column", "train_rows", "corpus", "teacher")
_START = "student.init"
_SEVERAL = "take a method of several (skd-uniform, wkd-uniform, mt-bert)"


@problem_list
def recipe_problems(recipe: RecipeFields) -> Iterator[Problem]:
    """Find settings that are valid separately but not together."""
    yield from _without_effect(recipe)
    yield from _teachers(recipe)
    yield from _static(recipe)
    yield from _vocabulary(recipe)
    yield from _stage(recipe, "", recipe)
    if recipe.first_stage is not None:
        yield from _stage(recipe.first_stage, "first_stage.", recipe)
        yield from _first_stage(recipe.first_stage, recipe)


def _without_effect(recipe: RecipeFields) -> Iterator[Problem]:
    """Settings that are read only where another one has some value."""
    first = recipe.first_stage
    sgd, momentum = recipe.optimizer == "sgd", recipe.momentum
    sampled = recipe.train_rows or (first is not None and first.train_rows)
    idle = {
        "momentum": (not sgd and momentum is not None, "optimizer=sgd"),
        "nesterov": (recipe.nesterov and not (sgd and momentum != 0), "optimizer=sgd and momentum"),
        "adam_epsilon": (sgd and recipe.adam_epsilon is not None, "optimizer=adamw"),
        "quality": (recipe.quality != "usual" and (recipe.epochs or recipe.max_steps), "epochs=null"),
        "stratified": (recipe.stratified and not sampled, "train_rows"),
        "joint": (recipe.joint and first is None, "first_stage"),
        "keep_first_stage": (
            recipe.keep_first_stage and (first is None or recipe.joint),
            "a first_stage that is not joint",
        ),
        "missing_outputs": (not recipe.outputs and recipe.missing_outputs != "error", "outputs"),
        "output_classes": (not recipe.outputs and recipe.output_classes, "outputs"),
        "teacher_device_map": (
            recipe.teacher_device_map is not None and not (recipe.teacher or recipe.teachers), "teacher",
        ),
        "teacher_dropout": (recipe.outputs and recipe.teacher_dropout, "a model instead of outputs"),
    }  # fmt: skip
    if first is not None:
        needs: dict[str, str] = {}
        if first.corpus is not None:
            needs |= dict.fromkeys(("task", "data", "train_rows"), "rows of a task, not a corpus")
        if first.data is None:
            needs |= dict.fromkeys(("text_columns", "label_column"), "first_stage.data")
        if recipe.joint:
            needs |= dict.fromkeys(_ROWS, "joint=false")
        for key, needed in needs.items():
            idle[f"first_stage.{key}"] = (getattr(first, key) is not None, needed)
    for key, (given, needed) in idle.items():
        if given:
            yield Problem(
                f"{key}: has an effect only with {needed}", f"add that, or leave {key} out"
            )


def _static(recipe: RecipeFields) -> Iterator[Problem]:
    """Find terms that cannot train a static student, and settings that only static students have, or only others."""
    spec = recipe.student
    if not spec.static:
        for key in spec.static_settings:
            yield Problem(
                f"student.{key}: has an effect only with student.static=true",
                f"add that, or leave student.{key} out",
            )
        return
    for key in ("layers", "pick", "config", *spec.narrower):
        if getattr(spec, key):
            yield Problem(
                f"student.{key}: a static student has no layers to choose",
                "leave it out, or leave student.static out; its size is student.width",
            )
    if spec.embedding_bits:
        yield Problem(
            "student.embedding_bits: a static student's table is trained in float",
            "leave it out; limbeck export --format numpy-int8 writes small rows",
        )
    if recipe.embedding is not None and recipe.embedding.width is not None:
        yield Problem(
            "embedding.width: the width of a static student's embeddings is student.width",
            f"set student.width={recipe.embedding.width} instead",
        )
    if recipe.optimizer != "adamw":
        yield Problem(
            f"optimizer: {recipe.optimizer} does not read the sparse gradients of a static student",
            "leave it out",
        )
    for prefix, stage in (("", recipe), ("first_stage.", recipe.first_stage)):
        if stage is None:
            continue
        for key, transform in _transforms(stage).items():
            if transform.mixes or transform.name == "masked-kd":
                yield Problem(
                    f"{prefix}{key}: {transform.name} works inside layers, and a static student has no layers",
                    f"leave {prefix}{key} out",
                )
        for name, term in stage.objectives.items():
            if term.needs_layers:
                yield Problem(
                    f"{prefix}objectives.{name}: it compares layers, and a static student has no layers",
                    "compare outputs (method kd, kd-soft or logit-mse; embedding-mse for embeddings)",
                )


def _vocabulary(recipe: RecipeFields) -> Iterator[Problem]:
    """Find terms that cannot train a student with fewer tokens than its teacher."""
    spec = recipe.student
    if spec.vocabulary is None:
        return
    if isinstance(spec.tokenizer, int):
        yield Problem(
            "student.vocabulary: a tokenizer that is trained has the size of student.tokenizer",
            "leave one of the two out",
        )
    for prefix, stage in (("", recipe), ("first_stage.", recipe.first_stage)):
        if stage is None or not any(term.needs_teacher for term in stage.objectives.values()):
            continue
        alike = [*_transforms(stage)]
        alike += [key for key in _ROWS if isinstance(stage, FirstStage) and getattr(stage, key)]
        for key in alike:
            yield Problem(
                f"student.vocabulary: {prefix}{key} needs the same tokens in student and teacher",
                f"leave {prefix}{key} out; or shrink the finished student: "
                f"limbeck shrink RUN --vocabulary {spec.vocabulary} --data TEXT --out DIR",
            )


def _teachers(recipe: RecipeFields) -> Iterator[Problem]:
    """Who teaches: one teacher, several, or stored outputs."""
    team, outputs = recipe.team, recipe.outputs or []
    key = "outputs" if outputs else "teachers"
    several = outputs or recipe.teachers or []
    if outputs and recipe.teachers:
        yield Problem(
            "teachers, outputs: both set the teachers",
            "label with the models first (`limbeck label`) and give all as outputs, or leave one out",
        )
    if team is None and (recipe.teachers or len(outputs) > 1):
        yield Problem(
            f"{key}: {len(several)} are given, and {recipe.method} learns from one",
            f"set how they teach (team.use=sample or ensemble), {_SEVERAL}, or give one: "
            f"{'--outputs STORE' if outputs else '--teacher FOLDER'}",
        )
    if outputs and isinstance(team, ChainSpec):
        yield Problem(
            f"outputs: {recipe.method} distills teachers one into another, which takes their models",
            f"give them as teachers, or {_SEVERAL}",
        )
    if outputs and recipe.teacher is not None and not recipe.student.from_teacher:
        yield Problem(
            "teacher, outputs: the outputs teach, and the student starts from student.init, so that the teacher "
            "is not used",
            "leave one of them out; or start from the teacher's layers: leave student.init out (--student)",
        )
    if team is None:
        return
    for path in sorted({path for path in several if several.count(path) > 1}):
        yield Problem(f"{key}: {path} is named twice", "name it once; team.by gives it more weight")
    by = None if isinstance(team, ChainSpec) else team.by
    if isinstance(by, list) and several and len(by) != len(several):
        yield Problem(
            f"team.by: {len(by)} numbers for {len(several)} teachers",
            "give one number per teacher, in the order of teachers",
        )
    for name, term in recipe.objectives.items():
        if isinstance(team, EnsembleSpec) and term.needs_layers and term.needs_teacher:
            yield Problem(
                f"objectives.{name}: {term.compare} looks at a teacher's layers, and teachers that are averaged have "
                "none in common",
                "take it out, or sample one teacher for each step: team.use=sample",
            )


def _stage(
    stage: RecipeFields | FirstStage, prefix: str, recipe: RecipeFields
) -> Iterator[Problem]:
    """Find input transforms that a stage's terms cannot read."""
    if isinstance(stage.pad_to, int) and stage.pad_to < recipe.max_length:
        yield Problem(
            f"{prefix}pad_to: {stage.pad_to} is less than max_length {recipe.max_length}, the longest row",
            "raise it, lower max_length, or write pad_to: max_length",
        )
    transforms = _transforms(stage)
    if recipe.joint and recipe.first_stage is not None:
        transforms = _transforms(recipe.first_stage) | _transforms(recipe)
    if len(transforms) > 1:
        yield Problem(
            f"{prefix}mixup, {prefix}input_transform: inputs are transformed in one way",
            "leave one of them out",
        )
    mixes = any(transform.mixes for transform in transforms.values())
    for name, term in stage.objectives.items():
        if not mixes and term.needs_mixed:
            yield Problem(
                f"{prefix}objectives.{name}: {term.needs_mixed}, and nothing is mixed",
                f"add {prefix}mixup.alpha=1, or take the term out",
            )
        elif mixes and term.reads_labels and not term.mixes_labels:
            yield Problem(
                f"{prefix}objectives.{name}: {term.compare} reads an example's one label, and mixed input has that "
                "of two",
                "take the term out, or leave mixup out",
            )


def _transforms(stage: RecipeFields | FirstStage) -> dict[str, InputTransform]:
    """The transforms that are given, by their keys."""
    own = {
        "mixup": chosen(stage.mixup, None),
        "input_transform": chosen(None, stage.input_transform),
    }
    return {key: transform for key, transform in own.items() if transform is not None}


def _first_stage(first: FirstStage, recipe: RecipeFields) -> Iterator[Problem]:
    """Terms of a first stage that its rows have nothing for."""
    if not first.objectives:
        yield Problem("first_stage.objectives: none are given", "add one, or set first_stage=null")
    if recipe.joint:
        for name in [name for name in first.objectives if name in recipe.objectives]:
            yield Problem(
                f"joint: both stages have a term named {name!r}",
                "name one of them otherwise, or take it out of one stage",
            )
        return
    unlabelled = label_terms(first.objectives) if first.supplementary else []
    for name in [] if has_targets(recipe) else unlabelled:
        rows = "a corpus" if first.corpus else "the text of another task"
        yield Problem(
            f"first_stage.objectives.{name}: it reads labels, and this stage has no labels: it trains on {rows}",
            f"take it out: first_stage.objectives.{name}=null",
        )
    if first.corpus is None:
        return
    for key in ("min_tokens", "max_tokens"):
        tokens = getattr(first.corpus, key)
        if tokens is not None and tokens > recipe.max_length:
            yield Problem(
                f"first_stage.corpus.{key}: {tokens} tokens are more than max_length {recipe.max_length}, to which "
                "rows are cut",
                f"raise max_length, or lower {key}",
            )
    taught = any(term.needs_teacher for term in first.objectives.values())
    if recipe.outputs and taught and (first.teacher or recipe.teacher) is None:
        yield Problem(
            "first_stage.corpus, outputs: the pairs are made of the corpus when the run starts, so no stored outputs "
            "are of them",
            "give this stage a teacher of its own: first_stage.teacher=DIR; or leave first_stage out: first_stage=null",
        )
    for name, term in first.objectives.items() if _writes(recipe) else ():
        setting = f"first_stage.objectives.{name}"
        if term.reads_decoder or (term.reads_logits and not term.reads_labels):
            other = f"compare the encoder: {setting}.stack=encoder"
            yield Problem(
                f"{setting}: it looks at the decoder, which reads the targets of this stage's rows, and a corpus has "
                "none",
                f"{other if term.reads_decoder else f'take it out: {setting}=null'}; or train on a task's rows",
            )


def label_terms(terms: dict[str, TermSpec], *, numbers: bool = False) -> list[str]:
    """Names of the terms that look at the label of an example; `numbers`: labels are numbers."""
    return [
        name
        for name, term in terms.items()
        if term.reads_labels or (numbers and term.reads_numbers)
    ]


def has_targets(recipe: RecipeFields) -> bool:
    """Whether a first stage on another task's rows reads their labels: a decoder generates the labels of any task."""
    first = recipe.first_stage
    return first is not None and first.corpus is None and _writes(recipe)


def _writes(recipe: RecipeFields) -> bool:
    return recipe.kind in TASK_TYPES and TASK_TYPES.get(str(recipe.kind)).classes_as_text


def departures(recipe: RecipeFields) -> list[str]:
    """Dotted keys that the recipe's settings state and the recipe has otherwise.

    Empty for quick settings, and for methods that do not ship: nothing is stated for them here.
    """
    stated = stated_of(recipe.method).get(recipe.settings)
    net = names_cnn(recipe.student.init)
    if stated is None or (net and stated.nets is None):
        return []
    own = dict(flat(recipe.model_dump(mode="json")))
    wanted = dict(flat(stated.settings(recipe.task, net=net)))
    found = [key for key, value in wanted.items() if key != _START and own.get(key) != value]
    # Any checkpoint may replace a paper's; a teacher's layers or random weights may not.
    other = recipe.student.from_teacher or starts_random(recipe.student.init)
    return [_START, *found] if _START in wanted and other else found


@problem_list
def check_depth(recipe: RecipeFields, layers: int | None) -> Iterator[Problem]:
    """A warning if the recipe's settings are stated for students of another depth than `layers`."""
    sets = stated_of(recipe.method)
    stated = sets.get(recipe.settings)
    if stated is None or stated.layers is None or layers in (None, stated.layers):
        return
    fits = [f"settings={name}" for name, one in sets.items() if one.layers == layers]
    depths = ", ".join(str(one.layers) for one in sets.values() if one.layers)
    yield Problem(
        f"settings={recipe.settings} is stated for students with {stated.layers} layers, and this one has {layers}",
        f"use {' or '.join(fits)}"
        if fits
        else f"choose a depth with settings of its own: {depths}",
        "warning",
    )
