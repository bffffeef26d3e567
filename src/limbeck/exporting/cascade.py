"""`cascade([fast, slow])`: measure the fast model alone, choose when it asks the slow one, write both.

Thresholds are chosen on rows, with labels or without; the reported scores come from other rows.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from limbeck.data import NOTHING_NAMED, RowsAsked
from limbeck.data.text_rows import read_text_rows
from limbeck.evaluation.cascade import CascadeRows, Point
from limbeck.evaluation.row_tests import primary_of_samples, row_tests
from limbeck.exporting.folder import folder_in_work, refuse_occupied
from limbeck.exporting.gate import rows_facts
from limbeck.exporting.settings import CascadeSettings
from limbeck.labelling.label_rows import label
from limbeck.labelling.language_models.endpoint_settings import EndpointAccess, EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt, read_prompt
from limbeck.outputs.store import open_store, place_and_member
from limbeck.records.machine import processor_name
from limbeck.report.plots import Series, line_panel
from limbeck.report.svg import standalone
from limbeck.runtimes.cascade import (
    CASCADE_NAME,
    CascadeManifest,
    CascadeMember,
    CascadePoint,
    answers_several,
    centred,
    confidence_problems,
)
from limbeck.scoring.evaluation import known_rows
from limbeck.scoring.scored_model import (
    EncodedSplit,
    LoadedSplit,
    ScoredModel,
    class_names,
    refuse_gaps,
)
from limbeck.scoring.stored_member import SENT_ON, StoredMember, is_store
from limbeck.students import labels_of
from limbeck.support import files, terminal
from limbeck.support.cells import CellTable
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems, unknown
from limbeck.support.words import short_names
from limbeck.tasks import TASKS, Task, get_task_type, metrics, rules
from limbeck.tasks.task import judged_by_teacher
from limbeck.teachers.labeller import RowsMissingError

USUAL_DROP = 0.3
# Seconds per row if unknown: high enough that no row is sent on without need.
_UNTIMED = 1e3
_TIMED_ROWS = 256
_TIMED_SECONDS = 5.0
_OTHER_ROWS = ("task", "data", "split", "label_column")
TEXT_SPLIT = "text"
"""The split of rows that came as text alone."""
# Weights that only unpickling reads stay behind.
_LEFT_BEHIND = (".bin", ".pt", ".pth", ".ckpt", ".pickle", ".pkl")


def cascade(
    models: Sequence[str | Path],
    out: str | Path,
    asked: RowsAsked = NOTHING_NAMED,
    *,
    unlabelled: str | Path | None = None,
    endpoint: EndpointSettings | None = None,
    prompt: str | Path | None = None,
    wanted: Mapping[str, float] | None = None,
    overwrite: bool = False,
    show: bool = False,
) -> CascadeManifest:
    """Measure a cascade of two or three models on rows, choose its thresholds and write it as a folder.

    Args:
        models: run folders, checkpoints' folders or Hub names, exported folders; the fastest first, the best last.
            The last may be a store of a teacher's outputs about the rows.
        out: the folder to write. It contains the members' files, as hard links where the disk allows.
        asked: the rows to measure on; by default the rows on which the first run among the models was scored.
        unlabelled: a file of text instead of them. The last model's predictions then replace labels.
        endpoint: an OpenAI-compatible server whose model is the last; it gets the rows, as in `label`.
        prompt: the YAML file of its prompt.
        wanted: one of `max_drop` (points of the primary score below the last model's, by default 0.3), `score`,
            `agreement` with the last model (0 to 100), or `cost` (percent of the last model's time).
        overwrite: replace a cascade in the folder.
        show: print progress on standard error.

    Raises:
        LimbeckError: models without classes or with other ones, rows that are not given, a wish that no threshold
            meets, or a folder that is not free.
    """
    served = [] if endpoint is None else [endpoint.model]
    if prompt is not None and endpoint is None:
        raise LimbeckError("prompt: no endpoint is named", "--endpoint URL, or leave it out")
    wanted = wanted or {"max_drop": USUAL_DROP}
    rows = {} if unlabelled is None else {name: getattr(asked, name) for name in _OTHER_ROWS}
    raise_problems(_problems([*models, *served], wanted, rows))
    ((wish, value),) = wanted.items()
    place = files.at_home(out)
    refuse_occupied(place, overwrite=overwrite, name=CASCADE_NAME)
    stores = {str(path): str(path) for path in models if is_store(path)}
    untimed = [*served, *(one for one in stores if _seconds_stored(one) is None)]
    if wish == "cost" and untimed:
        raise LimbeckError(
            f"cost {value:g}: the time of a row of {untimed[0]} is not known",
            "choose by max_drop, score or agreement",
        )
    members = [ScoredModel.open(path) for path in models if str(path) not in stores]
    _refuse_unsure(members, [*stores], asked)
    known = next((one for one in members if one.recipe is not None), members[-1])
    if unlabelled is None:
        loaded = _rows_of(known, asked)
    else:
        loaded = text_split(members[-1], str(unlabelled), asked)
    for one in members:  # before the first of them runs
        class_names(loaded.task, one.config, side=f"model {one.name}")
    asks: dict[str, Any] = {}
    with folder_in_work(place) as part:
        if endpoint is not None:
            stores[endpoint.model] = str(part / _folder_of(len(models) + 1, endpoint.model))
            asks = _label(loaded, endpoint, prompt, stores[endpoint.model], show=show)
        manifest = _made(members, stores, loaded, asked, (wish, value), asks, part, show=show)
        files.put_in_place(part, place)
    manifest.folder = place
    return manifest


def _rows_of(known: ScoredModel, asked: RowsAsked) -> LoadedSplit:
    """The rows to measure on, by a member that knows theirs."""
    try:
        loaded = known.rows(asked, labeled=False)
    except LimbeckError as error:
        # A file of text has no label column to name.
        fix = f"; or, for text without labels, --unlabelled {asked.data or 'FILE'}"
        raise LimbeckError(
            [
                replace(one, fix=one.fix + fix) if "label column" in one.message else one
                for one in error.problems
            ]
        ) from None
    loaded = replace(loaded, own_classes=False, translated_from=None)
    if loaded.labeled:
        refuse_gaps(loaded)
    return loaded


def _made(
    members: Sequence[ScoredModel],
    stores: Mapping[str, str],
    loaded: LoadedSplit,
    asked: RowsAsked,
    wished: tuple[str, float],
    asks: Mapping[str, Any],
    part: Path,
    *,
    show: bool,
) -> CascadeManifest:
    """Ask every member about the rows, choose the thresholds, and write the folder."""
    task = replace(loaded.task, thresholds=rules.USUAL)
    stored = [StoredMember.open(name, one, task.kind, task.labels) for name, one in stores.items()]
    # Looked up first: rows that a store does not know end the work before a model runs.
    looked_up = [centred(one.logits_of(task, loaded.rows), one.thresholds) for one in stored]
    reads: list[EncodedSplit] = []
    logits: list[np.ndarray] = []
    seconds: list[float] = []
    with terminal.phases(shown=show) as begin:
        for member in members:
            begin(f"{member.name}: {len(loaded.rows):,} rows", None)
            known_by = member.manifest or member.recipe
            own = None if known_by is None else known_by.max_length
            length = asked.max_length or own
            # A checkpoint reads as far as it can, whatever the run was limited to that names the rows.
            read, outputs, spent = _timed(
                member, replace(loaded, max_length=length, usual_length=None)
            )
            reads.append(read)
            logits.append(centred(outputs, read.task.thresholds))
            seconds.append(spent)
        logits += looked_up
        seconds += [_seconds_stored(one.place) or _UNTIMED for one in stored]
        decided = [replace(task, thresholds=one.thresholds) for one in stored]
        reads += [replace(reads[0], task=one) for one in decided]
        begin("thresholds", None)
        answers = MembersAnswers([*members, *stored], reads, logits, seconds)
        # By default a run's own dev rows are meant.
        trained = [] if asked.data is None else members
        known = {
            member.name: known_rows(member.recipe, member.place, loaded)
            for member in trained
            if member.recipe is not None
        }
        update = {"asks": asks, "known": {name: count for name, count in known.items() if count}}
        manifest = answers.measured(*wished).model_copy(update=update)
        return write_members(manifest, answers.members, part)


def _folder_of(number: int, name: str) -> str:
    """The name of a member's folder in the cascade's."""
    return f"{number}-{files.file_name(Path(name).name)}"


def _label(
    loaded: LoadedSplit,
    endpoint: EndpointSettings,
    prompt: str | Path | None,
    place: str,
    *,
    show: bool,
) -> dict[str, Any]:
    """Store the outputs of an endpoint's model for the rows, by the classes of their task; returns its prompt."""
    task = loaded.task
    if not (task.one_class and task.kind.reads.in_columns):
        raise LimbeckError(
            f"endpoint: it gives one class per row, and {task.name} is of kind {task.kind.name}",
            "name a model, or a store of its outputs, as SLOW",
        )
    names = loaded.text_columns or task.text_columns
    asked = bind_prompt(Prompt() if prompt is None else read_prompt(prompt), task.labels, names)
    words = dict(zip(task.labels, asked.verbalizations, strict=True))
    columns = zip(names, task.text_columns, strict=True)
    rows = Dataset.from_dict({name: loaded.rows[own][:] for name, own in columns})
    spoken = asked.prompt.model_copy(update={"verbalizations": words})
    try:
        label(
            unlabelled=rows,
            text_columns=names,
            prompt=spoken,
            endpoint=endpoint,
            out=place,
            show=show,
        )
    except RowsMissingError as error:
        fix = "run the same command again, which asks for these rows alone; or leave them out of the rows"
        raise LimbeckError([replace(one, fix=fix) for one in error.problems]) from None
    settings = endpoint.model_dump(exclude={*EndpointAccess.model_fields})
    return {"endpoint": settings, "prompt": spoken.model_dump(), "columns": [*names]}


@problem_list
def _problems(
    models: Sequence[str | Path], wanted: Mapping[str, float], rows: Mapping[str, str | None]
) -> Iterator[Problem]:
    """Problems with the call; `rows` are settings that contradict a file of text."""
    known = CascadeSettings.model_fields
    for name, chosen in rows.items():
        if chosen is not None:
            fix = f"leave out {name} or unlabelled"
            yield Problem(f"{name} {chosen}: together with unlabelled", fix)
    yield from (unknown("wish", name, [*known]) for name in wanted if name not in known)
    if not 2 <= len(models) <= 3:
        yield Problem(f"cascade: {len(models)} models", "name two or three, the fastest first")
    if len(wanted) != 1:
        yield Problem(f"cascade: {', '.join(wanted)} are wanted together", "name one of them")
    for name, value in wanted.items():
        if not 0 <= value <= 100:
            yield Problem(f"{name} {value:g}: out of range", "give a number from 0 to 100")
    for named, count in Counter(map(str, models)).items():
        if count > 1:
            fix = "name different models, the fastest first"
            yield Problem(f"cascade: {named} is named twice", fix)
    for one in models[:-1]:
        if is_store(one):
            yield Problem(f"cascade: {one} is a store of teacher outputs", "name it last, as SLOW")


def _refuse_unsure(members: Sequence[ScoredModel], stores: Sequence[str], asked: RowsAsked) -> None:
    """Raise LimbeckError for models, stores or a task without confidence, before any row is read."""
    problems = [
        Problem(f"cascade: {one.name} is a cascade itself", "name its models, two or three in all")
        for one in members
        if one.cascade is not None
    ]
    for one in members:
        problems += confidence_problems(one.kind, len(labels_of(one.config)), one.name)
    for place in stores:
        held = open_store(place_and_member(place)[0])
        problems += confidence_problems(get_task_type(held.kind), len(held.classes) or 1, place)
    if (task := TASKS.get(asked.task or "")) is not None:
        outputs = len(task.kind.head_labels(task) or ())
        problems += confidence_problems(task.kind, outputs, f"task {task.name}")
    raise_problems(problems)


def _timed(member: ScoredModel, loaded: LoadedSplit) -> tuple[EncodedSplit, np.ndarray, float]:
    """How a member reads the rows, its outputs, and the seconds that a row costs it once it is loaded.

    Raises:
        LimbeckError: outputs that are NaN or infinite.
    """
    member = member.in_memory(loaded.task.kind)
    start = time.perf_counter()
    read, outputs = member.outputs(loaded, side=f"model {member.name}")
    seconds = (time.perf_counter() - start) / len(loaded.rows)
    if broken := int((~np.isfinite(outputs)).any(axis=1).sum()):
        raise LimbeckError(
            f"cascade: {member.name} gives NaN or infinite outputs for {broken:,} of {len(loaded.rows):,} rows",
            "its weights are damaged or have diverged: train it again, or name another model",
        )
    return read, outputs, min(seconds, seconds_per_row(member, loaded, seconds))


def seconds_per_row(member: ScoredModel, loaded: LoadedSplit, guess: float) -> float:
    """The seconds that a row costs a warm model, on 256 rows or as many as some seconds allow by a guess of its cost.

    Few rows are repeated: a call costs more than a row of a fast model. They go without labels, since repeated ones
    would prove more of the classes' order than they do.
    """
    rows = len(loaded.rows)
    count = min(_TIMED_ROWS, max(1, int(_TIMED_SECONDS / guess)))
    if count > rows:
        count -= count % rows
    places = np.arange(count) * rows // count
    texts = loaded.rows.select(places)
    some = replace(
        loaded, rows=texts.remove_columns(loaded.task.label_column) if loaded.labeled else texts
    )
    start = time.perf_counter()
    member.outputs(some, side=f"model {member.name}")
    return (time.perf_counter() - start) / count


def _seconds_stored(place: str) -> float | None:
    """Seconds per row when a store was made; None if it was not recorded.

    An endpoint's answers are kept from earlier starts and the measured batch, so that the seconds mean little.
    """
    made = open_store(place_and_member(place)[0]).manifest
    told = "seconds" in made.costs and "requests" not in made.costs and made.stored_rows
    return made.costs["seconds"] / made.stored_rows if told else None


def text_split(model: ScoredModel, source: str, asked: RowsAsked) -> LoadedSplit:
    """Text alone, as a split of the model's own classes."""
    found = read_text_rows(source, text_columns=asked.text_columns or ())
    kind = model.kind
    task = Task(
        Path(source).stem,
        source,
        tuple(found.columns),
        kind.class_names(labels_of(model.config)),
        (),
        "",
        kind=kind,
    )
    texts = {name: values.to_pylist() for name, values in found.columns.items()}
    rows = Dataset.from_dict({**texts, "index": list(range(len(found)))})
    return LoadedSplit(
        task=task,
        data=source,
        name=TEXT_SPLIT,
        rows=rows,
        max_length=asked.max_length,
        text_columns=found.names,
    )


@dataclass(frozen=True)
class MembersAnswers:
    """The predictions of a cascade's members, the fastest first, on the same rows.

    Attributes:
        members: the models, and stored outputs in the last one's place.
        reads: the rows as each of them reads them.
        logits: of each (n, C), `centred` by its thresholds.
        seconds: that a row costs each.
    """

    members: Sequence[ScoredModel | StoredMember]
    reads: Sequence[EncodedSplit]
    logits: Sequence[np.ndarray]
    seconds: Sequence[float]

    def rows(self) -> tuple[CascadeRows, EncodedSplit]:
        """The members' predictions, and the split that scores them; without labels the last member's replace them."""
        last, logits = self.reads[-1], self.logits
        loaded = last.loaded
        task = replace(last.task, thresholds=rules.USUAL)
        kind = task.kind
        several = answers_several(kind, logits[-1].shape[1])
        decided = [_decided(one, several=several) for one in logits]
        encoded, rows = last.encoded, loaded.rows
        if not loaded.labeled:
            task = judged_by_teacher(task)
            column = decided[-1].astype(np.float32 if several else np.int64).tolist()
            encoded = encoded.add_column("labels", column)
            rows = rows.add_column(task.label_column, column)
        split = replace(last, loaded=replace(loaded, rows=rows), task=task, encoded=encoded)
        labels = np.asarray(split.encoded.with_format("numpy")["labels"][:]).astype(np.int64)
        outputs = np.concatenate(logits)
        every: dict[str, Any] = {
            "prediction": np.concatenate(decided),
            "label": np.concatenate([labels] * len(logits)),
            "probabilities": kind.probabilities(outputs),
        }
        counted = primary_of_samples(task, every)

        def one_by_one(answers: np.ndarray) -> np.ndarray:
            found = [
                kind.results_of_rows(task, outputs[one], rows.select(one % len(labels)))
                for one in answers
            ]
            return np.array([one.scores["primary"] for one in found])

        score = one_by_one if counted is None else counted.score
        return CascadeRows(logits, decided, self.seconds, labels, several, score), split

    def measured(self, wish: str, value: float) -> CascadeManifest:
        """The curve, the thresholds that all rows choose, and what rows that chose nothing come to.

        Raises:
            LimbeckError: no threshold meets the wish.
        """
        (rows, split), members = self.rows(), self.members
        everything, loaded = np.arange(len(rows.labels)), split.loaded
        curve = rows.curve(everything)
        point = rows.chosen(curve, wish, value, len(everything))
        if point is None:
            best = max(
                curve, key=lambda one: getattr(one, "score" if wish == "score" else "agreement")
            )
            cheapest = 100 * rows.seconds[0] / rows.seconds[-1]
            reach = (
                f"{members[0].name} alone costs {cheapest:.0f} % of {members[-1].name}"
                if wish == "cost"
                else f"the best that these models reach on these rows is {getattr(best, wish):.1f}"
            )
            fix = "allow more of its time" if wish == "cost" else "request less"
            raise LimbeckError(f"{wish} {value:g}: {reach}", f"{fix}, or name another model")
        halves = split.halves()
        answering = None if halves is None else rows.cross_fitted(halves, wish, value)
        alone = rows.score(
            np.arange(len(rows.logits) * len(everything)).reshape(-1, len(everything))
        ).tolist()
        held_out, difference = None, None
        if answering is not None:
            (held_out,) = rows.points_of(everything, answering[None])
            joined = np.stack(rows.logits)[answering, everything]
            given = split.results(joined).predictions
            tests = row_tests(split.task, given, split.results(rows.logits[-1]).predictions)
            difference = None if tests.difference is None else tests.difference.model_dump()
        temperatures, thresholds = (*point.temperatures, 1.0), (*point.thresholds, 0.0)
        return CascadeManifest(
            kind=split.task.kind.name,
            members=[
                CascadeMember(
                    name=member.name,
                    place=member.place,
                    max_length=read.max_length,
                    seconds=seconds,
                    score=score,
                    temperature=temperature,
                    threshold=threshold,
                    backend=member.backend
                    if isinstance(member, ScoredModel) and member.manifest is not None
                    else None,
                    decides=np.atleast_1d(read.task.thresholds).tolist(),
                    classes=[*member.outputs.classes] if isinstance(member, StoredMember) else [],
                    teacher=member.outputs.about["teacher"]
                    if isinstance(member, StoredMember)
                    else "",
                    timed=seconds != _UNTIMED,
                )
                for member, read, seconds, score, temperature, threshold in zip(
                    members, self.reads, rows.seconds, alone, temperatures, thresholds, strict=True
                )
            ],
            wanted={wish: value},
            gate=rows_facts(loaded),
            judged_by="agreement" if metrics.is_agreement(split.task.primary) else "labels",
            metric=split.task.primary,
            chosen=_plain(point),
            cross_fitted=None if held_out is None else _plain(held_out),
            difference=difference,
            curve=[_plain(one) for one in curve],
            machine=processor_name(),
        )


def _decided(logits: np.ndarray, *, several: bool) -> np.ndarray:
    return (logits >= 0).astype(int) if several else logits.argmax(axis=1)


def _plain(point: Point) -> CascadePoint:
    return CascadePoint.model_validate(asdict(point))


def write_members(
    manifest: CascadeManifest, members: Sequence[ScoredModel | StoredMember], part: Path
) -> CascadeManifest:
    """Put members' files and the measurements into a folder; for a Hub name the name alone."""
    said = []
    for number, (one, member) in enumerate(zip(manifest.members, members, strict=True), 1):
        where, teacher = place_and_member(member.place) if one.stored else (member.place, "")
        source = files.at_home(where)
        if source.is_dir():
            name = _folder_of(number, one.name)
            if source != part / name:  # an endpoint's is made there
                _link_files(source, part / name)
            one = one.model_copy(update={"place": name + f"#{teacher}" * bool(teacher)})
        said.append(one)
    (part / CURVE_NAME).write_bytes(drawing(manifest))
    (part / "README.md").write_text(readme(manifest), encoding="utf-8")
    names = sorted(path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file())
    whole = manifest.model_copy(update={"members": said, "checksums": files.checksums(part, names)})
    whole.write(part)
    return whole


def _link_files(source: Path, target: Path) -> None:
    """The files of a model's folder, without weights that only unpickling reads."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        if not path.is_file() or path.suffix in _LEFT_BEHIND:
            continue
        try:
            os.link(path, target / path.name)
        except OSError:  # another disk, or one without hard links
            shutil.copy2(path, target / path.name)


# The drawing and the page in the folder.

CURVE_NAME = "curve.svg"


def _best_by_share(manifest: CascadeManifest) -> list[CascadePoint]:
    """The curve by the share that the last model answers: with three members the best of several points."""
    best: dict[float, CascadePoint] = {}
    for one in manifest.curve:
        if one.sent[-1] not in best or one.score > best[one.sent[-1]].score:
            best[one.sent[-1]] = one
    return [best[share] for share in sorted(best)]


def curve_table(manifest: CascadeManifest) -> CellTable:
    """Some places of the curve: rows that the last model answers, cost of a row, score, agreement."""
    last, points = manifest.members[-1], _best_by_share(manifest)
    name = _names(manifest)[-1]
    beside = manifest.judged_by == "labels"  # otherwise the agreement is the score
    heads = [f"rows to {name}", f"of its time, with {name}'s 100", manifest.metric]
    cells = [heads + ["agreement"] * beside]
    places = [
        min(points, key=lambda one: abs(one.sent[-1] - share))
        for share in (0, 0.05, 0.1, 0.2, 0.5, 1)
    ]
    for one in sorted(
        {id(point): point for point in places}.values(), key=lambda one: one.sent[-1]
    ):
        cost = f"{100 * one.seconds / last.seconds:.0f}" if last.timed else "–"
        row = [f"{100 * one.sent[-1]:.1f} %", cost, f"{one.score:.1f}"]
        cells.append(row + [f"{one.agreement:.1f} %"] * beside)
    return CellTable("The rows that chose the thresholds, by how many are sent on", cells, ())


def drawing(manifest: CascadeManifest) -> bytes:
    """Score and agreement against the share of rows that the last model answers, with the chosen place."""
    points = _best_by_share(manifest)
    shares, name = tuple(100 * one.sent[-1] for one in points), _names(manifest)[-1]
    lines = {manifest.metric: [one.score for one in points]}
    if manifest.judged_by == "labels":
        lines[f"agreement with {name}"] = [one.agreement for one in points]
    series = [
        Series(line, number, shares, tuple(values), tuple(values), tuple(values))
        for number, (line, values) in enumerate(lines.items())
    ]
    panel = line_panel(
        "Rows that the cascade sends on",
        series,
        x_label=f"rows that {name} answers, %",
        y_label="%",
        reference=(name, manifest.members[-1].score),
        scale="linear",
        legend=True,
    )
    return standalone(panel.svg)


def _names(manifest: CascadeManifest) -> list[str]:
    """Its members' names, as `limbeck predict` writes them."""
    return short_names([one.name for one in manifest.members])


def lines_of(manifest: CascadeManifest) -> list[str]:
    """The measurements and the choice, one sentence per line."""
    names, last, shown = _names(manifest), manifest.members[-1], manifest.shown
    slow = names[-1]
    wish, value = next(iter(manifest.wanted.items()))
    found = [
        f"{name} sends nothing on: it meets the goal alone"
        if not one.threshold
        else f"{name} sends everything on"
        if one.threshold > 1
        else f"{name} sends on rows where it is less than {100 * one.threshold:.1f} % sure"
        for name, one in zip(names[:-1], manifest.members, strict=False)
    ]
    alone = ", ".join(
        f"{name} {one.score:.1f}" for name, one in zip(names, manifest.members, strict=True)
    )
    held = "rows that chose no threshold" if manifest.cross_fitted else "the rows that chose"
    found.append(
        f"wanted {wish} {value:g}; on {held} ({manifest.gate.rows:,} in all): {manifest.metric} "
        f"{shown.score:.1f} (alone {alone}), {shown.agreement:.1f} % predicted as {slow} predicts"
    )
    found += [
        f"{manifest.known[one.name]:,} of these rows are training or dev rows of {name}: its score measures "
        "memorization"
        for name, one in zip(names, manifest.members, strict=True)
        if one.name in manifest.known
    ]
    if (gap := manifest.difference) is not None:
        found.append(
            f"{gap['difference']:+.2f} points compared with {slow}, 95 % interval {gap['low']:+.2f} to "
            f"{gap['high']:+.2f}"
        )
    seconds = manifest.chosen.seconds
    reach = f"with these thresholds {100 * manifest.chosen.sent[-1]:.1f} % of rows reach {slow}"
    found.append(
        f"{reach}; {1e3 * seconds:.2f} ms a row, "
        f"{last.seconds / seconds:.1f} times as fast as {slow} alone ({1e3 * last.seconds:.2f} ms)"
        if last.timed
        else f"{reach}, whose time is not known"
    )
    if last.timed and manifest.members[0].seconds > last.seconds:
        found.append(f"{names[0]} is slower than {slow}, and saves no time: name the fastest first")
    elif last.timed and seconds > last.seconds:
        found.append(f"{slow} alone is faster: leave out a model, or allow a lower score")
    if last.stored:
        found.append(
            f"{slow} holds stored outputs of {last.teacher}: other rows that are sent on need {last.teacher}; "
            f"predict {'--endpoint URL asks it, otherwise it ' * bool(manifest.asks)}gives them no prediction, and "
            f"writes {SENT_ON!r} in the column answered_by"
        )
    return found


def readme(manifest: CascadeManifest) -> str:
    """The folder's card."""
    gate = manifest.gate
    named = "" if gate.recipe else f" ({Path(gate.data).name})"
    measured = "\n".join(f"- {line}" for line in lines_of(manifest))
    rows = "\n".join(
        f"| {name} | {one.score:.1f} | {f'{1e3 * one.seconds:.2f}' if one.timed else '–'} |"
        for name, one in zip(_names(manifest), manifest.members, strict=True)
    )
    evaluated = "limbeck evaluate FOLDER\n" * (manifest.judged_by == "labels")
    return (
        f"# A cascade of {len(manifest.members)} models\n\nA fast model answers the rows that it is sure of and sends "
        f"the others on.\n\n{measured}\n\n| model | {manifest.metric} | ms a row |\n| :--- | ---: | ---: |\n{rows}\n\n"
        f"![score against rows sent on]({CURVE_NAME})\n\n"
        f"{curve_table(manifest).markdown()}\n\nMeasured on {gate.rows:,} rows of "
        f"{gate.task}{named}, split {gate.split}; processor: {manifest.machine}.\n\n"
        f"```\n{evaluated}limbeck predict FOLDER rows.csv --to predictions.csv\n```\n"
    )
