"""The end of a run: its predictions, the student that it leaves, its page and card.

Part of `limbeck.run`.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from limbeck.activations import Passes, stack_names
from limbeck.cards.card import CARD_NAME, is_ours, write_card
from limbeck.data import CORPUS, add_inputs, batches_of
from limbeck.evaluation import measuring, similarity_matrix
from limbeck.evaluation.measuring import flops_of, latencies
from limbeck.records import Record
from limbeck.records.facts import Best, Cost, Epoch, ModelFacts, Numbers, StageFacts, TeacherFacts
from limbeck.records.words import learned_nothing, model_word
from limbeck.report import write_report
from limbeck.report.sections import page_parts
from limbeck.run import begin, check, several_teachers
from limbeck.run.beside_teacher import Kept, compare, reference_scores, scores_beside_teacher
from limbeck.run.prepared import Prepared, SplitsToScore
from limbeck.run.run_folder import RunFolder
from limbeck.run.train import Spent, Trained, write_student
from limbeck.runtimes.manifest import exports_of_student
from limbeck.students import labels_of
from limbeck.support import files, machine
from limbeck.support.errors import LimbeckError
from limbeck.tables.model import task_title
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.tasks.rules import THRESHOLDS, thresholds_of
from limbeck.training import DistillationTrainer
from limbeck.training.progress import Parts

log = logging.getLogger(__name__)


def finish(
    trained: Trained, record: Record, folder: RunFolder, parts: Parts, *, summarized: bool
) -> None:
    """Score the trained student, measure it, ship it, and record the results.

    `summarized`: a summary of the record follows, which warns of a student that has learned nothing.
    """
    prepared, trainer, spent = trained.prepared, trained.trainer, trained.spent
    recipe = prepared.recipe
    record.epochs = [
        Epoch(stage=part.inputs.stage.number, **entry) for part in spent for entry in part.epochs
    ]
    choose = min if recipe.select_by in LOWER_IS_BETTER else max
    epochs = trainer.progress.epochs
    check.warn_of_none_counted(epochs)
    best, last = choose(epochs, key=lambda entry: entry["dev"][recipe.select_by]), epochs[-1]
    record.best = Best(epoch=best["epoch"], primary=best["dev"]["primary"])
    record.last = Best(epoch=last["epoch"], primary=last["dev"].get("primary"))
    scored = trained.splits_to_score
    record.scores, predictions = predict(prepared, trainer, scored, folder)
    record.class_weights = trainer.objectives.of(0).weights_by_class()
    thresholds = thresholds_of(trainer.student.config)
    if thresholds is not None:
        names = labels_of(trainer.student.config)
        record.thresholds = dict(zip(names, thresholds, strict=True))
    measured: Kept = {}
    with parts.part("evaluation"):
        scores = reference_scores(prepared, scored, measured)
        compare(prepared, scored, record, predictions, scores, measured)
        for split, beside in scores_beside_teacher(prepared, scored, trainer.student).items():
            record.scores[split] = record.scores[split] | beside
    if not summarized and (said := learned_nothing(record)) is not None:
        log.warning("the %s %s", model_word(record), said)
    with parts.part("measuring"):
        record.student, record.teacher = model_facts(prepared, scores)
        record.stages = [stage_facts(part, prepared) for part in spent]
    team = record.team
    for member in team.members if team is not None and team.use == "sample" else ():
        member.sampled = sum(epoch.sampled.get(member.name, 0) for epoch in record.epochs)
    machine.wait_for_all()
    if machine.is_first():
        with parts.part("saving"):
            write_student(trainer, folder, prepared)
            folder.ship(folder.student, folder.predictions)
    record.cost = cost(spent, record.stages, parts.read())
    record.status = "finished"
    begin.save(record, folder)
    machine.wait_for_all()


def take_over(record: Record, folder: RunFolder) -> None:
    """Finish a run whose student comes from the best of several runs made for it."""
    if machine.is_first():
        several_teachers.promote(record, folder)
    begin.save(record, folder)
    machine.wait_for_all()


# The files that a failed run leaves.


def fail(record: Record, folder: RunFolder, error: Exception) -> None:
    """Keep the reason in the record; on a full disk, first make room for it."""
    full = files.is_full(error)
    raw = full and not isinstance(error, LimbeckError)
    record.fail(str(files.full_disk(folder.path, error)) if raw else error)
    if not machine.is_first():
        return
    if not full:
        record.save(folder.path)
        return
    folder.remove_unfinished()
    with suppress(LimbeckError):  # not even that: the caller reports the error
        record.save(folder.path)


def predict(
    prepared: Prepared, trainer: DistillationTrainer, scored: SplitsToScore, folder: RunFolder
) -> tuple[dict[str, Numbers], dict[str, dict[str, list[Any]]]]:
    """Score the best epoch's student on every split and keep its predictions; both by split.

    If thresholds are tuned, the first split's are the student's from here on.
    """
    scores: dict[str, Numbers] = {}
    predictions: dict[str, dict[str, list[Any]]] = {}
    trainer.compute_metrics = None  # it scores the rows that select, and these may be others
    for split, rows in scored.items():
        output = trainer.predict(rows.encoded)
        found = prepared.results(rows, np.asarray(output.predictions))
        if found.thresholds:
            prepared = prepared.deciding_by(found.thresholds)
            setattr(trainer.student.config, THRESHOLDS, [*found.thresholds])
        scores[split], predictions[split] = dict(found.scores), found.predictions
    if machine.is_first():
        files.write_whole(folder.predictions, json.dumps(predictions))
    return scores, predictions


# A finished run's entries in its record about its models and its cost.


def model_facts(
    prepared: Prepared, scores: dict[str, Numbers]
) -> tuple[ModelFacts, TeacherFacts | None]:
    """Size, FLOPs and latency of student and teacher, in turns on one example of mean length.

    With several teachers, uses the one that students are compared with; `scores` are its own.
    """
    models: dict[str, PreTrainedModel] = {"student": prepared.student}
    if prepared.teacher is not None:
        models["teacher"] = prepared.teacher
    size = prepared.example_size()
    times = latencies(models, size, batch_size=1)
    facts = {
        name: measuring.model_facts(model, size, latency_ms=times[name])
        for name, model in models.items()
    }
    if prepared.teacher is None:
        return facts["student"], None
    path = prepared.named[prepared.reference].path
    own = facts["teacher"].model_dump()
    return facts["student"], TeacherFacts(**own, path=path, scores=scores)


def stage_facts(spent: Spent, prepared: Prepared) -> StageFacts:
    """A stage's training rows, and its FLOPs."""
    stage, rows = spent.inputs.stage, spent.inputs.rows
    own = stage.recipe
    several = own.outputs or (own.teachers if own.team is not None else None)
    teacher = ", ".join(several) if several else own.teacher
    return StageFacts(
        stage=stage.number,
        task=stage.recipe.task if stage.corpus is None else CORPUS.name,
        data=stage.recipe.data if stage.corpus is None else stage.corpus.source,
        rows=len(rows.encoded),
        tokens=rows.mean_tokens,
        truncated=rows.truncated,
        without_outputs=spent.inputs.without_outputs,
        teacher=teacher if own.needs_teacher else None,
        steps=spent.steps,
        student_examples=spent.examples,
        embeddings_trained=spent.embeddings,
        student_flops=flops_of(prepared.student, Passes.of(spent.passes["student"])),
        teacher_flops=_teacher_flops(spent, prepared),
        seconds=sum(entry["seconds"] for entry in spent.epochs),
    )


def _teacher_flops(spent: Spent, prepared: Prepared) -> float:
    """FLOPs of a stage's live passes, and of the passes that stored a teacher's outputs for the run.

    A store that stages share counts in the first of them.
    """
    before = {
        id(member)
        for inputs in prepared.stages[: spent.inputs.stage.number - 1]
        for member in inputs.members
    }
    total = 0
    for member, live in zip(spent.inputs.members, spent.passes["teachers"], strict=True):
        total += flops_of(member.model, Passes.of(live))
        if member.fresh and id(member) not in before:
            total += flops_of(member.model, Passes.of([*member.entry.outputs.passes]))
    return total


def cost(
    spent: Sequence[Spent], stages: Sequence[StageFacts], seconds: Mapping[str, float]
) -> Cost:
    """Seconds and FLOPs of all stages; `seconds` are the run's, by part (`engine.parts`)."""
    # On an accelerator the teacher's time is measured on the device, and may exceed the host's.
    answering = min(sum(part.seconds.get("teacher", 0.0) for part in spent), seconds["training"])
    return Cost(
        total_seconds=sum(seconds.values()),
        student_seconds=seconds["training"] - answering,
        teacher_seconds=seconds["storing"] + answering,
        evaluation_seconds=seconds["evaluation"],
        preparation_seconds=seconds["preparation"],
        team_seconds=seconds["teams"],
        measuring_seconds=seconds["measuring"],
        saving_seconds=seconds["saving"],
        student_flops=sum(facts.student_flops or 0 for facts in stages),
        teacher_flops=sum(facts.teacher_flops or 0 for facts in stages),
        student_examples=sum(part.examples for part in spent),
    )


# The page and the card of one run: written when it ends, and again when something more is measured of it.


# RAIL-KD Figure 2 compares layers on 100 examples; more change nothing that a heat map shows.
_EXAMPLES = 128
_BATCH = 32


def similarity(prepared: Prepared) -> list[list[float | None]] | None:
    """How alike teacher and student layers represent dev examples.

    None without a teacher, or where one of the two has no layers over tokens or they read
    different tokens.
    """
    if prepared.teacher is None or prepared.named[prepared.reference].teacher.own_tokens:
        return None
    if not (stack_names(prepared.teacher) and stack_names(prepared.student)):
        return None
    encoded, inputs = add_inputs(
        prepared.selecting,
        prepared.splits[prepared.task.dev_splits[0]],
        prepared.task,
        prepared.tokenizer,
        prepared.named[prepared.reference].tokenizer,
        prepared.recipe.max_length,
    )
    if inputs is None:
        return None
    prepared.student.eval()
    few = range(min(_EXAMPLES, len(encoded)))
    device = prepared.student.device
    batches = [*batches_of(encoded, prepared.collator, _BATCH, device, order=few)]
    found = similarity_matrix.similarity_of_layers(
        prepared.teacher, prepared.student, batches, map(inputs.of, batches)
    )
    return [list(row) for row in found.cka]


def report_run(prepared: Prepared, record: Record, folder: RunFolder) -> None:
    """Write `report.html`, with the similarity of teacher and student layers where there is a teacher."""
    matrix = similarity(prepared)
    if matrix is not None:
        record.layer_similarity = matrix
        record.save(folder.path)
    _write_page(record, folder)


def card_run(folder: RunFolder) -> None:
    """Write the model card of a finished run; problems are shown, and no run fails because of them."""
    if not is_ours(folder.student / CARD_NAME):
        log.warning("%s is not limbeck's and stays as it is", folder.student / CARD_NAME)
        return
    try:
        write_card(folder.path)
    except LimbeckError as error:
        log.warning("no model card is written: %s", error)


def refresh(run: Path) -> None:
    """A run's page and card again, as something more is known of it; no page where none was written.

    Times of exported models that are gone, or were replaced since, leave the record first.
    """
    folder, record = RunFolder(run), Record.load(run)
    known = {None, *(one.checksums.get(one.file) for one in exports_of_student(run)[0])}
    if record.bench is not None and any(row.export not in known for row in record.bench.rows):
        record.bench.rows = [row for row in record.bench.rows if row.export in known]
        record.save(run)
    if folder.report.is_file():
        _write_page(record, folder)
    card_run(folder)


def _write_page(record: Record, folder: RunFolder) -> None:
    known = record.layer_similarity
    matrix = None if known is None else np.array(known, dtype=np.float64)
    write_report(
        [record],
        folder.report,
        title=f"{record.method} on {task_title(record.task)}",
        similarity=None if matrix is None else {record.method: matrix},
        exports=exports_of_student(folder.path)[0],
        more=[one for part in page_parts() for one in part.sections(folder.path)],
    )
