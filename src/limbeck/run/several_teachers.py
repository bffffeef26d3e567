"""Several teachers, made ready to teach: ranked by their scores, or chained through assistants.

Part of `limbeck.run`. The trainings that come first are ordinary runs in folders below the run's own
(or where the recipe puts them). They are kept, found again, and continued where a stopped run left them.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.cards.card import CARD_NAME
from limbeck.evaluation.measuring import count_parameters
from limbeck.objectives import ModelShape
from limbeck.recipe import Recipe, StudentSpec
from limbeck.recipe.augment_spec import FROM_TEACHER
from limbeck.records import Record
from limbeck.records.facts import Cost, TeamFacts, TeamMember
from limbeck.run.beside_teacher import scores_of, teacher_scores
from limbeck.run.models import Named, form_team, load_teacher, processor_of
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.students import named_model, names_cnn, placement, resolve_checkpoint
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.manifest import DamagedRecordError
from limbeck.tables.profiles import profile_score
from limbeck.tasks import Processor
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import ChainSpec, EnsembleSpec, SampledSpec, by_capacity
from limbeck.training.assistant_start import recorded_start
from limbeck.training.parts import Maker, Part, best_of, chained, ranked

# Scores by which teachers are ranked: SKDBERT, Table 10.
_PROFILE = "skd-dev"

Train = Callable[[Recipe, Path], Record]
"""Trains a recipe's run into a folder, or finds it there."""


def with_team(
    recipe: Recipe, prepared: Prepared, folder: RunFolder, train: Train
) -> tuple[Prepared, TeamFacts | None]:
    """The run with its final teacher or team, and the facts of it; None for one teacher.

    Args:
        recipe: the run's as it was requested, from which the recipes of runs that come first are made.

    Raises:
        LimbeckError: a run that has to be made first cannot be.
    """
    team = recipe.team
    if team is None:
        return prepared, None
    prepared, members = _scored(prepared)
    scores = [member.score for member in members]
    parts = RunParts(recipe, prepared, scores, folder, train)
    if isinstance(team, ChainSpec):
        order = by_capacity([one.teacher for one in prepared.named], scores)
        runs = chained(recipe, order, parts)
        name = prepared.named[order[-1]].name
        last = runs[-1] if runs else prepared.named[order[-1]].path
        model = Teacher(
            load_teacher(last, prepared.task, placement(recipe.teacher_device_map)),
            dropout=recipe.teacher_dropout,
        )
        assistant = Named(name, last, model, processor_of(recipe, prepared.task, last))
        prepared = prepared.read_by(assistant).taught_by(model)
        return prepared, TeamFacts(use="chain", members=members, runs=runs)
    if team.by == "best-of":
        place, runs = best_of(recipe, parts)
        known = parts.records[runs[place]].team
        return prepared, TeamFacts(
            use=team.use,
            by=f"best-of: {Path(runs[place]).name}",
            members=members if known is None else known.members,
            runs=runs,
            chosen=runs[place],
        )
    formed = form_team(recipe, prepared.named)
    runs = []
    assert formed is not None  # teachers are named
    without = [member.path for member in members if member.score is None]
    if team.by == "teacher-rank" and without:
        raise LimbeckError(
            f"team.by: teacher-rank ranks teachers by their dev scores, and {', '.join(without)} knows "
            "not all dev rows",
            "label the dev rows too, or take team.by=uniform, student-rank or one number per teacher",
        )
    if team.by != "adaptive":
        shares, ranks, runs = ranked(recipe, team.by, parts)
        formed = formed.weighed(shares)
        prepared = prepared.taught_by(formed)
        for member, score in zip(members, ranks if runs else (), strict=False):
            member.student_score = score
    for member, share in zip(members, formed.weights, strict=True):
        member.share = share
    named = team.by if isinstance(team.by, str) else "given"
    return prepared, TeamFacts(use=team.use, by=named, members=members, runs=runs)


class RunParts(Maker[str]):
    """Parts of a run as runs of their own, in folders below its own or where the recipe puts them.

    Attributes:
        records: of the runs that were made or found, by their folders.
    """

    def __init__(
        self,
        recipe: Recipe,
        prepared: Prepared,
        scores: Sequence[float | None],
        folder: RunFolder,
        train: Train,
    ) -> None:
        self.names = [one.name for one in prepared.named]
        self.records: dict[str, Record] = {}
        self._recipe, self._prepared, self._scores = recipe, prepared, scores
        self._folder, self._train = folder, train

    def make(self, part: Part[str]) -> str:
        """Train it, or find it; returns its folder."""
        named, place = self._prepared.named, self._folder.path / part.name
        if part.teacher is None:
            recipe = self._try(part)
        else:
            teacher = named[part.teacher].path if isinstance(part.teacher, int) else part.teacher
            if part.assistant is not None:
                one = named[part.assistant]
                as_it_is = StudentSpec.model_validate({"init": one.path})
                changes = pretrained_form(one.path) or {"student": as_it_is, "teacher": None}
                changes["method"] = f"assistant {one.name}"
            else:
                assert isinstance(part.teacher, int)  # a student of one of the teachers
                changes = {"method": f"student of {named[part.teacher].name}"}
                if part.epochs is not None:
                    changes["epochs"] = part.epochs
                shared = getattr(self._recipe.team, "student_runs", None)
                place = place if shared is None else Path(shared) / place.name
            recipe = _alone(part.recipe, teacher, changes)
        self.records[str(place)] = self._train(recipe, place)
        return str(place)

    def _try(self, part: Part[str]) -> Recipe:
        """The run's recipe with another ranking; a student of each teacher is made once."""
        team, by = part.recipe.team, Path(part.name).name
        assert isinstance(team, SampledSpec | EnsembleSpec)
        if by == "student-rank" and team.student_runs is None:
            team = team.model_copy(update={"student_runs": str(self._folder.students)})
        return part.recipe.model_copy(update={"method": f"{part.recipe.method}/{by}", "team": team})

    def score(self, made: str) -> float | None:
        """The dev score, of rows that are this run's whichever that run had."""
        prepared = self._prepared
        if Path(made).parent == self._folder.tries:
            return _score(prepared.task.name, self.records[made].scores)
        task, recipe = prepared.task, prepared.recipe

        def load() -> tuple[PreTrainedModel, Processor]:
            return load_teacher(made, task), processor_of(recipe, task, made)

        found = scores_of(prepared, prepared.dev, made, load, task.dev_splits[:1])
        return _score(task.name, found)

    def score_of_teacher(self, place: int) -> float | None:
        """As it was recorded or measured."""
        return self._scores[place]


# ---- scores ----


def _scored(prepared: Prepared) -> tuple[Prepared, list[TeamMember]]:
    """Each teacher's dev score, from its record or measured; students are compared with the best."""
    members = []
    for place, one in enumerate(prepared.named):
        scores = teacher_scores(prepared, place, splits=prepared.task.dev_splits[:1])
        prepared = prepared.scoring(place, scores)
        shape = ModelShape.of(one.teacher.model)
        facts: dict[str, Any] = {}
        if not one.stored:
            facts = {"layers": shape.layers, "hidden_size": shape.width, "heads": shape.heads}
            facts["parameters"] = count_parameters(one.teacher.model)[0]
        score = _score(prepared.task.name, scores)
        members.append(TeamMember(name=one.name, path=one.path, score=score, **facts))
    found = [member.score if member.score is not None else float("-inf") for member in members]
    return replace(prepared, reference=found.index(max(found))), members


def _score(task: str, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
    """By the profile, or the primary score of a task that it has no column for."""
    found = profile_score(_PROFILE, task, scores)
    return scores.get("dev", {}).get("primary") if found is None else found


def _alone(recipe: Recipe, teacher: str, changes: dict[str, Any]) -> Recipe:
    """The recipe with one teacher; the student starts where the run's own does.

    It names neither the method it was made for nor the other teachers: other runs find it too.
    """
    about = {"family": "own", "summary": "made before a run of several teachers", "paper": ""}
    # Only members of an ensemble are seen each by each, and only a sampled teacher has layers to see.
    layers = any(
        term.needs_layers and term.needs_teacher
        for stage in recipe.stages()
        for term in stage.recipe.objectives.values()
    )
    team: EnsembleSpec | SampledSpec = EnsembleSpec.model_validate({"use": "ensemble"})
    if layers:
        team = SampledSpec.model_validate({"use": "sample"})
    key = "outputs" if recipe.outputs else "teachers"
    own: dict[str, Any] = {key: [teacher], "team": team, "formula": "", "keep_first_stage": False}
    # A named CNN reads images of the lead's size.
    needs_lead = recipe.student.from_teacher or names_cnn(recipe.student.init)
    if needs_lead and recipe.teacher is None:
        own["teacher"] = recipe.lead
        # Named, the lead would teach a first stage that has no teacher of its own.
        if recipe.first_stage is not None and recipe.first_stage.teacher is None:
            own["first_stage"] = recipe.first_stage.model_copy(update={"teacher": teacher})
    if recipe.augment is not None and recipe.augment.model == FROM_TEACHER:
        # Rows are augmented the same for all, whichever teacher each run learns from.
        own["augment"] = recipe.augment.model_copy(update={"model": recipe.lead})
    return recipe.model_copy(update=about | own | changes)


def origin_problems(recipe: Recipe, named: Sequence[Named]) -> list[Problem]:
    """Warn of assistants of a chain that cannot start from their pretrained weights."""
    if not isinstance(recipe.team, ChainSpec):
        return []
    # The strongest teacher is no assistant; among several largest ones, scores decide later.
    large, *_ = by_capacity([one.teacher for one in named])
    return [
        Problem(
            f"assistant {one.name}: starts from {one.path} as it is, fine-tuned, because no run's record names "
            "its pretrained checkpoint",
            "make the teachers with limbeck finetune, or name pretrained checkpoints with a task head instead",
            "warning",
        )
        for place, one in enumerate(named)
        if place != large and pretrained_form(one.path) is None
    ]


def pretrained_form(path: str) -> dict[str, Any] | None:
    """The recipe keys that make a teacher as it was before it was fine-tuned, from its run's record.

    None if the record is missing: such a teacher starts as it is, and `origin_problems` warns of it.

    Raises:
        DamagedRecordError: its entry for the teacher is not as a run wrote it.
    """
    try:
        if (found := recorded_start(path)) is None:
            return None
        spec, lead = found
        init = str(lead if spec.from_teacher else spec.init)
        named = None if names_cnn(init) else named_model(init)
        if named is not None and not named.random:
            resolve_checkpoint(str(named.repository))
        elif named is None and init != "pocket" and not names_cnn(init):
            resolve_checkpoint(init)
    except DamagedRecordError:  # it would start otherwise than the teacher did
        raise
    except LimbeckError:
        return None
    return {"student": spec, "teacher": lead}


# A run whose student is another run's: the best of several that were made for it.


def promote(record: Record, folder: RunFolder) -> None:
    """Copy the chosen run's results, with the cost of all tries."""
    assert record.team is not None and record.team.chosen is not None
    chosen = RunFolder(Path(record.team.chosen))
    theirs = Record.load(chosen.path)
    for part in (
        "epochs", "stages", "best", "last", "scores", "kept", "classification",
        "row_tests", "floor", "student", "teacher",
    ):  # fmt: skip
        setattr(record, part, getattr(theirs, part))
    # What this run read, which is more than the chosen one did.
    mine = record.execution.model_dump(include={"read", "files"})
    record.execution = theirs.execution.model_copy(update=mine)
    record.cost = _sum([Record.load(run).cost for run in record.team.runs])
    shutil.copyfile(chosen.predictions, folder.predictions)
    for source, target in (
        (chosen.first_stage, folder.first_stage),
        (chosen.student, folder.student),
    ):
        if source.is_dir():
            shutil.rmtree(folder.unshipped, ignore_errors=True)
            # This run has a card of its own, which no manifest holds.
            shutil.copytree(source, folder.unshipped, ignore=shutil.ignore_patterns(CARD_NAME))
            folder.ship(target, folder.predictions)
    record.status = "finished"


def _sum(costs: Sequence[Cost]) -> Cost:
    """Each number added up over the runs that have it."""
    found = {}
    for name in Cost.model_fields:
        known = [value for cost in costs if (value := getattr(cost, name)) is not None]
        found[name] = sum(known) if known else None
    return Cost(**found)
